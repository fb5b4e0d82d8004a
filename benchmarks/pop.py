# SPDX-License-Identifier: Apache-2.0
"""POP on an in-process broker: rate and CPU beside pull, how late redeliveries are, what a lease weighs.

    python benchmarks/pop.py rate [--messages 400000] [--size 128]
    python benchmarks/pop.py lateness [--leases 5000]
    python benchmarks/pop.py memory [--messages 1000000] [--batch 32]

`rate` goes through the remoting front: each request is a frame, decoded, handled and answered with a frame, without
a socket. `memory` is anonymous memory, so that mapped files,
which are the system's cache, do not count.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from aerobee.broker.background.revive import Revive
from aerobee.broker.broker import Broker, assemble
from aerobee.clock import ManualClock, SystemClock
from aerobee.fronts.remoting.front import RemotingFront
from aerobee.net.connection import reply_frame
from aerobee.protocol import command as wire
from aerobee.protocol import names
from aerobee.protocol.bodies import BatchAck, BatchAckEntry, encode
from aerobee.protocol.command import Header, request
from aerobee.protocol.headers.consume import AckMessage, BatchAckMessage, PopMessage, PopResult, PullMessage
from aerobee.protocol.message import Record
from aerobee.protocol.receipt import Receipt, bits_text, parse_msg_offsets, parse_start_offsets
from aerobee.settings import BrokerConfig, StoreConfig

TOPIC, GROUP, QUEUES = "bench", "bench-group", 8


class Peer:
    """A connection without a socket."""

    remote_text = "127.0.0.1:0"
    remote = ("127.0.0.1", 0)
    remote_packed = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    is_open = True

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}


class Bench:
    def __init__(self, directory: Path, clock: Any) -> None:
        self.clock = clock
        self.broker: Broker = assemble(BrokerConfig(), StoreConfig(index_slots=1000), directory, clock)
        self.broker.topics.ensure(TOPIC, QUEUES)
        self.front = RemotingFront(self.broker)
        self.peer = Peer()
        self.revive = Revive(self.broker)

    def fill(self, messages: int, size: int) -> None:
        body = b"x" * size
        for first in range(0, messages, 64):
            queue_id = first // 64 % QUEUES
            count = min(64, messages - first)
            self.broker.store.append_batch([Record(TOPIC, body, queue_id=queue_id) for _ in range(count)])

    def ask(self, header: Header, body: bytes = b"") -> wire.Command:
        """One request, over all layers but the socket; the answer as a client would decode it."""
        return wire.decode(self.serve(wire.encode(request(header, body))[4:])[4:])

    def serve(self, frame: bytes) -> bytes:
        command = wire.decode(frame)
        answer = self.front.handle(self.peer, command)  # type: ignore[arg-type]
        return answer if isinstance(answer, bytes) else reply_frame(command, answer)  # type: ignore[arg-type]


class Meter:
    """CPU spent in the broker only: clients' work between requests, and other processes, are left out."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.cpu: list[int] = []

    def serve(self, header: Header, body: bytes = b"") -> wire.Command:
        frame = wire.encode(request(header, body))[4:]
        start = time.thread_time_ns()
        answer = self.bench.serve(frame)
        self.cpu.append(time.thread_time_ns() - start)
        return wire.decode(answer[4:])

    def report(self, what: str, messages: int) -> float:
        # Medians of 100 slices: on a machine with other work the mean is theirs, not ours.
        size = len(self.cpu) // 100 + 1
        slices = [
            sum(self.cpu[i : i + size]) / len(self.cpu[i : i + size]) for i in range(0, len(self.cpu), size)
        ]
        us = statistics.median(slices) * len(self.cpu) / messages / 1000
        print(f"{what:<24} {1e6 / us:>12,.0f} msg/s of CPU time {us:>8.2f} us/message")
        return us


# -- rate ------------------------------------------------------------------------------------------------------


def rate(messages: int, size: int) -> None:
    print(
        f"rate: {messages:,} messages of {size} bytes, {QUEUES} queues, 32 a request, one process, no socket"
    )
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), SystemClock())
        bench.fill(messages, size)
        pulled = pull_all(bench, messages)
        batch = pop_all(bench, messages, "batch acks", ack_batch)
        single = pop_all(bench, messages, "single acks", ack_each)
        print(
            f"pop + batch ack costs {batch / pulled:.1f} x a pull, pop + single acks {single / pulled:.1f} x"
        )
        bench.broker.store.close()


def pull_all(bench: Bench, messages: int) -> float:
    meter, got = Meter(bench), 0
    for queue_id in range(QUEUES):
        offset, end = 0, bench.broker.store.max_offset(TOPIC, queue_id)
        while offset < end:
            header = PullMessage(
                consumer_group="pulls", topic=TOPIC, queue_id=queue_id, queue_offset=offset, sys_flag=4
            )
            answer = meter.serve(header)
            assert answer.code == 0, answer
            offset = int(answer.ext_dict()["nextBeginOffset"])
        got += end
    assert got == messages
    return meter.report("pull", messages)


