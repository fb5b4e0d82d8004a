# SPDX-License-Identifier: Apache-2.0
"""Three ways into the store, one behaviour: a record alone, a batch of records, a batch by columns."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import DiskFull, MessageIllegal
from aerobee.protocol.batch import Batch, Columns
from aerobee.protocol.message import MAX_PROPERTIES, decode, pack_host
from aerobee.protocol.names import SCHEDULE_TOPIC
from aerobee.protocol.properties import tag_code
from aerobee.store import platform
from aerobee.store.results import EVERY_QUEUE
from tests.own_files import is_under

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.protocol.message import Record
    from aerobee.store.message_store import MessageStore

    Way = Callable[[MessageStore, list[Record]], None]

HOST = pack_host("10.0.0.9", 7)
CHECK = "__CRC32#\x011234567890\x02"


def one_by_one(store: MessageStore, records: list[Record]) -> None:
    for record in records:
        store.append(record)


def as_records(store: MessageStore, records: list[Record]) -> None:
    store.append_batch(records)


def by_column(store: MessageStore, records: list[Record]) -> None:
    first = records[0]
    columns = Columns(
        [each.flag for each in records],
        [each.body for each in records],
        [each.properties_text for each in records],
    )
    store.append_columns(Batch(first.topic, first.queue_id, columns, born_host=HOST))


def by_column_from_afar(store: MessageStore, records: list[Record]) -> None:
    """From a host by IPv6, for which the batch is made of records after all."""
    columns = Columns(
        [0] * len(records), [each.body for each in records], [each.properties_text for each in records]
    )
    batch = Batch(records[0].topic, records[0].queue_id, columns, born_host=pack_host("fe80::1", 7))
    places = store.append_columns(batch)
    assert (places.end, places.physical_offsets[0]) == (store.log_max, store.log_max - places.size_bytes)


every_way = pytest.mark.parametrize("way", [one_by_one, as_records, by_column, by_column_from_afar])


@pytest.mark.seed("S002-28", "S002-22", "S002-25")
@every_way
def test_who_is_told_of_a_message_can_read_it_and_find_it_by_its_keys(kit: Any, way: Way) -> None:
    store = kit.open()
    heard: list[tuple[int, bytes, int, int]] = []

    def hear(record: Record, code: int) -> None:
        stored = store.record_of(record.topic, record.queue_id, record.queue_offset)
        found = store.find_by_key("orders", f"k{record.queue_offset}", 9, 0, 1 << 60)
        assert stored is not None
        heard.append((record.queue_offset, stored.body, len(found), code))

    store.listeners.append(SimpleNamespace(count=1, arrived=hear, awaited=lambda: EVERY_QUEUE))
    texts = [f"KEYS\x01k{n}\x02TAGS\x01{tag}\x02" for n, tag in enumerate("abc")]
    way(store, [kit.message(body=b"%d" % n, text=text) for n, text in enumerate(texts)])
    assert heard == [(n, b"%d" % n, 1, tag_code(tag)) for n, tag in enumerate("abc")]


@pytest.mark.seed("S002-22", "S002-29")
@every_way
def test_all_who_wait_are_told_of_each_message_and_who_waits_for_none_is_not(kit: Any, way: Way) -> None:
    store = kit.open()
    heard: dict[str, list[tuple[int, int, bytes]]] = {"one": [], "other": [], "idle": []}

    def listener(name: str, count: int) -> SimpleNamespace:
        def hear(record: Record, _code: int) -> None:
            heard[name].append((record.queue_offset, record.physical_offset, record.body))

        return SimpleNamespace(count=count, arrived=hear, awaited=lambda: EVERY_QUEUE)

    store.listeners.extend([listener("idle", 0), listener("one", 1), listener("other", 3)])
    way(store, [kit.message(body=b"%d" % n, text=f"k\x01{'v' * n}\x02") for n in range(3)])
    expected = [(n, store.unit("orders", 0, n).physical_offset, b"%d" % n) for n in range(3)]
    assert heard == {"one": expected, "other": expected, "idle": []}


@every_way
def test_what_comes_after_a_clock_was_set_back_is_not_stored_before(kit: Any, way: Way) -> None:
    store, wall = kit.open(), kit.clock.wall()
    kit.clock.set_wall(wall + 60_000)
    way(store, [kit.message()])
    kit.clock.set_wall(wall)
    for late in (one_by_one, as_records, by_column):
        late(store, [kit.message()])
    assert [store.store_time("orders", 0, n) - wall for n in range(4)] == [60_000] * 4


@every_way
@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("part", ["body", "properties", "topic"])
def test_what_is_as_large_as_may_be_is_taken_and_no_byte_more(
    kit: Any, way: Way, part: str, over: int
) -> None:
    store = kit.open(max_message_bytes=1_000)
    most = MAX_PROPERTIES - len(CHECK)
    record = {
        "body": lambda: kit.message(body=bytes(1_000 + over)),
        "properties": lambda: kit.message(text="k\x01" + "v" * (most + over - 3) + "\x02"),
        "topic": lambda: kit.message("t" * (255 + over)),
    }[part]()
    if over:
        with pytest.raises(MessageIllegal):
            way(store, [record])
        assert (store.log_max, store.topics()) == (0, []) or part != "topic"
        assert store.log_max == 0
    else:
        way(store, [record])
        assert kit.bodies(store, record.topic) == [record.body]


@every_way
@pytest.mark.parametrize("text", [f"a\x01b\x02{CHECK}", f"a\x01b\x02{CHECK}c\x01d\x02", f"{CHECK}a\x01b"])
def test_an_older_check_goes_wherever_it_stands(kit: Any, way: Way, text: str) -> None:
    store = kit.open()
    way(store, [kit.message(text=text)])
    raw = store.raw_at(0)
    assert raw is not None
    assert raw.count(b"__CRC32#") == 1
    found = decode(raw).properties
    assert found["a"] == "b"
    assert set(found) <= {"a", "c"}


@pytest.mark.parametrize("flags", [(0, 4, 0), (4, 0, 0), (0, 0xC, 8), (4, 4, 4)])
def test_those_without_a_unit_take_no_offset_from_their_batch(kit: Any, flags: tuple[int, ...]) -> None:
    store = kit.open()
    store.append(kit.message(body=b"before"))
    batch = [kit.message(body=b"%d" % n, sys_flag=flag) for n, flag in enumerate(flags)]
    store.append_batch(batch)
    visible = [n for n, flag in enumerate(flags) if not flag & 4]
    assert [batch[n].queue_offset for n in visible] == list(range(1, len(visible) + 1))
    assert {batch[n].queue_offset for n in range(3) if n not in visible} <= {0}
    assert store.max_offset("orders", 0) == 1 + len(visible)
    store.append(kit.message(body=b"after"))
    assert kit.bodies(store) == [b"before", *(b"%d" % n for n in visible), b"after"]


@pytest.mark.parametrize("way", [as_records, by_column])
def test_a_batch_whose_keys_need_a_file_that_there_is_no_space_for_is_not_stored(
    kit: Any, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message's keys would fit in the index file that there is, all together do not."""
    store = kit.open()
    store.append(kit.message(text="KEYS\x01first\x02"))
    there = {path.name for path in (kit.root / "index").iterdir()}
    reserve = platform.reserve

    def reserved(fd: int, start: int, length: int) -> None:
        if is_under(kit.root / "index", fd) and not any(
            is_under(kit.root / "index" / name, fd) for name in there
        ):
            raise OSError(errno.ENOSPC, "full")
        reserve(fd, start, length)

    monkeypatch.setattr(platform, "reserve", reserved)
    before = store.log_max
    many = [
        kit.message(text="KEYS\x01" + " ".join(f"k{n}-{m}" for m in range(100)) + "\x02") for n in range(3)
    ]
    with pytest.raises(DiskFull):
        way(store, many)
    assert (store.log_max, store.max_offset("orders", 0)) == (before, 1)
    monkeypatch.setattr(platform, "reserve", reserve)
    way(store, many)
    assert store.max_offset("orders", 0) == 4
    for n, m in ((0, 0), (1, 50), (2, 99)):
        assert len(store.find_by_key("orders", f"k{n}-{m}", 9, 0, 1 << 60)) == 1


def test_a_delay_is_counted_by_the_clock_as_it_is_and_not_by_the_one_that_was_set_back(kit: Any) -> None:
    store, wall = kit.open(), kit.clock.wall()
    kit.clock.set_wall(wall + 60_000)
    store.append(kit.message())
    kit.clock.set_wall(wall)
    delayed = kit.message(SCHEDULE_TOPIC, queue_id=0)
    store.append(delayed)
    assert delayed.store_timestamp == wall + 60_000
    assert store.unit(SCHEDULE_TOPIC, 0, 0).tags_code == wall + 1_000
