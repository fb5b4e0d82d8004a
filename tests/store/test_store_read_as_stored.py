# SPDX-License-Identifier: Apache-2.0
"""A bulk reader gets the same messages as any other, by another way through the reader; damaged ones too."""

import pytest

from aerobee.protocol.message import decode
from aerobee.protocol.properties import tag_code
from aerobee.store.consume_queue import UNIT
from aerobee.store.message_store import ReadLimit, ReadStatus


class Tags:
    properties = None

    def __init__(self, *tags):
        self.codes = frozenset(map(tag_code, tags))


def records(found):
    """What was found, whichever way."""
    if found.stored is None:
        return list(found.messages)
    assert (found.messages, found.offsets) == ([], [])
    units, data = found.stored.units, found.stored.joined(b"before")
    assert data.startswith(b"before" + units)
    cut, at = [], 6 + len(units)
    for _, size, _ in UNIT.iter_unpack(units):
        cut.append(data[at : at + size])
        at += size
    assert at == len(data)
    return cut


def everything(store, limit, accept=None, *, checked):
    """All records that are served, answer after answer."""
    served, offset = [], store.min_offset("orders", 0)
    while offset < store.max_offset("orders", 0):
        found = store.read("orders", 0, offset, limit, accept, checked=checked)
        assert (found.stored is None) == checked
        assert found.next_offset > offset
        assert len(found.messages if found.stored is None else found.stored.records) == len(records(found))
        assert found.size_bytes == sum(map(len, records(found)))
        assert (found.status is ReadStatus.FOUND) == bool(records(found))
        served += records(found)
        offset = found.next_offset
    return served


@pytest.mark.parametrize(
    "limit",
    [ReadLimit(1), ReadLimit(7), ReadLimit(1000, 1 << 22), ReadLimit(1000, 9_000), ReadLimit(1000, 100)],
)
@pytest.mark.parametrize(("tags", "count"), [("", 120), ("a", 40), ("ab", 80), ("z", 0)])
def test_the_same_messages_as_checked(kit, limit, tags, count):
    store = kit.open()  # log files of 64 KiB, queue files of 16 units
    for n in range(120):
        store.append(kit.message(body=b"x" * (n * 37 % 4000), text=f"TAGS\x01{'abc'[n % 3]}\x02"))
        store.append(kit.message("others", body=b"between"))
    accept = Tags(*tags) if tags else None
    as_stored = everything(store, limit, accept, checked=False)
    assert as_stored == everything(store, limit, accept, checked=True)
    assert len(as_stored) == count


def test_a_damaged_record_is_handed_over_for_the_reader_to_judge(kit):
    store = kit.open()
    for n in range(3):
        store.append(kit.message(body=b"%d" % n))
    store._log.map[130:131] = b"\xff"
    limit = ReadLimit(max_messages=99)
    assert store.read("orders", 0, 0, limit).offsets == [0, 2]
    found = store.read("orders", 0, 0, limit, checked=False)
    assert (len(found.stored.records), found.next_offset) == (3, 3)
    assert decode(records(found)[2]).body == b"2"


def test_lost_log_files_and_gaps_are_stepped_over_as_ever(kit):
    store = kit.open()
    for _ in range(20):
        store.append(kit.message(body=bytes(10_000)))
    queue = store._queues.find("orders", 0)
    queue.min_offset(0)
    store._log.delete_first()
    queue._min_for, queue._min_offset = store.log_min, 0  # the reader is faster than the trimming
    limit = ReadLimit(max_messages=99, max_bytes=1 << 20)
    assert everything(store, limit, checked=False) == everything(store, limit, checked=True) != []


def test_how_far_behind_the_end_it_stopped(kit):
    store = kit.open()
    for _ in range(10):
        store.append(kit.message())
    assert store.read("orders", 0, 0, ReadLimit(99), checked=False).behind_bytes == 0
    behind = store.read("orders", 0, 0, ReadLimit(9), checked=False).behind_bytes
    assert behind == store.unit("orders", 0, 9).size
