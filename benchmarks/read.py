# SPDX-License-Identifier: Apache-2.0
"""Reading in batches of 32, every record checked: CPU microseconds and messages a second.

python benchmarks/read.py [--sizes 128 1024] [--topics 1 100 10000] [--dir /tmp]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from append import records

from aerobee.clock import SystemClock
from aerobee.settings import StoreConfig
from aerobee.store.message_store import MessageStore, ReadLimit

MESSAGES = 80_000


def measure(directory: Path, topics: int, size: int) -> tuple[float, float]:
    """Best of five walks through everything, queue by queue."""
    store = MessageStore.open(directory / "store", StoreConfig(), SystemClock())
    for record in records(MESSAGES, topics, size):
        store.append(record)
    store.flush()
    queues = [(topic, queue_id) for topic in store.topics() for queue_id in store.queue_ids(topic)]
    limit = ReadLimit(max_messages=32)
    best_cpu, best_wall = 1e9, 1e9
    for _ in range(5):
        cpu, wall, count = time.process_time(), time.perf_counter(), 0
        for topic, queue_id in queues:
            offset, end = 0, store.max_offset(topic, queue_id)
            while offset < end:
                found = store.read(topic, queue_id, offset, limit)
                count += len(found.messages)
                offset = found.next_offset
        assert count == MESSAGES, count
        best_cpu = min(best_cpu, (time.process_time() - cpu) / count)
        best_wall = min(best_wall, (time.perf_counter() - wall) / count)
    store.close()
    shutil.rmtree(directory / "store")
    return best_cpu * 1e6, 1 / best_wall


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, nargs="*", default=[1, 100])
    parser.add_argument("--sizes", type=int, nargs="*", default=[128, 1024])
    parser.add_argument("--dir", default=None)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(dir=options.dir, prefix="aerobee-bench"))
    for size in options.sizes:
        for topics in options.topics:
            cpu, rate = measure(directory, topics, size)
            print(f"read size={size} topics={topics} cpu_us={cpu:.2f} messages_per_s={rate:,.0f}")
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
