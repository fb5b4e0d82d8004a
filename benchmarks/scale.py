# SPDX-License-Identifier: Apache-2.0
"""A big store: 10,000 topics of 8 queues and 100 million units. What opening it, appending to it and reading from it
cost beside a small one, and how many files and mappings it holds.

    python -m benchmarks.scale [--topics 10000] [--units 100000000] [--dir /tmp]     (some 2.5 GB of disk, minutes)

The messages are sent by the store itself, one a queue; the other units are written into the queue files directly, all
meaning that message: a hundred million records would take 30 GB. Nothing below looks at a record's bytes but the reads,
which ask for the real ones.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from aerobee.clock import SystemClock
from aerobee.protocol.message import Record
from aerobee.settings import StoreConfig
from aerobee.store.consume_queue import UNIT
from aerobee.store.message_store import MessageStore, ReadLimit

sys.path.insert(0, str(Path(__file__).parent))
from append import TEXT

QUEUES = 8
ROUND = 40_000


def say(text: str) -> None:
    print(text, flush=True)


def held() -> str:
    mapped = sum("/store/" in line for line in Path("/proc/self/maps").read_text().splitlines())
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20
    return f"open files={len(os.listdir('/proc/self/fd'))} mapped files={mapped} resident={resident} MiB"


def messages(topics: int) -> list[Record]:
    """In an order that no cache likes."""
    places = [(topic, queue) for topic in range(topics) for queue in range(QUEUES)]
    random.Random(5).shuffle(places)
    places = (places * (ROUND // len(places) + 1))[:ROUND]
    return [
        Record(f"topic{topic:05d}", b"x" * 128, TEXT.format(key=f"{n:032X}"), queue)
        for n, (topic, queue) in enumerate(places)
    ]


def fill(root: Path, topics: int, units: int) -> None:
    store = MessageStore.open(root, StoreConfig(), SystemClock())
    for queue in range(QUEUES):
        for topic in range(topics):
            store.append(Record(f"topic{topic:05d}", b"first", "", queue))
        store.flush()
    store.close()
    more = units // (topics * QUEUES) - 1
    for number, path in enumerate(root.glob("consumequeue/topic*/*/0*")):
        with path.open("r+b") as file:
            unit = file.read(UNIT.size)
            file.write(unit * more)
        if number % 10_000 == 0:
            say(f"filled {number} queues of {more + 1} units")


def appends(store: MessageStore, topics: int, seconds: float) -> float:
    """CPU microseconds a message, best of the rounds."""
    batch, best, clock, due = messages(topics), 1e9, SystemClock(), 0
    for record in batch:  # queues are loaded
        store.append(record)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        gc.collect()
        cpu = time.process_time()
        for start in range(0, ROUND, 1_000):
            for record in batch[start : start + 1_000]:
                store.append(record)
            if clock.now() >= due:
                due = clock.now() + store.tick(clock.now())
        best = min(best, (time.process_time() - cpu) / ROUND)
    return best * 1e6


def reads(store: MessageStore, topics: int) -> float:
    """Microseconds of CPU for the newest message of a queue, queues in random order."""
    places = messages(topics)[:10_000]
    cpu = time.process_time()
    for record in places:
        newest = store.max_offset(record.topic, record.queue_id) - 1
        assert store.read(record.topic, record.queue_id, newest, ReadLimit(max_messages=1)).messages
    return (time.process_time() - cpu) / len(places) * 1e6


def measure(directory: Path, topics: int, units: int, seconds: float) -> None:
    root = directory / "store"
    fill(root, topics, units)
    began = time.perf_counter()
    store = MessageStore.open(root, StoreConfig(), SystemClock())
    opened = time.perf_counter() - began
    cost = appends(store, topics, seconds)
    say(
        f"topics={topics} queues={topics * QUEUES} units={units:,} open={opened:.2f} s append={cost:.2f} us "
        f"read one={reads(store, topics):.1f} us {held()}"
    )
    store.close()
    shutil.rmtree(root)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--units", type=int, default=100_000_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--dir", default=None)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(dir=options.dir, prefix="aerobee-scale"))
    try:
        for topics, units in (
            (1, QUEUES),
            (options.topics, options.topics * QUEUES),
            (options.topics, options.units),
        ):
            measure(directory, topics, units, options.seconds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
