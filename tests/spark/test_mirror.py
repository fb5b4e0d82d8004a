# SPDX-License-Identifier: Apache-2.0
"""A stream's progress told to its group: only what moved, again where it failed, and never in the way. No Spark."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.errors import AerobeeError, GroupNotFound
from aerobee.spark.reading.mirror import Mirror
from aerobee.spark.reading.plan import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

NOW = 50_000
A, B = Place("t", "b", 10), Place("u", "c", 0)


class Group:
    """Takes offsets but for the places it refuses."""

    def __init__(self) -> None:
        self.refused: set[Place] = set()
        self.told: list[list[tuple[Place, int]]] = []
        self.mirror = Mirror("g", self._commit)

    def _commit(self, offsets: Sequence[tuple[Place, int]]) -> dict[Place, AerobeeError]:
        self.told.append(list(offsets))
        return {place: GroupNotFound("g") for place, _ in offsets if place in self.refused}

    def tell(
        self, a: int, b: int, now: int = NOW, away: frozenset[str] = frozenset()
    ) -> list[tuple[Place, int]]:
        """What was told of a stream at these two offsets; nothing also when the group was not asked."""
        self.told.clear()
        place = {"t": {"b": {"10": a}}, "u": {"c": {"0": b}}}
        self.mirror.tell({"o": place}, place, set(away), now)
        assert len(self.told) <= 1
        return [each for told in self.told for each in told]


def test_what_moved_is_told_once() -> None:
    group = Group()
    assert group.tell(5, 0) == [(A, 5), (B, 0)]
    assert group.tell(5, 0) == []
    assert group.told == [], "the group is not even asked"
    assert group.tell(5, 7) == [(B, 7)]
    assert group.tell(6, 7) == [(A, 6)]
    assert group.tell(2, 7) == [(A, 2)], "a queue made again is told too"


def test_what_was_refused_is_told_again_a_second_later_and_nothing_else_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = Group()
    group.refused = {B}
    with caplog.at_level(logging.WARNING, "aerobee.spark"):
        assert group.tell(5, 3) == [(A, 5), (B, 3)]
    assert "progress of group=g not mirrored" in caplog.text
    assert group.tell(6, 3, NOW + 999) == [], "not before"
    assert group.tell(6, 3, NOW + 1_000) == [(A, 6), (B, 3)]
    group.refused.clear()
    assert group.tell(6, 3, NOW + 1_999) == [], "each refusal counts from its own moment"
    assert group.tell(6, 3, NOW + 2_000) == [(B, 3)]
    assert group.tell(6, 3, NOW + 9_000) == []
    assert group.told == []


def test_nothing_is_told_of_topics_that_are_away_until_they_are_back() -> None:
    group = Group()
    assert group.tell(5, 3, away=frozenset({"u"})) == [(A, 5)]
    assert group.tell(6, 3) == [(A, 6), (B, 3)]


def test_the_first_progress_is_told_at_once_whatever_the_time() -> None:
    assert Group().tell(1, 0, now=1_000) == [(A, 1), (B, 0)]
