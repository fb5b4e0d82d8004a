# SPDX-License-Identifier: Apache-2.0
"""Why a message failed, in a line that no property or log is broken by."""

from __future__ import annotations

import pytest

from aerobee.protocol import properties as props
from aerobee.protocol.bodies.figures import GroupLag
from aerobee.protocol.failure_text import MAX_LENGTH, failure_text, noted, one_line
from aerobee.protocol.message import MAX_PROPERTIES


def test_an_error_is_told_by_its_kind_and_what_it_says() -> None:
    assert failure_text(KeyError("card"), 200) == "KeyError: 'card'"
    assert failure_text(None, 200) == ""
    assert failure_text(KeyError("card"), 0) == ""
    assert failure_text(KeyError("card"), -1) == ""
    assert failure_text(KeyError("card"), 1) == "…"


def test_a_line_has_no_signs_that_part_properties_or_lines() -> None:
    assert one_line(" a\n\tb\x01c\x02  d\r\n ") == "a b c d"
    assert one_line("") == ""


@pytest.mark.parametrize(("size", "cut"), [(9, False), (10, False), (11, True), (39, True), (50, True)])
def test_a_long_line_is_cut_and_shows_it(size: int, cut: bool) -> None:
    told = one_line("x" * size, 10)
    assert told == ("x" * 9 + "…" if cut else "x" * size)
    assert len(one_line("y" * 5_000)) == MAX_LENGTH


def test_only_the_beginning_of_an_endless_text_is_looked_at() -> None:
    assert one_line(" " * 40 + "x", 10) == ""
    assert one_line(" " * 39 + "x", 10) == "x"


def test_the_reason_is_a_property_of_the_copy() -> None:
    assert noted({"a": "1"}, "") == "a\x011\x02"
    assert props.parse(noted({"a": "1"}, "no\nmoney")) == {"a": "1", props.LAST_ERROR: "no money"}
    assert props.parse(noted({props.LAST_ERROR: "old"}, "new")) == {props.LAST_ERROR: "new"}


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_a_message_that_has_no_room_for_the_reason_goes_without(more: int, fits: bool) -> None:
    own = len(props.render({"a": "", props.LAST_ERROR: "ü"}).encode())
    text = noted({"a": "x" * (MAX_PROPERTIES - own + more)}, "ü")
    assert (props.get(text, props.LAST_ERROR) == "ü") is fits
    assert (len(text.encode()) == MAX_PROPERTIES) is fits


def test_the_lag_is_all_that_is_not_finished() -> None:
    assert GroupLag(group="g", ready=1, in_flight=20, retrying=300, delayed=4_000, dead=50_000).lag == 4_321
