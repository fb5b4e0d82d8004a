# SPDX-License-Identifier: Apache-2.0
"""Messages of the largest size in the default session, with its heap of one gigabyte; and a JVM that dies is told."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow.dataset as ds
import pyarrow.parquet as pq

from aerobee import Message, Producer
from aerobee.spark import reasons
from aerobee.spark.pipelines.parquet_table import Table
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]
LARGEST = 4 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer() as running:
        yield running


def pipeline(server: TestServer, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "aerobee", "pipeline", *command, "--once", "-n", server.namesrv],
        cwd=folder, capture_output=True, text=True, timeout=290, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(folder)])},
    )  # fmt: skip


def test_row_groups_are_bounded_by_bytes(spark: SparkSession, tmp_path: Path) -> None:
    table = Table(spark, str(tmp_path / "lake"))
    rows = [("t", "2026-01-01", os.urandom(1 << 20)) for _ in range(72)]
    table.add(spark.createDataFrame(rows, "topic STRING, date STRING, body BINARY").coalesce(1), 0)
    (path,) = tmp_path.glob("lake/topic=*/date=*/*.parquet")
    found = pq.read_metadata(path)
    sizes = [found.row_group(i).total_byte_size for i in range(found.num_row_groups)]
    assert sum(sizes) >= 72 << 20
    assert max(sizes) <= 36 << 20, sizes


def test_the_default_session_takes_fifty_of_the_largest_messages(server: TestServer, tmp_path: Path) -> None:
    async def work() -> None:
        async with Producer(server.namesrv, group="tests", options=PATIENT) as producer:
            for i in range(50):
                noise = os.urandom(LARGEST - 8)  # which no producer compresses
                await producer.send(Message("largest", b"%08d" % i + noise))

    asyncio.run(work())
    done = pipeline(server, tmp_path, "lake", "largest", "lake")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "50 messages into lake" in done.stderr
    bodies = ds.dataset(tmp_path / "lake", partitioning="hive").to_table(columns=["body"])["body"]
    assert sorted(int(body.as_py()[:8]) for body in bodies) == list(range(50))


HANDLER = """
import os, psutil, signal
def end(row):
    worker = psutil.Process()
    jvm = next(p for p in worker.parents() if "java" in p.name())
    jvm.send_signal(signal.SIGKILL)
"""


def test_a_jvm_that_dies_is_told_in_one_line(server: TestServer, tmp_path: Path) -> None:
    async def work() -> None:
        async with Producer(server.namesrv, group="tests", options=PATIENT) as producer:
            await producer.send(Message("deadly", b"x"))

    asyncio.run(work())
    (tmp_path / "deadly.py").write_text(HANDLER)
    done = pipeline(
        server, tmp_path, "consume", "deadly", "-g", "deadly-group", "--handler", "deadly:end",
        "-o", "startingOffsets=earliest",
    )  # fmt: skip
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if line.startswith("aerobee: ")]
    assert len(told) == 1, done.stderr
    assert told[0].startswith(
        "aerobee: Spark's JVM has ended (exit code -9: killed). If it was for want of memory"
    )
    assert "spark.driver.memory=4g" in told[0]


def test_only_a_dead_jvm_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    class Process:
        code: int | None = 52

        def wait(self, timeout: float) -> Any:
            if self.code is None:
                raise subprocess.TimeoutExpired("java", timeout)
            return self.code

    class Gateway:
        proc = Process()

    monkeypatch.setattr(SparkContext, "_gateway", Gateway())
    refused = ConnectionRefusedError(111, "Connection refused")
    assert reasons.is_of_spark(refused)
    assert "exit code 52: out of memory" in reasons.reason(refused)
    assert not reasons.is_of_spark(ValueError("mine"))
    Gateway.proc.code = None
    assert not reasons.is_of_spark(refused)
    text = "[STREAM_FAILED] a page\njava.lang.OutOfMemoryError: Java heap space\n\tat org"
    assert "spark.executor.memory" in reasons.reason(RuntimeError(text))
