# SPDX-License-Identifier: Apache-2.0
"""SQL92 filters: what they accept, what they match, and that any filter means what a naive reading says."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.errors import SubscriptionParseFailed
from aerobee.protocol.filters.sql_eval import compile_sql
from aerobee.protocol.filters.sql_lexer import MAX_LENGTH


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a > 5 AND b = 'abc'", {"a": "10", "b": "abc"}),
        ("a >= 5.5 and a <= 5.5", {"a": "5.5"}),
        ("a BETWEEN 0 AND 3", {"a": "3"}),
        ("a not between 0 and 3", {"a": "4"}),
        ("a > -3 AND a < +3", {"a": "0"}),
        ("a = 1E2", {"a": "100"}),
        ("a > 5000000000", {"a": "5000000001"}),
        ("a > b", {"a": "10", "b": "9"}),
        ("TAGS IN ('TagA', 'TagB')", {"TAGS": "TagB"}),
        ("TAGS NOT IN ('TagA', 'TagB')", {"TAGS": "TagC"}),
        ("a = 'it''s'", {"a": "it's"}),
        ("a <> 'x'", {"a": "y"}),
        ("a IS NULL", {}),
        ("a IS NOT NULL", {"a": "x"}),
        ("a CONTAINS 'b'", {"a": "abc"}),
        ("a NOT CONTAINS 'x'", {"a": "abc"}),
        ("a STARTSWITH 'ab'", {"a": "abc"}),
        ("a NOT STARTSWITH 'b'", {"a": "abc"}),
        ("a ENDSWITH 'bc'", {"a": "abc"}),
        ("a NOT ENDSWITH 'b'", {"a": "abc"}),
        ("a = TRUE", {"a": "True"}),
        ("a = false", {"a": "no"}),
        ("TRUE", {}),
        ("NOT (a = 5)", {"a": "6"}),
        ("a = 1 OR a = 2 AND b = 3", {"a": "1"}),
        ("(a = 1 OR a = 2) AND b = 3", {"a": "2", "b": "3"}),
        ("a = 1 /* one */ -- rest", {"a": "1"}),
        ("$a_1 = 'x'", {"$a_1": "x"}),
        ("a = b", {}),  # both absent: equal, as in RocketMQ
        ("5 <> a", {}),  # an absent right side is false, so its negation holds
    ],
)
def test_matching_messages_are_taken(text: str, properties: dict[str, str]) -> None:
    assert compile_sql(text)(properties)


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a > 5", {}),
        ("NOT (a > 5)", {}),  # unknown stays unknown
        ("a <> 'x'", {}),
        ("a NOT IN ('x')", {}),
        ("a NOT CONTAINS 'x'", {}),
        ("a CONTAINS ''", {"a": "x"}),
        ("a > 5", {"a": "many"}),
        ("a > 5", {"a": "5.5"}),  # an integer constant reads integers only, as in RocketMQ
        ("a > 5", {"a": "5000000000"}),  # ... of its own width
        ("a > 5 OR b = 'x'", {"a": "many", "b": "x"}),  # one unreadable property fails the whole filter
        ("a > b", {"a": "10", "b": "x"}),
        ("a", {"a": "true"}),
        ("TRUE = a", {"a": "true"}),
        ("-a < 5", {"a": "3"}),
        ("NULL", {}),
        ("a > 10", {"a": "1_1"}),  # no Python number forms
        ("a > 10", {"a": "٣٣"}),
        ("a >= 0.5", {"a": "nan"}),
        ("NOT a = 5", {"a": "6"}),  # (NOT a) = 5
    ],
)
def test_other_messages_are_left(text: str, properties: dict[str, str]) -> None:
    assert not compile_sql(text)(properties)


@pytest.mark.parametrize(
    ("text", "column", "hint"),
    [
        ("", 1, "empty"),
        ("   ", 1, "empty"),
        ("a !=5", 3, "write <>"),
        ("a >", 4, "found the end"),
        ('a = "x"', 5, "single quotes"),
        ("a = 'x", 5, "not closed"),
        ("a like '%x'", 3, "CONTAINS"),
        ("a BETWEEN 5 AND 1", 17, "smaller bound first"),
        ("'x'", 1, "true or false"),
        ("5", 1, "true or false"),
        ("a > 'b'", 5, "no order"),
        ("a > TRUE", 5, "no order"),
        ("a BETWEEN NULL AND 5", 11, ": NULL has no order"),
        ("a = 05", 5, "leading zeros"),
        ("a = 5x", 5, "number"),
        ("a = NULL", 5, "IS NULL"),
        ("a IN (1, 2)", 7, "single quotes"),
        ("5 IN ('x')", 1, "property name"),
        ("a = 1 b = 2", 7, "AND, OR"),
        ("a = 9223372036854775808", 5, "64-bit"),
        ("a > 1e999", 5, "64-bit"),
        ("a && b", 3, "AND"),
        ("a = 1 || b = 2", 7, "OR"),
        ("中文 = 1", 1, "property names"),
        ("TRUE = 'x'", 6, "cannot be compared"),
        ("(a = 1", 7, "expected )"),
        ("a = 1 /* x", 7, "not closed"),
        ("(" * 33 + "a=1" + ")" * 33, 33, "deeper"),
        ("NOT " * 33 + "a", 129, "deeper"),
        ("a" + " IS NULL" * 40, 267, "deeper"),
        ("a = '" + "x" * MAX_LENGTH + "'", MAX_LENGTH, "limit"),
    ],
)
def test_a_bad_filter_is_refused_with_its_column_and_a_hint(text: str, column: int, hint: str) -> None:
    with pytest.raises(SubscriptionParseFailed, match=re.escape(f"column {column}:")) as refused:
        compile_sql(text)
    assert hint in refused.value.remark


def test_a_thousand_conditions_are_no_problem() -> None:
    text = " AND ".join(f"a{i} = {i}" for i in range(1000))
    assert compile_sql(text)({f"a{i}": str(i) for i in range(1000)})


# -- against a naive reading ---------------------------------------------------------------------------------

NAMES = ("a", "b", "c")
NUMBERS = st.one_of(
    st.integers(0, 12), st.sampled_from([2**31 - 1, 2**31, 5_000_000_000]), st.sampled_from([0.5, 2.5, 10.0])
)
TEXTS = st.sampled_from(["", "x", "xy", "5", "true", "it's", "10"])
VALUES = st.sampled_from(["1", "5", "5.5", "10", "x", "xy", "true", "it's", "-3", "3000000000", "1e1"])
Tree = tuple  # kind, then its parts

CONDITIONS = st.one_of(
    st.tuples(st.just("order"), st.sampled_from(["<", "<=", ">", ">="]), st.sampled_from(NAMES), NUMBERS),
    st.tuples(
        st.just("order-names"), st.sampled_from(["<", ">="]), st.sampled_from(NAMES), st.sampled_from(NAMES)
    ),
    st.tuples(st.just("equal"), st.sampled_from(NAMES), st.one_of(NUMBERS, TEXTS, st.booleans())),
    st.tuples(st.just("differ"), st.sampled_from(NAMES), st.one_of(NUMBERS, TEXTS, st.booleans())),
    st.tuples(st.just("in"), st.sampled_from(NAMES), st.lists(TEXTS, min_size=1, max_size=4)),
    st.tuples(st.just("null"), st.sampled_from(NAMES)),
    st.tuples(st.just("contains"), st.sampled_from(NAMES), TEXTS),
    st.tuples(st.just("starts"), st.sampled_from(NAMES), TEXTS),
)
TREES = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
        st.tuples(st.just("not"), inner),
    ),
    max_leaves=8,
)


def literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value)
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)


def render(tree: Tree) -> str:
    match tree:
        case ("order" | "order-names", sign, name, other):
            return f"{name} {sign} {other if tree[0] == 'order-names' else literal(other)}"
        case ("equal", name, value):
            return f"{name} = {literal(value)}"
        case ("differ", name, value):
            return f"{name} <> {literal(value)}"
        case ("in", name, values):
            return f"{name} IN ({', '.join(map(literal, values))})"
        case ("null", name):
            return f"{name} IS NULL"
        case ("contains", name, search):
            return f"{name} CONTAINS {literal(search)}"
        case ("starts", name, search):
            return f"{name} STARTSWITH {literal(search)}"
        case ("not", inner):
            return f"NOT ({render(inner)})"
        case (word, left, right):
            return f"({render(left)}) {word} ({render(right)})"
    raise AssertionError(tree)


class Unreadable(Exception):
    pass


def read(text: str, like: float) -> float:
    """Text as the kind of number `like` is, in Java's sense."""
    try:
        if isinstance(like, float):
            return float(text)
        value, bits = int(text), 31 if like < 2**31 else 63
    except ValueError:
        raise Unreadable from None
    if not -(2**bits) <= value < 2**bits:
        raise Unreadable
    return value


