# SPDX-License-Identifier: Apache-2.0
"""JSON bodies whose keys and types change: nothing is lost in any format, whoever reads the table."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

from aerobee import Message, Producer
from aerobee.cli.main import run
from aerobee.spark import dataframes
from aerobee.spark.decoding import json_schema
from aerobee.spark.decoding.json_bodies import schema_of
from aerobee.spark.options import OptionError
from aerobee.spark.pipelines import lake as pipeline
from aerobee.spark.pipelines import lake_bodies
from aerobee.spark.pipelines.lake import Added, lake
from aerobee.spark.pipelines.lake_bodies import Asked
from aerobee.spark.pipelines.replay import replay
from aerobee.spark.pipelines.tables import found_table, lake_of
from aerobee.testing.server import TestServer
from tests.spark.patient import PATIENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the table libraries, about each other
]
KINDS = ["parquet", "delta", "iceberg"]


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer() as running:
        yield running


def send(server: TestServer, topic: str, *bodies: dict[str, Any]) -> None:
    async def work() -> None:
        async with Producer(server.namesrv, group="tests", options=PATIENT) as producer:
            for body in bodies:
                await producer.send(Message(topic, json.dumps(body).encode()))

    asyncio.run(work())


def fill(
    spark: SparkSession, server: TestServer, topic: str, out: Path, kind: str | None, **settings: Any
) -> Added:
    told: list[Added] = []
    query = lake(
        spark, topic, str(out), once=True, format=kind, told=told.append, options={"namesrv": server.namesrv},
        **{"json": "schema" not in settings, **settings},
    )  # fmt: skip
    query.awaitTermination()
    (added,) = told
    return added


# -- readers -------------------------------------------------------------------------------------------


def by_pyarrow(out: Path) -> list[dict[str, Any]]:
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    columns = pq.read_schema(out / "_common_metadata")
    return ds.dataset(out, schema=columns, partitioning="hive").to_table().to_pylist()


def by_deltalake(out: Path) -> list[dict[str, Any]]:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(str(out))
    by_query = pa.table(QueryBuilder().register("lake", table).execute("SELECT * FROM lake").read_all())
    rows = table.to_pyarrow_table().to_pylist()
    assert plain(by_query.to_pylist()) == plain(rows)
    return rows


def by_pyiceberg(out: Path) -> list[dict[str, Any]]:
    return iceberg(out).scan().to_arrow().to_pylist()


def iceberg(out: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("aerobee", uri=f"sqlite:///{out}/_iceberg.db", warehouse=out.as_uri())
    return catalog.load_table("lake.messages")


def by_duckdb(out: Path) -> list[dict[str, Any]]:
    duckdb = pytest.importorskip("duckdb")
    from duckdb_extensions import import_extension

    if (out / "_delta_log").exists():
        import_extension("delta")
        source = f"delta_scan('{out}')"
    elif (out / "_iceberg.db").exists():
        import_extension("avro")
        import_extension("iceberg")
        source = f"iceberg_scan('{iceberg(out).metadata_location}')"
    else:
        source = f"read_parquet('{out}/topic=*/date=*/*.parquet', union_by_name = true)"
    rows = duckdb.connect().sql(f"SELECT * FROM {source}")
    return [dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()]


def by_spark(spark: SparkSession) -> Callable[[Path], list[dict[str, Any]]]:
    return lambda out: [row.asDict(recursive=True) for row in found_table(spark, str(out)).read().collect()]


def readers(kind: str, spark: SparkSession) -> list[Callable[[Path], list[dict[str, Any]]]]:
    own = {"parquet": by_pyarrow, "delta": by_deltalake, "iceberg": by_pyiceberg}[kind]
    return [by_spark(spark), own, by_duckdb]


def plain(rows: list[dict[str, Any]]) -> list[Any]:
    """What became of the bodies, in their order; a null is as good as no key."""
    shown = [(full(row["data"]), json.loads(row["_rescued"] or "{}")) for row in rows]
    return sorted(shown, key=lambda one: str(one[0].get("id")))


def full(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: full(one) for name, one in value.items() if one is not None}
    return [full(one) for one in value] if isinstance(value, list) else value


# -- the cases -----------------------------------------------------------------------------------------

FIRST = {
    "id": 1, "gone": "was here", "count": 5, "price": 10, "user": {"name": "a", "age": 30}, "lines": [{"sku": "x"}],
    "numbers": [1, 2], "Case": 1, "a.b": "dotted",
}  # fmt: skip
SECOND = {
    "id": 2, "new": "key", "count": "many", "price": 10.5, "user": {"name": "b", "mail": {"home": "h"}},
    "lines": [{"sku": "y", "weight": 1.5}, {"sku": "z"}], "numbers": [1, 2], "case": 2, "Case": 3, "a.b": "dotted",
    "c.d": {"e.f": [True]},
}  # fmt: skip
# What a column of another type cannot hold, and a name that differs in case only: kept beside the columns.
DOES_NOT_FIT = {"count": "many", "price": 10.5, "case": 2}


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_come_go_and_change_are_all_in_the_table(
    spark: SparkSession, server: TestServer, tmp_path: Path, kind: str
) -> None:
    out, topic = tmp_path / "lake", f"growing-{kind}"
    send(server, topic, FIRST)
    fill(spark, server, topic, out, kind)
    send(server, topic, SECOND)
    added = fill(spark, server, topic, out, kind)
    assert (added.rows, added.rescued, added.bad) == (1, 1, 0)
    assert set(added.grown) == {"new", "user.mail", "lines.weight", "c.d"}
    kept = {name: value for name, value in SECOND.items() if name not in DOES_NOT_FIT}
    for read in readers(kind, spark):
        assert plain(read(out)) == [(FIRST, {}), (kept, DOES_NOT_FIT)], read


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_grows_where_the_format_can_and_values_are_rescued_where_it_cannot(
    spark: SparkSession, server: TestServer, tmp_path: Path, kind: str
) -> None:
    out, topic, large = tmp_path / "lake", f"widening-{kind}", 1 << 40
    send(server, topic, {"id": 1, "inner": {"n": 7}})
    fill(spark, server, topic, out, kind, schema="id INT, inner STRUCT<n: INT>")
    send(server, topic, {"id": large, "inner": {"n": large}})
    if kind == "delta":
        with pytest.raises(OptionError) as caught:
            fill(spark, server, topic, out, kind, schema="id BIGINT, inner STRUCT<n: BIGINT>")
        assert str(caught.value) == (
            "topic widening-delta: key 'id' is INT in the lake and BIGINT in the schema given, which a delta table"
            " cannot become. Give it as INT (values that do not fit go to _rescued), or choose another directory"
        )
        added = fill(spark, server, topic, out, kind)
        expected: tuple[Any, Any] = ({}, {"id": large, "inner": {"n": large}})
    else:
        added = fill(spark, server, topic, out, kind, schema="id BIGINT, inner STRUCT<n: BIGINT>")
        assert set(added.grown) == {"id", "inner.n"}
        expected = ({"id": large, "inner": {"n": large}}, {})
    for read in readers(kind, spark):
        found = [(full(row["data"] or {}), json.loads(row["_rescued"] or "{}")) for row in read(out)]
        found = [({k: v for k, v in data.items() if v != {}}, rest) for data, rest in found]
        assert sorted(found, key=str) == sorted([({"id": 1, "inner": {"n": 7}}, {}), expected], key=str), read


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_that_names_a_new_key_adds_it_and_what_it_does_not_name_is_rescued(
    spark: SparkSession, server: TestServer, tmp_path: Path, kind: str
) -> None:
    out, topic = tmp_path / "lake", f"named-{kind}"
    send(server, topic, {"id": 1, "other": True})
    assert fill(spark, server, topic, out, kind, schema="id BIGINT").rescued == 1
    send(server, topic, {"id": 2, "new": "x", "other": True})
    assert fill(spark, server, topic, out, kind, schema="id BIGINT, new STRING").grown == ("new",)
    for read in readers(kind, spark):
        assert plain(read(out)) == [({"id": 1}, {"other": True}), ({"id": 2, "new": "x"}, {"other": True})]


def test_a_schema_with_json_bodies_is_kept_and_other_keys_become_columns_from_the_first_batch_on(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    out, said = tmp_path / "lake", list[str]()
    send(server, "both", {"id": 1, "price": "cheap", "other": True, "in": {"a": 1, "b": 2}})
    both = {"json": True, "schema": "id INT, price DOUBLE, in STRUCT<a: INT>"}
    added = fill(spark, server, "both", out, "parquet", **both)
    assert added.made == ("id INT", "price DOUBLE", "in struct<a:int,b:bigint>", "other BOOLEAN")
    assert (added.rescued, added.grown) == (1, ())
    send(server, "both", {"id": 2, "price": 1.5, "new": "x"})
    added = fill(spark, server, "both", out, "parquet", json=False, said=said.append)
    assert (added.made, added.grown) == ((), ("new",))
    send(server, "both", {"id": 3, "last": 1})
    assert fill(spark, server, "both", out, "parquet", **both).grown == ("last",)
    assert said == [f"going on with --schema {both['schema']!r} --json-bodies, as the lake was made"]
    for read in readers("parquet", spark):
        assert plain(read(out)) == [
            ({"id": 1, "other": True, "in": {"a": 1, "b": 2}}, {"price": "cheap"}),
            ({"id": 2, "price": 1.5, "new": "x"}, {}),
            ({"id": 3, "last": 1}, {}),
        ]


def test_the_new_columns_come_with_the_rows(spark: SparkSession, server: TestServer, tmp_path: Path) -> None:
    for kind in KINDS:
        out, topic = tmp_path / kind, f"together-{kind}"
        for body in ({"id": 1}, {"id": 2, "new": 1}):
            send(server, topic, body)
            fill(spark, server, topic, out, kind)
    last = max((tmp_path / "delta" / "_delta_log").glob("*.json"))
    assert [next(iter(json.loads(line))) for line in last.read_text().splitlines()] == [
        "commitInfo", "metaData", "txn", "add",
    ]  # fmt: skip
    table = iceberg(tmp_path / "iceberg")
    assert len(table.metadata.snapshots) == 2
    assert table.metadata.snapshots[-1].schema_id == table.schema().schema_id
    commit = json.loads(max((tmp_path / "parquet" / "_commits").glob("b*.json")).read_text())
    data = StructType.fromJson(commit["schema"])["data"].dataType
    assert commit["add"] and isinstance(data, StructType) and data.names == ["id", "new"]


def test_without_evolving_new_keys_are_rescued(
    spark: SparkSession, server: TestServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "lake"
    command = ["pipeline", "lake", "fixed", str(out), "--json-bodies", "--once", "-n", server.namesrv]
    send(server, "fixed", {"id": 1})
    assert run(command) == 0
    assert "columns in data: id BIGINT" in capfd.readouterr().err
    send(server, "fixed", {"id": 2, "new": "x"}, {"id": 3})
    assert run([*command, "--no-evolve"]) == 0
    assert (
        "1 of them has keys or values without a fitting column: these are in _rescued"
        in capfd.readouterr().err
    )
    assert plain(by_pyarrow(out)) == [({"id": 1}, {}), ({"id": 2}, {"new": "x"}), ({"id": 3}, {})]
    send(server, "fixed", {"id": 4, "new": "x"})
    assert run([*command, "--schema", "id BIGINT, new DATE"]) == 0
    assert "new or wider columns: new" in capfd.readouterr().err
    assert run([*command, "--schema", "id STRING"]) == 1
    told = [line for line in capfd.readouterr().err.splitlines() if line.startswith("aerobee: ")]
    assert len(told) == 1 and "topic fixed: key 'id' is BIGINT in the lake and STRING" in told[0]
    assert plain(by_pyarrow(out))[3] == ({"id": 4}, {"new": "x"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_says_nothing_goes_on_as_the_lake_was_made(
    spark: SparkSession, server: TestServer, tmp_path: Path, kind: str
) -> None:
    out, topic = tmp_path / "lake", f"remembered-{kind}"
    send(server, topic, {"id": 1, "other": True})
    fill(spark, server, topic, out, kind, schema="id BIGINT")
    send(server, topic, {"id": 2, "other": True})
    said: list[str] = []
    fill(spark, server, topic, out, None, json=False, said=said.append)
    assert said == ["going on with --schema 'id BIGINT', as the lake was made"]
    for read in readers(kind, spark):
        rows = read(out)
        assert plain(rows) == [({"id": 1}, {"other": True}), ({"id": 2}, {"other": True})]
        assert "body" not in rows[0]


def test_keys_become_columns_again_or_no_more_as_the_last_run_that_spoke_of_it_said(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    out, said = tmp_path / "lake", list[str]()
    runs: list[dict[str, Any]] = [
        {"schema": "id BIGINT"},
        {},  # of a lake that was made by a schema: said
        {"json": False},
        {"json": False, "evolve": False},
        {"json": False},
    ]
    for number, settings in enumerate(runs):
        send(server, "spoken", {"id": number, f"k{number}": 1})
        fill(spark, server, "spoken", out, "parquet", said=said.append, **settings)
    assert said == [
        "the lake was made with --schema 'id BIGINT'; keys it does not name become columns from now on",
        "going on with --json-bodies, as the lake was made",
        "going on with --json-bodies --no-evolve, as the lake was made",
        "going on with --json-bodies --no-evolve, as the lake was made",
    ]
    assert plain(by_pyarrow(out)) == [
        ({"id": 0}, {"k0": 1}),
        ({"id": 1, "k1": 1}, {}),
        ({"id": 2, "k2": 1}, {}),
        ({"id": 3}, {"k3": 1}),
        ({"id": 4}, {"k4": 1}),
    ]


def test_a_lake_that_remembers_nothing_goes_on_with_its_columns(
    spark: SparkSession, server: TestServer, tmp_path: Path
) -> None:
    out, said = tmp_path / "lake", list[str]()
    send(server, "forgotten", {"id": 1})
    fill(spark, server, "forgotten", out, "parquet")
    (out / "_bodies.json").unlink()
    send(server, "forgotten", {"id": 2, "new": 1})
    fill(spark, server, "forgotten", out, "parquet", json=False, said=said.append)
    assert said == [
        "going on with the columns of the lake; keys that have none go to _rescued"
        " (--json-bodies makes columns of them)"
    ]
    assert plain(by_pyarrow(out)) == [({"id": 1}, {}), ({"id": 2}, {"new": 1})]


def test_a_run_that_would_change_the_shape_of_the_rows_is_refused(
    spark: SparkSession, server: TestServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "lake"
    send(server, "kept-whole", {"id": 1})
    command = ["pipeline", "lake", "kept-whole", str(out), "--once", "-n", server.namesrv]
    assert run(command) == 0
    send(server, "kept-whole", {"id": 2})
    capfd.readouterr()
    for options, word in [
        (["--schema", "id INT"], "--schema (schema=)"),
        (["--json-bodies"], "--json-bodies (json=True)"),
        (["--format", "delta"], "--format delta (format=)"),
    ]:
        assert run([*command, *options]) == 1
        told = capfd.readouterr().err
        assert word in told and "choose another directory" in told, told
    assert run(command) == 0
    assert sorted(row["body"] for row in by_pyarrow(out)) == [b'{"id": 1}', b'{"id": 2}']


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_a_run_after_one_that_died_in_its_first_batch_goes_on_with_what_that_one_chose(
    spark: SparkSession,
    server: TestServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    out, topic = tmp_path / "lake", f"begun-{kind}"
    command = ["pipeline", "lake", topic, str(out), "--once", "-n", server.namesrv]
    send(server, topic, {"id": 1})
    with monkeypatch.context() as dying:
        dying.setattr(pipeline, "_added", dies)
        assert run([*command, "--json-bodies", "--format", kind]) == 1
    capfd.readouterr()
    assert run(command) == 0
    flags = "--json-bodies" if kind == "parquet" else "--format delta --json-bodies"
    assert f"going on with {flags}, as the lake was begun" in capfd.readouterr().err
    table = found_table(spark, str(out))
    assert table.kind == kind
    assert [(row.data.id, "body" in row) for row in table.read().collect()] == [(1, False)]


def dies(*_: Any) -> None:
    raise OSError("killed")


def test_what_a_lake_chose_is_remembered_before_its_first_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "started", dies)
    with pytest.raises(OSError, match="killed"):
        lake(spark, "any", str(tmp_path), schema="id INT", format="delta", options={"namesrv": "127.0.0.1:1"})
    assert json.loads((tmp_path / "_bodies.json").read_text()) == {
        "format": "delta", "schema": "id INT", "json": False, "evolve": True,
    }  # fmt: skip


def test_a_lake_without_a_commit_goes_on_as_the_last_run_that_spoke_of_it_said(
    spark: SparkSession, tmp_path: Path
) -> None:
    def said(kind: str | None, asked: Asked) -> tuple[str, str]:
        table = lake_of(spark, str(tmp_path / "lake"), kind)
        how = lake_bodies.settled(table, "t", asked)
        table.remember(how.memory)
        return table.kind, how.said

    assert said(None, Asked()) == ("parquet", "")
    assert said("delta", Asked()) == ("delta", "")
    assert said(None, Asked()) == ("delta", "going on with --format delta, as the lake was begun")
    assert said(None, Asked("id INT", evolve=False))[0] == "delta"
    going_on = "going on with --schema 'id INT' --no-evolve, as the lake was begun"
    assert said("parquet", Asked()) == ("parquet", going_on)
    assert said(None, Asked(json=True, evolve=True)) == ("parquet", "")
    assert said(None, Asked()) == ("parquet", "going on with --json-bodies, as the lake was begun")


def test_a_lake_that_keeps_no_bodies_cannot_be_replayed_and_says_so_in_one_line(
    spark: SparkSession, server: TestServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "lake"
    send(server, "bodiless", {"id": 1})
    fill(spark, server, "bodiless", out, "parquet")
    (tmp_path / "empty").mkdir()
    for where, said in [
        (out, f"the rows of the lake {out} keep no bodies: .*Replay from the topic itself, or from a lake"),
        (tmp_path / "empty", f"the lake {tmp_path}/empty holds no committed batch yet"),
    ]:
        capfd.readouterr()
        more = ["--where", "body IS NOT NULL", "--target", "again", "-n", server.namesrv]
        assert run(["pipeline", "replay", str(where), "--name", "n", *more]) == 1
        told = [line for line in capfd.readouterr().err.splitlines() if line]
        assert len(told) == 1 and re.search(said, told[0]), told
    with pytest.raises(OptionError, match="the rows to replay keep no bodies"):
        replay(found_table(spark, str(out)).read(), name="n", namesrv=server.namesrv, audit=str(tmp_path))
    rows = dataframes.read(spark, "bodiless", namesrv=server.namesrv)
    with pytest.raises(OptionError, match="have no properties, which a replay needs"):
        replay(rows, name="n", namesrv=server.namesrv, audit=str(tmp_path))


def test_a_lake_of_before_grows_too(
    spark: SparkSession, server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commits do not tell its columns; here it even kept bodies as they were, and was not refused to parse them."""
    out = tmp_path / "lake"
    send(server, "older", {"id": 0})
    lake(spark, "older", str(out), once=True, options={"namesrv": server.namesrv}).awaitTermination()
    send(server, "older", {"id": 1})
    with monkeypatch.context() as unsettled:
        as_asked = lake_bodies._as_asked
        unsettled.setattr(
            pipeline, "settled", lambda _, topics, asked: lake_bodies.Settled(as_asked(topics, asked))
        )
        fill(spark, server, "older", out, "parquet")
    for commit in (out / "_commits").glob("*.json"):
        commit.write_text(json.dumps({"add": json.loads(commit.read_text())["add"]}))
    (out / "_common_metadata").unlink()
    send(server, "older", {"id": 2, "new": 1})
    assert fill(spark, server, "older", out, "parquet").grown == ("new",)
    by_nobody_special = [row.asDict(recursive=True) for row in spark.read.parquet(str(out)).collect()]
    for rows in [by_nobody_special, *(read(out) for read in readers("parquet", spark))]:
        assert [bytes(row["body"]) for row in rows if row["body"] is not None] == [b'{"id": 0}']
        parsed = [row for row in rows if row["body"] is None]
        assert plain(parsed) == [({"id": 1}, {}), ({"id": 2, "new": 1}, {})]


