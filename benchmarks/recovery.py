# SPDX-License-Identifier: Apache-2.0
"""How long a start takes on a log of 1 GiB: after a clean stop, after a kill, and with everything built anew.

python benchmarks/recovery.py [--mib 1024] [--size 1024] [--topics 100]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from append import records

from aerobee.clock import SystemClock
from aerobee.settings import StoreConfig
from aerobee.store.message_store import MessageStore

# Benchmarks may run on disks that are fuller than a broker likes.
CONFIG = StoreConfig(disk_clean_ratio=1.0, disk_full_ratio=1.0)


def kill(store: MessageStore) -> None:
    """Leave the files as SIGKILL would, without leaving this process."""
    store._flush.close()
    store._lock.release()


def show(name: str, store: MessageStore) -> None:
    report = store.recovery
    print(
        f"recovery {name} took_ms={report.took_ms} checked={report.messages} dispatched={report.dispatched} "
        f"log_bytes={store.log_max}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--topics", type=int, default=100)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="aerobee-bench"))
    root, clock = directory / "store", SystemClock()
    store = MessageStore.open(root, CONFIG, clock)
    batch = records(20_000, options.topics, options.size)
    while store.log_max < options.mib << 20:
        for record in batch:
            store.append(record)
        store.tick(clock.now())
    store.close()
    store = MessageStore.open(root, CONFIG, clock)
    show("clean stop", store)
    for record in batch:
        store.append(record)
    kill(store)
    store = MessageStore.open(root, CONFIG, clock)
    show("killed", store)
    store.close()
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    (root / "checkpoint").unlink()
    store = MessageStore.open(root, CONFIG, clock)
    show("built anew", store)
    store.close()
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
