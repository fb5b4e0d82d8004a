// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.Closeable;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** The Java gRPC client, driven by a test. */
public final class Grpc {
    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final Map<String, Producer> producers = new ConcurrentHashMap<>();
    private final Map<String, SimpleConsumer> simple = new ConcurrentHashMap<>();
    private final Map<String, List<Map<String, Object>>> seen = new ConcurrentHashMap<>();
    private final Map<String, Closeable> open = new ConcurrentHashMap<>();
    private final Map<Integer, MessageView> handles = new ConcurrentHashMap<>();
    private final AtomicInteger handleNumbers = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        Grpc driver = new Grpc();
        Link.serve(driver::handle);
    }

    private Object handle(String op, JSONObject request) throws Exception {
        String name = request.getString("name");
        switch (op) {
            case "producer":
                return startProducer(request);
            case "send":
                return send(request);
            case "recall":
                return producers.get(request.getString("producer"))
                    .recallMessage(request.getString("topic"), request.getString("recall")).getMessageId().toString();
            case "consumer":
                return startConsumer(request);
            case "received":
                List<Map<String, Object>> rows = seen.get(name);
                synchronized (rows) {
                    return new ArrayList<>(rows.subList(Math.min(request.getIntValue("from"), rows.size()), rows.size()));
                }
            case "receive":
                return receive(request);
            case "ack":
                simple.get(name).ack(handles.get(request.getIntValue("handle")));
                return null;
            case "change":
                simple.get(name).changeInvisibleDuration(handles.get(request.getIntValue("handle")),
                    Duration.ofMillis(request.getLongValue("invisibleMs")));
                return null;
            case "close":
                Closeable closeable = open.remove(name);
                if (closeable != null) {
                    closeable.close();
                }
                return null;
            default:
                throw new IllegalArgumentException("unknown op " + op);
        }
    }

    private static ClientConfiguration configuration(JSONObject request) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder()
            .setEndpoints(request.getString("namesrv")).enableSsl(false).setRequestTimeout(Duration.ofSeconds(10));
        String accessKey = request.getString("accessKey");
        if (accessKey != null) {
            builder.setCredentialProvider(
                new StaticSessionCredentialsProvider(accessKey, request.getString("secretKey")));
        }
        return builder.build();
    }

    private static TransactionResolution resolution(String word) {
        switch (word) {
            case "commit":
                return TransactionResolution.COMMIT;
            case "rollback":
                return TransactionResolution.ROLLBACK;
            default:
                return TransactionResolution.UNKNOWN;
        }
    }

    private Object startProducer(JSONObject request) throws Exception {
        ProducerBuilder builder = provider.newProducerBuilder().setClientConfiguration(configuration(request));
        builder.setTopics(request.getJSONArray("topics").toArray(new String[0]));
        String check = request.getString("check");
        if (check != null) {
            builder.setTransactionChecker(message -> resolution(check));
        }
        Producer producer = builder.build();
        producers.put(request.getString("name"), producer);
        open.put(request.getString("name"), producer);
        return null;
    }

    private Message message(JSONObject spec) {
        MessageBuilder builder = provider.newMessageBuilder().setTopic(spec.getString("topic")).setBody(Link.body(spec));
        if (spec.containsKey("tags")) {
            builder.setTag(spec.getString("tags"));
        }
        if (spec.containsKey("keys")) {
            builder.setKeys(spec.getString("keys").split(" "));
        }
        if (spec.containsKey("shardingKey")) {
            builder.setMessageGroup(spec.getString("shardingKey"));
        }
        if (spec.containsKey("delayMs")) {
            builder.setDeliveryTimestamp(System.currentTimeMillis() + spec.getLongValue("delayMs"));
        }
        JSONObject properties = spec.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((key, value) -> builder.addProperty(key, String.valueOf(value)));
        }
        return builder.build();
    }

    private Object send(JSONObject request) throws Exception {
        Producer producer = producers.get(request.getString("producer"));
        JSONArray specs = request.getJSONArray("messages");
        List<Map<String, Object>> rows = new ArrayList<>();
        for (int i = 0; i < specs.size(); i++) {
            JSONObject spec = specs.getJSONObject(i);
            String local = spec.getString("local");
            SendReceipt receipt;
            if (local != null) {
                Transaction transaction = producer.beginTransaction();
                receipt = producer.send(message(spec), transaction);
                if ("commit".equals(local)) {
                    transaction.commit();
                } else if ("rollback".equals(local)) {
                    transaction.rollback();
                }
            } else if ("async".equals(request.getString("mode"))) {
                receipt = producer.sendAsync(message(spec)).get();
            } else {
                receipt = producer.send(message(spec));
            }
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("msgId", receipt.getMessageId().toString());
            row.put("recall", receipt.getRecallHandle());
            rows.add(row);
        }
        return rows;
    }

    private static Map<String, Object> row(MessageView view) {
        Map<String, Object> row = new LinkedHashMap<>();
        ByteBuffer buffer = view.getBody();
        byte[] body = new byte[buffer.remaining()];
        buffer.get(body);
        Link.putBody(row, body);
        row.put("topic", view.getTopic());
        row.put("msgId", view.getMessageId().toString());
        row.put("tags", view.getTag().orElse(null));
        row.put("keys", String.join(" ", view.getKeys()));
        row.put("messageGroup", view.getMessageGroup().orElse(null));
        row.put("attempt", view.getDeliveryAttempt());
        row.put("properties", view.getProperties());
        row.put("bornTimestamp", view.getBornTimestamp());
        row.put("at", System.currentTimeMillis());
        return row;
    }

    private Object startConsumer(JSONObject request) throws Exception {
        String name = request.getString("name");
        Map<String, FilterExpression> subscriptions = new LinkedHashMap<>();
        JSONArray specs = request.getJSONArray("subscriptions");
        for (int i = 0; i < specs.size(); i++) {
            JSONObject each = specs.getJSONObject(i);
            FilterExpressionType type = "SQL92".equals(each.getString("type"))
                ? FilterExpressionType.SQL92 : FilterExpressionType.TAG;
            subscriptions.put(each.getString("topic"), new FilterExpression(each.getString("expression"), type));
        }
        if ("simple".equals(request.getString("kind"))) {
            SimpleConsumer consumer = provider.newSimpleConsumerBuilder()
                .setClientConfiguration(configuration(request)).setConsumerGroup(request.getString("group"))
                .setAwaitDuration(Duration.ofSeconds(5)).setSubscriptionExpressions(subscriptions).build();
            simple.put(name, consumer);
            open.put(name, consumer);
            return null;
        }
        List<Map<String, Object>> rows = new ArrayList<>();
        seen.put(name, rows);
        int failTimes = request.getIntValue("failTimes");
        open.put(name, provider.newPushConsumerBuilder()
            .setClientConfiguration(configuration(request)).setConsumerGroup(request.getString("group"))
            .setSubscriptionExpressions(subscriptions).setConsumptionThreadCount(4)
            .setMessageListener(view -> {
                synchronized (rows) {
                    rows.add(row(view));
                }
                return view.getDeliveryAttempt() <= failTimes ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build());
        return null;
    }

    private Object receive(JSONObject request) throws Exception {
        List<Map<String, Object>> rows = new ArrayList<>();
        for (MessageView view : simple.get(request.getString("name"))
            .receive(request.getIntValue("max"), Duration.ofMillis(request.getLongValue("invisibleMs")))) {
            Map<String, Object> row = row(view);
            int handle = handleNumbers.incrementAndGet();
            handles.put(handle, view);
            row.put("handle", handle);
            rows.add(row);
        }
        return rows;
    }
}
