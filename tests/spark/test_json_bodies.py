# SPDX-License-Identifier: Apache-2.0
"""JSON bodies of all kinds become columns, or stay as they came."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from aerobee.spark.decoding import json_bodies, json_schema
from aerobee.spark.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FITS = [
    b'{"n": 1, "user": {"first-name": "x", "a b": [1]}}',
    b' \n{"n": 2}',
    b"{}",
    b" { } ",
    '{"user": {"first-name": "数"}}'.encode(),
]
BAD = [
    b"no json",
    b"[1]",
    b'[{"n": 1}, {"n": 2}]',
    b'"text"',
    b"17",
    b"",
    b"\xff\xfe",
    b"null",
    b'{"n": 1',
]
RESCUED: list[tuple[bytes, Any, Any]] = [
    (b'{"n": "text"}', {}, {"n": "text"}),
    (b'{"n": "text", "user": {"first-name": "y"}}', {"user": {"first-name": "y"}}, {"n": "text"}),
    (b'{"n": null}', {}, None),
    (b'{"new": {}}', {}, {"new": {}}),
    (b'{"n": 3, "user": {"a b": [1, "x"], "new": [1]}}', {"n": 3}, {"user": {"a b": [1, "x"], "new": [1]}}),
    (b'{"N": 4, "n": 5}', {"n": 5}, {"N": 4}),
    (b'{"n": 12345678901234567890}', {}, {"n": 12345678901234567890}),
    (b'{"n": 1.5}', {}, {"n": 1.5}),
]


def test_values_that_fit_are_columns_and_nothing_else_is_lost(spark: SparkSession) -> None:
    bodies = [*FITS, *BAD, *(body for body, _, _ in RESCUED)]
    frame = spark.createDataFrame([(body,) for body in bodies], "body BINARY")
    schema = json_bodies.inferred(spark.createDataFrame([(body,) for body in FITS], "body BINARY"))
    assert schema is not None
    assert json_bodies.schema_of(json.loads(schema.json())) == schema
    parsed = json_bodies.parsed(frame, schema, json_bodies.inferred(frame))
    rows = parsed.selectExpr("body", "to_json(data) AS data", "_rescued", "badBody").collect()
    found = {
        bytes(row.body): (
            row.data and json.loads(row.data),
            row._rescued and json.loads(row._rescued),
            row.badBody and bytes(row.badBody),
        )
        for row in rows
    }
    for body in FITS:
        assert found[body] == (without_nulls(json.loads(body)), None, None), body
    for body in BAD:
        assert found[body] == (None, None, body), body
    for body, data, rescued in RESCUED:
        got, left, bad = found[body]
        assert (without_empty(got), left, bad) == (data, rescued, None), body


def test_two_objects_in_a_body_are_not_one(spark: SparkSession) -> None:
    body = b'{"n": 1}\n{"n": 2}'
    frame = spark.createDataFrame([(body,), (b'{"n": 3, "t": "} {"}',)], "body BINARY")
    found = json_bodies.inferred(frame)
    first, second = json_bodies.parsed(frame, found, found).collect()
    assert (bytes(first.badBody), first.data.n) == (body, 1)
    assert (second.badBody, second._rescued, second.data.t) == (None, None, "} {")


def test_digits_that_a_double_cannot_hold_are_kept(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b'{"n": 9007199254740993}',), (b'{"n": 5}',)], "body BINARY")
    schema = json_bodies.schema_of("n DOUBLE")
    rows = json_bodies.parsed(frame, schema, json_bodies.inferred(frame)).collect()
    assert [row._rescued for row in rows] == ['{"n": 9007199254740993}', None]


def without_empty(value: Any) -> Any:
    return {k: v for k, v in (value or {}).items() if v != {}}


def without_nulls(value: Any) -> Any:
    return (
        {k: without_nulls(v) for k, v in value.items() if v is not None} if isinstance(value, dict) else value
    )


@pytest.mark.parametrize(
    "body",
    [
        {"a`b": 1, "c d": 2, "e.f": 3},
        {"x": {"a:b": 1, "c<d>": 2, "e,f": 3}},
        {"select": {"from": 1, "interval": 2}},
        {"list": [{"in-side": 1, "In-Side": 1}]},
        {"数": {"量": 1}},
    ],
)
def test_names_may_be_anything(spark: SparkSession, body: dict[str, Any]) -> None:
    frame = spark.createDataFrame([(json.dumps(body).encode(),)], "body BINARY")
    schema = json_bodies.inferred(frame)
    assert schema is not None
    parsed = json_bodies.parsed(frame, json_schema.distinct(schema), schema)
    (row,) = parsed.selectExpr("to_json(data) AS data", "_rescued", "badBody").collect()
    kept = json.loads(row.data)
    if "list" in body:  # of names that differ in case only, one has a column
        assert [len(one) for one in kept["list"]] == [1]
        assert json.loads(row._rescued) == body
    else:
        assert kept == body
        assert row._rescued is None
    assert row.badBody is None


def test_bodies_without_an_object_have_no_schema(spark: SparkSession) -> None:
    assert (
        json_bodies.inferred(spark.createDataFrame([(b"no json",), (b"[1]",), (None,)], "body BINARY"))
        is None
    )
    assert json_bodies.inferred(spark.createDataFrame([], "body BINARY")) is None


def test_a_schema_is_told_as_ddl_or_as_lakes_keep_it(spark: SparkSession) -> None:
    told = "n INT, user STRUCT<name: STRING>"
    found = json_bodies.schema_of(told)
    assert found == json_bodies.schema_of({"ddl": told}) == json_bodies.schema_of(found.jsonValue())
    with pytest.raises(OptionError, match="'INT' names no columns"):
        json_bodies.schema_of("INT")
