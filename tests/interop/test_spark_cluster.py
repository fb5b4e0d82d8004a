# SPDX-License-Identifier: Apache-2.0
"""The same jobs on a Spark standalone cluster, with an embedded server over the wire.

Nothing is shared but the sink: master and workers have directories and environments of their own, the executors' Python
does not have aerobee installed, and the drivers run in a directory that holds nothing but what a test puts there.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest
import standalone

from aerobee import Message, Producer
from aerobee.testing.server import TestServer

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 3000
TOPIC, GROUP = "clustered", "clustered-group"

# Both executors take part from the first task on, however late one of them starts.
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}

# One driver for all three jobs: its start is what takes time. The commands are given as on the command line.
DRIVER = """
import json, sys
from aerobee.cli.main import app
from aerobee.spark import session

told = json.loads(sys.argv[1])
spark = session("batch", master=told["master"], config=told["settings"])
reader = spark.read.format("rocketmq").option("namesrv", told["namesrv"]).option("subscribe", "clustered")
rows = reader.option("minPartitions", "4").load().where("tags = 'even'").select("body").collect()
print(json.dumps(sorted(bytes(row.body).decode() for row in rows)))
for command in told["commands"]:
    app(["pipeline", *command, "-n", told["namesrv"], "--master", told["master"]], standalone_mode=False)
"""

HANDLER = """
import os

def where(row):
    import aerobee

    if bytes(row.body) == b"000007" and row.reconsumeTimes == 0:
        raise ValueError("not yet")
    return {"cwd": os.getcwd(), "aerobee": aerobee.__file__}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer() as running:
        asyncio.run(_fill(running.namesrv))
        yield running


async def _fill(namesrv: str) -> None:
    async with Producer(namesrv, group="tests") as producer:
        kinds = ("even", "odd")
        messages = [Message(TOPIC, b"%06d" % i, tags=kinds[i % 2]) for i in range(COUNT)]
        for at in range(0, COUNT, 500):
            await asyncio.gather(*(producer.send(message) for message in messages[at : at + 500]))


def bodies(step: int = 1) -> list[str]:
    return [f"{i:06d}" for i in range(0, COUNT, step)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[standalone.Cluster]:
    with standalone.Cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def drive(cluster: standalone.Cluster, folder: Path, told: dict[str, object]) -> str:
    """Runs the driver in `folder` and returns what it printed."""
    python = standalone.bare_python(folder.parent / "bare")
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps({"master": cluster.url, "settings": SETTINGS, **told})],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": standalone.HOST},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{cluster.logs()}"
    assert "/aerobee/" not in done.stderr, done.stderr  # no traceback of ours
    return done.stdout


def test_batch_read_lake_and_consume_run_on_a_cluster(
    cluster: standalone.Cluster, server: TestServer, tmp_path: Path
) -> None:
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "places.py").write_text(HANDLER)
    lake = ["lake", TOPIC, str(tmp_path / "lake"), "--once"]
    consume = ["consume", TOPIC, "-g", GROUP, "--handler", "places:where", "--py-files", "places.py"]
    consume += ["--tasks", "4", "--once", "--out", str(tmp_path / "results")]
    consume += ["--checkpoint", str(tmp_path / "checkpoint")]
    told = drive(cluster, folder, {"namesrv": server.namesrv, "commands": [lake, consume]})

    assert json.loads(told) == bodies(2)
    held = ds.dataset(tmp_path / "lake", partitioning="hive").to_table(columns=["body"])
    assert sorted(body.decode() for body in held["body"].to_pylist()) == bodies()

    rows = ds.dataset(tmp_path / "results").to_table().to_pylist()
    assert len({row["msgId"] for row in rows}) == len(rows) == COUNT
    assert [row["error"].splitlines()[-1] for row in rows if not row["ok"]] == ["ValueError: not yet"]
    places = [json.loads(row["result"]) for row in rows if row["ok"]]
    assert {Path(place["cwd"]).parents[2].name for place in places} == {"worker0", "worker1"}
    assert all("aerobee.zip" in place["aerobee"] for place in places)
    assert sum(server.server.broker.offsets.table(GROUP, TOPIC).values()) == COUNT
