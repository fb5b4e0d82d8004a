# SPDX-License-Identifier: Apache-2.0
"""Zeros are written ahead of the log's end, so that its pages are ready: over nothing, and into reserved space only."""

import errno
import mmap
import os

import pytest

from aerobee.store import platform
from aerobee.store.commit_log import CommitLog

SEGMENT = 1 << 20
PAGE = mmap.PAGESIZE


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Where zeros were put into this test's files: (start, end) of each call."""
    calls = []

    def pwrite(fd, data, offset):
        if any(os.path.samestat(os.fstat(fd), path.stat()) for path in tmp_path.rglob("*")):
            calls.append((offset, offset + len(data)))
        return os.pwrite(fd, data, offset)

    monkeypatch.setattr(platform, "pwrite", pwrite)
    return calls


def opened(tmp_path, end=0):
    log = CommitLog(tmp_path / "commitlog", SEGMENT)
    log.start_at(end)
    return log


def append(log, data):
    at = log.room(len(data))
    log.publish(at, data)
    log.end = at + len(data)
    return at


def test_pages_are_made_once_and_only_ahead_of_what_is_written(tmp_path, written):
    log, ends = opened(tmp_path), []
    for _ in range(300):
        append(log, b"r" * 3000)
        ends.append(log.end)
    assert [start for start, _ in written[1:]] == [end for _, end in written[:-1]], "one after the other"
    assert len(written) < 6
    assert max(end for _, end in written) <= log.segments[-1].reserved
    assert bytes(log.map[: log.end]) == b"r" * log.end
    log.close()


@pytest.mark.parametrize(
    "end", [100, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE - 20, SEGMENT - PAGE - 10, SEGMENT - 3000]
)
def test_a_log_that_is_opened_again_keeps_what_it_had(tmp_path, written, end):
    log = opened(tmp_path)
    at = append(log, b"r" * end)
    log.close()
    del written[:]
    log = opened(tmp_path, end)
    append(log, b"s" * 200)
    assert all(start >= end for start, _ in written)
    assert bytes(log.segments[0].map[at:end]) == b"r" * end
    assert bytes(log.segments[0].map[end : end + 200]) == b"s" * 200
    assert log.limit <= log.base + log.segments[-1].reserved
    log.close()


def test_a_disk_that_takes_no_zeros_still_takes_records(tmp_path, monkeypatch):
    def refuse(fd, data, offset):
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(platform, "pwrite", refuse)
    log = opened(tmp_path)
    append(log, b"r" * 5000)
    assert bytes(log.map[:5000]) == b"r" * 5000
    log.close()


def test_runs_that_need_no_pages_are_not_written_over_by_those_made_later(tmp_path, written):
    log = opened(tmp_path)
    append(log, b"r" * 100)
    ahead = log.limit
    run = b"s" * (ahead + 3 * PAGE)
    assert log.end + len(run) <= log.room_for_draft()
    log.publish(log.end, run)  # as the compiled lane does, past what is ready
    log.end += len(run)
    at = append(log, b"t" * 100)
    assert bytes(log.map[100 : at + 100]) == run + b"t" * 100
    assert log.limit >= log.end
    while log.end + 100 <= log.limit:
        append(log, b"u" * 100)
    del written[:]
    append(log, b"u" * 300)
    assert written, "and the next ones are made where these end"
    assert set(bytes(log.map[at + 100 : log.end])) == {ord("u")}
    log.close()