def pop_all(bench: Bench, messages: int, name: str, ack: Any) -> float:
    meter, got, group = Meter(bench), 0, f"group of {name}".replace(" ", "-")
    while got < messages:
        header = PopMessage(
            consumer_group=group, topic=TOPIC, invisible_time=60_000, born_time=bench.clock.now(), exp="*"
        )
        answer = meter.serve(header)
        assert answer.code == 0, answer
        result = answer.fields(PopResult)
        starts, offsets = (
            parse_start_offsets(result.start_offset_info),
            parse_msg_offsets(result.msg_offset_info),
        )
        for (retry, queue_id), places in offsets.items():
            receipt = Receipt(
                starts[retry, queue_id],
                result.pop_time,
                60_000,
                result.revive_qid,
                retry,
                "broker-a",
                queue_id,
                0,
            )
            ack(meter, group, receipt, places)
            got += len(places)
    assert bench.broker.pops.leases.in_flight.messages == 0
    return meter.report(f"pop + {name}", messages)


def ack_batch(meter: Meter, group: str, receipt: Receipt, places: list[int]) -> None:
    entry = BatchAckEntry(
        consumer_group=group,
        topic=TOPIC,
        retry=receipt.retry,
        start_offset=receipt.start_offset,
        queue_id=receipt.queue_id,
        revive_queue_id=receipt.revive_qid,
        pop_time=receipt.pop_time,
        invisible_time=receipt.invisible_time,
        bits=bits_text(place - receipt.start_offset for place in places),
    )
    assert meter.serve(BatchAckMessage(), encode(BatchAck(acks=[entry], broker_name="broker-a"))).code == 0


def ack_each(meter: Meter, group: str, receipt: Receipt, places: list[int]) -> None:
    for place in places:
        header = AckMessage(
            consumer_group=group,
            topic=TOPIC,
            queue_id=receipt.queue_id,
            extra_info=receipt._replace(offset=place).text,
            offset=place,
        )
        assert meter.serve(header).code == 0


# -- lateness --------------------------------------------------------------------------------------------------


async def lateness(leases: int) -> None:
    """Leases of 0.2 to 8 s, none acked: how long after its time each message is in the retry topic."""
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), SystemClock())
        bench.fill(leases, 128)
        due: dict[tuple[int, int], int] = {}
        late: list[int] = []
        retry = names.pop_retry_topic(TOPIC, GROUP)

        def stored(record: Record, tags_code: int) -> None:
            if record.topic == retry:
                late.append(bench.clock.now() - due[int(record.properties["n"]), 0])

        store = bench.broker.store
        store.delete_topic(TOPIC)
        for number in range(leases):
            store.append(Record(TOPIC, b"x" * 128, f"n\x01{number}\x02", queue_id=number % QUEUES))
        store.listeners.append(stored)
        for number in range(leases):
            invisible = random.randint(200, 8_000)
            now = bench.clock.now()
            header = PopMessage(
                consumer_group=GROUP, topic=TOPIC, max_msg_nums=1, invisible_time=invisible, born_time=now,
                queue_id=number % QUEUES,
            )  # fmt: skip
            bench.broker.pops.draw = lambda: 99
            answer = bench.ask(header)
            due[number, 0] = answer.fields(PopResult).pop_time + invisible
            if number % 50 == 0:
                bench.revive.tick(bench.clock.now())
        while len(late) < leases:  # noqa: ASYNC110 - this is the driver
            await asyncio.sleep(bench.revive.tick(bench.clock.now()) / 1000)
        late.sort()
        p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
        print(
            f"lateness of {leases:,} redeliveries: p50 {p50} ms, p99 {p99} ms, most {late[-1]} ms, least {late[0]} ms"
        )
        store.close()


# -- memory ----------------------------------------------------------------------------------------------------


def anonymous_bytes() -> int:
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise OSError("no RssAnon in /proc/self/status")


def memory(messages: int, batch: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        clock = ManualClock()
        bench = Bench(Path(directory), clock)
        bench.fill(messages, 16)
        before, popped, costs = anonymous_bytes(), 0, []
        while popped < messages:
            start = time.thread_time_ns()
            step = 0
            while step < messages // 20 and popped < messages:
                header = PopMessage(
                    consumer_group=GROUP, topic=TOPIC, max_msg_nums=batch, invisible_time=3_600_000,
                    born_time=clock.now(),
                )  # fmt: skip
                answer = bench.ask(header)
                got = sum(
                    len(x) for x in parse_msg_offsets(answer.fields(PopResult).msg_offset_info).values()
                )
                step += got
                popped += got
                clock.advance(1)
                if popped % (batch * 64) < batch:
                    while not bench.revive.tick(clock.now()):
                        pass
            costs.append((time.thread_time_ns() - start) / max(1, step / batch) / 1000)
        clock.advance(5_000)
        while not bench.revive.tick(clock.now()):
            pass
        used = anonymous_bytes() - before
        flight = bench.broker.pops.leases.in_flight
        print(
            f"memory: {flight.messages:,} messages in flight, {batch} a pop: {used / messages:.1f} bytes a message; "
            f"a pop with its journaling {statistics.median(costs[:4]):.0f} us at first, "
            f"{statistics.median(costs[-4:]):.0f} us at the end"
        )
        bench.broker.store.close()


def main() -> None:
    logging.getLogger("aerobee").setLevel(logging.ERROR)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["rate", "lateness", "memory"])
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--leases", type=int, default=5_000)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    if options.what == "rate":
        rate(options.messages or 400_000, options.size)
    elif options.what == "lateness":
        asyncio.run(lateness(options.leases))
    else:
        memory(options.messages or 1_000_000, options.batch)


if __name__ == "__main__":
    main()
