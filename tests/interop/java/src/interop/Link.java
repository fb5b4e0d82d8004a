// SPDX-License-Identifier: Apache-2.0
package interop;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Reads one JSON request a line from stdin, answers one JSON line each on stdout, in any order. */
final class Link {
    interface Handler {
        Object handle(String op, JSONObject request) throws Exception;
    }

    private static final PrintStream ANSWERS = System.out;

    private Link() {
    }

    static void serve(Handler handler) throws Exception {
        System.setOut(System.err); // whatever a library prints must not mix with the answers
        ExecutorService workers = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task, "link");
            thread.setDaemon(true);
            return thread;
        });
        answer(Map.of("ready", true));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JSONObject request = JSON.parseObject(line);
            workers.execute(() -> answer(run(handler, request)));
        }
        Runtime.getRuntime().halt(0); // the parent is gone or done: nothing here is worth a slow shutdown
    }

    private static Map<String, Object> run(Handler handler, JSONObject request) {
        Map<String, Object> reply = new LinkedHashMap<>();
        reply.put("id", request.getIntValue("id"));
        try {
            reply.put("ok", handler.handle(request.getString("op"), request));
        } catch (Throwable error) {
            Throwable root = error;
            while (root.getCause() != null && root.getCause() != root) {
                root = root.getCause();
            }
            reply.put("error", error.getClass().getSimpleName() + ": " + error.getMessage());
            reply.put("cause", root.getClass().getSimpleName() + ": " + root.getMessage());
            reply.put("code", codeOf(error));
        }
        return reply;
    }

    /** MQBrokerException and its relatives carry the response code. */
    private static Object codeOf(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            try {
                return each.getClass().getMethod("getResponseCode").invoke(each);
            } catch (ReflectiveOperationException notThisOne) {
                continue;
            }
        }
        return null;
    }

    private static void answer(Map<String, Object> reply) {
        String line = JSON.toJSONString(reply);
        synchronized (ANSWERS) {
            ANSWERS.println(line);
            ANSWERS.flush();
        }
    }

    /** Bytes a test asked for: its text, or so many bytes of a fixed pattern. */
    static byte[] body(JSONObject message) {
        if (message.containsKey("size")) {
            byte[] bytes = new byte[message.getIntValue("size")];
            for (int i = 0; i < bytes.length; i++) {
                bytes[i] = (byte) ('a' + i % 26);
            }
            return bytes;
        }
        return message.getString("body").getBytes(StandardCharsets.UTF_8);
    }

    /** Long bodies are reported by length only. */
    static void putBody(Map<String, Object> row, byte[] bytes) {
        row.put("size", bytes.length);
        if (bytes.length <= 2000) {
            row.put("body", new String(bytes, StandardCharsets.UTF_8));
        }
    }
}
