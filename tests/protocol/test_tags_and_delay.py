# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from aerobee.errors import SubscriptionParseFailed
from aerobee.protocol.delay import DEFAULT_LEVELS, clamp_level, parse_levels, timer_out
from aerobee.protocol.filters import ACCEPT_ALL, compile_filter
from aerobee.protocol.filters.tags import accept_tags, parse_tags, subscribe


@pytest.mark.parametrize("expression", [None, "", "*", "||", " || "])
def test_everything_is_accepted_by(expression: str | None) -> None:
    assert parse_tags(expression) == frozenset()
    assert accept_tags(expression) is ACCEPT_ALL
    found = subscribe("T", expression, 1)
    assert (found.expression, found.tags, found.codes) == ("*", frozenset(), frozenset())
    assert found.accepts_tag(None)


@pytest.mark.parametrize("kind", [None, "", "TAG"])
def test_no_kind_is_tags(kind: str | None) -> None:
    assert subscribe("T", "A", 5, kind) == subscribe("T", "A", 5)
    other = subscribe("T", None, 5, "SQL92")
    assert (other.expression, other.kind, other.tags, other.version) == ("", "SQL92", frozenset(), 5)


@pytest.mark.parametrize("expression", ["TagA||A", " TagA || A ", "||A||TagA||", "A||TagA||A"])
def test_tags_are_split_trimmed_and_hashed(expression: str) -> None:
    found = subscribe("T", expression, 5)
    assert found.tags == {"TagA", "A"}
    assert found.codes == {2598919, 65}
    assert accept_tags(expression).codes == {2598919, 65}
    assert (found.expression, found.version, found.kind) == (expression, 5, "TAG")


def test_two_tags_of_one_hash_are_told_apart_by_the_exact_check() -> None:
    found = subscribe("T", "Aa", 1)
    assert found.codes == subscribe("T", "BB", 1).codes  # Java's classic collision
    assert found.accepts_tag("Aa")
    assert not found.accepts_tag("BB")
    assert not found.accepts_tag(None)


def test_sql_is_compiled_and_other_kinds_refused() -> None:
    accept = compile_filter("SQL92", "a > 5")
    assert accept.codes is None
    assert accept.properties is not None
    assert accept.properties({"a": "6"})
    assert not accept.properties({"a": "5"})
    assert compile_filter(None, "A").codes == {65}
    assert subscribe("T", "a > 5", 1, "SQL92").tags == frozenset()
    for kind, expression in (("XPATH", "a"), ("SQL92", "a >")):
        with pytest.raises(SubscriptionParseFailed):
            compile_filter(kind, expression)


def test_the_default_levels() -> None:
    levels = parse_levels(DEFAULT_LEVELS)
    assert len(levels) == 18
    assert levels[:6] == (1000, 5000, 10_000, 30_000, 60_000, 120_000)
    assert levels[-1] == 7_200_000
    assert clamp_level(99, levels) == 18
    assert clamp_level(3, levels) == 3
    assert parse_levels("1d 2s") == (86_400_000, 2000)


@pytest.mark.parametrize("text", ["", "s", "5", "5x", "-1s", "1.5s", "1s,2s", "²s"])
def test_bad_levels_are_named(text: str) -> None:
    with pytest.raises(ValueError, match="delay level"):
        parse_levels(text)


@pytest.mark.parametrize(("target", "out"), [(5000, 4000), (5001, 5000), (5999, 5000), (6000, 5000)])
def test_timer_times_are_floored_and_whole_seconds_lose_one(target: int, out: int) -> None:
    assert timer_out(target) == out
