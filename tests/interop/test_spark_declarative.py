# SPDX-License-Identifier: Apache-2.0
"""The example of a Declarative Pipeline, run by Spark's own command: a topic in, a table, a view, a topic out."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("grpc_status")
pytest.importorskip("yaml")

import connect_server as connect

from aerobee import Message, Producer
from aerobee.spark.options import for_batch
from aerobee.spark.reading.batch_reader import BatchReader
from aerobee.testing.server import TestServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning"
    ),  # Spark ends the process of a reader: nobody closes it
]


def send(server: TestServer, numbers: range) -> None:
    async def work() -> None:
        async with Producer(server.namesrv, group="shop") as producer:
            for n in numbers:
                order = {"order": n, "city": "Wien" if n % 2 else "Graz", "amount": n % 50}
                await producer.send(Message("shop-orders", json.dumps(order).encode()))

    asyncio.run(work())


def run(project: Path, server: TestServer, url: str) -> None:
    env = {**connect.environment(), "AEROBEE_NAMESRV": server.namesrv}
    # By a server of ours: the one that the command would start for itself has a port that may be taken.
    command = [f"{env['SPARK_HOME']}/bin/spark-pipelines", "run", "--remote", url]
    done = subprocess.run(
        command, cwd=project, env=env, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def rows(warehouse: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for path in (warehouse / table).glob("part-*.parquet"):
        found += pq.ParquetFile(path).read().to_pylist()
    return found


def large(server: TestServer) -> Counter[int]:
    given = {"namesrv": server.namesrv, "subscribe": "shop-large-orders", "columns": "body"}
    reader = BatchReader(for_batch(given), ("body",))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return Counter(
        json.loads(body)["order"] for batch in batches for body in batch.column("body").to_pylist()
    )


def test_a_pipeline_reads_a_topic_keeps_a_view_and_fills_a_topic(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(connect.ROOT / "examples" / "pipelines", project)
    spec = project / "spark-pipeline.yml"
    kept = "file:///tmp/aerobee-shop/storage"
    assert kept in spec.read_text()
    spec.write_text(spec.read_text().replace(kept, (tmp_path / "storage").as_uri()))
    warehouse = tmp_path / "server" / "spark-warehouse"
    with TestServer() as server, connect.ConnectServer(tmp_path / "server") as running:
        for numbers in (range(100), range(100, 150)):
            send(server, numbers)
            run(project, server, running.url)  # the second run goes on where the first one ended
            so_far = range(numbers.stop)
            assert sorted(row["order"] for row in rows(warehouse, "orders")) == list(so_far)
            turnover = {row["city"]: (row["orders"], row["sum"]) for row in rows(warehouse, "turnover")}
            for city, of_it in (("Graz", so_far[::2]), ("Wien", so_far[1::2])):
                assert turnover[city] == (len(of_it), sum(n % 50 for n in of_it))
            assert large(server) == Counter(n for n in so_far if n % 50 >= 40)
