/* SPDX-License-Identifier: Apache-2.0
 *
 * A load that outruns every broker: one connection, requests made beforehand or by snprintf, answers counted by their
 * length and by the code they begin with. `benchmarks/native_load.py` builds and runs it.
 *
 *     native_load send HOST PORT FILE FRAME_BYTES OUTSTANDING SECONDS MOST RATE
 *                                                                          frames of one length, one after the other and
 *                                                                          then from the first again, at most so many,
 *                                                                          and so many a second; 0 = as they are answered
 *     native_load pull HOST PORT TOPIC QUEUES SECONDS                      a pull of 32 under way for each queue
 *     native_load pop  HOST PORT TOPIC BACKLOG SECONDS GENERATION          pops of 32, each message acked by itself
 *     native_load late HOST PORT TOPIC RATE SECONDS                        so many sends a second to queue 0, each to a
 *                                                                          pull held there, on another connection
 *
 * Prints: messages seconds refused; of `late` the milliseconds from each send to the pull's answer after that
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 16 << 20, MOST_QUEUES = 64, POPS = 4, INVISIBLE_MS = 60000, FIRST_ACK = 1000 };

static int link_fd;
static char *in, *out;           /* answers that are not read yet; requests that are not sent yet */
static size_t in_size, out_size;

static void fail(const char *why) {
    perror(why);
    exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void pause_until(double when) {
    double left = when - now();
    struct timespec time = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
    if (left > 0) nanosleep(&time, NULL);
}

static void dial(const char *host, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int on = 1;
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail("host is no IPv4 address");
    link_fd = socket(AF_INET, SOCK_STREAM, 0);
    if (link_fd < 0 || connect(link_fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(link_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    in = malloc(BUFFER), out = malloc(BUFFER);
    if (!in || !out) fail("malloc");
}

static void push(const char *data, size_t size) {
    while (size) {
        ssize_t done = send(link_fd, data, size, 0);
        if (done <= 0) fail("send");
        data += done, size -= (size_t)done;
    }
}

static uint32_t get32(const char *p) {
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[0] << 24 | (uint32_t)u[1] << 16 | (uint32_t)u[2] << 8 | u[3];
}

static void put32(char *p, uint32_t value) {
    p[0] = (char)(value >> 24), p[1] = (char)(value >> 16), p[2] = (char)(value >> 8), p[3] = (char)value;
}

/* Reads until there is a whole answer; where the whole ones end. */
static size_t answers(void) {
    for (;;) {
        ssize_t got = recv(link_fd, in + in_size, BUFFER - in_size, 0);
        if (got <= 0) fail("the broker closed the connection");
        in_size += (size_t)got;
        size_t end = 0;
        while (in_size - end >= 4 && in_size - end >= 4 + (size_t)get32(in + end)) end += 4 + (size_t)get32(in + end);
        if (end) return end;
        if (in_size == BUFFER) fail("an answer larger than the buffer");
    }
}

static void forget(size_t end) {
    memmove(in, in + end, in_size - end);
    in_size -= end;
}

static int is_good(const char *frame) { return memcmp(frame + 8, "{\"code\":0,", 10) == 0; }

/* A request without a body, after those that wait in `out`. */
__attribute__((format(printf, 3, 4))) static void ask(int code, long opaque, const char *fields, ...) {
    char *head = out + out_size + 8;
    size_t room = BUFFER - out_size - 8;
    va_list values;
    if (room < 4096) fail("too many requests at once");
    size_t size = (size_t)snprintf(head, room, "{\"code\":%d,\"extFields\":{", code);
    va_start(values, fields);
    size += (size_t)vsnprintf(head + size, room - size, fields, values);
    va_end(values);
    size += (size_t)snprintf(head + size, room - size,
                             "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%ld,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
                             opaque);
    put32(out + out_size, (uint32_t)(4 + size)), put32(out + out_size + 4, (uint32_t)size);
    out_size += 8 + size;
}

static void push_all(void) {
    push(out, out_size);
    out_size = 0;
}

/* The text after `name":` in an answer's header, or NULL. */
static const char *field(const char *frame, const char *name) {
    size_t size = get32(frame + 4) & 0xFFFFFF;
    const char *found = memmem(frame + 8, size, name, strlen(name));
    return found ? found + strlen(name) + 2 + (found[strlen(name) + 2] == '"') : NULL;
}

static long number(const char *frame, const char *name) {
    const char *text = field(frame, name);
    return text ? atol(text) : -1;
}

/* -- loads ------------------------------------------------------------------------------------------------------- */

static size_t push_frames(const char *frames, size_t size, size_t count, size_t sent, size_t more) {
    for (size_t left = more; left;) {
        size_t at = sent % count, now = left < count - at ? left : count - at;
        push(frames + at * size, now * size);
        sent += now, left -= now;
    }
    return sent;
}

static void load_send(char **given) {
    size_t size = strtoul(given[1], NULL, 10), sent, answered = 0, refused = 0;
    long outstanding = atol(given[2]);
    int file = open(given[0], O_RDONLY);
    struct stat facts;
    if (file < 0 || fstat(file, &facts)) fail(given[0]);
    size_t count = (size_t)facts.st_size / size;
    char *frames = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    if (frames == MAP_FAILED) fail("mmap");
    double began = now(), deadline = began + atof(given[3]);
    size_t most = strtoul(given[4], NULL, 10);
    double rate = atof(given[5]);
    sent = push_frames(frames, size, count, 0, (size_t)outstanding < most ? (size_t)outstanding : most);
    while (answered < sent) {
        size_t end = answers(), more = 0;
        for (size_t at = 0; at < end; at += 4 + (size_t)get32(in + at)) more++, refused += !is_good(in + at);
        forget(end);
        answered += more;
        if (now() < deadline) {
            if (more > most - sent) more = most - sent;
            if (rate > 0) pause_until(began + (double)(sent + more) / rate);
            sent = push_frames(frames, size, count, sent, more);
        }
    }
    printf("%zu %.6f %zu\n", answered - refused, now() - began, refused);
}

static void pull(const char *topic, int queue, long offset, int hold_ms) {
    ask(11, queue,
        "\"consumerGroup\":\"load\",\"topic\":\"%s\",\"queueId\":\"%d\",\"queueOffset\":\"%ld\",\"maxMsgNums\":\"32\","
        "\"sysFlag\":\"%d\",\"commitOffset\":\"0\",\"suspendTimeoutMillis\":\"%d\",\"subscription\":\"*\",\"subVersion\":\"0\","
        "\"expressionType\":\"TAG\"",
        topic, queue, offset, hold_ms ? 6 : 4, hold_ms);
}

static void load_pull(char **given) {
    long offsets[MOST_QUEUES] = {0}, messages = 0;
    int queues = atoi(given[1]), waiting = queues;
    if (queues < 1 || queues > MOST_QUEUES) fail("queues");
    double began = now(), deadline = began + atof(given[2]);
    for (int queue = 0; queue < queues; queue++) pull(given[0], queue, 0, 0);
    push_all();
    while (waiting) {
        size_t end = answers();
        int goes_on = now() < deadline;
        for (size_t at = 0; at < end; at += 4 + (size_t)get32(in + at)) {
            long queue = number(in + at, "opaque"), next = number(in + at, "nextBeginOffset");
            if (queue < 0 || queue >= queues) fail("an answer to nobody");
            if (is_good(in + at)) messages += next - offsets[queue];
            offsets[queue] = is_good(in + at) ? next : 0; /* from its start again */
            waiting--;
            if (goes_on) pull(given[0], (int)queue, offsets[queue], 0), waiting++;
        }
        forget(end);
        push_all();
    }
    printf("%ld %.6f 0\n", messages, now() - began);
}

static void pop(const char *topic, long generation) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    ask(200050, 1,
        "\"consumerGroup\":\"load-%ld\",\"topic\":\"%s\",\"queueId\":\"-1\",\"maxMsgNums\":\"32\",\"invisibleTime\":\"%d\","
        "\"pollTime\":\"0\",\"bornTime\":\"%lld\",\"initMode\":\"0\",\"expType\":\"TAG\",\"exp\":\"*\",\"order\":\"false\"",
        generation, topic, INVISIBLE_MS, (long long)time.tv_sec * 1000 + time.tv_nsec / 1000000);
}

/* The start offset of a queue: entries `retry queue value` joined by `;`. */
static long start_of(const char *starts, long retry, long queue) {
    for (;;) {
        long a, b, value;
        int used = 0;
        if (!starts || sscanf(starts, "%ld %ld %ld%n", &a, &b, &value, &used) != 3) fail("startOffsetInfo");
        if (a == retry && b == queue) return value;
        if (starts[used] != ';') fail("a queue without a start offset");
        starts += used + 1;
    }
}

/* One ack for each message of a pop's answer; how many there are. */
static long ack_all(const char *frame, const char *topic, long generation, long *opaque) {
    const char *place = field(frame, "msgOffsetInfo"), *starts = field(frame, "startOffsetInfo");
    long popped = number(frame, "popTime"), revive = number(frame, "reviveQid"), made = 0;
    while (place && *place >= '0' && *place <= '9') {
        long retry, queue;
        int used = 0;
        if (sscanf(place, "%ld %ld %n", &retry, &queue, &used) != 2) fail("msgOffsetInfo");
        long start = start_of(starts, retry, queue);
        for (place += used;; place++) {
            char *after;
            long offset = strtol(place, &after, 10);
            ask(200051, (*opaque)++,
                "\"consumerGroup\":\"load-%ld\",\"topic\":\"%s\",\"queueId\":\"%ld\",\"extraInfo\":\"%ld %ld %d %ld %ld broker-a %ld %ld\","
                "\"offset\":\"%ld\"",
                generation, topic, queue, start, popped, INVISIBLE_MS, revive, retry, queue, offset, offset);
            made++;
            place = after;
            if (*place != ',') break;
        }
        if (*place == ';') place++;
    }
    return made;
}

static void load_pop(char **given) {
    long backlog = atol(given[1]), generation = atol(given[3]), messages = 0, refused = 0;
    long popped = 0, acks = 0, opaque = FIRST_ACK;
    int waiting = 0;
    double began = now(), deadline = began + atof(given[2]);
    do {
        if (!waiting && !acks) { /* at first, and when the backlog is drained: for a group that has had nothing */
            generation++, popped = 0;
            for (; waiting < POPS; waiting++) pop(given[0], generation);
        }
        push_all();
        size_t end = answers();
        int goes_on = now() < deadline;
        for (size_t at = 0; at < end; at += 4 + (size_t)get32(in + at)) {
            if (number(in + at, "opaque") >= FIRST_ACK) {
                acks--, messages += is_good(in + at), refused += !is_good(in + at);
                continue;
            }
            long made = ack_all(in + at, given[0], generation, &opaque);
            waiting--, acks += made, popped += made;
            if (goes_on && popped < backlog) pop(given[0], generation), waiting++;
        }
        forget(end);
    } while (waiting || acks || now() < deadline);
    printf("%ld %.6f %ld\n", messages, now() - began, refused);
}

/* One message of 128 bytes to queue 0, after what waits in `out`. */
static void send_one(const char *topic, long number) {
    char body[128];
    size_t start = out_size;
    ask(310, number,
        "\"a\":\"load\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"1\",\"e\":\"0\",\"f\":\"0\",\"g\":\"0\",\"h\":\"0\","
        "\"i\":\"UNIQ_KEY\\u00017F0000010000%020ld\\u0002\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"",
        topic, number);
    memset(body, 'x', sizeof body);
    memcpy(out + out_size, body, sizeof body);
    out_size += sizeof body;
    put32(out + start, get32(out + start) + sizeof body);
}

/* The other connection, with its own buffers. */
static void change_sides(void) {
    static int other_fd;
    static char *other_in, *other_out;
    static size_t other_size;
    int fd = link_fd;
    char *kept_in = in, *kept_out = out;
    size_t size = in_size;
    link_fd = other_fd, in = other_in, out = other_out, in_size = other_size;
    other_fd = fd, other_in = kept_in, other_out = kept_out, other_size = size;
}

static void load_late(char **given, char **address) {
    double rate = atof(given[1]), began = now(), deadline = began + atof(given[2]), total = 0;
    long messages = 0, refused = 0, most = (long)(rate * atof(given[2])) + 1000;
    double *took = calloc((size_t)most, sizeof *took);
    if (!took) fail("calloc");
    change_sides();
    dial(address[0], address[1]);
    send_one(given[0], 1), push_all();
    size_t end = answers();
    if (!is_good(in)) fail("the first send was refused");
    long offset = number(in, "queueOffset") + 1;
    forget(end);
    while (now() < deadline && messages < most) {
        change_sides();
        pull(given[0], 0, offset, 30000), push_all();
        pause_until(began + (double)(messages + 1) / rate);
        change_sides();
        send_one(given[0], messages + 2);
        double sent_at = now();
        push_all();
        change_sides();
        end = answers();
        took[messages] = (now() - sent_at) * 1000;
        if (is_good(in)) messages++, offset = number(in, "nextBeginOffset");
        else refused++;
        forget(end);
        change_sides();
        forget(answers());
    }
    total = now() - began;
    printf("%ld %.6f %ld", messages, total, refused);
    for (long at = 0; at < messages; at++) printf(" %.4f", took[at]);
    printf("\n");
}

int main(int count, char **given) {
    const char *load = count > 3 ? given[1] : "";
    int known = (!strcmp(load, "send") && count == 10) || (!strcmp(load, "pull") && count == 7) ||
                (!strcmp(load, "pop") && count == 8) || (!strcmp(load, "late") && count == 7);
    if (!known) {
        fprintf(stderr, "usage: native_load send|pull|pop|late HOST PORT ...; see the head of native_load.c\n");
        return 2;
    }
    dial(given[2], given[3]);
    if (*load == 's') load_send(given + 4);
    else if (*load == 'l') load_late(given + 4, given + 2);
    else if (load[1] == 'u') load_pull(given + 4);
    else load_pop(given + 4);
    return 0;
}
