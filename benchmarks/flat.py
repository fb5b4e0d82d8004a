# SPDX-License-Identifier: Apache-2.0
"""Does an append cost the same with many queues as with few? CPU microseconds a message at 8, 800, 8,000 and 80,000.

    python -m benchmarks.flat [--queues 8 800 8000 80000] [--seconds 4] [--dir /tmp]     (some two minutes, 1 GB of disk)

The lane is given runs of 64 sends, as a connection reads them: requests are read, records kept, queues, index and
figures brought up to date, answers written to nowhere. Python's row is `store.append` alone, in a process without the
lane. Each message goes to the next queue in turn, or to any; topics have 8 queues. Tails of queues go to their files at
the store's own pace between the rounds, which are not counted. A figure is the tenth of all short rounds (1,280
messages) that was passed fastest: the machine may be shared.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerobee import native
from aerobee.broker.broker import assemble
from aerobee.clock import SystemClock
from aerobee.fronts.remoting.front import RemotingFront
from aerobee.net.connection import Connection, Limits
from aerobee.protocol.command import encode, request
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.message import Record
from aerobee.settings import BrokerConfig, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.broker import Broker

QUEUES_OF_A_TOPIC = 8
RUN = 64  # messages
ROUND = 20  # runs
MESSAGES = 81_920  # made beforehand, each sent several times
TEXT = "UNIQ_KEY\x017F00000100002A{:018X}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
BODY = b"x" * 128
ORDERS = ("in turn", "at random")


class Nowhere:
    """A transport that drops what is written."""

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 40_000) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None: ...

    def write(self, data: bytes) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


def places(queues: int, order: str) -> list[tuple[str, int]]:
    """Where each message goes. In turn means that neighbours are of different topics, as producers' are."""
    topics = max(1, queues // QUEUES_OF_A_TOPIC)
    made = [(f"topic{n % topics:05d}", n // topics % QUEUES_OF_A_TOPIC) for n in range(queues)]
    if order == "at random":
        return random.Random(5).choices(made, k=MESSAGES)
    return (made * (MESSAGES // queues + 1))[:MESSAGES]


def lane_runs(broker: Broker, where: list[tuple[str, int]]) -> list[Callable[[], object]]:
    connection = Connection(
        RemotingFront(broker).handle, None, Limits(max_frame=1 << 20), None, RemotingFront(broker).run
    )
    connection.connection_made(Nowhere())  # type: ignore[arg-type]
    frames = []
    for number, (topic, queue_id) in enumerate(where):
        header = SendMessageV2(
            producer_group="load", topic=topic, default_topic_queue_nums=8, queue_id=queue_id, sys_flag=0,
            born_timestamp=1_700_000_000_000, flag=0, properties=TEXT.format(number), reconsume_times=0,
            unit_mode=False, batch=False,
        )  # fmt: skip
        frames.append(encode(request(header, BODY)))
    reads = [bytearray(b"".join(frames[at : at + RUN])) for at in range(0, MESSAGES, RUN)]
    # Copied, as a socket's read is: it comes out of the kernel and is in the cache.
    return [lambda read=read: connection.data_received(bytes(read)) for read in reads]


def python_runs(broker: Broker, where: list[tuple[str, int]]) -> list[Callable[[], object]]:
    append = broker.store.append
    records = [
        Record(topic, BODY, TEXT.format(number), queue_id) for number, (topic, queue_id) in enumerate(where)
    ]

    def run(part: list[Record]) -> None:
        for record in part:
            append(record)

    return [lambda part=records[at : at + RUN]: run(part) for at in range(0, MESSAGES, RUN)]


def measure(directory: Path, queues: int, order: str, seconds: float) -> float:
    clock = SystemClock()
    broker = assemble(BrokerConfig(), StoreConfig(), directory, clock)
    store = broker.store
    for topic in sorted({topic for topic, _ in places(queues, "in turn")}):
        broker.topics.ensure(topic, QUEUES_OF_A_TOPIC)
        for queue_id in range(QUEUES_OF_A_TOPIC):
            store.append(Record(topic, b"first", "", queue_id))
    broker.topics.save()
    runs = (lane_runs if native.is_on else python_runs)(broker, places(queues, order))
    for run in runs:
        run()
    gc.collect()
    gc.freeze()
    took, at, due, end = [], 0, 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        part = runs[at : at + ROUND]
        at = (at + ROUND) % len(runs)
        began = time.thread_time_ns()
        for run in part:
            run()
        took.append((time.thread_time_ns() - began) / len(part) / RUN)
        if clock.now() >= due:
            due = clock.now() + store.tick(clock.now())
    return sorted(took)[len(took) // 10] / 1e3


def cell(options: argparse.Namespace, queues: int, order: str, environment: dict[str, str]) -> float:
    """In a process of its own, which leaves the store as it is: to close it would write a file a queue."""
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="aerobee-flat-") as directory:
        command = [sys.executable, "-m", "benchmarks.flat", "--seconds", str(options.seconds)]
        command += ["--queues", str(queues), "--dir", directory, "--order", order]
        done = subprocess.run(
            command, env=os.environ | environment, check=True, stdout=subprocess.PIPE, text=True
        )
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--queues", type=int, nargs="*", default=[8, 800, 8_000, 80_000])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--only", choices=("lane", "Python"))
    parser.add_argument("--order", choices=ORDERS, help="of one measurement, in this process")
    options = parser.parse_args()
    if options.order:
        print(measure(Path(options.dir), options.queues[0], options.order, options.seconds), flush=True)
        os._exit(0)
    print(f"| CPU us a message | {' | '.join(f'{n:,} queues' for n in options.queues)} | growth |")
    print(f"|---|{'--:|' * (len(options.queues) + 1)}", flush=True)
    for name, environment in ("lane", {}), ("Python", {native.SWITCH: "0"}):
        for order in ORDERS if options.only in (None, name) else ():
            found = [cell(options, queues, order, environment) for queues in options.queues]
            growth = f"{(found[-1] / found[0] - 1) * 100:+.0f} %"
            print(
                f"| {name}, {order} | {' | '.join(f'{cost:.2f}' for cost in found)} | {growth} |", flush=True
            )


if __name__ == "__main__":
    main()
