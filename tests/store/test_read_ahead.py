# SPDX-License-Identifier: Apache-2.0
"""Where the kernel may read ahead: in what was written, never in what is about to be."""

import re
import sys
from pathlib import Path

import pytest

from aerobee.store.commit_log import RUN_BYTES
from aerobee.store.timer_log import RECORD_BYTES, Entry, TimerLog

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own word, /proc/self/smaps")

SEGMENT = 8 << 20
PAGE = 4096


def read_ahead(path):
    """Bytes of the file -> whether the kernel reads ahead there, by each of the file's mappings."""
    found = {}
    for part in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        head = part.splitlines()[0].split()
        if head[-1] == str(path):
            low, high = (int(word, 16) for word in head[0].split("-"))
            at = int(head[2], 16)
            flags = part.rpartition("VmFlags:")[2].split()
            found[at, at + high - low] = "rr" not in flags
    return found


def covered(path, at):
    return [ahead for (low, high), ahead in read_ahead(path).items() if low <= at < high]


def log_file(kit, base):
    return kit.root / "commitlog" / f"{base:020d}"


def test_nothing_is_read_ahead_of_the_end_of_the_log(kit):
    store = kit.open(commit_log_segment_bytes=SEGMENT)
    for number in range(24):
        store.append(kit.message(body=bytes(200_000)))
        first = log_file(kit, 0)
        assert covered(first, store.log_max + PAGE) == [False], number
    assert covered(first, 0) == [True]


def test_nothing_is_read_ahead_in_room_that_a_run_was_given_and_has_not_filled(kit):
    log = kit.open(commit_log_segment_bytes=SEGMENT)._log
    log.room(1)
    while log.end < SEGMENT - RUN_BYTES:
        log.end += RUN_BYTES // 4
        log.room_for_draft()
        assert covered(log_file(kit, 0), log.end + PAGE) == [False], log.end
    assert covered(log_file(kit, 0), 0) == [True]


def test_a_timer_s_record_is_stored_without_reading_ahead(tmp_path):
    log = TimerLog(tmp_path, SEGMENT)
    while log.end < 3 << 20:
        log.append(Entry(*(0 for _ in Entry._fields)))
        if log.end % (RECORD_BYTES * 5_000) in (0, RECORD_BYTES):
            assert covered(tmp_path / f"{0:020d}", log.end + PAGE) == [False], log.end
    log.close()


def test_a_file_that_is_full_is_read_ahead_and_the_next_is_not(kit):
    store = kit.open(commit_log_segment_bytes=SEGMENT)
    while store.log_max <= SEGMENT:
        store.append(kit.message(body=bytes(1_000_000)))
    assert set(read_ahead(log_file(kit, 0)).values()) == {True}
    assert set(read_ahead(log_file(kit, SEGMENT)).values()) == {False}


def test_a_store_opened_again_goes_on_without_reading_ahead(kit):
    store = kit.open(commit_log_segment_bytes=SEGMENT)
    for _ in range(6):
        store.append(kit.message(body=bytes(1_000_000)))
    end = store.log_max
    store.close()
    store = kit.open(commit_log_segment_bytes=SEGMENT)
    store.append(kit.message())
    assert store.log_max > end
    assert covered(log_file(kit, 0), end + 2 * PAGE) == [False]
    assert covered(log_file(kit, 0), 0) == [True]


def test_keys_are_looked_for_without_reading_ahead(kit):
    store = kit.open()
    store.append(kit.message(text="KEYS\x01k\x02"))
    assert list(store.find_by_key("orders", "k", 9, 0, 1 << 60))
    (index,) = (kit.root / "index").iterdir()
    assert set(read_ahead(index).values()) == {False}
