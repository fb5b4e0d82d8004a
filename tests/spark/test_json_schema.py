# SPDX-License-Identifier: Apache-2.0
"""Schemas of JSON bodies that grow, and what of a body its columns do not hold. No Spark is started here."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from aerobee.spark.decoding import json_bodies, json_rest
from aerobee.spark.decoding.json_schema import (
    NO_WIDENING,
    WIDENING,
    Conflict,
    besides,
    covers,
    distinct,
    merged,
    rounds,
)
from aerobee.spark.options import OptionError

INT, LONG, TEXT, DOUBLE = IntegerType(), LongType(), StringType(), DoubleType()


def struct(**fields: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


@pytest.mark.parametrize(
    ("kept", "found", "schema", "added", "widened", "conflicts"),
    [
        (struct(a=INT), struct(a=INT), struct(a=INT), (), (), ()),
        (struct(a=INT), struct(b=TEXT), struct(a=INT, b=TEXT), ("b",), (), ()),
        (struct(a=INT), struct(a=LONG), struct(a=LONG), (), ("a",), ()),
        (struct(a=LONG), struct(a=INT), struct(a=LONG), (), (), ()),
        (struct(a=FloatType()), struct(a=DOUBLE), struct(a=DOUBLE), (), ("a",), ()),
        (struct(a=INT), struct(a=TEXT), struct(a=INT), (), (), (Conflict("a", INT, TEXT),)),
        (struct(a=INT), struct(a=DOUBLE), struct(a=INT), (), (), (Conflict("a", INT, DOUBLE),)),
        (struct(a=INT), struct(A=TEXT), struct(a=INT), (), (), ()),
        (
            struct(u=struct(a=INT)),
            struct(u=struct(a=LONG, b=TEXT)),
            struct(u=struct(a=LONG, b=TEXT)),
            ("u.b",),
            ("u.a",),
            (),
        ),
        (
            struct(l=ArrayType(struct(a=INT))),
            struct(l=ArrayType(struct(b=INT))),
            struct(l=ArrayType(struct(a=INT, b=INT))),
            ("l.b",),
            (),
            (),
        ),
        (struct(l=ArrayType(INT)), struct(l=ArrayType(LONG)), struct(l=ArrayType(LONG)), (), ("l",), ()),
        (
            struct(l=ArrayType(INT)),
            struct(l=INT),
            struct(l=ArrayType(INT)),
            (),
            (),
            (Conflict("l", ArrayType(INT), INT),),
        ),
        (
            struct(l=INT),
            struct(l=ArrayType(INT)),
            struct(l=INT),
            (),
            (),
            (Conflict("l", INT, ArrayType(INT)),),
        ),
        (
            struct(a=INT),
            struct(a=struct(b=INT)),
            struct(a=INT),
            (),
            (),
            (Conflict("a", INT, struct(b=INT)),),
        ),
        (
            struct(a=struct(b=INT)),
            struct(a=INT),
            struct(a=struct(b=INT)),
            (),
            (),
            (Conflict("a", struct(b=INT), INT),),
        ),
    ],
)
def test_columns_grow_and_never_go(
    kept: StructType, found: StructType, schema: StructType, added: Any, widened: Any, conflicts: Any
) -> None:
    assert merged(kept, found, WIDENING) == (schema, added, widened, conflicts)


def test_a_table_that_cannot_widen_keeps_its_types_and_says_so() -> None:
    told = merged(struct(a=INT), struct(a=LONG), NO_WIDENING)
    assert told == (struct(a=INT), (), (), (Conflict("a", INT, LONG),))
    assert merged(struct(a=LONG), struct(a=INT), NO_WIDENING).conflicts == (), "it fits as it is"
    pairs = {(a, b) for a, b in WIDENING if a != "float"}
    assert pairs == {
        ("tinyint", "smallint"), ("tinyint", "int"), ("tinyint", "bigint"), ("smallint", "int"),
        ("smallint", "bigint"), ("int", "bigint"),
    }  # fmt: skip


def test_what_is_known_of_a_kept_column_stays_known() -> None:
    kept = StructType([StructField("a", INT, nullable=False, metadata={"from": "users"})])
    (column,) = merged(kept, struct(a=LONG), WIDENING).schema.fields
    assert (column.dataType, column.nullable, column.metadata) == (LONG, False, {"from": "users"})
    whole = ArrayType(INT, containsNull=False)
    (column,) = merged(struct(a=whole), struct(a=ArrayType(INT)), WIDENING).schema.fields
    assert column.dataType == whole


@pytest.mark.parametrize(
    ("columns", "found", "covered"),
    [
        (struct(a=INT), struct(a=TEXT), True),
        (struct(a=INT, b=INT), struct(a=INT), True),
        (struct(a=INT), struct(a=INT, b=INT), False),
        (struct(a=INT), struct(A=INT), False),
        (struct(u=struct(a=INT)), struct(u=struct(b=INT)), False),
        (struct(u=struct(a=INT)), struct(u=struct(a=INT)), True),
        (struct(u=struct(a=INT)), struct(u=INT), True),
        (struct(l=ArrayType(struct(a=INT))), struct(l=ArrayType(struct(b=INT))), False),
        (struct(l=ArrayType(struct(a=INT))), struct(l=ArrayType(struct(a=INT))), True),
        (struct(m=MapType(TEXT, struct(a=INT))), struct(m=struct(any=struct(a=INT))), True),
        (struct(m=MapType(TEXT, struct(a=INT))), struct(m=struct(any=struct(b=INT))), False),
        (struct(m=MapType(TEXT, INT)), struct(m=INT), True),
        (struct(m=INT), struct(m=struct(any=struct(a=INT))), True),
    ],
)
def test_keys_without_a_column_are_found_at_any_depth(
    columns: StructType, found: StructType, covered: bool
) -> None:
    assert covers(columns, found) is covered


@pytest.mark.parametrize(
    ("columns", "found", "may"),
    [
        (struct(a=DOUBLE), struct(a=LONG), True),
        (struct(a=FloatType()), struct(a=ShortType()), True),
        (struct(a=DOUBLE), struct(a=DOUBLE), False),
        (struct(a=DOUBLE), struct(a=TEXT), False),
        (struct(a=LONG), struct(a=LONG), False),
        (struct(a=DOUBLE), struct(b=LONG), False),
        (struct(a=DOUBLE, b=DOUBLE), struct(a=DOUBLE, b=LONG), True),
        (struct(u=struct(a=DOUBLE)), struct(u=struct(a=LONG)), True),
        (struct(l=ArrayType(DOUBLE)), struct(l=ArrayType(LONG)), True),
        (struct(l=ArrayType(LONG)), struct(l=ArrayType(LONG)), False),
    ],
)
def test_whole_numbers_in_columns_of_fractions_may_lose_digits(
    columns: StructType, found: StructType, may: bool
) -> None:
    assert rounds(columns, found) is may


def test_of_names_that_differ_in_case_the_first_stays_at_any_depth() -> None:
    twice = StructType([StructField("a", INT, nullable=False), StructField("A", TEXT)])
    once = StructType([StructField("a", INT, nullable=False)])
    assert distinct(struct(u=twice, l=ArrayType(twice, False), n=INT)) == struct(
        u=once, l=ArrayType(once, False), n=INT
    )


def test_schemas_come_as_the_json_lakes_keep() -> None:
    schema = struct(a=INT, u=struct(b=ArrayType(TEXT)))
    assert json_bodies.schema_of(json.loads(schema.json())) == schema


@pytest.mark.parametrize(
    ("body", "kept", "rest"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1, "b": None}, {"a": 1}, None),
        ({"a": 1, "b": 2}, {"a": 1}, {"b": 2}),
        ({"a": 1}, None, {"a": 1}),
        ({}, None, None),
        ({"a": 12345678901234567}, {"a": 12345678901234568}, {"a": 12345678901234567}),
        ({"a": 0.1}, {"a": 0.10000000149}, None),
        ({"a": 0.1}, {"a": 0.1001}, {"a": 0.1}),
        ({"a": True}, {"a": 1}, {"a": True}),
        ({"a": 1}, {"a": True}, {"a": 1}),
        ({"a": 1}, {"a": "1"}, None),
        ({"a": {"x": 1}}, {"a": '{"x":1}'}, None),
        ({"a": "text"}, {"a": 5}, {"a": "text"}),
        ({"u": {"a": 1, "b": 2}}, {"u": {"a": 1}}, {"u": {"b": 2}}),
        ({"u": {"a": 1}}, {"u": {"a": 1}}, None),
        ({"l": [1, 2]}, {"l": [1, 2]}, None),
        ({"l": [1, 2]}, {"l": [1]}, {"l": [1, 2]}),
        ({"l": [1, {"a": 1, "b": 2}]}, {"l": [1, {"a": 1}]}, {"l": [1, {"a": 1, "b": 2}]}),
        ({"l": [None]}, {"l": [None]}, None),
        ({"l": []}, {}, {"l": []}),
    ],
)
def test_what_the_columns_do_not_hold_is_left(body: Any, kept: Any, rest: Any) -> None:
    told = json_rest.rest(json.dumps(body).encode(), None if kept is None else json.dumps(kept))
    assert (None if told is None else json.loads(told)) == rest


@pytest.mark.parametrize("body", [b"", b"[1]", b"1", b'{"a": 1', b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_said_to_be_none(body: bytes) -> None:
    assert json_rest.rest(body, None) == ""


def test_texts_stay_readable_and_half_a_sign_stays_escaped() -> None:
    assert json_rest.rest('{"a": "数"}'.encode(), None) == '{"a": "数"}'
    assert json_rest.rest(rb'{"a": "\ud83d"}', None) == r'{"a": "\ud83d"}'


def test_a_schema_may_be_told_as_ddl_which_spark_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    read = {"a INT": struct(a=INT), "INT": INT}
    monkeypatch.setattr(DataType, "fromDDL", staticmethod(read.__getitem__))
    assert json_bodies.schema_of("a INT") == json_bodies.schema_of({"ddl": "a INT"}) == struct(a=INT)
    for told in ("INT", {"ddl": "INT"}):
        with pytest.raises(OptionError, match="schema 'INT' names no columns"):
            json_bodies.schema_of(told)


def test_what_columns_do_not_hold_is_told_row_by_row() -> None:
    bodies, kept = pa.array([b'{"a": 1, "b": 2}', None, b"no"]), pa.array(['{"a": 1}', None, None])
    found = json_bodies._rest(bodies, kept)
    assert (found.type, found.to_pylist()) == (pa.string(), ['{"b": 2}', None, ""])


def test_what_a_schema_gives_stays_as_it_is_and_other_keys_come_besides() -> None:
    given = StructType([StructField("id", INT), StructField("price", DOUBLE)])
    found = StructType([StructField("id", LONG), StructField("price", TEXT), StructField("new", LONG)])
    both = besides(given, found)
    assert both.schema == StructType([*given.fields, StructField("new", LONG)])
    assert (both.added, both.widened) == (("new",), ())
    assert both.conflicts == (Conflict("price", DOUBLE, TEXT),), "an INT holds what was found as BIGINT"
