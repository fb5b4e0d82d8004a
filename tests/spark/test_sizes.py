# SPDX-License-Identifier: Apache-2.0
"""How many messages make so many bytes: found in few looks, and never more than fit. No Spark is started here."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.errors import NetworkError, NoRoute
from aerobee.protocol import message
from aerobee.protocol.command import Command
from aerobee.protocol.message import Record
from aerobee.spark import options
from aerobee.spark.reading import sizes
from aerobee.spark.reading.plan import Range

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerobee.errors import AerobeeError
    from aerobee.spark.cluster import Question
    from aerobee.spark.option_values import Offsets


class Each:
    """Messages of one queue, the size of each given; counts how often it is asked."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self.looks = 0

    def total(self, parts: list[Range]) -> float:
        self.looks += 1
        return float(sum(sum(self._sizes[part.start : part.end]) for part in parts))


def at(offset: int) -> Offsets:
    return {"t": {"b": {"0": offset}}}


@given(
    st.lists(st.sampled_from([10, 100, 5_000]), min_size=1, max_size=300),
    st.integers(1, 200_000),
    st.data(),
)
def test_what_is_taken_fits_unless_it_is_one_message(
    lengths: list[int], budget: int, data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(lengths) - 1))
    rows = sizes.rows_within(budget, at(begin), at(len(lengths)), Each(lengths))
    assert 1 <= rows <= len(lengths) - begin
    assert rows == 1 or sum(lengths[begin : begin + rows]) <= budget
    if sum(lengths[begin:]) <= budget:
        assert rows == len(lengths) - begin, "all of it fits"


@pytest.mark.parametrize(
    ("budget", "rows", "looks"),
    [
        (100_000, 1_000, 1),  # everything fits: one look
        (50_000, 500, 2),  # by the average at once
        (49_999, 499, 2),
        (100, 1, 2),
        (99, 1, 8),  # not even one: it is taken all the same
    ],
)
def test_messages_of_one_size_are_told_in_few_looks(budget: int, rows: int, looks: int) -> None:
    measured = Each([100] * 1_000)
    assert sizes.rows_within(budget, at(0), at(1_000), measured) == rows
    assert measured.looks <= looks


def test_messages_without_any_size_are_all_taken() -> None:
    assert sizes.rows_within(5, at(0), at(10), Each([0] * 10)) == 10


def test_near_enough_is_not_measured_again() -> None:
    for first, looks in ((1_000, 2), (1_900, 2), (4_000, 3)):
        measured = Each([first] + [100] * 999)
        sizes.rows_within(10_000, at(0), at(1_000), measured)
        assert measured.looks >= looks
        assert measured.looks <= 8


class Brokers:
    """Answers to the samples, by topic; an error is an answer too."""

    def __init__(self, answers: dict[str, bytes | AerobeeError]) -> None:
        self.answers = answers
        self.asked: list[Question] = []
        told = options.for_stream({"namesrv": "h:1", "subscribe": "t", "tags": "A"})
        self.sizes = sizes.BrokerSizes(told, self._address)
        self.sizes._cluster.ask_each = self._answer  # type: ignore[method-assign, assignment]

    def _address(self, broker: str) -> str:
        if broker == "gone":
            raise NoRoute("nowhere")
        return f"{broker}:1"

    def _answer(self, questions: Sequence[Question]) -> list[Command | AerobeeError]:
        self.asked += questions
        found = [self.answers[question.header.topic] for question in questions]  # type: ignore[attr-defined]
        return [Command(0, 1, body=each) if isinstance(each, bytes) else each for each in found]


def body(*lengths: int) -> bytes:
    return b"".join(message.encode(Record("t", bytes(length), "", queue_id=0)) for length in lengths)


def test_a_queue_that_cannot_be_sampled_counts_as_small_messages() -> None:
    one = len(body(400)) + len(body(600))
    brokers = Brokers({"t": body(400, 600), "empty": b"", "away": NetworkError("gone")})
    assert brokers.sizes.total([Range("t", "b", 0, 0, 10)]) == 10 * one / 2
    for topic, broker in (("empty", "b"), ("away", "b"), ("t", "gone")):
        assert brokers.sizes.total([Range(topic, broker, 0, 0, 10)]) == 10 * 512
    mixed = [Range("t", "b", 0, 0, 10), Range("empty", "b", 0, 0, 5)]
    assert brokers.sizes.total(mixed) == 10 * one / 2 + 5 * 512


