# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from aerobee.broker.metrics.shown import Shown


def choose(shown: Shown, busy: dict[str, int], top: int) -> set[str]:
    return set(shown.choose(busy.keys(), top, lambda: busy.__getitem__))


def test_all_are_shown_while_there_is_room() -> None:
    assert choose(Shown(), {"a": 0, "b": 5}, 2) == {"a", "b"}


def test_the_busiest_are_shown() -> None:
    assert choose(Shown(), {"a": 1, "b": 5, "c": 3}, 2) == {"b", "c"}


def test_who_is_shown_stays_though_others_become_busier() -> None:
    shown = Shown()
    choose(shown, {"a": 1, "b": 5}, 1)
    assert choose(shown, {"a": 100, "b": 5}, 1) == {"b"}


def test_a_place_is_free_when_its_owner_is_deleted() -> None:
    shown = Shown()
    choose(shown, {"a": 1, "b": 5}, 1)
    assert choose(shown, {"a": 1}, 1) == {"a"}


def test_a_free_place_goes_to_the_busiest_of_the_others_and_no_more_are_shown() -> None:
    shown = Shown()
    assert choose(shown, {"a": 1, "b": 5, "c": 3}, 2) == {"b", "c"}
    assert choose(shown, {"a": 1, "c": 3, "d": 9}, 2) == {"c", "d"}
    assert choose(shown, {"a": 1, "e": 2, "f": 9}, 2) == {"e", "f"}


def test_nobody_keeps_a_place_from_before_there_was_room_for_all() -> None:
    shown = Shown()
    assert choose(shown, {"a": 1, "b": 5}, 1) == {"b"}
    assert choose(shown, {"a": 1, "b": 5}, 2) == {"a", "b"}
    assert choose(shown, {"a": 9, "b": 5}, 1) == {"a"}


def test_a_lowered_setting_keeps_the_busiest() -> None:
    shown = Shown()
    choose(shown, {"a": 1, "b": 5, "c": 3}, 3)
    assert choose(shown, {"a": 1, "b": 5, "c": 3}, 1) == {"b"}
