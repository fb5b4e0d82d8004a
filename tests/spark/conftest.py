# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from aerobee.protocol import message, properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from aerobee.protocol.message import Record


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all Spark tests; a quick JVM, since none of them runs long."""
    from aerobee.spark.sessions import session

    # Spark's own Python code and its JVM leave sockets to the garbage collector.
    made = session(
        "aerobee-tests",
        master="local[2]",
        config={
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.shuffle.partitions": "2",
        },
    )
    yield made
    made.stop()


@pytest.fixture
def write_store() -> Callable[[Path, list[Record]], None]:
    """Writes records as a store directory by the format's rules alone: no code of the store is involved."""
    return _write_store


def _write_store(root: Path, records: list[Record], segment: int = 64 * 1024) -> None:
    log = root / "commitlog"
    log.mkdir(parents=True)
    current, start = bytearray(), 0
    units: dict[tuple[str, int], bytearray] = {}
    for record in records:
        queue = units.setdefault((record.topic, record.queue_id), bytearray())
        record.queue_offset = len(queue) // 20
        size = len(message.encode(record))
        if len(current) + size + 8 > segment:
            left = segment - len(current)
            current += struct.pack(">ii", left, message.MAGIC_BLANK) + bytes(left - 8)
            (log / f"{start:020d}").write_bytes(current)
            start, current = start + segment, bytearray()
        record.physical_offset = start + len(current)
        queue += struct.pack(">qiq", record.physical_offset, size, properties.tag_code(record.tags))
        current += message.encode(record)
    (log / f"{start:020d}").write_bytes(current.ljust(segment, b"\0"))
    for (topic, queue_id), data in units.items():
        folder = root / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True)
        for at in range(0, len(data), 20 * 50):  # small files, so that several are read
            (folder / f"{at:020d}").write_bytes(data[at : at + 20 * 50].ljust(20 * 50, b"\0"))
