// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The Java remoting clients and mqadmin, driven by a test. */
public final class Remoting {
    private static final AtomicInteger INSTANCES = new AtomicInteger();
    private static final Object ADMIN = new Object();
    private final Map<String, DefaultMQProducer> producers = new ConcurrentHashMap<>();
    private final Map<String, Consumer> consumers = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        Remoting driver = new Remoting();
        Link.serve(driver::handle);
    }

    private Object handle(String op, JSONObject request) throws Exception {
        switch (op) {
            case "producer":
                return startProducer(request);
            case "send":
                return send(request);
            case "request":
                return request(request);
            case "consumer":
                return startConsumer(request);
            case "received":
                return consumers.get(request.getString("name")).since(request.getIntValue("from"));
            case "pull":
                return pull(request);
            case "pause":
                consumers.get(request.getString("name")).hang = request.getBooleanValue("on");
                return null;
            case "close":
                return close(request.getString("name"));
            case "admin":
                return admin(request.getJSONArray("args").toArray(new String[0]));
            default:
                throw new IllegalArgumentException("unknown op " + op);
        }
    }

    private static String instance(String name) {
        return name + "-" + INSTANCES.incrementAndGet();
    }

    private static RPCHook credentials(JSONObject request) {
        String key = request.getString("accessKey");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, request.getString("secretKey")));
    }

    // ---------------------------------------------------------------- producers

    private Object startProducer(JSONObject request) throws Exception {
        String name = request.getString("name");
        String group = request.getString("group");
        RPCHook hook = credentials(request);
        DefaultMQProducer producer;
        if (request.containsKey("check")) {
            TransactionMQProducer transactional = new TransactionMQProducer(group, hook);
            transactional.setTransactionListener(new Decisions(request.getString("check")));
            producer = transactional;
        } else {
            producer = new DefaultMQProducer(group, hook);
        }
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(instance(name));
        producer.setSendMsgTimeout(10_000);
        producer.setMaxMessageSize(16 * 1024 * 1024);
        producer.setCompressMsgBodyOverHowmuch(
            request.containsKey("compressOver") ? request.getIntValue("compressOver") : Integer.MAX_VALUE);
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        if (request.containsKey("retries")) {
            producer.setRetryTimesWhenSendFailed(request.getIntValue("retries"));
        }
        producer.start();
        producers.put(name, producer);
        return null;
    }

    /** What a transaction's message says decides; `check` decides for the ones left unknown. */
    private static final class Decisions implements TransactionListener {
        private final String check;

        Decisions(String check) {
            this.check = check;
        }

        private static LocalTransactionState state(String word) {
            switch (word) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state((String) argument);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return state(check);
        }
    }

    private static Message message(JSONObject spec) {
        Message message = new Message(spec.getString("topic"), Link.body(spec));
        if (spec.containsKey("tags")) {
            message.setTags(spec.getString("tags"));
        }
        if (spec.containsKey("keys")) {
            message.setKeys(spec.getString("keys"));
        }
        if (spec.containsKey("delayLevel")) {
            message.setDelayTimeLevel(spec.getIntValue("delayLevel"));
        }
        if (spec.containsKey("delayMs")) {
            message.setDeliverTimeMs(System.currentTimeMillis() + spec.getLongValue("delayMs"));
        }
        JSONObject properties = spec.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((key, value) -> message.putUserProperty(key, String.valueOf(value)));
        }
        return message;
    }

    private static Map<String, Object> row(SendResult result) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getSendStatus().name());
        row.put("msgId", result.getMsgId());
        row.put("offsetMsgId", result.getOffsetMsgId());
        row.put("queueId", result.getMessageQueue().getQueueId());
        row.put("offset", result.getQueueOffset());
        return row;
    }

    private Object send(JSONObject request) throws Exception {
        DefaultMQProducer producer = producers.get(request.getString("producer"));
        JSONArray specs = request.getJSONArray("messages");
        List<Map<String, Object>> rows = Collections.synchronizedList(new ArrayList<>());
        String mode = request.getString("mode");
        if ("batch".equals(mode)) {
            Collection<Message> batch = new ArrayList<>();
            for (int i = 0; i < specs.size(); i++) {
                batch.add(message(specs.getJSONObject(i)));
            }
            rows.add(row(producer.send(batch)));
            return rows;
        }
        List<CompletableFuture<Map<String, Object>>> pending = new ArrayList<>();
        for (int i = 0; i < specs.size(); i++) {
            JSONObject spec = specs.getJSONObject(i);
            Message message = message(spec);
            if ("oneway".equals(mode)) {
                producer.sendOneway(message);
            } else if ("async".equals(mode)) {
                pending.add(sendAsync(producer, message));
            } else if (spec.containsKey("local")) {
                rows.add(row(producer.sendMessageInTransaction(message, spec.getString("local"))));
            } else if (spec.containsKey("shardingKey")) {
                rows.add(row(producer.send(message, new SelectMessageQueueByHash(), spec.getString("shardingKey"))));
            } else {
                rows.add(row(producer.send(message)));
            }
        }
        for (CompletableFuture<Map<String, Object>> each : pending) {
            rows.add(each.get(20, TimeUnit.SECONDS));
        }
        return rows;
    }

    private static CompletableFuture<Map<String, Object>> sendAsync(DefaultMQProducer producer, Message message)
        throws Exception {
        CompletableFuture<Map<String, Object>> result = new CompletableFuture<>();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult sent) {
                result.complete(row(sent));
            }

            @Override
            public void onException(Throwable error) {
                result.completeExceptionally(error);
            }
        });
        return result;
    }

    /** By callback: the blocking form of 5.3.3 gives up as soon as the send is acknowledged. */
    private Object request(JSONObject request) throws Exception {
        DefaultMQProducer producer = producers.get(request.getString("producer"));
        CompletableFuture<Message> answer = new CompletableFuture<>();
        producer.request(message(request.getJSONObject("message")), new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                if (reply != null) { // null: only the send was acknowledged
                    answer.complete(reply);
                }
            }

            @Override
            public void onException(Throwable error) {
                answer.completeExceptionally(error);
            }
        }, request.getLongValue("timeoutMs"));
        Map<String, Object> row = new LinkedHashMap<>();
        Link.putBody(row, answer.get(request.getLongValue("timeoutMs") + 5000, TimeUnit.MILLISECONDS).getBody());
        return row;
    }

    // ---------------------------------------------------------------- consumers

    private static Map<String, Object> row(MessageExt message) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("msgId", message.getMsgId());
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("queueId", message.getQueueId());
        row.put("offset", message.getQueueOffset());
        row.put("attempt", message.getReconsumeTimes() + 1);
        row.put("properties", message.getProperties());
        row.put("bornTimestamp", message.getBornTimestamp());
        row.put("storeTimestamp", message.getStoreTimestamp());
        row.put("at", System.currentTimeMillis());
        Link.putBody(row, message.getBody());
        return row;
    }

    /** What one consumer saw, and how it answers. */
    private final class Consumer {
        private final List<Map<String, Object>> seen = new ArrayList<>();
        private final int failTimes;
        private final int delayLevel;
        private final boolean reply;
        private volatile boolean hang;
        private final DefaultMQProducer replies;
        private Runnable stop;

        Consumer(JSONObject request) {
            failTimes = request.getIntValue("failTimes");
            delayLevel = request.getIntValue("delayLevel");
            reply = request.getBooleanValue("reply");
            hang = request.getBooleanValue("hang");
            replies = reply ? producers.get(request.getString("producer")) : null;
        }

        synchronized void add(MessageExt message) {
            seen.add(row(message));
        }

        synchronized Object since(int from) {
            return new ArrayList<>(seen.subList(Math.min(from, seen.size()), seen.size()));
        }

        /** True when the messages count as consumed. */
        boolean take(List<MessageExt> messages) {
            messages.forEach(this::add);
            while (hang) {
                try {
                    Thread.sleep(50);
                } catch (InterruptedException stopped) {
                    return false;
                }
            }
            for (MessageExt message : messages) {
                if (message.getReconsumeTimes() < failTimes) {
                    return false;
                }
                answer(message);
            }
            return true;
        }

        private void answer(MessageExt message) {
            if (!reply || message.getProperty("REPLY_TO_CLIENT") == null) {
                return;
            }
            try {
                byte[] body = ("re: " + new String(message.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
                replies.send(MessageUtil.createReplyMessage(message, body), 5000);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private Object startConsumer(JSONObject request) throws Exception {
        String name = request.getString("name");
        Consumer consumer = new Consumer(request);
        consumers.put(name, consumer);
        if ("lite".equals(request.getString("kind"))) {
            startLite(request, consumer);
        } else {
            startPush(request, consumer);
        }
        return null;
    }

    private static MessageSelector selector(JSONObject subscription) {
        String expression = subscription.getString("expression");
        return "SQL92".equals(subscription.getString("type"))
            ? MessageSelector.bySql(expression) : MessageSelector.byTag(expression);
    }

    private void startPush(JSONObject request, Consumer consumer) throws Exception {
        String kind = request.getString("kind");
        DefaultMQPushConsumer push = new DefaultMQPushConsumer(request.getString("group"), credentials(request));
        push.setNamesrvAddr(request.getString("namesrv"));
        push.setInstanceName(instance(request.getString("name")));
        push.setPollNameServerInterval(1000);
        push.setHeartbeatBrokerInterval(1000);
        push.setPersistConsumerOffsetInterval(1000);
        push.setConsumeThreadMin(4);
        push.setConsumeThreadMax(4);
        push.setConsumeMessageBatchMaxSize(1);
        push.setConsumeFromWhere("last".equals(request.getString("start"))
            ? ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (request.containsKey("maxReconsume")) {
            push.setMaxReconsumeTimes(request.getIntValue("maxReconsume"));
        }
        if ("broadcast".equals(kind)) {
            push.setMessageModel(MessageModel.BROADCASTING);
        }
        if ("pop".equals(kind)) {
            push.setClientRebalance(false);
            if (consumer.hang) {
                push.setPopThresholdForQueue(1); // a hung program stops asking, it does not hoard
            }
            push.setPopInvisibleTime(request.containsKey("invisibleMs") ? request.getLongValue("invisibleMs") : 10_000);
        }
        JSONArray subscriptions = request.getJSONArray("subscriptions");
        for (int i = 0; i < subscriptions.size(); i++) {
            JSONObject each = subscriptions.getJSONObject(i);
            push.subscribe(each.getString("topic"), selector(each));
        }
        if ("orderly".equals(kind)) {
            push.setSuspendCurrentQueueTimeMillis(200);
            push.registerMessageListener((MessageListenerOrderly) (messages, context) -> consumer.take(messages)
                ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(consumer.delayLevel);
                return consumer.take(messages)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.stop = push::shutdown;
        push.start();
    }

    private void startLite(JSONObject request, Consumer consumer) throws Exception {
        DefaultLitePullConsumer lite = new DefaultLitePullConsumer(request.getString("group"), credentials(request));
        lite.setNamesrvAddr(request.getString("namesrv"));
        lite.setInstanceName(instance(request.getString("name")));
        lite.setPollNameServerInterval(1000);
        lite.setHeartbeatBrokerInterval(1000);
        lite.setAutoCommitIntervalMillis(1000);
        lite.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        JSONArray subscriptions = request.getJSONArray("subscriptions");
        for (int i = 0; i < subscriptions.size(); i++) {
            JSONObject each = subscriptions.getJSONObject(i);
            lite.subscribe(each.getString("topic"), selector(each));
        }
        lite.start();
        Thread poller = new Thread(() -> {
            while (lite.isRunning()) {
                lite.poll(500).forEach(consumer::add);
            }
        }, "lite-poll");
        poller.setDaemon(true);
        poller.start();
        consumer.stop = lite::shutdown;
    }

    /** One synchronous pull by hand, and what the queue's bounds are. */
    private Object pull(JSONObject request) throws Exception {
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer(request.getString("group"));
        puller.setNamesrvAddr(request.getString("namesrv"));
        puller.setInstanceName(instance("pull"));
        puller.start();
        try {
            List<Map<String, Object>> rows = new ArrayList<>();
            Map<String, Object> bounds = new LinkedHashMap<>();
            for (MessageQueue queue : puller.fetchSubscribeMessageQueues(request.getString("topic"))) {
                long min = puller.minOffset(queue);
                long max = puller.maxOffset(queue);
                bounds.put(String.valueOf(queue.getQueueId()), List.of(min, max));
                long offset = request.containsKey("time")
                    ? puller.searchOffset(queue, request.getLongValue("time")) : min;
                while (offset < max) {
                    PullResult result = puller.pull(queue, "*", offset, 32);
                    if (result.getMsgFoundList() != null) {
                        result.getMsgFoundList().forEach(message -> rows.add(row(message)));
                    }
                    if (result.getNextBeginOffset() <= offset) {
                        throw new IllegalStateException("no progress at " + offset + ": " + result);
                    }
                    offset = result.getNextBeginOffset();
                }
            }
            return Map.of("messages", rows, "bounds", bounds);
        } finally {
            puller.shutdown();
        }
    }

    private Object close(String name) {
        DefaultMQProducer producer = producers.remove(name);
        if (producer != null) {
            producer.shutdown();
        }
        Consumer consumer = consumers.get(name); // what it saw stays readable
        if (consumer != null && consumer.stop != null) {
            consumer.hang = false;
            consumer.stop.run();
        }
        return null;
    }

    // ---------------------------------------------------------------- mqadmin

    private static Object admin(String[] args) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        synchronized (ADMIN) {
            PrintStream out = System.out;
            PrintStream err = System.err;
            PrintStream capture = new PrintStream(bytes, true, StandardCharsets.UTF_8);
            System.setOut(capture);
            System.setErr(capture);
            try {
                MQAdminStartup.main0(args, null);
            } finally {
                System.setOut(out);
                System.setErr(err);
            }
        }
        return bytes.toString(StandardCharsets.UTF_8);
    }
}
