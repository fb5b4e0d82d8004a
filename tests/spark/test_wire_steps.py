# SPDX-License-Identifier: Apache-2.0
"""The steps of a scan over the wire: what is worth it, where the log is cut, what is asked for and what is left of it
when some of it is gone. The broker is a list in memory. No Spark."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from aerobee.errors import AerobeeError, NetworkError, RequestCodeNotSupported, TopicNotFound
from aerobee.protocol import message
from aerobee.protocol.command import Command, header_fields
from aerobee.protocol.headers.consume import LogBounds, ReadLog, ReadUnits, UnitsRead
from aerobee.protocol.message import Record
from aerobee.spark import options
from aerobee.spark.reading import wire_scan
from aerobee.spark.reading.plan import DataLoss, Range
from aerobee.spark.reading.store_scan import UNIT, RecordPlaces

GIVEN = {"namesrv": "h:1", "subscribe": "t", "numRetries": "2", "retryIntervalMs": "250"}
STRICT, TOLERANT = (options.for_batch({**GIVEN, "failOnDataLoss": each}) for each in ("true", "false"))


def places(*ranges: tuple[int, int]) -> RecordPlaces:
    return RecordPlaces(
        np.array([at for at, _ in ranges], np.int64), np.array([size for _, size in ranges], np.int64)
    )


def listed(found: Any) -> list[list[int]]:
    return [each.position.tolist() for each in found]


# -- the plan ---------------------------------------------------------------------------------------------------


class Sampled:
    """Answers samples of queues whose records are of 100 bytes, `apart` bytes from each other."""

    def __init__(self, apart: int = 100, **told: Any) -> None:
        self.apart, self.told = apart, told
        self.asked: list[tuple[list[Range], list[int]]] = []

    def units_of(self, parts: list[Range], steps: list[int]) -> list[bytes | AerobeeError]:
        self.asked.append((parts, steps))
        if "answer" in self.told:
            return [self.told["answer"]] * len(parts)
        return [self._units(part, step) for part, step in zip(parts, steps, strict=True)]

    def _units(self, part: Range, step: int) -> bytes:
        size = self.told.get("size", 100)
        each = [(offset * self.apart, size, 0) for offset in range(part.start, part.end, step)]
        return np.array(each, UNIT).tobytes()


def cut(source: Any, parts: list[Range], tasks: int = 2, **given: str) -> list[list[Range]] | None:
    return wire_scan.cut(source, parts, tasks, options.for_batch({**GIVEN, **given}))


BIG = [Range("t", "b", 0, 1_000, 61_000), Range("t", "b", 1, 0, 40_000)]


def test_a_hundred_thousand_messages_are_worth_a_look_at_a_thousand_of_each_queue() -> None:
    source = Sampled()
    groups = cut(source, BIG)
    assert groups is not None
    assert source.asked == [(BIG, [60, 40])]
    few = Sampled()
    assert cut(few, [Range("t", "b", 0, 1_000, 60_999), BIG[1]]) is None
    assert few.asked == []
    odd = Sampled()
    assert cut(odd, [Range("t", "b", 0, 0, 100_001), Range("t", "b", 1, 0, 1)]) is not None
    assert odd.asked[0][1] == [101, 1]


def test_the_log_is_cut_where_as_much_lies_before_as_behind() -> None:
    """Both queues lie side by side in the log: queue 1 ends where queue 0 has a third of its messages left."""
    groups = cut(Sampled(), BIG)
    assert groups == [
        [Range("t", "b", 0, 1_000, 25_480), Range("t", "b", 1, 0, 25_480)],
        [Range("t", "b", 0, 25_480, 61_000), Range("t", "b", 1, 25_480, 40_000)],
    ]
    sizes = [sum(map(len, group)) for group in groups]
    assert abs(sizes[0] - sizes[1]) < 2_500
    for tasks in (1, 2, 3, 7):
        found = cut(Sampled(), BIG, tasks)
        assert found is not None
        assert len(found) == tasks
        for part in BIG:
            pieces = [each for group in found for each in group if each.queue == part.queue]
            edges = [(each.start, each.end) for each in pieces]
            assert edges[0][0] == part.start
            assert edges[-1][1] == part.end
            assert all(a[1] == b[0] for a, b in itertools.pairwise(edges))


@pytest.mark.parametrize(("apart", "worth"), [(100, True), (199, True), (201, False), (1_000, False)])
def test_a_log_of_which_half_is_wanted_is_read_whole(apart: int, worth: bool) -> None:
    one = [Range("t", "b", 0, 0, 100_000)]
    assert (cut(Sampled(apart), one) is not None) is worth


@pytest.mark.parametrize(
    "told",
    [
        {"answer": RequestCodeNotSupported("what?")},
        {"answer": TopicNotFound("gone")},
        {"answer": b""},
        {"answer": b"\0" * 20},
        {"size": 0},
        {"size": 0x7FFFFFFF},
    ],
    ids=str,
)
def test_answers_that_do_not_tell_of_every_sample_leave_it_to_pulls(told: dict[str, Any]) -> None:
    assert cut(Sampled(**told), BIG) is None


def test_a_broker_that_does_not_answer_stops_the_plan() -> None:
    with pytest.raises(NetworkError, match="gone"):
        cut(Sampled(answer=NetworkError("gone")), BIG)


@pytest.mark.parametrize(
    "given",
    [{"tags": "a"}, {"sqlFilter": "a = 1"}, {"orderedByQueue": "true"}, {"maxRecordsPerPartition": "9"}],
)
def test_what_a_scan_cannot_do_is_not_even_asked_for(given: dict[str, str]) -> None:
    source = Sampled()
    assert cut(source, BIG, 2, **given) is None
    assert cut(source, [BIG[0], Range("t", "c", 1, 0, 40_000)]) is None
    assert source.asked == []


def test_density_is_by_all_queues_together() -> None:
    def sampled(queue: int, *units: tuple[int, int], step: int = 1) -> Any:
        return wire_scan._Sampled(Range("t", "b", queue, 0, len(units) * step), step, *places(*units))

    assert wire_scan._is_dense([sampled(0, (0, 50), (100, 50)), sampled(1, (50, 50))])
    assert wire_scan._is_dense([sampled(0, (0, 50), (150, 50))]), "just half"
    assert not wire_scan._is_dense([sampled(0, (0, 50), (152, 50))])
    assert not wire_scan._is_dense([sampled(0, (1_000, 50)), sampled(1, (0, 50))])
    assert wire_scan._is_dense([sampled(0, (0, 50), (200, 50), step=4)]), "each stands for four"


# -- stretches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "size", "found"),
    [
        (10, 1_000, [[0, 100, 250, 400]]),
        (10, 500, [[0, 100, 250, 400]]),  # from the first byte to the last
        (10, 499, [[0, 100, 250], [400]]),
        (10, 150, [[0, 100], [250], [400]]),
        (10, 149, [[0], [100], [250], [400]]),
        (10, 1, [[0], [100], [250], [400]]),  # one that is larger goes by itself
        (3, 1_000, [[0, 100, 250], [400]]),
        (1, 1_000, [[0], [100], [250], [400]]),
    ],
)
def test_records_that_lie_near_each_other_are_asked_for_together(
    rows: int, size: int, found: list[list[int]]
) -> None:
    log = places((0, 100), (100, 50), (250, 100), (400, 100))
    assert listed(wire_scan._stretches(log, rows, size)) == found
    assert listed(wire_scan._stretches(places(), rows, size)) == []


def test_a_stretch_is_asked_for_from_its_first_byte_to_its_last() -> None:
    wanted = wire_scan._wanted(places((70, 10), (90, 5), (200, 30)))
    assert (wanted.position, wanted.size) == (70, 160)


class Link:
    """A log of records and queue units; counts what it is asked. Errors come before any answer."""

    def __init__(self, *errors: AerobeeError) -> None:
        self.errors = list(errors)
        self.log, self.begins, self.ends = b"", 0, 1 << 30
        self.units = np.empty(0, UNIT)
        self.first = 0  # offset of the first unit
        self.a_time = 1_000
        self.asked: list[Any] = []
        self.ahead_of: list[Any] = []

    def send(self, header: Any) -> int:
        self.asked.append(header)
        return len(self.asked) - 1

    def ahead(self, header: Any) -> int:
        self.ahead_of.append(header)
        return self.send(header)

    def receive_view(self, opaque: int) -> tuple[Any, memoryview]:
        if self.errors:
            raise self.errors.pop(0)
        header = self.asked[opaque]
        if isinstance(header, ReadLog):
            begin = max(header.position, self.begins)
            body = (
                self.log[begin : min(header.position + header.size, self.ends)]
                if begin == header.position
                else b""
            )
            return self._reply(LogBounds(min_position=self.begins, max_position=len(self.log)), body)
        first = max(header.offset, self.first)
        count = min(header.count - (first - header.offset), self.a_time)
        body = self.units[first - self.first :][: max(0, count)].tobytes()
        return self._reply(UnitsRead(offset=first), body)

    @staticmethod
    def _reply(header: Any, body: bytes) -> tuple[Any, memoryview]:
        return Command(0, ext=header_fields(header)), memoryview(body)


def asking(link: Link, told: Any = STRICT) -> Any:
    return wire_scan._Asking(link, told)  # type: ignore[arg-type]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    monkeypatch.setattr(wire_scan, "time", SimpleNamespace(sleep=found.append))
    return found


STRETCH = places((100, 50), (150, 30), (200, 20))


def test_a_question_is_asked_again_as_often_as_the_option_says(slept: list[float]) -> None:
    link = Link(NetworkError("lost"), NetworkError("lost"))
    link.log = bytes(300)
    got = asking(link).log(STRETCH, None)
    assert (len(got.body), got.log_begin) == (120, 0)
    assert [(each.position, each.size) for each in link.asked] == [(100, 120)] * 3
    assert slept == [0.25, 0.25]
    with pytest.raises(NetworkError):
        asking(Link(*[NetworkError("lost")] * 3)).log(STRETCH, None)
    assert slept == [0.25] * 4


def test_what_was_asked_ahead_is_waited_for_and_asked_anew_only_when_that_fails(slept: list[float]) -> None:
    link = Link()
    link.log = bytes(300)
    ahead = link.send(wire_scan._wanted(STRETCH))
    assert len(asking(link).log(STRETCH, ahead).body) == 120
    assert len(link.asked) == 1
    link.errors = [NetworkError("lost")]
    assert len(asking(link).log(STRETCH, ahead).body) == 120
    assert len(link.asked) == 2
    assert slept == [0.25]


def test_a_refusal_is_not_asked_again(slept: list[float]) -> None:
    link = Link(RequestCodeNotSupported("no"))
    with pytest.raises(RequestCodeNotSupported):
        asking(link).log(STRETCH, None)
    assert (len(link.asked), slept) == (1, [])


def held(link: Link, told: Any = TOLERANT) -> tuple[list[int], int]:
    one = asking(link, told)
    parts = [Range("t", "b", 0, 0, 3)]
    kept, body = wire_scan._held(STRETCH, one.log(STRETCH, None), one, parts, told)
    return kept.position.tolist(), len(body)


def test_what_the_log_has_lost_at_its_beginning_is_reported_and_the_rest_asked_for_again() -> None:
    link = Link()
    link.log = bytes(300)
    for begins, kept, size, questions in (
        (0, [100, 150, 200], 120, 1),
        (100, [100, 150, 200], 120, 1),
        (101, [150, 200], 70, 2),
        (150, [150, 200], 70, 2),
        (151, [200], 20, 2),
        (201, [], 0, 1),
    ):
        link.begins = begins
        link.asked.clear()
        assert held(link) == (kept, size)
        assert len(link.asked) == questions
        if len(kept) < 3:
            with pytest.raises(DataLoss) as caught:
                held(link, STRICT)
            assert str(caught.value).startswith(
                f"{3 - len(kept)} messages of t/0 0..3 were deleted from the broker's log meanwhile."
            )


def test_what_the_log_has_lost_at_its_end_is_reported() -> None:
    link = Link()
    link.log = bytes(300)
    for ends, kept in ((220, 3), (219, 2), (180, 2), (179, 1), (150, 1), (149, 0)):
        link.ends = ends
        assert len(held(link)[0]) == kept
        if kept < 3:
            with pytest.raises(DataLoss) as caught:
                held(link, STRICT)
            assert str(caught.value).startswith(
                f"{3 - kept} messages of t/0 0..3 lie behind the end of the broker's log."
            )


def units(*offsets: int) -> Any:
    return np.array([(offset * 10, 10, 0) for offset in offsets], UNIT)


def test_units_are_asked_for_until_they_are_all_there() -> None:
    link = Link()
    link.units, link.a_time = units(*range(20)), 4
    queue = wire_scan._Queue(asking(link), Range("t", "b", 7, 0, 20))
    assert queue.units(3, 13)["position"].tolist() == [offset * 10 for offset in range(3, 13)]
    told = [(each.topic, each.queue_id, each.offset, each.count) for each in link.asked]
    assert told == [("t", 7, 3, 10), ("t", 7, 7, 6), ("t", 7, 11, 2)]
    link.asked.clear()
    assert len(queue.units(5, 5)) == 0
    assert link.asked == []
    assert len(queue.units(18, 25)) == 2, "the queue ends there"
    link.first = 5
    link.units = units(*range(5, 20))
    assert queue.units(3, 8)["position"].tolist() == [50, 60, 70], "what was before is gone"


def test_units_of_a_topic_that_is_gone_for_good_are_none(slept: list[float]) -> None:
    link = Link(*[TopicNotFound("gone")] * 2)
    link.units = units(*range(20))
    queue = wire_scan._Queue(asking(link), Range("t", "b", 7, 0, 20))
    assert len(queue.units(0, 5)) == 5, "it is asked for again as long as that may help"
    link.errors = [TopicNotFound("gone")] * 3
    assert len(queue.units(0, 5)) == 0
    assert slept == [0.25] * 4
    with pytest.raises(RequestCodeNotSupported):
        wire_scan._Queue(asking(Link(RequestCodeNotSupported("?"))), Range("t", "b", 7, 0, 20)).units(0, 5)


def test_a_scan_is_one_question_ahead_and_leaves_out_what_lies_between() -> None:
    link, log, mine = Link(), b"", []
    for n in range(6):
        raw = message.encode(Record("t" if n != 3 else "other", b"%d" % n, "", queue_id=0, queue_offset=n))
        if n != 3:
            mine.append((len(log), len(raw), 0))
        log += raw
    link.log, link.units = log, np.array(mine, UNIT)
    told = options.for_batch({**GIVEN, "batchRows": "2"})
    scan = wire_scan.scan(link, [Range("t", "b", 0, 0, 5)], ("body", "brokerName"), told)  # type: ignore[arg-type]
    first = next(scan)
    assert first.batch.to_pydict() == {"body": [b"0", b"1"], "brokerName": ["b", "b"]}
    reads = [each for each in link.asked if isinstance(each, ReadLog)]
    assert len(reads) == 2, "the second stretch is on its way while the first is looked at"
    assert [each.batch.column("body").to_pylist() for each in scan] == [[b"2", b"4"], [b"5"]]
    assert [type(each) for each in link.ahead_of] == [ReadLog] * 3
    assert sum(isinstance(each, ReadLog) for each in link.asked) == 3
    assert sum(isinstance(each, ReadUnits) for each in link.asked) == 1


@pytest.mark.parametrize(("given", "stretch", "questions"), [("1048576", 150, 5), ("1048576", 1 << 20, 1)])
def test_no_stretch_is_larger_than_a_batch_or_than_the_broker_gives(
    monkeypatch: pytest.MonkeyPatch, given: str, stretch: int, questions: int
) -> None:
    monkeypatch.setattr(wire_scan, "STRETCH", stretch)
    link = Link()
    raws = [message.encode(Record("t", b"x" * 30, "", queue_id=0, queue_offset=n)) for n in range(5)]
    link.log = b"".join(raws)
    link.units = np.array([(n * len(raws[0]), len(raws[0]), 0) for n in range(5)], UNIT)
    told = options.for_batch({**GIVEN, "batchBytes": given})
    found = list(wire_scan.scan(link, [Range("t", "b", 0, 0, 5)], ("body",), told))  # type: ignore[arg-type]
    assert sum(each.batch.num_rows for each in found) == 5
    assert sum(isinstance(each, ReadLog) for each in link.asked) == questions
