# SPDX-License-Identifier: Apache-2.0
"""Offsets as Spark keeps them: readable while they are short, deflated from there on, both read. No Spark."""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.spark.reading.offsets import OffsetTexts, UnknownOffsets, offsets_of

if TYPE_CHECKING:
    from aerobee.spark.option_values import Offsets


def of_length(characters: int) -> Offsets:
    """Places whose JSON is as long as that."""
    bare = len(json.dumps({"": {"b": {"0": 1}}}, separators=(",", ":")))
    return {"t" * (characters - bare): {"b": {"0": 1}}}


def deflated(places: Offsets) -> str:
    return base64.b64encode(zlib.compress(json.dumps(places, separators=(",", ":")).encode(), 6)).decode()


def test_offsets_are_readable_up_to_four_thousand_characters_and_deflated_from_there_on() -> None:
    short, long = of_length(4_096), of_length(4_097)
    texts = OffsetTexts()
    assert texts.reached(short) == {"o": short, "v": 1}
    assert texts.initial(short) == {"init": True, "o": short, "v": 1}
    assert texts.reached(long) == {"v": 2, "z": deflated(long)}
    assert texts.initial(long) == {"init": True, "v": 2, "z": deflated(long)}
    assert texts.reached(short, started=long) == {"from": deflated(long), "o": short, "v": 1}
    assert texts.reached(long, started=short) == {"from": short, "v": 2, "z": deflated(long)}
    assert texts.reached(long, started={}) == {"from": {}, "v": 2, "z": deflated(long)}
    for told in (texts.reached(short, started=long), texts.reached(long, started=short), texts.initial(long)):
        assert [*told] == sorted(told), "Spark compares text"


@pytest.mark.parametrize("kind", [of_length(50), of_length(5_000)])
def test_a_batch_begins_where_its_end_says_when_it_is_the_first(kind: Offsets) -> None:
    texts, elsewhere = OffsetTexts(), {"x": {"b": {"0": 9}}}
    first = texts.reached(elsewhere, started=kind)
    initial, later = texts.initial({"now": {"b": {"0": 7}}}), texts.reached({"now": {"b": {"0": 7}}})
    assert texts.start_of(initial, first) == kind
    assert texts.start_of(later, first) == {"now": {"b": {"0": 7}}}, "a batch that is not the first"
    assert texts.start_of(initial, texts.reached(elsewhere)) == {"now": {"b": {"0": 7}}}, (
        "of an earlier version"
    )


def test_what_was_met_lately_is_not_inflated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [deflated(of_length(5_000 + n)) for n in range(10)]
    texts = OffsetTexts()
    inflated: list[bytes] = []
    inflate = zlib.decompress
    monkeypatch.setattr(zlib, "decompress", lambda data: inflated.append(data) or inflate(data))

    def read(number: int) -> int:
        inflated.clear()
        assert texts.read({"v": 2, "z": told[number]}) == of_length(5_000 + number)
        return len(inflated)

    assert [read(n) for n in range(8)] == [1] * 8
    assert [read(n) for n in range(8)] == [0] * 8, "eight are at hand"
    assert read(0) == 0
    assert read(8) == 1
    assert (read(0), read(2)) == (0, 0)
    assert read(1) == 1, "the one not met for the longest time went"


def test_offsets_that_were_written_are_at_hand_when_they_are_written_or_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts, long, other = OffsetTexts(), of_length(5_000), of_length(5_001)
    first, second = texts.reached(long), texts.reached(other)
    assert second != first
    assert texts.reached(long) == first
    monkeypatch.delattr(zlib, "compress")
    monkeypatch.delattr(zlib, "decompress")
    assert texts.reached(json.loads(json.dumps(long))) == first
    assert texts.read(first) == long
    assert texts.read(second) == other
    assert texts.initial(other) == {"init": True, **second}, "what was read last is at hand too"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"v": 1}, "have version 1"),
        ({"v": 1, "o": "text"}, "have version 1"),
        ({"v": 1, "z": "text"}, "have version 1"),
        ({"v": 2, "z": {}}, "have version 2"),
        ({"v": 2, "o": {}}, "have version 2"),
        ({"v": "1", "o": {}}, "not those of a rocketmq stream"),
        ({"o": {}}, "not those of a rocketmq stream"),
        (None, "not those of a rocketmq stream: null"),
        (["x" * 200], r'a rocketmq stream: \["x{78}$'),
        ({"v": 2, "z": base64.b64encode(zlib.compress(b"no json")).decode()}, "cannot be read"),
    ],
)
def test_what_is_no_offset_of_ours_is_refused(told: Any, said: str) -> None:
    with pytest.raises(UnknownOffsets, match=said):
        OffsetTexts().read(told)


def test_a_progress_has_its_offsets_as_text_or_as_what_that_says() -> None:
    for places in (of_length(50), of_length(5_000)):
        told = OffsetTexts().reached(places)
        assert offsets_of(told) == offsets_of(json.dumps(told)) == places
