# SPDX-License-Identifier: Apache-2.0
"""The lake as a Delta or Iceberg table, and the figures of its stream, on real Spark and an embedded server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Message, Producer
from aerobee.spark import listen
from aerobee.spark.options import OptionError
from aerobee.spark.pipelines.lake import lake
from aerobee.spark.pipelines.tables import found_table, table_of
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from aerobee.spark.stream_figures import Figures

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the table libraries, about each other
]


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer() as running:
        yield running


def send(server: TestServer, topic: str, first: int, last: int) -> None:
    async def work() -> None:
        async with Producer(server.namesrv, group="tests", options=PATIENT) as producer:
            await asyncio.gather(
                *(producer.send(Message(topic, b'{"n": %d}' % i)) for i in range(first, last))
            )

    asyncio.run(work())


def read_by_its_own_library(kind: str, out: Path) -> list[int]:
    if kind == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(str(out)).to_pyarrow_table()
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("aerobee", uri=f"sqlite:///{out}/_iceberg.db", warehouse=out.as_uri())
        table = catalog.load_table("lake.messages").scan().to_arrow()
    assert {"topic", "date", "data", "badBody", "properties"} <= set(table.schema.names)
    return sorted(row["n"] for row in table.column("data").to_pylist())


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_holds_every_message_once_also_after_a_replayed_batch(
    spark: SparkSession, server: TestServer, tmp_path: Path, kind: str
) -> None:
    out, topic = tmp_path / "lake", f"table-{kind}"
    settings: dict[str, Any] = {
        "options": {"namesrv": server.namesrv},
        "json": True,
        "format": kind,
        "once": True,
    }
    for first, last in ((0, 50), (50, 80)):
        send(server, topic, first, last)
        lake(spark, topic, str(out), **settings).awaitTermination()
    # The driver died after the table's commit and before Spark's: the batch comes again.
    (out / "_checkpoint" / "commits" / "1").unlink()
    (out / "_checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    # And a batch that died before its commit left a file behind.
    assert not list((out / "data").glob("*-none-*")), "the query's id is part of a batch's name"
    stray = next((out / "data").glob("b00000000001-*.parquet"))
    (out / "data" / stray.name.replace("b00000000001", "b00000000002")).write_bytes(stray.read_bytes())
    send(server, topic, 80, 90)
    lake(spark, topic, str(out), **settings).awaitTermination()
    assert sorted(row.n for row in found_table(spark, str(out)).read().select("data.n").collect()) == list(
        range(90)
    )
    assert read_by_its_own_library(kind, out) == list(range(90))
    if kind == "delta":
        assert found_table(spark, str(out)).compact() > 0
        assert read_by_its_own_library(kind, out) == list(range(90))


def test_a_missing_library_and_a_wrong_format_are_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(OptionError, match=r"pip install 'aerobee\[delta\]'"):
        table_of(spark, str(tmp_path), "delta")
    with pytest.raises(OptionError, match=r"pip install 'aerobee\[iceberg\]'"):
        table_of(spark, str(tmp_path), "iceberg")
    with pytest.raises(OptionError, match="parquet, delta, iceberg"):
        table_of(spark, str(tmp_path), "hudi")


def test_a_listener_sees_the_lag_shrink(spark: SparkSession, server: TestServer, tmp_path: Path) -> None:
    send(server, "lagging", 0, 300)
    seen: list[Figures] = []
    listener = listen(spark, seen.append)
    try:
        reader = spark.readStream.format("rocketmq").option("namesrv", server.namesrv)
        reader = reader.option("subscribe", "lagging").option("startingOffsets", "earliest")
        writer = reader.option("maxOffsetsPerTrigger", "100").load().writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination()
        asyncio.run(_until(lambda: sum(one.rows for one in seen) >= 300))
    finally:
        spark.streams.removeListener(listener)
    lags = [one.lag["lagging"] for one in seen if one.rows]
    assert lags == sorted(lags, reverse=True)
    assert lags[0] >= 190 and lags[-1] == 0
    assert all(one.rows_per_second > 0 for one in seen if one.rows)


async def _until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - Spark tells its listeners on a thread of its own
            await asyncio.sleep(0.05)
