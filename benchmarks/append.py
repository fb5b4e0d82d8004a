# SPDX-License-Identifier: Apache-2.0
"""Append with dispatch (log, queue, key index): CPU microseconds and messages a second.

python benchmarks/append.py [--seconds 2] [--profile] [--dir /tmp]
python benchmarks/append.py --batch 64                producers' batches, stored column by column
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import shutil
import tempfile
import time
from pathlib import Path

from aerobee.clock import SystemClock
from aerobee.protocol.batch import Batch, Columns
from aerobee.protocol.message import Record
from aerobee.settings import StoreConfig
from aerobee.store.message_store import MessageStore

TEXT = (
    "UNIQ_KEY\x01{key}\x02WAIT\x01true\x02TAGS\x01TagA\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
)


def records(count: int, topics: int, size: int) -> list[Record]:
    """What a front hands to the store: one topic of `topics`, 8 queues each when there is one topic only."""
    names = [f"topic{n:05d}" for n in range(topics)]
    body = bytes(range(256)) * (size // 256 + 1)
    return [
        Record(
            names[n % topics], body[:size], TEXT.format(key=f"AC11000112342F0E4A9B{n // 60_000:08X}{n % 60_000:04X}"),
            n // topics % 8,
        )
        for n in range(count)
    ]  # fmt: skip


def measure(directory: Path, topics: int, size: int, seconds: float) -> tuple[float, float, float]:
    """CPU of the process, CPU of the loop's thread (the rest is syncing), rate: best of the rounds, for the machine
    may be shared."""
    clock = SystemClock()
    store = MessageStore.open(directory / "store", StoreConfig(), clock)
    batch = records(40_000, topics, size)
    append = store.append
    for record in batch[: topics * 8]:  # queues exist
        append(record)
    due = 0
    best_cpu, best_loop, best_wall, began = 1e9, 1e9, 1e9, time.perf_counter()
    while time.perf_counter() - began < seconds:
        gc.collect()
        cpu, loop, wall = time.process_time(), time.thread_time(), time.perf_counter()
        for start in range(0, len(batch), 1_000):
            for record in batch[start : start + 1_000]:
                append(record)
            if clock.now() >= due:  # units go to files, syncs run: part of the price
                due = clock.now() + store.tick(clock.now())
        best_cpu = min(best_cpu, (time.process_time() - cpu) / len(batch))
        best_loop = min(best_loop, (time.thread_time() - loop) / len(batch))
        best_wall = min(best_wall, (time.perf_counter() - wall) / len(batch))
    store.close()
    shutil.rmtree(directory / "store")
    return best_cpu * 1e6, best_loop * 1e6, 1 / best_wall


def measure_batches(directory: Path, count: int, size: int, seconds: float) -> float:
    """CPU of the process a message, best of the rounds; each batch is one queue's, as a producer sends it."""
    clock = SystemClock()
    store = MessageStore.open(directory / "store", StoreConfig(), clock)
    whole = records(40_000 // count * count, 1, size)
    batches = []
    for start in range(0, len(whole), count):
        part = whole[start : start + count]
        members = Columns([0] * count, [r.body for r in part], [r.properties_text for r in part])
        batches.append(Batch(part[0].topic, start // count % 8, members))
    best, began, due = 1e9, time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        gc.collect()
        cpu = time.process_time()
        for batch in batches:
            store.append_columns(batch)
            if clock.now() >= due:
                due = clock.now() + store.tick(clock.now())
        best = min(best, (time.process_time() - cpu) / len(whole))
    store.close()
    shutil.rmtree(directory / "store")
    return best * 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--dir", default=None)
    parser.add_argument("--topics", type=int, nargs="*", default=[1, 100, 10_000])
    parser.add_argument("--sizes", type=int, nargs="*", default=[128, 1024])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(dir=options.dir, prefix="aerobee-bench"))
    profile = cProfile.Profile()
    if options.profile:
        profile.enable()
    for size in options.sizes if options.batch > 1 else ():
        cost = measure_batches(directory, options.batch, size, options.seconds)
        print(f"append size={size} batch={options.batch} cpu_us={cost:.2f}")
    for size in options.sizes if options.batch == 1 else ():
        for topics in options.topics:
            cpu, loop, rate = measure(directory, topics, size, options.seconds)
            print(
                f"append size={size} topics={topics} cpu_us={cpu:.2f} loop_us={loop:.2f} messages_per_s={rate:,.0f}"
            )
    if options.profile:
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(14)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
