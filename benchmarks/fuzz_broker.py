# SPDX-License-Identifier: Apache-2.0
"""Random and mutated frames against a running broker, while a healthy client goes on sending and pulling.

    python benchmarks/fuzz_broker.py --frames 100000 [--seed 1]

Starts `aerobee serve --ephemeral`, prints frames a second, the broker's memory before and after, and the healthy
client's worst answer. Exits 1 when the broker died or the healthy client was refused anything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

from aerobee.net.pool import Pool
from aerobee.protocol import batch, bodies, command
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, request
from aerobee.protocol.headers import consume, offsets, produce, topics

CODES = [int(code) for code in RequestCode]
PER_CONNECTION = 25


def corpus() -> list[bytes]:
    """Sound frames of many kinds, for mutation."""
    subscription = bodies.SubscriptionData(topic="fuzz", sub_version=1)
    data = bodies.ConsumerData(group_name="fuzz", subscription_data_set=[subscription])
    beat = bodies.Heartbeat(client_id="fuzz", consumer_data_set=[data])
    queue = bodies.MessageQueue("broker-a", 0, "fuzz")
    lock = bodies.LockBatch(client_id="fuzz", consumer_group="fuzz", mq_set=[queue])
    items = [BatchItem(0, b"one", "KEYS\x01a\x02"), BatchItem(0, b"two", "")]
    pull = {"consumer_group": "fuzz", "topic": "fuzz", "queue_id": 0, "queue_offset": 0, "subscription": "*"}
    receipt = "0 1700000000000 60000 0 0 broker-a 0 0"
    requests = [
        request(produce.SendMessageV2(topic="fuzz", properties="TAGS\x01a\x02KEYS\x01k\x02"), b"body" * 10),
        request(produce.SendMessage(topic="fuzz", properties="DELAY\x011\x02"), b"delayed"),
        request(produce.SendMessageV2(topic="fuzz", properties="TIMER_DELAY_MS\x01500\x02"), b"timer"),
        request(produce.SendMessageV2(topic="fuzz", sys_flag=4, properties="TRAN_MSG\x01true\x02"), b"half"),
        request(produce.SendBatch(topic="fuzz", batch=True), batch.encode(items)),
        request(produce.SendBack(offset=0, group="fuzz")),
        request(consume.PullMessage(**pull, sys_flag=4)),
        request(consume.PullMessage(**pull, sys_flag=6, suspend_timeout_millis=200)),
        request(consume.PopMessage(consumer_group="fuzz", topic="fuzz", invisible_time=1000, poll_time=100)),
        request(
            consume.AckMessage(consumer_group="fuzz", topic="fuzz", queue_id=0, extra_info=receipt, offset=0)
        ),
        request(consume.SendHeartbeat(), bodies.encode(beat)),
        request(consume.LockQueues(), bodies.encode(lock)),
        request(consume.ConsumerList(consumer_group="fuzz")),
        request(consume.Unregister(client_id="fuzz", consumer_group="fuzz")),
        request(offsets.QueryConsumerOffset(consumer_group="fuzz", topic="fuzz", queue_id=0)),
        request(
            offsets.UpdateConsumerOffset(consumer_group="fuzz", topic="fuzz", queue_id=0, commit_offset=1)
        ),
        request(offsets.SearchOffset(topic="fuzz", queue_id=0, timestamp=1)),
        request(offsets.ViewMessage(offset=0)),
        request(offsets.QueryMessage(topic="fuzz", key="k")),
        request(topics.CreateTopic(topic="fuzz", read_queue_nums=4, write_queue_nums=4, perm=6)),
    ]
    for number, one in enumerate(requests):
        one.opaque = number
        one.serialize = number % 2 if one.code < 32768 else 0
    return [command.encode(one) for one in requests]


class Fuzz:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._corpus = corpus()

    def frame(self) -> bytes:
        make = self._random.choice(
            (self._flipped, self._flipped, self._cut, self._retyped, self._recoded, self._noise)
        )
        return make()

    def _sound(self) -> bytes:
        return self._random.choice(self._corpus)

    def _flipped(self) -> bytes:
        """Some bytes changed; the length mostly left alone, so that what is behind it is reached."""
        data = bytearray(self._sound())
        first = 0 if self._random.random() < 0.1 else 8
        for _ in range(self._random.randint(1, 6)):
            data[self._random.randrange(first, len(data))] = self._random.randrange(256)
        return bytes(data)

    def _cut(self) -> bytes:
        """Shortened, lengthened or spliced, with a length that fits again."""
        a, b = self._sound()[4:], self._sound()[4:]
        data = a[: self._random.randrange(len(a))] + b[self._random.randrange(len(b)) :]
        return struct.pack(">I", len(data)) + data

    def _retyped(self) -> bytes:
        """A JSON header whose values have other types and sizes."""
        odd = [
            "",
            "-1",
            "9" * 30,
            "null",
            None,
            True,
            [],
            {},
            1e308,
            "\u0000\u0001\u0002",
            "x" * 300,
            -(2**63),
            2**31,
        ]
        sound = json.loads(command.encode(self._json())[8:])
        fields = sound.get("extFields", {})
        for name in list(fields):
            if self._random.random() < 0.4:
                fields[name] = self._random.choice(odd)
        if self._random.random() < 0.2:
            sound[self._random.choice(["code", "opaque", "flag", "version", "language"])] = (
                self._random.choice(odd)
            )
        return self._framed(json.dumps(sound).encode(), self._random.randbytes(self._random.randrange(40)))

    def _json(self) -> Command:
        one = request(produce.SendMessageV2(topic="fuzz", properties="TAGS\x01a\x02"))
        one.code = self._random.choice(CODES)
        return one

    def _recoded(self) -> bytes:
        """Any code with the fields and the body of another request."""
        body = self._random.choice(
            [b"", b"{}", b"[]", b"{" * 200, b'{"offsetTable":{{', self._random.randbytes(64)]
        )
        names = [
            "topic",
            "group",
            "consumerGroup",
            "queueId",
            "offset",
            "timestamp",
            "clientId",
            "extraInfo",
            "key",
        ]
        fields = {name: self._random.choice(["fuzz", "0", "-1", "x y", "1 2 3 4 5 6 7 8"]) for name in names}
        header = {"code": self._random.choice(CODES), "opaque": 1, "flag": 0, "extFields": fields}
        return self._framed(json.dumps(header).encode(), body)

    def _noise(self) -> bytes:
        data = self._random.randbytes(self._random.randint(1, 200))
        return data if self._random.random() < 0.2 else struct.pack(">I", len(data)) + data

    @staticmethod
    def _framed(head: bytes, body: bytes) -> bytes:
        return struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body


@dataclass
class Report:
    frames: int = 0
    connections: int = 0
    healthy: int = 0
    worst_ms: float = 0.0
    failures: list[str] = field(default_factory=list)


async def attack(address: str, frames: int, seed: int) -> Report:
    """Send that many frames over many connections; a healthy client is asked in between."""
    fuzz, report = Fuzz(seed), Report()
    host, _, port = address.rpartition(":")
    pool = Pool()
    try:
        while report.frames < frames and not report.failures:
            await asyncio.gather(*(_one_connection(host, int(port), fuzz, report) for _ in range(8)))
            await _healthy(pool, address, report)
    finally:
        await pool.close()
    return report


async def _one_connection(host: str, port: int, fuzz: Fuzz, report: Report) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    report.connections += 1
    try:
        for number in range(PER_CONNECTION):
            if writer.transport.is_closing():
                break  # a frame before broke the framing
            writer.write(fuzz.frame())
            report.frames += 1
            if number % 5 == 4:
                await writer.drain()
                await asyncio.sleep(0.001)
        writer.write_eof()
        async with asyncio.timeout(2):
            while await reader.read(65536):
                pass
    except (OSError, TimeoutError):
        pass  # it closed on us, which is its right
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _healthy(pool: Pool, address: str, report: Report) -> None:
    began = time.perf_counter()
    try:
        connection = await pool.get(address)
        sent = await connection.call(
            request(produce.SendMessageV2(topic="healthy", queue_id=0), b"fine"), 10_000
        )
        pull = consume.PullMessage(
            consumer_group="healthy",
            topic="healthy",
            queue_id=0,
            queue_offset=report.healthy,
            sys_flag=4,
            subscription="*",
        )
        got = await connection.call(request(pull), 10_000)
        if sent.code or got.code or b"fine" not in got.body:
            report.failures.append(
                f"healthy client: send {sent.code} {sent.remark}, pull {got.code} {got.remark}"
            )
    except Exception as error:  # whatever it is, the healthy client saw it
        report.failures.append(f"healthy client: {error!r}")
    report.healthy += 1
    report.worst_ms = max(report.worst_ms, (time.perf_counter() - began) * 1000)


async def main() -> int:
    import psutil

    parser = argparse.ArgumentParser()
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "aerobee.cli.main", "serve", "--ephemeral", "--namesrv-port", "0", "--broker-port", "0",
        "--grpc-port", "-1", "--http-port", "-1", "--log-level", "CRITICAL",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    line = (await server.stdout.readline()).decode()
    address = re.findall(r"broker=(\S+)", line)[0]
    memory = psutil.Process(server.pid).memory_info
    await attack(address, 2_000, options.seed + 1)
    before, began = memory().rss, time.perf_counter()
    report = await attack(address, options.frames, options.seed)
    took = time.perf_counter() - began
    alive = server.returncode is None
    after = memory().rss if alive else 0
    if alive:
        server.terminate()
    code = await server.wait()
    print(f"frames={report.frames} connections={report.connections} frames/s={report.frames / took:.0f}")
    print(f"rss before={before / 2**20:.1f} MiB after={after / 2**20:.1f} MiB; stopped with code {code}")
    print(
        f"healthy rounds={report.healthy} worst={report.worst_ms:.0f} ms failures={report.failures or 'none'}"
    )
    return 0 if alive and code == 0 and not report.failures else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
