# SPDX-License-Identifier: Apache-2.0
"""Queue units and bytes of the log as they are stored, for a reader that finds the records itself."""

import pytest

from aerobee.errors import StoreError
from aerobee.protocol.message import decode
from aerobee.store import commit_log
from aerobee.store.consume_queue import UNIT, UNIT_SIZE


def filled(kit, count=40, size=5_000):
    store = kit.open()
    for n in range(count):
        store.append(kit.message(body=b"%d" % n + bytes(size)))
    return store


def test_units_over_the_edges_of_files_and_from_memory(kit):
    store = filled(kit)
    assert store._queues.find("orders", 0).file_units == 16
    alone = [store.units("orders", 0, at, 1) for at in range(40)]
    assert [len(unit) for unit in alone] == [UNIT_SIZE] * 40
    store.tick(kit.clock.now())  # from here on in files, and some more in memory
    store.append(kit.message())
    assert store.units("orders", 0, 3, 30) == b"".join(alone[3:33])
    assert store.units("orders", 0, 0, 1_000)[:-UNIT_SIZE] == b"".join(alone)
    assert store.units("orders", 0, 0, 41, step=10) == b"".join(alone[0::10]) + store.units(
        "orders", 0, 40, 1
    )


def test_units_that_are_not_there(kit):
    store = filled(kit, 3)
    assert store.units("orders", 0, 3, 5) == b""
    assert store.units("orders", 0, 99, 5) == b""
    assert store.units("orders", 7, 0, 5) == b""
    assert store.units("nothing", 0, 0, 5) == b""
    assert store.units("orders", 0, -5, 7) == store.units("orders", 0, 0, 2)


def test_the_log_over_the_edge_of_a_file(kit):
    store = filled(kit)
    position = UNIT.unpack(store.units("orders", 0, 0, 1))[0]
    last, last_size, _ = UNIT.unpack(store.units("orders", 0, 39, 1))
    everything = bytes(store.log_from(position, last + last_size - position))
    assert len(everything) > 3 * store._log.segment_bytes
    for n, unit in enumerate(UNIT.iter_unpack(store.units("orders", 0, 0, 40))):
        record = decode(everything[unit[0] - position : unit[0] - position + unit[1]])
        assert record.body.startswith(b"%d\0" % n)


def test_files_may_be_unmapped_while_others_are_read(kit, monkeypatch):
    monkeypatch.setattr(commit_log, "_MAX_MAPPED", 1)
    store = filled(kit)
    everything = bytes(store.log_from(0, store.log_max))
    assert len(everything) == store.log_max
    for at in range(0, store.log_max, 50_000):
        assert everything[at : at + 90_000] == bytes(store.log_from(at, 90_000))


def test_no_more_of_the_log_than_there_is(kit):
    store = filled(kit, 3)
    assert len(store.log_from(0, 1 << 20)) == store.log_max
    assert bytes(store.log_from(store.log_max, 10)) == b""
    assert bytes(store.log_from(store.log_max + 999, 10)) == b""
    assert bytes(store.log_from(0, 0)) == b""
    assert bytes(store.log_from(-1, 10)) == b""


def test_after_retention_took_the_oldest_file(kit):
    store = filled(kit)
    store._log.delete_first()
    low = store.min_offset("orders", 0)
    assert low > 0
    assert bytes(store.log_from(0, 100)) == b""
    assert store.units("orders", 0, 0, 40) == store.units("orders", 0, low, 40 - low)


def test_a_copy_of_the_view_lets_the_file_be_closed(kit):
    store = filled(kit)
    taken = bytes(store.log_from(0, 100))
    store.close()
    assert len(taken) == 100


def test_refused_while_the_store_is_not_readable(kit):
    store = filled(kit, 1)
    store.readable = False
    for ask in (lambda: store.units("orders", 0, 0, 1), lambda: store.log_from(0, 1)):
        with pytest.raises(StoreError, match="not readable"):
            ask()


def test_a_view_on_its_way_outlives_its_file_and_the_store(kit):
    store = filled(kit)
    view, whole = store.log_from(0, 20_000), bytes(store.log_from(0, 20_000))
    assert isinstance(view, memoryview)
    store._log.segments[0].delete()
    assert view == whole
    last = store.log_max - 100
    rest, tail = store.log_from(last, 100), bytes(store.log_from(last, 100))
    store.close()
    assert rest == tail
