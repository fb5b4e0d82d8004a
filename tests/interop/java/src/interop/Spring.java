// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.ConsumeMode;
import org.apache.rocketmq.spring.annotation.MessageModel;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.annotation.RocketMQTransactionListener;
import org.apache.rocketmq.spring.annotation.SelectorType;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionListener;
import org.apache.rocketmq.spring.core.RocketMQLocalTransactionState;
import org.apache.rocketmq.spring.core.RocketMQPushConsumerLifecycleListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.apache.rocketmq.spring.support.RocketMQHeaders;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

/** rocketmq-spring-boot-starter, driven by a test: each producer and each consumer is a Spring Boot application. */
public final class Spring {
    private static final long TIMEOUT_MS = 10_000;
    private final Map<String, ConfigurableApplicationContext> applications = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        Spring driver = new Spring();
        Link.serve(driver::handle);
    }

    private Object handle(String op, JSONObject request) throws Exception {
        String name = request.getString("name");
        switch (op) {
            case "producer":
                return startProducer(request);
            case "send":
                return send(request);
            case "consumer":
                return startConsumer(request);
            case "received":
                return applications.get(name).getBean(Listener.class).since(request.getIntValue("from"));
            case "close":
                ConfigurableApplicationContext application = applications.remove(name);
                if (application != null) {
                    application.close();
                }
                return null;
            default:
                throw new IllegalArgumentException("unknown op " + op);
        }
    }

    @EnableAutoConfiguration
    static class Application {
    }

    private Object start(JSONObject request, Map<String, Object> properties, List<Class<?>> parts) {
        properties.put("rocketmq.name-server", request.getString("namesrv"));
        properties.put("interop.name", request.getString("name"));
        properties.put("spring.main.banner-mode", "off");
        properties.put("spring.jmx.enabled", "false");
        properties.put("logging.level.root", "warn");
        SpringApplication application = new SpringApplication(parts.toArray(new Class<?>[0]));
        application.setDefaultProperties(properties);
        application.setRegisterShutdownHook(false);
        applications.put(request.getString("name"), application.run());
        return null;
    }

    // ---------------------------------------------------------------- producers

    private Object startProducer(JSONObject request) {
        Map<String, Object> properties = new LinkedHashMap<>();
        properties.put("rocketmq.producer.group", request.getString("group"));
        properties.put("rocketmq.producer.send-message-timeout", TIMEOUT_MS);
        if (request.containsKey("accessKey")) {
            properties.put("rocketmq.producer.access-key", request.getString("accessKey"));
            properties.put("rocketmq.producer.secret-key", request.getString("secretKey"));
        }
        List<Class<?>> parts = new ArrayList<>(List.of(Application.class));
        if (request.containsKey("check")) {
            properties.put("interop.check", request.getString("check"));
            parts.add(Decisions.class);
        }
        return start(request, properties, parts);
    }

    /** What a transaction's message says decides; `check` decides for the ones left unknown. */
    @RocketMQTransactionListener
    static class Decisions implements RocketMQLocalTransactionListener {
        @Value("${interop.check}")
        private String check;

        private static RocketMQLocalTransactionState state(String word) {
            switch (word) {
                case "commit":
                    return RocketMQLocalTransactionState.COMMIT;
                case "rollback":
                    return RocketMQLocalTransactionState.ROLLBACK;
                default:
                    return RocketMQLocalTransactionState.UNKNOWN;
            }
        }

        @Override
        public RocketMQLocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state((String) argument);
        }

        @Override
        public RocketMQLocalTransactionState checkLocalTransaction(Message message) {
            return state(check);
        }
    }

    private static String destination(JSONObject spec) {
        String tags = spec.getString("tags");
        return tags == null ? spec.getString("topic") : spec.getString("topic") + ":" + tags;
    }

    private static Message<String> message(JSONObject spec) {
        MessageBuilder<String> builder =
            MessageBuilder.withPayload(new String(Link.body(spec), StandardCharsets.UTF_8));
        if (spec.containsKey("keys")) {
            builder.setHeader(RocketMQHeaders.KEYS, spec.getString("keys"));
        }
        if (spec.containsKey("properties")) {
            builder.copyHeaders(spec.getJSONObject("properties"));
        }
        return builder.build();
    }

    private static Map<String, Object> row(SendResult result) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("status", result.getSendStatus().name());
        row.put("msgId", result.getMsgId());
        row.put("queueId", result.getMessageQueue().getQueueId());
        row.put("offset", result.getQueueOffset());
        return row;
    }

    private Object send(JSONObject request) throws Exception {
        RocketMQTemplate template = applications.get(request.getString("producer")).getBean(RocketMQTemplate.class);
        List<JSONObject> specs = request.getJSONArray("messages").toJavaList(JSONObject.class);
        List<Map<String, Object>> rows = new ArrayList<>();
        switch (request.getString("mode")) {
            case "batch":
                List<Message<String>> batch = new ArrayList<>();
                specs.forEach(spec -> batch.add(message(spec)));
                rows.add(row(template.syncSend(destination(specs.get(0)), batch)));
                break;
            case "oneway":
                specs.forEach(spec -> template.sendOneWay(destination(spec), message(spec)));
                break;
            case "async":
                List<CompletableFuture<Map<String, Object>>> pending = new ArrayList<>();
                specs.forEach(spec -> pending.add(sendAsync(template, spec)));
                for (CompletableFuture<Map<String, Object>> each : pending) {
                    rows.add(each.get(20, TimeUnit.SECONDS));
                }
                break;
            default:
                specs.forEach(spec -> rows.add(row(sendOne(template, spec))));
        }
        return rows;
    }

    private static SendResult sendOne(RocketMQTemplate template, JSONObject spec) {
        String destination = destination(spec);
        Message<String> message = message(spec);
        if (spec.containsKey("local")) {
            return template.sendMessageInTransaction(destination, message, spec.getString("local"));
        }
        if (spec.containsKey("shardingKey")) {
            return template.syncSendOrderly(destination, message, spec.getString("shardingKey"));
        }
        if (spec.containsKey("delayLevel")) {
            return template.syncSend(destination, message, TIMEOUT_MS, spec.getIntValue("delayLevel"));
        }
        if (spec.containsKey("delayMs")) {
            return template.syncSendDelayTimeMills(destination, message, spec.getLongValue("delayMs"));
        }
        return template.syncSend(destination, message);
    }

    private static CompletableFuture<Map<String, Object>> sendAsync(RocketMQTemplate template, JSONObject spec) {
        CompletableFuture<Map<String, Object>> result = new CompletableFuture<>();
        template.asyncSend(destination(spec), message(spec), new SendCallback() {
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

    // ---------------------------------------------------------------- consumers

    private Object startConsumer(JSONObject request) {
        JSONArray subscriptions = request.getJSONArray("subscriptions");
        JSONObject subscription = subscriptions.getJSONObject(0);
        Map<String, Object> properties = new LinkedHashMap<>();
        properties.put("interop.group", request.getString("group"));
        properties.put("interop.topic", subscription.getString("topic"));
        properties.put("interop.expression", subscription.getString("expression"));
        properties.put("interop.fail-times", request.getIntValue("failTimes"));
        if (request.containsKey("maxReconsume")) {
            properties.put("interop.max-reconsume", request.getIntValue("maxReconsume"));
        }
        if (request.containsKey("accessKey")) {
            properties.put("rocketmq.consumer.access-key", request.getString("accessKey"));
            properties.put("rocketmq.consumer.secret-key", request.getString("secretKey"));
        }
        return start(request, properties, List.of(Application.class, listener(request, subscription)));
    }

    private static Class<? extends Listener> listener(JSONObject request, JSONObject subscription) {
        if ("SQL92".equals(subscription.getString("type"))) {
            return BySql.class;
        }
        switch (request.getString("kind")) {
            case "orderly":
                return Orderly.class;
            case "broadcast":
                return Broadcast.class;
            default:
                return Concurrent.class;
        }
    }

    /** What one consumer saw, and how it answers. */
    abstract static class Listener implements RocketMQListener<MessageExt>, RocketMQPushConsumerLifecycleListener {
        private final List<Map<String, Object>> seen = new ArrayList<>();
        @Value("${interop.name}")
        private String name;
        @Value("${interop.fail-times}")
        private int failTimes;
        @Value("${interop.max-reconsume:-1}")
        private int maxReconsume;

        /** What no annotation can take from a property. */
        @Override
        public void prepareStart(DefaultMQPushConsumer consumer) {
            consumer.setInstanceName(name);
            consumer.setMaxReconsumeTimes(maxReconsume);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        }

        @Override
        public void onMessage(MessageExt message) {
            add(message);
            if (message.getReconsumeTimes() < failTimes) {
                throw new IllegalStateException("asked to fail");
            }
        }

        private synchronized void add(MessageExt message) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("topic", message.getTopic());
            row.put("msgId", message.getMsgId());
            row.put("tags", message.getTags());
            row.put("keys", message.getKeys());
            row.put("queueId", message.getQueueId());
            row.put("offset", message.getQueueOffset());
            row.put("attempt", message.getReconsumeTimes() + 1);
            row.put("properties", message.getProperties());
            row.put("at", System.currentTimeMillis());
            Link.putBody(row, message.getBody());
            seen.add(row);
        }

        synchronized Object since(int from) {
            return new ArrayList<>(seen.subList(Math.min(from, seen.size()), seen.size()));
        }
    }

    @RocketMQMessageListener(topic = "${interop.topic}", consumerGroup = "${interop.group}",
        selectorExpression = "${interop.expression}", delayLevelWhenNextConsume = 1)
    static class Concurrent extends Listener {
    }

    @RocketMQMessageListener(topic = "${interop.topic}", consumerGroup = "${interop.group}",
        selectorExpression = "${interop.expression}", selectorType = SelectorType.SQL92)
    static class BySql extends Listener {
    }

    @RocketMQMessageListener(topic = "${interop.topic}", consumerGroup = "${interop.group}",
        selectorExpression = "${interop.expression}", consumeMode = ConsumeMode.ORDERLY)
    static class Orderly extends Listener {
    }

    @RocketMQMessageListener(topic = "${interop.topic}", consumerGroup = "${interop.group}",
        selectorExpression = "${interop.expression}", messageModel = MessageModel.BROADCASTING)
    static class Broadcast extends Listener {
    }
}