@pytest.mark.parametrize(
    ("start", "end", "places"),
    [(0, 100, [0, 50, 92]), (7, 8, [7]), (0, 8, [0, 4]), (0, 9, [0, 1, 4]), (10, 30, [10, 20, 22])],
)
def test_samples_are_of_the_beginning_the_middle_and_the_end(start: int, end: int, places: list[int]) -> None:
    brokers = Brokers({"t": body(1)})
    brokers.sizes.total([Range("t", "b", 3, start, end)])
    headers = [question.header for question in brokers.asked]
    assert [each.queue_offset for each in headers] == places  # type: ignore[attr-defined]
    for each in headers:
        assert (each.queue_id, each.max_msg_nums, each.max_msg_bytes) == (3, 8, 65_536)  # type: ignore[attr-defined]
        assert each.subscription == "*", "bytes are read whatever the filter lets through"  # type: ignore[attr-defined]
        assert each.as_stored is None  # type: ignore[attr-defined]
    assert {question.address for question in brokers.asked} == {"b:1"}


@pytest.mark.parametrize(("fourth", "looks"), [(200, 2), (199, 3)])
def test_four_fifths_of_the_limit_are_near_enough(fourth: int, looks: int) -> None:
    measured = Each([200, 200, 200, fourth, *[250] * 6])
    assert sizes.rows_within(1_000, at(0), at(10), measured) == 4
    assert measured.looks == looks


def test_messages_are_counted_from_where_the_stream_is() -> None:
    measured = Each([10_000] * 50 + [100] * 50)
    assert sizes.rows_within(2_000, at(50), at(100), measured) == 20
    both = {"t": {"b": {"0": 100}}, "u": {"c": {"7": 5}}}
    parts = sizes._parts({"t": {"b": {"0": 40}}, "u": {"c": {"7": 5}}}, both)
    assert parts == [Range("t", "b", 0, 40, 100)]
    assert sizes._parts({}, both) == [Range("t", "b", 0, 0, 100), Range("u", "c", 7, 0, 5)]


def test_of_very_many_ranges_the_largest_are_asked_and_stand_for_the_others() -> None:
    brokers = Brokers({"t": body(400)})
    parts = [Range("t", "b", n, 0, 1 if n < 6 else 100) for n in range(70)]
    assert brokers.sizes.total(parts) == (6 + 64 * 100) * len(body(400))
    assert {question.header.queue_id for question in brokers.asked} == set(range(6, 70))  # type: ignore[attr-defined]
    assert brokers.sizes.total([]) == 0.0
    few = Brokers({"t": body(400)})
    few.sizes.total(parts[:64])
    assert {question.header.queue_id for question in few.asked} == set(range(64))  # type: ignore[attr-defined]


def test_samples_weigh_by_the_length_of_their_range() -> None:
    brokers = Brokers({"t": body(100), "u": body(1_100)})
    parts = [Range("t", "b", 0, 0, 30), Range("u", "b", 0, 0, 10)]
    assert brokers.sizes.total(parts) == 30 * len(body(100)) + 10 * len(body(1_100))


def test_store_files_tell_every_size(tmp_path: Path) -> None:
    folder = tmp_path / "consumequeue" / "t" / "3"
    folder.mkdir(parents=True)
    units = [
        (0, 10, 0),
        (10, 20, 0),
        (0, 0x7FFFFFFF, 0),
        (30, 40, 0),
        (70, 2_000_000_000, 0),
        (0, 2_000_000_000, 0),
    ]
    (folder / f"{0:020d}").write_bytes(b"".join(struct.pack(">qiq", *each) for each in units))
    measured = sizes.StoreSizes(tmp_path)
    assert measured.total([Range("t", "store", 3, 0, 4)]) == 70.0, "what fills a gap has no size"
    assert measured.total([Range("t", "store", 3, 1, 2), Range("t", "store", 3, 3, 6)]) == 4_000_000_060.0
    assert measured.total([Range("t", "store", 9, 0, 5)]) == 0.0
