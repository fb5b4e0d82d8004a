# SPDX-License-Identifier: Apache-2.0
"""The log's reading side against its bytes: every offset, over every edge; and walks over sound and damaged records."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import MessageIllegal
from aerobee.protocol.message import decode
from aerobee.store import log_walk
from aerobee.store.log_walk import Step

if TYPE_CHECKING:
    from aerobee.store.commit_log import CommitLog

SEGMENT = 4_096


class Written:
    """A log of some small files, what was appended to it, and all its bytes."""

    def __init__(self, kit: Any, count: int = 40) -> None:
        self.store = kit.open(commit_log_segment_bytes=SEGMENT)
        sizes = random.Random(5)
        for n in range(count):
            host = bytes(15) + b"\x01\x00\x00\x2a\x9f" if n % 5 == 0 else b"\x7f\0\0\x01\0\0\x2a\x9f"
            self.store.append(
                kit.message(body=bytes([n]) * sizes.randrange(1, 700), queue_id=n % 3, born_host=host)
            )
            kit.clock.advance(7)
        self.log: CommitLog = self.store._log
        self.bytes = b"".join(bytes(segment.map) for segment in self.log.segments)
        self.records: dict[int, bytes] = {}
        at = 0
        while at < self.log.end:
            size = int.from_bytes(self.bytes[at : at + 4], "big")
            if self.bytes[at + 4 : at + 8] != b"\xcb\xd4\x31\x94":  # not the rest of a file
                self.records[at] = self.bytes[at : at + size]
            at += size


@pytest.fixture
def written(kit: Any) -> Written:
    found = Written(kit)
    assert len(found.log.segments) >= 4
    assert len(found.records) == 40
    return found


def test_every_offset_belongs_to_its_file(written: Written) -> None:
    log = written.log
    for at in range(0, log.end, 97):
        segment = log.segment_at(at)
        assert segment is not None
        assert segment.base == at // SEGMENT * SEGMENT
    assert [log.segment_at(at) for at in (-1, log.end, log.end + SEGMENT)] == [None] * 3
    assert log.segment_at(log.end - 1) is log.segments[-1]


@pytest.mark.parametrize("size", [1, 7, 100, SEGMENT - 1, SEGMENT, SEGMENT + 1, 3 * SEGMENT, 1 << 20])
def test_bytes_are_those_of_the_files_over_every_edge(written: Written, size: int) -> None:
    log = written.log
    for at in {
        0,
        1,
        SEGMENT - 7,
        SEGMENT - 1,
        SEGMENT,
        SEGMENT + 1,
        2 * SEGMENT - 1,
        log.end - 1,
        log.end - size,
    }:
        if at >= 0:
            assert bytes(log.bytes_from(at, size)) == written.bytes[at : min(at + size, log.end)]
        within = at >= 0 and at % SEGMENT + size <= SEGMENT
        assert log.slice(at, size) == (written.bytes[at : at + size] if within else None)
    for wrong in (-1, log.end, log.end + 5):
        assert bytes(log.bytes_from(wrong, size)) == b""
        assert log.slice(wrong, size) is None
    assert bytes(log.bytes_from(0, 0)) == b""
    assert log.slice(0, 0) is None


def test_a_place_is_told_where_a_record_says_it_is_and_nowhere_else(written: Written) -> None:
    log = written.log
    for at in range(log.end + 10):
        raw = written.records.get(at)
        place = log.place(at)
        if raw is None:
            assert place is None
        else:
            record = decode(raw)
            assert place == (len(raw), record.queue_id, record.queue_offset)
            assert log.store_time(at) == record.store_timestamp
            assert log.header(at)[0] == len(raw)
    assert (log.place(-1), log.store_time(-1), log.header(-1)) == (None, -1, (0, 0))
    assert (log.header(log.end), log.store_time(log.end)) == ((0, 0), -1)
    assert log.header(SEGMENT - 7) == (0, 0), "eight bytes do not fit there"
    assert log.store_time(SEGMENT - 20) == -1


def test_a_walk_gives_every_record_with_its_place(written: Written) -> None:
    log = written.log
    steps = list(log_walk.walk(log, 0, log.end))
    assert [(step.at, step.raw) for step in steps] == list(written.records.items())
    for step in steps:
        assert step.following == step.at + len(step.raw or b"")
    assert [at for at, _ in log_walk.places(log, 0, log.end)] == list(written.records)
    middle = list(written.records)[17]
    end = list(written.records)[30]
    assert [step.at for step in log_walk.walk(log, middle, end)] == list(written.records)[17:30]
    assert [at for at, _ in log_walk.places(log, middle, end)] == list(written.records)[17:30]
    assert list(log_walk.walk(log, log.end, log.end)) == []


def damage(log: CommitLog, at: int, data: bytes) -> None:
    segment = log.segment_at(at)
    assert segment is not None
    segment.map[at - segment.base : at - segment.base + len(data)] = data


@pytest.mark.parametrize("number", [1, 14, 25, 37])
@pytest.mark.parametrize("part", ["size", "magic", "physical", "body", "all"])
def test_damage_is_one_step_and_the_walk_goes_on_behind_it(written: Written, number: int, part: str) -> None:
    log, places = written.log, list(written.records)
    at, raw = places[number], written.records[places[number]]
    where = {"size": 0, "magic": 4, "physical": 28, "body": len(raw) // 2, "all": 0}[part]
    damage(log, at + where, bytes(len(raw)) if part == "all" else b"\x7f\x7f")
    steps = list(log_walk.walk(log, 0, log.end))
    assert [step.at for step in steps if step.raw] == places[:number] + places[number + 1 :]
    (bad,) = [step for step in steps if step.raw is None]
    assert bad.at == at
    behind = places[number + 1]
    blank = at + len(raw)  # what is left of a file may follow
    assert bad.following == (
        behind if behind // SEGMENT == at // SEGMENT or part in ("size", "all") else blank
    )


def test_damage_up_to_the_end_is_one_last_step(written: Written) -> None:
    log, places = written.log, list(written.records)
    at = places[-2]
    damage(log, at, bytes(log.end - at))
    steps = list(log_walk.walk(log, 0, log.end))
    assert steps[-1] == Step(at, None, log.end)
    assert [step.at for step in steps] == places[:-1]


def test_no_more_files_are_mapped_than_allowed_and_the_current_one_always(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.store.commit_log._MAX_MAPPED", 2)
    log = written.log
    for segment in log.segments[:-1]:
        segment.close()
    log._mapped[:] = [log.segments[-1]]
    for _ in range(5):
        for segment in log.segments:
            assert log.slice(segment.base, 10) == written.bytes[segment.base : segment.base + 10]
            assert log.segments[-1].mapped is not None
            assert sum(each.mapped is not None for each in log.segments) <= 2, "each round"


def test_what_does_not_fit_one_file_is_refused_and_what_just_does_is_taken(kit: Any) -> None:
    store = kit.open(commit_log_segment_bytes=SEGMENT)
    log = store._log
    assert log.room(SEGMENT - 8) == 0
    with pytest.raises(MessageIllegal, match=f"{SEGMENT - 7} bytes do not fit one commit-log file"):
        log.room(SEGMENT - 7)
    store.append(kit.message())
    end = log.end
    assert log.room(SEGMENT - 8 - end) == end, "to the last byte"
    assert log.room(SEGMENT - 7 - end) == SEGMENT, "one more begins the next file"
