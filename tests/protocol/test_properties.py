# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.protocol import properties as props

words = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=9
)


@pytest.mark.slow
@given(st.dictionaries(words, words, max_size=6))
def test_properties_survive(pairs: dict[str, str]) -> None:
    text = props.render(pairs)
    assert props.parse(text) == pairs
    assert props.parse(text[:-1]) == pairs  # a missing last 0x02 is accepted
    for name, value in pairs.items():
        assert props.get(text, name) == value
    assert props.get(text, "not there") is None


@given(st.text(st.sampled_from("ab\x01\x02"), max_size=30), st.sampled_from(["a", "b", "ab"]))
def test_one_value_is_found_as_by_parsing_all(text: str, name: str) -> None:
    """But for a name that occurs twice, or one whose pair has no value."""
    pairs = [pair.partition("\x01") for pair in text.split("\x02")]
    if [pair[0] for pair in pairs].count(name) <= 1:
        assert props.get(text, name) == props.parse(text).get(name)


def test_pairs_without_name_or_value_are_dropped() -> None:
    assert props.parse("a\x01\x02\x01b\x02c\x02d\x01e\x02") == {"d": "e"}
    assert props.parse("") == {}


def test_a_name_that_ends_another_is_not_mistaken_for_it() -> None:
    text = "XTAGS\x011\x02TAGS\x012\x02TAGSX\x013\x02"
    assert props.get(text, "TAGS") == "2"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("TagA", 2598919),
        ("A", 65),
        ("", 0),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
        ("标签", 857175),
    ],
)
def test_javas_hash(text: str, code: int) -> None:
    assert props.java_hash(text) == code
    assert props.tag_code(text) == code


def test_no_tag_has_code_zero() -> None:
    assert props.tag_code(None) == 0


@pytest.mark.parametrize(
    "name", ["KEYS", "TAGS", "UNIQ_KEY", "POP_CK", "BUYER_ID", "__SHARDINGKEY", "TIMER_OUT_MS"]
)
def test_reserved_names(name: str) -> None:
    assert name in props.RESERVED


def test_users_names_are_not_reserved() -> None:
    assert not {"colour", "NAME_END", "\x01", "\x02"} & props.RESERVED
