# SPDX-License-Identifier: Apache-2.0
"""Going through the log record by record, over fillers at the ends of files and over damage."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from aerobee.protocol.message import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD
from aerobee.store.commit_log import BLANK, BLANK_SIZE, PLACE
from aerobee.store.record_parts import is_whole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.store.commit_log import CommitLog, Place
    from aerobee.store.segment import Segment

_MAGIC_START = b"\xda\xa3\x20"
_FORGET_EVERY = 64 << 20


class Step(NamedTuple):
    """A record, or (raw is None) bytes that are none."""

    at: int
    raw: bytes | None
    following: int


def walk(commit_log: CommitLog, at: int, end: int) -> Iterator[Step]:
    """Every record from `at`, where one begins, to `end`; what is damaged comes as one step."""
    forgotten = at
    while at < end and (segment := commit_log.segment_at(at)) is not None:
        start = at - segment.base
        if is_blank(segment, start):
            at = segment.base + segment.size
            continue
        raw = whole_at(segment, start)
        following = at + len(raw) if raw else min(end, next_whole(commit_log, segment, start) or end)
        yield Step(at, raw, following)
        at = following
        if at - forgotten > _FORGET_EVERY:
            segment.forget_pages(max(0, min(at - segment.base, segment.size)))
            forgotten = at


def places(commit_log: CommitLog, at: int, end: int) -> Iterator[tuple[int, Place]]:
    """The same by the records' own words, without a look at their bytes: for who wants a few of many."""
    while at < end and (segment := commit_log.segment_at(at)) is not None:
        start = at - segment.base
        if is_blank(segment, start):
            at = segment.base + segment.size
        elif (place := commit_log.place(at)) is not None:
            yield at, place
            at += place.size
        else:
            at = next_whole(commit_log, segment, start) or end


def is_blank(segment: Segment, start: int) -> bool:
    """Nothing but the rest of the file is there: the next record is in the next one."""
    if start + BLANK_SIZE > segment.size:
        return True
    size, magic = BLANK.unpack_from(segment.map, start)
    return bool(magic == MAGIC_BLANK and size == segment.size - start)


def whole_at(segment: Segment, start: int) -> bytes | None:
    """The record at `start` of the segment when it is one, says it is there, and its check holds."""
    if start + MIN_RECORD > segment.size:
        return None
    size, magic, _, _, physical = PLACE.unpack_from(segment.map, start)
    if magic not in (MAGIC_V1, MAGIC_V2) or size < MIN_RECORD or start + size > segment.size:
        return None
    if physical != segment.base + start:
        return None
    raw = segment.map[start : start + size]
    return raw if is_whole(raw) else None


def next_whole(commit_log: CommitLog, segment: Segment, start: int) -> int | None:
    """Where the log goes on after damage at `start`: past it in this file, or in the next one."""
    size: int = struct.unpack_from(">i", segment.map, start)[0]
    if size >= MIN_RECORD and _goes_on(segment, start + size):
        return segment.base + start + size
    end, at = segment.data_end(), start + 1
    while (found := segment.map.find(_MAGIC_START, at + 4, end)) >= 0:
        at = found - 4
        if whole_at(segment, at) is not None:
            return segment.base + at
        at += 1
    following = commit_log.segment_at(segment.base + segment.size)
    if following is not None and whole_at(following, 0) is not None:
        return following.base
    return None


def _goes_on(segment: Segment, start: int) -> bool:
    if start + BLANK_SIZE > segment.size:
        return False
    return is_blank(segment, start) or whole_at(segment, start) is not None
