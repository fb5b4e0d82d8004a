// SPDX-License-Identifier: Apache-2.0
// The official Java client as a load: what its users see. rocketmq-example, which holds RocketMQ's own benchmark
// classes, is in no registry; this does what its Producer, BatchProducer and Consumer do and prints one line of JSON.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.LongAdder;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

public final class ClientLoad {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "produce" -> produce(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]),
                Integer.parseInt(args[5]), Double.parseDouble(args[6]));
            case "consume" -> consume(args[1], args[2], args[3], Double.parseDouble(args[4]));
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    /** Threads that send and wait, a third of the time to warm up. */
    static void produce(String namesrv, String topic, int threads, int size, int batch, double seconds)
        throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("client-load");
        producer.setNamesrvAddr(namesrv);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        byte[] body = "x".repeat(size).getBytes(StandardCharsets.US_ASCII);
        LongAdder sent = new LongAdder();
        LongAdder failed = new LongAdder();
        long began = System.nanoTime();
        long counted = began + (long) (seconds * 1e9 / 3);
        long end = began + (long) (seconds * 1e9);
        CountDownLatch done = new CountDownLatch(threads);
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> {
                for (long now = System.nanoTime(); now < end; now = System.nanoTime()) {
                    try {
                        if (batch > 1) {
                            List<Message> messages = new ArrayList<>(batch);
                            for (int n = 0; n < batch; n++) {
                                messages.add(new Message(topic, "TagA", body));
                            }
                            producer.send(messages);
                        } else {
                            producer.send(new Message(topic, "TagA", body));
                        }
                        if (now >= counted) {
                            sent.add(batch);
                        }
                    } catch (Exception error) {
                        failed.increment();
                    }
                }
                done.countDown();
            });
            thread.setDaemon(true);
            thread.start();
        }
        Thread.sleep(Math.max(0, (counted - System.nanoTime()) / 1_000_000));
        long before = cpuNanos();
        done.await();
        report(sent.sum(), (System.nanoTime() - counted) / 1e9, failed.sum(), (cpuNanos() - before) / 1e9);
    }

    /** A push consumer over a backlog, from the 1000th message to the last that came within the time. */
    static void consume(String namesrv, String topic, String group, double seconds) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(32);
        consumer.subscribe(topic, "*");
        LongAdder got = new LongAdder();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            got.add(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long limit = System.nanoTime() + 30_000_000_000L;
        while (got.sum() < 1000 && System.nanoTime() < limit) {
            Thread.sleep(1);
        }
        long first = got.sum();
        long began = System.nanoTime();
        long last = first;
        long lastAt = began;
        long before = cpuNanos();
        long used = before;
        while (System.nanoTime() < began + (long) (seconds * 1e9) && System.nanoTime() < lastAt + 500_000_000L) {
            Thread.sleep(5);
            long now = got.sum();
            if (now > last) {
                last = now;
                lastAt = System.nanoTime();
                used = cpuNanos();
            }
        }
        report(last - first, (lastAt - began) / 1e9, 0, (used - before) / 1e9);
    }

    /** Of this process, collector and compiler included. */
    static long cpuNanos() {
        return ((com.sun.management.OperatingSystemMXBean)
            java.lang.management.ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    static void report(long messages, double seconds, long failed, double cpuSeconds) {
        System.out.printf("{\"messages\":%d,\"seconds\":%.6f,\"refused\":%d,\"cpu_seconds\":%.6f}%n",
            messages, seconds, failed, cpuSeconds);
    }
}
