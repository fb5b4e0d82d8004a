# SPDX-License-Identifier: Apache-2.0
"""A light load on any RocketMQ broker: frames made beforehand, plain sockets, N requests outstanding.

    python -m benchmarks.load --broker 127.0.0.1:10911 send --size 128 --outstanding 64 --seconds 3
    python -m benchmarks.load --broker 127.0.0.1:10911 pull|pop|latency|topics|hold

Where there is a C compiler the sends, pulls and pops are done by `native_load.c`, which outruns every broker. The same
in Python: one process, no asyncio, no objects a message; an answer is counted by its length and by `"code":0`. Frames
look like those of the Java client (send V2, JSON header, UNIQ_KEY, WAIT and TAGS). The queues a load writes and reads
are those of a topic made for it. `benchmarks.compare` and `benchmarks.quick` use the functions below.
"""

from __future__ import annotations

import argparse
import itertools
import re
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from benchmarks import native_load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

QUEUES = 4
BATCH_OUTSTANDING = 16
PULL_MESSAGES = 32
POPS_OUTSTANDING = 4
INVISIBLE_MS = 60_000
MAX_FRAME_BYTES = 160 * 1024 * 1024  # prepared for one load
MANY_TIMES = 1000  # until the time is over

_LENGTHS = struct.Struct(">II").pack
_HEAD = (
    b'{"code":%d,"extFields":%b,"flag":0,"language":"JAVA","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)
_OFFSET = re.compile(rb'"offset":"?(\d+)')
_GOOD = b'"code":0,'
_NEXT = re.compile(rb'"nextBeginOffset":"(\d+)"')
_OPAQUE = re.compile(rb'"opaque":(\d+)')
_OFFSETS = re.compile(rb'"msgOffsetInfo":"([^"]*)"')
_STARTS = re.compile(rb'"startOffsetInfo":"([^"]*)"')
_POP_TIME = re.compile(rb'"popTime":"(\d+)"')
_REVIVE = re.compile(rb'"reviveQid":"(\d+)"')
_QUEUE_OFFSET = re.compile(rb'"queueOffset":"(\d+)"')

_runs = itertools.count(int(time.time()) & 0xFFF)


@dataclass
class Count:
    """What a load did."""

    messages: int = 0
    seconds: float = 0.0
    refused: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0


def frame(code: int, fields: dict[str, object], body: bytes = b"", opaque: int = 1) -> bytes:
    text = msgspec.json.encode({name: str(value) for name, value in fields.items()})
    return framed(_HEAD % (code, text, opaque), body)


def framed(head: bytes, body: bytes = b"") -> bytes:
    return b"".join((_LENGTHS(4 + len(head) + len(body), len(head)), head, body))


class Link:
    """One blocking connection; `answers` gives the header of each answer, bodies are skipped."""

    def __init__(self, address: str, timeout: float = 30) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def answers(self) -> list[bytes]:
        """Headers of the answers that came by now, at least one."""
        buffer, found, at = self._rest, [], 0
        while not found:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionError("the broker closed the connection")
            buffer = buffer + data if buffer else data
            end = len(buffer)
            while end - at >= 8:
                size = int.from_bytes(buffer[at : at + 4], "big")
                if at + 4 + size > end:
                    break
                head = int.from_bytes(buffer[at + 5 : at + 8], "big")
                found.append(buffer[at + 8 : at + 8 + head])
                at += 4 + size
        self._rest = buffer[at:]
        return found

    def ask(self, request: bytes) -> bytes:
        self.socket.sendall(request)
        return self.answers()[0]

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- topics --------------------------------------------------------------------------------------------------------


def create_topic(address: str, topic: str, queues: int = QUEUES) -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    with Link(address) as link:
        answer = link.ask(frame(17, fields))
    if _GOOD not in answer:
        raise RuntimeError(f"topic {topic}: {answer.decode()}")


def create_topics(address: str, topics: list[str], at_once: int = 1000) -> float:
    """Many topics of one queue by request 18; how many seconds it took."""
    began = time.perf_counter()
    with Link(address, 120) as link:
        for first in range(0, len(topics), at_once):
            configs = [
                {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": False,
                 "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "attributes": {}}
                for name in topics[first : first + at_once]
            ]  # fmt: skip
            answer = link.ask(frame(18, {}, msgspec.json.encode({"topicConfigList": configs})))
            if _GOOD not in answer:
                raise RuntimeError(f"creating topics: {answer.decode()}")
    return time.perf_counter() - began


# -- send ----------------------------------------------------------------------------------------------------------


@dataclass
class Frames:
    """Frames of one length, one after the other."""

    data: memoryview
    size: int
    count: int
    each: int = 1  # messages in a frame


def _unique(run: int, number: int) -> bytes:
    """Java's unique key: address, process, loader, millisecond, counter; some 30 a millisecond."""
    return b"7F000001%04X18B4AAC2%08X%04X" % (run & 0xFFFF, number // 30, number & 0xFFFF)


def _properties(key: bytes, separator: tuple[bytes, bytes]) -> bytes:
    name, pair = separator
    return b"".join(
        (b"UNIQ_KEY", name, key, pair, b"WAIT", name, b"true", pair, b"TAGS", name, b"TagA", pair)
    )


_JSON = (b"\\u0001", b"\\u0002")
_PLAIN = (b"\x01", b"\x02")


def send_frames(topics: list[str], size: int, wanted: int, batch: int = 1, queues: int = QUEUES) -> Frames:
    """Up to `wanted` frames, fewer when they would fill the memory; topics of one length, in turn."""
    run, now, body = next(_runs), int(time.time() * 1000), b"x" * size
    names = [name.encode() for name in topics]
    code = 310 if batch == 1 else 320

    def one(number: int) -> bytes:
        text = _properties(_unique(run, number), _JSON) if batch == 1 else b""
        ext = (
            b'{"a":"load","b":"%b","c":"TBW102","d":"4","e":"%d","f":"0","g":"%d","h":"0","i":"%b","j":"0",'
            b'"k":"false","m":"%b"}'
        ) % (names[number % len(names)], number // len(names) % queues, now, text,
             b"false" if batch == 1 else b"true")  # fmt: skip
        return framed(_HEAD % (code, ext, 100_000_000 + number), body if batch == 1 else members(number))

    def members(number: int) -> bytes:
        parts = []
        for member in range(number * batch, number * batch + batch):
            text = _properties(_unique(run, member), _PLAIN)
            parts.append(struct.pack(">iiiii", 22 + size + len(text), 0, 0, 0, size))
            parts += (body, struct.pack(">h", len(text)), text)
        return b"".join(parts)

    length = len(one(0))
    count = max(1, min(wanted, MAX_FRAME_BYTES // length))
    data = b"".join(map(one, range(count)))
    if len(data) != length * count:
        raise RuntimeError("frames of different lengths; topic names must be of one length")
    return Frames(memoryview(data), length, count, batch)


def send(address: str, frames: Frames, outstanding: int, seconds: float, times: int = 1) -> Count:
    """Keep `outstanding` requests under way until the time is over or all frames are sent, so many times."""
    if native_load.program() is not None:
        most = frames.count * times
        native = native_load.send(address, frames.data, frames.size, outstanding, seconds, most)
        return Count(native.messages * frames.each, native.seconds, native.refused * frames.each)
    done, view, size = Count(), frames.data, frames.size
    with Link(address) as link:
        push, pull, clock = link.socket.sendall, link.socket.recv, time.perf_counter
        began = clock()
        deadline = began + seconds
        sent, answered, buffer = min(outstanding, frames.count), 0, b""
        push(view[: sent * size])
        while answered < sent:
            data = pull(1 << 18)
            if not data:
                raise ConnectionError("the broker closed the connection")
            buffer = buffer + data if buffer else data
            at, count, end = 0, 0, len(buffer)
            while end - at >= 4:
                after = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
                if after > end:
                    break
                at, count = after, count + 1
            done.refused += count - buffer.count(_GOOD, 0, at)
            answered, buffer = answered + count, buffer[at:]
            if count and clock() < deadline:
                more = min(count, frames.count - sent)
                push(view[sent * size : (sent + more) * size])
                sent += more
        done.seconds = clock() - began
    done.messages = (answered - done.refused) * frames.each
    done.refused *= frames.each
    return done


def fill(address: str, topic: str, size: int, messages: int) -> int:
    """A backlog, by batches of 64; how many are stored, for a broker that just started may refuse some."""
    stored = 0
    while stored < messages:
        frames = send_frames([topic], size, min((messages - stored + 63) // 64, 4000), 64)
        done = send(address, frames, BATCH_OUTSTANDING, 60)
        if not done.messages:
            raise RuntimeError(f"every message of a backlog for {topic} was refused")
        stored += done.messages
    _dispatched(address, topic, stored)
    return stored


def _dispatched(address: str, topic: str, stored: int, queues: int = QUEUES) -> None:
    """RocketMQ answers a send before its consume queue has it, and lags by seconds after millions of batched ones."""
    deadline = time.perf_counter() + 60
    with Link(address) as link:
        while True:
            answers = [
                link.ask(frame(30, {"topic": topic, "queueId": queue, "committed": "true"}))
                for queue in range(queues)
            ]
            if sum(int(_OFFSET.search(answer)[1]) for answer in answers) >= stored:  # type: ignore[index]
                return
            if time.perf_counter() > deadline:
                raise RuntimeError(
                    f"a minute after {stored} messages went to {topic} not all of them can be read"
                )
            time.sleep(0.05)


# -- pull ----------------------------------------------------------------------------------------------------------


def _pull(topic: str, queue: int, offset: int, hold_ms: int = 0, opaque: int | None = None) -> bytes:
    fields = (
        b'{"consumerGroup":"load","topic":"%b","queueId":"%d","queueOffset":"%d","maxMsgNums":"32","sysFlag":"%d",'
        b'"commitOffset":"0","suspendTimeoutMillis":"%d","subscription":"*","subVersion":"0",'
        b'"expressionType":"TAG"}'
    ) % (topic.encode(), queue, offset, 6 if hold_ms else 4, hold_ms)
    return framed(_HEAD % (11, fields, queue if opaque is None else opaque))


def pull(address: str, topic: str, seconds: float, queues: int = QUEUES) -> Count:
    """One pull under way for each queue, as a push consumer has; at the end of a queue from its start again."""
    if native_load.program() is not None:
        return Count(*native_load.pull(address, topic, queues, seconds))
    done, offsets = Count(), [0] * queues
    with Link(address) as link:
        began = time.perf_counter()
        deadline, waiting = began + seconds, queues
        link.socket.sendall(b"".join(_pull(topic, queue, 0) for queue in range(queues)))
        while waiting:
            again = []
            for head in link.answers():
                queue, offset = int(_OPAQUE.search(head)[1]), int(_NEXT.search(head)[1])  # type: ignore[index]
                if _GOOD in head:
                    done.messages += offset - offsets[queue]
                    offsets[queue] = offset
                else:
                    offsets[queue] = 0
                waiting -= 1
                if time.perf_counter() < deadline:
                    again.append(_pull(topic, queue, offsets[queue]))
                    waiting += 1
            if again:
                link.socket.sendall(b"".join(again))
        done.seconds = time.perf_counter() - began
    return done


# -- pop and ack ---------------------------------------------------------------------------------------------------


def _pop(topic: str, group: bytes, opaque: int) -> bytes:
    fields = (
        b'{"consumerGroup":"%b","topic":"%b","queueId":"-1","maxMsgNums":"32","invisibleTime":"%d","pollTime":"0",'
        b'"bornTime":"%d","initMode":"0","expType":"TAG","exp":"*","order":"false"}'
    ) % (group, topic.encode(), INVISIBLE_MS, int(time.time() * 1000))
    return framed(_HEAD % (200050, fields, opaque))


_ACK = (
    b'{"code":200051,"extFields":{"consumerGroup":"%b","topic":"%b","queueId":"%b","extraInfo":'
    b'"%b %b %d %b %b broker-a %b %b","offset":"%b"},"flag":0,"language":"JAVA","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)


def _acks(head: bytes, topic: bytes, group: bytes, opaques: Iterator[int]) -> list[bytes]:
    """One request for each message popped, as the Java client sends them."""
    offsets = _OFFSETS.search(head)
    if offsets is None or not offsets[1]:
        return []
    popped, revive = _POP_TIME.search(head)[1], _REVIVE.search(head)[1]  # type: ignore[index]
    starts = {tuple(e.split(b" ")[:2]): e.split(b" ")[2] for e in _STARTS.search(head)[1].split(b";")}  # type: ignore[index]
    frames = []
    for entry in offsets[1].split(b";"):
        retry, queue, places = entry.split(b" ")
        start = starts[retry, queue]
        fixed = (group, topic, queue, start, popped, INVISIBLE_MS, revive, retry, queue)
        frames += [framed(_ACK % (*fixed, place, place, next(opaques))) for place in places.split(b",")]
    return frames


def pop(address: str, topic: str, backlog: int, seconds: float) -> Count:
    """Pops of 32 over all queues, every message acked by itself; a drained backlog is popped by a new group."""
    if native_load.program() is not None:
        return Count(*native_load.pop(address, topic, backlog, seconds))
    done, opaques, generation = Count(), itertools.count(1000), time.time_ns() % 10**9
    with Link(address) as link:
        began = time.perf_counter()
        deadline = began + seconds
        group, popped, acks = b"load-%d" % generation, 0, 0
        waiting = POPS_OUTSTANDING
        link.socket.sendall(b"".join(_pop(topic, group, n) for n in range(waiting)))
        while waiting or acks:
            out: list[bytes] = []
            for head in link.answers():
                if int(_OPAQUE.search(head)[1]) >= 1000:  # type: ignore[index]
                    acks -= 1
                    done.messages += _GOOD in head
                    done.refused += _GOOD not in head
                    continue
                waiting -= 1
                made = _acks(head, topic.encode(), group, opaques)
                out += made
                acks += len(made)
                popped += len(made)
                if time.perf_counter() < deadline and popped < backlog:
                    out.append(_pop(topic, group, 1))
                    waiting += 1
            if not waiting and not acks and time.perf_counter() < deadline:
                generation += 1
                group, popped, waiting = b"load-%d" % generation, 0, POPS_OUTSTANDING
                out += [_pop(topic, group, n) for n in range(waiting)]
            if out:
                link.socket.sendall(b"".join(out))
        done.seconds = time.perf_counter() - began
    return done


# -- send to receive, held pulls -----------------------------------------------------------------------------------


def latency(address: str, topic: str, seconds: float, rate: int = 200) -> Count:
    """From just before a send is written to the answer of the pull that was held for it."""
    done, frames = Count(), send_frames([topic], 128, int(seconds * rate) + 1, queues=1)
    with Link(address) as sender, Link(address) as reader:
        first = sender.ask(bytes(frames.data[: frames.size]))
        offset = int(_QUEUE_OFFSET.search(first)[1]) + 1  # type: ignore[index]
        began = time.perf_counter()
        for number in range(1, frames.count):
            reader.socket.sendall(_pull(topic, 0, offset, 15_000))
            time.sleep(max(0.001, began + number / rate - time.perf_counter()))
            start = time.perf_counter()
            sender.socket.sendall(frames.data[number * frames.size : (number + 1) * frames.size])
            head = reader.answers()[0]
            done.latencies_ms.append((time.perf_counter() - start) * 1000)
            done.refused += _GOOD not in head or _GOOD not in sender.answers()[0]
            offset += 1
        done.seconds = time.perf_counter() - began
    done.messages = len(done.latencies_ms)
    return done


def hold(address: str, topic: str, pulls: int, connections: int, then: Callable[[], None]) -> int:
    """`pulls` held on the last offset of queue 0; `then` is called while they are; how many one send answered."""
    frames = send_frames([topic], 128, 2, queues=1)
    with Link(address) as sender:
        first = sender.ask(bytes(frames.data[: frames.size]))
        offset = int(_QUEUE_OFFSET.search(first)[1]) + 1  # type: ignore[index]
        links = [Link(address) for _ in range(connections)]
        share = pulls // connections
        for link in links:
            link.socket.sendall(b"".join(_pull(topic, 0, offset, 120_000, n) for n in range(share)))
        time.sleep(3)
        then()
        sender.ask(bytes(frames.data[frames.size :]))
        served = 0
        for link in links:
            got = 0
            while got < share:
                heads = link.answers()
                got += len(heads)
                served += sum(_GOOD in head for head in heads)
            link.close()
    return served


# -- by hand -------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["send", "pull", "pop", "latency", "topics", "hold"])
    parser.add_argument("--broker", default="127.0.0.1:10911")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--outstanding", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--backlog", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    address, topic = options.broker, f"load-{options.what}"
    create_topic(address, topic)
    if options.what == "send":
        frames = send_frames([topic], options.size, int(options.seconds * 60_000), options.batch)
        done = send(address, frames, options.outstanding, options.seconds)
    elif options.what == "topics":
        topics = [f"load-{number:06d}" for number in range(options.topics)]
        print(f"created in {create_topics(address, topics):.1f} s")
        frames = send_frames(topics, options.size, int(options.seconds * 60_000), queues=1)
        done = send(address, frames, options.outstanding, options.seconds)
    elif options.what == "latency":
        done = latency(address, topic, options.seconds)
    elif options.what == "hold":
        print(f"{hold(address, topic, 10_000, 100, lambda: None)} of 10000 held pulls served by one send")
        return
    else:
        backlog = fill(address, topic, options.size, options.backlog)
        if options.what == "pull":
            done = pull(address, topic, options.seconds)
        else:
            done = pop(address, topic, backlog, options.seconds)
    line = f"{options.what}: {done.messages} messages, {done.rate:,.0f}/s, {done.refused} refused"
    if done.latencies_ms:
        took = sorted(done.latencies_ms)
        line += f", p50 {took[len(took) // 2]:.2f} ms, p99 {took[len(took) * 99 // 100]:.2f} ms"
    print(line)


if __name__ == "__main__":
    main()
