# SPDX-License-Identifier: Apache-2.0
"""JSON bodies of all kinds become columns, or stay as they came."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from aerobee.spark.decoding import json_bodies
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
NOTHING = [
    b"no json",
    b"[1]",
    b'[{"n": 1}, {"n": 2}]',
    b'"text"',
    b"17",
    b"",
    b'{"n": "text"}',
    b"\xff\xfe",
    b"null",
]
IN_PART = [
    (b'{"n": "text", "user": {"first-name": "y"}}', {"user": {"first-name": "y"}}),
    (b'{"n": null}', {}),
    (b'{"new": {}}', {}),
]


def test_values_that_fit_are_columns_and_bodies_that_do_not_are_kept(spark: SparkSession) -> None:
    bodies = [*FITS, *NOTHING, *(body for body, _ in IN_PART)]
    frame = spark.createDataFrame([(body,) for body in bodies], "body BINARY")
    good = spark.createDataFrame([(body,) for body in FITS], "body BINARY")
    schema = json_bodies.inferred(good)
    assert schema is not None
    assert json_bodies.schema_of(json.loads(schema.json())) == schema
    rows = json_bodies.parsed(frame, schema).selectExpr("body", "to_json(data) AS data", "badBody").collect()
    found = {
        bytes(row.body): (row.data and json.loads(row.data), row.badBody and bytes(row.badBody))
        for row in rows
    }
    for body in FITS:
        assert found[body] == (without_nulls(json.loads(body)), None), body
    for body in NOTHING:
        assert found[body] == (None, body), body
    for body, part in IN_PART:
        assert found[body] == (part, body)


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
    (row,) = json_bodies.parsed(frame, schema).selectExpr("to_json(data) AS data", "badBody").collect()
    kept = json.loads(row.data)
    if "list" in body:  # of names that differ in case only, one is kept
        assert [len(one) for one in kept["list"]] == [1]
    else:
        assert kept == body
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