def order(sign: str, left: float, right: float) -> bool:
    return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]


def naive(tree: Tree, properties: dict[str, str]) -> bool | None:  # noqa: PLR0912 one line per kind
    match tree:
        case ("order", sign, name, number):
            return None if name not in properties else order(sign, read(properties[name], number), number)
        case ("order-names", sign, left, right):
            if left not in properties or right not in properties:
                return None
            return order(sign, read(properties[left], 0.0), read(properties[right], 0.0))
        case ("equal", name, value):
            return naive_equal(properties.get(name), value)
        case ("differ", name, value):
            same = naive_equal(properties.get(name), value)
            return None if same is None else not same
        case ("in", name, values):
            return None if name not in properties else properties[name] in values
        case ("null", name):
            return name not in properties
        case ("contains", name, search):
            return search != "" and search in properties.get(name, "")
        case ("starts", name, search):
            return search != "" and properties.get(name, "").startswith(search)
        case ("not", inner):
            value = naive(inner, properties)
            return None if value is None else not value
        case ("and", left, right):
            first = naive(left, properties)
            if first is False:
                return False
            second = naive(right, properties)
            return False if second is False else None if None in (first, second) else True
        case ("or", left, right):
            first = naive(left, properties)
            if first is True:
                return True
            second = naive(right, properties)
            return True if second is True else None if None in (first, second) else False
    raise AssertionError(tree)


def naive_equal(text: str | None, value: object) -> bool | None:
    if text is None:
        return None
    if isinstance(value, bool):
        return (text.lower() == "true") == value
    if isinstance(value, str):
        return text == value
    return read(text, value) == value  # type: ignore[arg-type]


@given(TREES, st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_any_filter_matches_what_its_naive_reading_matches(tree: Tree, properties: dict[str, str]) -> None:
    try:
        expected = naive(tree, properties) is True
    except Unreadable:
        expected = False
    assert compile_sql(render(tree))(properties) is expected


@given(st.text(alphabet="ab_$ ='<>()!,.-+/*0159eEANDORTISUL\n", max_size=40))
def test_any_text_is_either_a_filter_or_refused(text: str) -> None:
    with contextlib.suppress(SubscriptionParseFailed):
        compile_sql(text)({"a": "1"})


def test_brackets_beside_each_other_are_not_within_each_other() -> None:
    assert compile_sql(" AND ".join(["(a = 1)"] * 200))({"a": "1"})
    assert compile_sql(" OR ".join(["(NOT (a = 1))"] * 200))({"a": "2"})
