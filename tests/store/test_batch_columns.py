# SPDX-License-Identifier: Apache-2.0
"""A batch stored column by column is the batch stored record by record."""

import uuid
from types import SimpleNamespace as Thing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from aerobee.errors import DiskFull, MessageIllegal
from aerobee.protocol.batch import Batch, Columns
from aerobee.protocol.message import decode, pack_host
from aerobee.store.platform import Disk

PROPERTIES = [
    "",
    "TAGS\x01a\x02",
    "TAGS\x01b\x02UNIQ_KEY\x01{n:032X}\x02",
    "KEYS\x01k{n} other\x02",
    "x\x01é\x02",
    "x\x01y",
    "UNIQ_KEY\x01{n:032X}\x02__CRC32#\x011234567890\x02",
    "MYTAGS\x01no\x02",
    "UNIQ_KEY\x01{n}\x02KEYS\x01 \x02",
]

members = some.lists(
    some.tuples(some.integers(0, 9), some.binary(min_size=1, max_size=300), some.sampled_from(PROPERTIES)),
    min_size=1,
    max_size=40,
)
batches = some.lists(members, min_size=1, max_size=6)


def batch_of(rows, **shared):
    flags, bodies, texts = zip(*rows, strict=True)
    numbered = [text.format(n=n) for n, text in enumerate(texts)]
    return Batch("orders", 3, Columns(list(flags), list(bodies), numbered), **shared)


@given(batches, some.booleans(), some.sampled_from([pack_host("10.0.0.9", 7), pack_host("::1", 7)]))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=40,
    deadline=None,
)
def test_both_ways_leave_the_same_store(kit, sent, with_check, host):
    run = uuid.uuid4().hex
    by_column = kit.open(kit.root / f"{run}-columns", record_check=with_check)
    by_record = kit.open(kit.root / f"{run}-records", record_check=with_check)
    for rows in sent:
        batch = batch_of(rows, sys_flag=1, born_timestamp=5, born_host=host, reconsume_times=2)
        records = list(batch.records())
        by_record.append_batch(records)
        places = by_column.append_columns(batch)
        assert places.queue_offset == records[0].queue_offset
        assert places.physical_offsets == [record.physical_offset for record in records]
        assert places.end == by_column.log_max == by_record.log_max
        assert places.size_bytes == sum(record.size for record in records)
    assert kit.snapshot(by_column) == kit.snapshot(by_record)
    count = by_column.max_offset("orders", 3)
    for at in range(count):
        unit = by_column.unit("orders", 3, at)
        assert by_column.raw_at(unit.physical_offset) == by_record.raw_at(unit.physical_offset)
    by_column.close()
    by_record.close()


def test_those_who_wait_are_told_of_every_member(kit):
    store = kit.open()
    heard, asked = [], []

    def hear(record, code):
        heard.append(
            (record.queue_offset, record.physical_offset, record.body, code, store.max_offset("orders", 3))
        )

    def awaited():
        asked.append("once")
        return {("orders", 3)} if len(asked) > 1 else {("orders", 2), ("bills", 3)}

    store.listeners.append(Thing(count=1, arrived=hear, awaited=awaited))
    store.append_columns(batch_of([(0, b"early", "")]))
    assert (heard, asked) == ([], ["once"])
    places = store.append_columns(batch_of([(0, b"a", "TAGS\x01a\x02"), (0, b"b", "")]))
    first, second = places.physical_offsets
    assert heard == [(1, first, b"a", 97, 3), (2, second, b"b", 0, 3)]


LARGE_BODY = "a body of 5000000 bytes; the limit is 4194304, the broker's max_message_bytes"
LONG_TEXT = "properties of 33003 bytes; the limit is 32747"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ((0, bytes(5_000_000), ""), LARGE_BODY),
        ((0, b"x", "p\x01" + "v" * 33_000 + "\x02"), LONG_TEXT),
        ((0, bytes(5_000_000), "p\x01" + "v" * 33_000 + "\x02"), f"{LARGE_BODY}, and {LONG_TEXT}"),
    ],
    ids=["body", "properties", "both"],
)
def test_one_member_that_no_record_can_hold_refuses_the_batch_and_says_what_is_too_large(kit, row, why):
    store = kit.open()
    with pytest.raises(MessageIllegal, match=f"^topic 'orders': {why} \\(code"):
        store.append_columns(batch_of([(0, b"good", ""), row]))
    assert (store.log_max, store.max_offset("orders", 3)) == (0, 0)


def test_a_batch_is_found_by_its_keys_and_after_a_crash(kit):
    store = kit.open()
    store.append_columns(batch_of([(0, b"%d" % n, "KEYS\x01k{n} all\x02") for n in range(5)]))
    found = store.find_by_key("orders", "all", 64, 0, kit.clock.now())
    assert [decode(raw).body for raw in found] == [b"0", b"1", b"2", b"3", b"4"]
    before = kit.snapshot(store)
    kit.crash(store)
    assert kit.snapshot(kit.open()) == before


def test_what_follows_a_batch_is_not_stored_before_it(kit):
    """By its store time: a clock that is set back meanwhile is waited for."""
    store, wall = kit.open(), kit.clock.wall()
    kit.clock.set_wall(wall + 5_000)
    store.append_columns(batch_of([(0, b"one", ""), (0, b"two", "")], born_host=pack_host("10.0.0.9", 7)))
    kit.clock.set_wall(wall)
    one = kit.message()
    store.append(one)
    assert one.store_timestamp == wall + 5_000


def test_a_full_disk_takes_no_batch_either(kit):
    kit.disk = Disk(used=99, free=1)
    store = kit.open()
    with pytest.raises(DiskFull, match="disk 99% full"):
        store.append_columns(batch_of([(0, b"one", "")], born_host=pack_host("10.0.0.9", 7)))
    assert (store.log_max, store.max_offset("orders", 3)) == (0, 0)
