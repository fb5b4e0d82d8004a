# SPDX-License-Identifier: Apache-2.0
"""The steps of a task that pulls: where it goes on, what of an answer is its own, when it is decoded. No Spark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aerobee.protocol import message
from aerobee.protocol.headers.consume import PullResult
from aerobee.protocol.message import Record
from aerobee.spark import options
from aerobee.spark.decoding import columns
from aerobee.spark.reading import tasks
from aerobee.spark.reading.plan import DataLoss, Range
from aerobee.spark.reading.store_scan import UNIT

PART = Range("t", "b", 3, 10, 20)
GIVEN = {"namesrv": "h:1", "subscribe": "t"}
STRICT, TOLERANT = (options.for_batch({**GIVEN, "failOnDataLoss": each}) for each in ("true", "false"))


def result(following: int) -> PullResult:
    return PullResult(next_begin_offset=following, min_offset=0, max_offset=99)


@pytest.mark.parametrize(
    ("code", "following", "goes_on"),
    [
        (0, 15, 15),
        (0, 12, 13),  # never without a step, or it would ask for ever
        (0, 9, 13),
        (20, 18, 18),
        (20, 12, 13),
    ],
)
@pytest.mark.parametrize("told", [STRICT, TOLERANT])
def test_a_pull_goes_on_behind_what_it_got(code: int, following: int, goes_on: int, told: Any) -> None:
    assert tasks._next_offset(code, result(following), PART, 12, told) == goes_on


@pytest.mark.parametrize(
    ("code", "following", "said", "goes_on"),
    [
        (21, 16, r"t/b/3: offsets 12\.\.16 were deleted while reading", 16),
        (21, 13, r"offsets 12\.\.13 were deleted", 13),
        (21, 12, r"t/b/3: the broker holds 0\.\.99, planned were 12\.\.20", 20),
        (19, 12, r"the broker holds 0\.\.99, planned were 12\.\.20", 20),
        (19, 15, r"planned were 12\.\.20", 20),
    ],
)
def test_what_is_gone_stops_the_read_or_is_stepped_over_as_the_option_says(
    code: int, following: int, said: str, goes_on: int
) -> None:
    with pytest.raises(DataLoss, match=said):
        tasks._next_offset(code, result(following), PART, 12, STRICT)
    assert tasks._next_offset(code, result(following), PART, 12, TOLERANT) == goes_on


def records(*offsets: int, size: int = 10) -> bytes:
    return b"".join(
        message.encode(Record("t", b"x" * size, "", queue_id=3, queue_offset=offset)) for offset in offsets
    )


def test_of_an_answer_that_runs_past_the_range_the_surplus_is_another_tasks() -> None:
    body = memoryview(records(10, 15, 19, 20, 21))
    positions = tasks._within(body, columns.positions_of(body), PART)
    found = columns.decode(bytes(body), positions, ("queueOffset",), "b")
    assert found.batch.column("queueOffset").to_pylist() == [10, 15, 19]
    inside = memoryview(records(10, 11))
    assert tasks._within(inside, columns.positions_of(inside), PART).tolist() == [0, len(inside) // 2]
    empty = tasks._within(memoryview(b""), np.empty(0, np.int64), PART)
    assert len(empty) == 0


def test_records_are_found_by_their_units_where_the_broker_puts_these_first() -> None:
    bodies = [records(10, size=5), records(11, size=50), records(12, size=7)]
    units = np.array([(0, len(each), 0) for each in bodies], UNIT).tobytes()
    at = len(units)
    expected = [at, at + len(bodies[0]), at + len(bodies[0]) + len(bodies[1])]
    answer = memoryview(units + b"".join(bodies))
    assert tasks._positions(answer, 3).tolist() == expected
    plain = memoryview(b"".join(bodies))
    assert tasks._positions(plain, None).tolist() == [place - at for place in expected]


@pytest.mark.parametrize(
    ("given", "batches"),
    [
        ({}, [[0, 1, 2, 3, 4, 5]]),
        ({"batchRows": "4"}, [[0, 1, 2, 3], [4, 5]]),
        ({"batchRows": "1"}, [[0, 1], [2, 3], [4, 5]]),
        ({"batchBytes": "1024"}, [[0, 1], [2, 3], [4, 5]]),
    ],
)
def test_answers_wait_for_each_other_until_they_make_a_batch(
    given: dict[str, str], batches: list[list[int]]
) -> None:
    held = tasks._Held(("queueOffset", "brokerName"), options.for_batch({**GIVEN, **given}))
    found = []
    for first in (0, 2, 4):
        body = bytearray(records(first, first + 1))
        found += list(held.taken("b", memoryview(body), columns.positions_of(bytes(body))))
        body[:] = bytes(len(body))  # it is good until the next is asked for, and no longer
    found += list(held.decoded())
    assert [each.batch.column("queueOffset").to_pylist() for each in found] == batches
    assert list(held.decoded()) == [], "nothing is left"


def test_each_batch_begins_to_count_at_nothing() -> None:
    held = tasks._Held(("queueOffset",), options.for_batch({**GIVEN, "batchRows": "3"}))
    found = []
    for offset in range(9):
        body = memoryview(records(offset))
        found += list(held.taken("b", body, columns.positions_of(body)))
    assert [each.batch.column("queueOffset").to_pylist() for each in found] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
    ]
    size = len(records(0))
    held = tasks._Held(("queueOffset",), options.for_batch({**GIVEN, "batchBytes": str(8 * 12 * size)}))
    counts = []
    for offset in range(36):
        body = memoryview(records(offset))
        counts += [each.batch.num_rows for each in held.taken("b", body, columns.positions_of(body))]
    assert counts == [12, 12, 12], "an eighth of the bytes a batch may have"


def test_rows_of_two_brokers_are_not_mixed_up() -> None:
    held = tasks._Held(("queueOffset", "brokerName"), STRICT)
    found = []
    for broker, offset in (("a", 0), ("a", 1), ("b", 2), ("a", 3)):
        body = memoryview(records(offset))
        found += list(held.taken(broker, body, columns.positions_of(body)))
    found += list(held.decoded())
    assert [each.batch.to_pydict() for each in found] == [
        {"queueOffset": [0, 1], "brokerName": ["a", "a"]},
        {"queueOffset": [2], "brokerName": ["b"]},
        {"queueOffset": [3], "brokerName": ["a"]},
    ]


class Link:
    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def ahead(self, header: Any) -> int:
        self.asked.append((header.queue_id, header.queue_offset))
        return len(self.asked)


def test_small_ranges_are_asked_for_some_at_a_time_and_large_ones_when_it_is_their_turn() -> None:
    parts = [Range("t", "b", n, n, n + (5_000 if n in (1, 4) else 1_000)) for n in range(20)]
    link = Link()
    task = tasks.Task(STRICT, parts, {"b": "b:1"}, ("queueOffset",))
    seen = []
    for part, opaque in tasks._opened(task, {"b": link}):  # type: ignore[dict-item]
        seen.append((part.queue, link.asked[(opaque or 0) - 1][0], len(link.asked)))
    assert [queue for queue, _, _ in seen] == list(range(20))
    assert all(queue == asked for queue, asked, _ in seen), "each has the answer to its own question"
    assert seen[0][2] == 14, "sixteen ahead, but for the two large ones"
    assert sorted(link.asked) == [(n, n) for n in range(20)]
    assert link.asked.index((1, 1)) == 14
