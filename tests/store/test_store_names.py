# SPDX-License-Identifier: Apache-2.0
"""The store refuses what is no name of one directory, and deletes only below its own, whoever asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.clock import ManualClock
from aerobee.errors import MessageIllegal
from aerobee.protocol.batch import Batch, Columns
from aerobee.protocol.message import Record
from aerobee.settings import StoreConfig
from aerobee.store.message_store import MessageStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NO_NAMES = ["", ".", "..", "a/b", "../x", "/x", "a\0b", "ü" * 128, "x" * 256, "\udc80"]
SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 20, consume_queue_units=1000, index_slots=100, index_entries=400
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    opened = MessageStore.open(root, SMALL, ManualClock())
    yield opened
    opened.close()


@pytest.mark.parametrize("topic", NO_NAMES)
def test_nothing_is_stored_under_what_is_no_name(store: MessageStore, topic: str) -> None:
    with pytest.raises(MessageIllegal):
        store.append(Record(topic, b"x"))
    with pytest.raises(MessageIllegal):
        store.append_batch([Record(topic, b"x")])
    with pytest.raises(MessageIllegal):
        store.append_columns(Batch(topic, 0, Columns([0], [b"x"], [""])))
    assert store.topics() == []
    assert store.log_max == 0


@pytest.mark.parametrize("queue_id", [-1, 2**31, 99_999_999_999])
def test_nothing_is_stored_in_a_queue_there_cannot_be(store: MessageStore, queue_id: int) -> None:
    with pytest.raises(MessageIllegal, match="queue"):
        store.append(Record("orders", b"x", queue_id=queue_id))
    assert store.queue_ids("orders") == []


@pytest.mark.parametrize("field", ["flag", "sys_flag", "born_timestamp", "reconsume_times"])
def test_nothing_is_stored_with_a_number_that_a_record_cannot_hold(store: MessageStore, field: str) -> None:
    store.append(Record("orders", b"x"))
    before = store.log_max
    numbers: list[Any] = [2**63, -(2**63) - 1]
    for number in numbers:
        with pytest.raises(MessageIllegal, match="cannot hold"):
            store.append(Record("orders", b"x", **{field: number}))
        with pytest.raises(MessageIllegal, match="cannot hold"):
            store.append_batch([Record("orders", b"x", **{field: number}), Record("orders", b"x")])
        if field != "flag":  # a batch's flags come as 32 bits
            with pytest.raises(MessageIllegal, match="cannot hold"):
                store.append_columns(Batch("orders", 0, Columns([0], [b"x"], [""]), **{field: number}))
    assert (store.log_max, store.max_offset("orders", 0)) == (before, 1)
    store.append(Record("orders", b"y"))
    assert store.max_offset("orders", 0) == 2


@pytest.mark.parametrize("topic", NO_NAMES)
def test_nothing_is_deleted_under_what_is_no_name(store: MessageStore, root: Path, topic: str) -> None:
    store.append(Record("orders", b"x"))
    store.flush()
    outside = root.parent / "x"
    outside.mkdir()
    (outside / "precious").touch()
    with pytest.raises(MessageIllegal):
        store.delete_topic(topic)
    assert (outside / "precious").exists()
    assert (root / "consumequeue" / "orders" / "0").is_dir()


def test_deleting_a_linked_topic_takes_the_link_and_leaves_what_it_points_to(
    root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "elsewhere"
    (outside / "0").mkdir(parents=True)
    (outside / "0" / "00000000000000000000").write_bytes(bytes(20 * SMALL.consume_queue_units))
    (outside / "precious").touch()
    (root / "consumequeue").mkdir(parents=True)
    (root / "consumequeue" / "linked").symlink_to(outside)
    store = MessageStore.open(root, SMALL, ManualClock())
    assert store.max_offset("linked", 0) >= 0
    store.delete_topic("linked")
    store.close()
    assert not (root / "consumequeue" / "linked").is_symlink()
    assert (outside / "precious").exists()
    assert (outside / "0" / "00000000000000000000").exists()


def test_deleting_a_topic_with_a_linked_queue_leaves_what_the_link_points_to(
    root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "00000000000000000000").write_bytes(bytes(20 * SMALL.consume_queue_units))
    (root / "consumequeue" / "orders").mkdir(parents=True)
    (root / "consumequeue" / "orders" / "0").symlink_to(outside)
    store = MessageStore.open(root, SMALL, ManualClock())
    store.delete_topic("orders")
    store.close()
    assert not (root / "consumequeue" / "orders").exists()
    assert (outside / "00000000000000000000").exists()


def test_odd_names_among_the_files_do_not_keep_the_store_from_opening(root: Path) -> None:
    store = MessageStore.open(root, SMALL, ManualClock())
    store.append(Record("orders", b"x"))
    store.close()
    for odd in ("consumequeue/orders/²", "timerlog/²", f"consumequeue/orders/{'9' * 30}"):
        (root / odd).mkdir(parents=True)
    (root / "index" / "²²²²²²²²²²²²²²²²²").touch()
    (root / "commitlog" / ("²" * 20)).touch()
    (root / "consumequeue" / "orders" / "0" / ("²" * 20)).touch()
    (root / "consumequeue" / "bad\udc80name").mkdir()
    store = MessageStore.open(root, SMALL, ManualClock())
    assert (store.topics(), store.queue_ids("orders"), store.max_offset("orders", 0)) == (["orders"], [0], 1)
    store.close()


def test_recovery_steps_over_a_record_that_names_no_directory(root: Path, tmp_path: Path) -> None:
    """Such records may be in the log of a broker that did not check."""
    store = MessageStore.open(root, SMALL, ManualClock())
    store.append(Record("orders", b"before"))
    bad = Record("aa/aa/bb", b"bad")
    store.append(Record("aaXaaXbb", b"bad"))
    store.append(Record("orders", b"after"))
    store.close()
    _rename_in_log(root, b"aaXaaXbb", bad.topic.encode())
    for derived in ("checkpoint", "consumequeue/orders/0/00000000000000000000"):
        (root / derived).unlink()
    (root / "abort").touch()
    store = MessageStore.open(root, SMALL, ManualClock())
    assert store.max_offset("orders", 0) == 2
    assert "aa/aa/bb" not in store.topics()
    store.close()


def _rename_in_log(root: Path, old: bytes, new: bytes) -> None:
    """With a check that holds: as if it had been written so."""
    from aerobee.protocol.message import record_check

    (path,) = (root / "commitlog").iterdir()
    data = path.read_bytes()
    at = data.index(old)
    start = data.rindex(b"\xda\xa3\x20\xa7", 0, at) - 4
    size = int.from_bytes(data[start : start + 4], "big")
    record = data[start : start + size - 20].replace(old, new)
    with path.open("r+b") as file:
        file.seek(start)
        file.write(record + record_check(record))
