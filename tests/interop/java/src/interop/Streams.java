// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSONObject;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.streams.core.RocketMQStream;
import org.apache.rocketmq.streams.core.function.ValueMapperAction;
import org.apache.rocketmq.streams.core.rstream.StreamBuilder;
import org.apache.rocketmq.streams.core.util.Pair;

/** rocketmq-streams' example of counting words: each count goes to a topic as {"word": n}. */
public final class Streams {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Streams() {
    }

    public static void main(String[] arguments) throws Exception {
        Link.serve(Streams::handle);
    }

    private static Object handle(String op, JSONObject request) {
        if (!"countWords".equals(op)) {
            throw new IllegalArgumentException("unknown op " + op);
        }
        StreamBuilder job = new StreamBuilder(request.getString("job"));
        job.source(request.getString("source"), body -> new Pair<>(null, new String(body, StandardCharsets.UTF_8)))
            .flatMap((ValueMapperAction<String, List<String>>) text -> Arrays.asList(text.split(" ")))
            .keyBy(word -> word)
            .count()
            .sink(request.getString("sink"), (word, count) -> JSON.writeValueAsBytes(Map.of(word, count)));
        Properties settings = new Properties();
        settings.put(MixAll.NAMESRV_ADDR_PROPERTY, request.getString("namesrv"));
        RocketMQStream stream = new RocketMQStream(job.build(), settings);
        Thread running = new Thread(stream::start, "streams");
        running.setDaemon(true);
        running.start();
        return null;
    }
}