def test_schemas_are_merged_field_by_field() -> None:
    kept = schema_of("a INT, s STRUCT<x: FLOAT, y: STRING>, l ARRAY<STRUCT<p: INT>>, `d.t` BIGINT")
    came = schema_of("A STRING, a BIGINT, s STRUCT<x: DOUBLE, z: INT>, l ARRAY<STRUCT<q: INT>>, `d.t` STRING")
    wide = json_schema.merged(kept, came, json_schema.WIDENING)
    assert wide.schema == schema_of(
        "a BIGINT, s STRUCT<x: DOUBLE, y: STRING, z: INT>, l ARRAY<STRUCT<p: INT, q: INT>>, `d.t` BIGINT"
    )
    assert (wide.added, wide.widened) == (("s.z", "l.q"), ("a", "s.x"))
    assert [conflict.key for conflict in wide.conflicts] == ["d.t"]
    narrow = json_schema.merged(kept, came, json_schema.NO_WIDENING)
    assert [conflict.key for conflict in narrow.conflicts] == ["a", "s.x", "d.t"]
    assert json_schema.covers(wide.schema, schema_of("a INT, s STRUCT<z: INT>"))
    assert not json_schema.covers(wide.schema, schema_of("l ARRAY<STRUCT<r: INT>>"))
    assert not json_schema.covers(wide.schema, schema_of("A INT"))
