# SPDX-License-Identifier: Apache-2.0
"""The disk of the power cuts, and the names on the way to what was synced."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import pytest

from aerobee.broker.background.timers import Timers
from aerobee.broker.broker import assemble
from aerobee.broker.operations.admin.topics import delete_topic
from aerobee.broker.operations.send import PlainOrigin, send
from aerobee.clock import ManualClock
from aerobee.namesrv.key_values import KeyValues, decode_key_values
from aerobee.protocol.message import Record
from aerobee.settings import BrokerConfig, StoreConfig
from aerobee.store.metadata import JsonFile
from tests.chaos.disk import Disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aerobee.broker.broker import Broker

SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 16,
    consume_queue_units=100,
    index_slots=100,
    index_entries=400,
    flush="sync",
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    root = tmp_path / "disk"
    root.mkdir()
    disk = Disk(root)
    with disk.installed():
        yield disk
    disk.close()


@pytest.fixture
def root(disk: Disk, tmp_path: Path) -> Path:
    return tmp_path / "disk"


# -- the disk itself ---------------------------------------------------------------------------------------


def write(path: Path, data: bytes) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(handle, data, 0)
    return handle


def sync_names(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def test_only_synced_bytes_under_synced_names_are_left(disk: Disk, root: Path, tmp_path: Path) -> None:
    named, nameless = write(root / "named", b"old"), write(root / "nameless", b"x")
    os.fsync(named)
    sync_names(root)
    os.pwrite(named, b"new", 0)
    os.fdatasync(nameless)
    (root / "nameless").rename(root / "renamed")
    (root / "empty").write_bytes(b"never synced")
    disk.image(tmp_path / "image")
    assert {p.name: p.read_bytes() for p in (tmp_path / "image").iterdir()} == {
        "named": b"old",
        "nameless": b"x",
    }
    os.close(named)
    os.close(nameless)


def test_a_replaced_file_is_the_old_one_until_its_directory_is_synced(
    disk: Disk, root: Path, tmp_path: Path
) -> None:
    file = JsonFile(root / "t.json")
    file.save(b'{"v":1}')
    draft = write(root / "draft", b'{"v":2}')
    os.fsync(draft)
    os.close(draft)
    os.replace(root / "draft", root / "t.json")
    disk.image(tmp_path / "image")
    assert (tmp_path / "image" / "t.json").read_bytes() == b'{"v":1}'
    sync_names(root)
    disk.image(tmp_path / "later")
    assert (tmp_path / "later" / "t.json").read_bytes() == b'{"v":2}'


# -- the store on it ---------------------------------------------------------------------------------------


def opened(path: Path, **more: object) -> Broker:
    return assemble(BrokerConfig(), msgspec.structs.replace(SMALL, **more), path, ManualClock())


async def sent(broker: Broker, count: int = 1, topic: str = "t") -> None:
    for number in range(count):
        message = Record(topic, b"%d" % number, f"UNIQ_KEY\x01{number:032X}\x02", 0)
        await broker.store.durable(send(message, PlainOrigin(), broker).end)
    await broker.topics.saved()


def bodies(path: Path, topic: str = "t") -> list[bytes]:
    broker = opened(path)
    try:
        found = [broker.store.record_of(topic, 0, at) for at in range(broker.store.max_offset(topic, 0))]
        return [record.body for record in found if record is not None]
    finally:
        broker.store.close()


async def test_the_first_message_of_a_brand_new_directory_survives(
    disk: Disk, root: Path, tmp_path: Path
) -> None:
    broker = opened(root / "a" / "b" / "data")
    await sent(broker)
    disk.image(tmp_path / "image")
    broker.store.close()
    assert bodies(tmp_path / "image" / "a" / "b" / "data") == [b"0"]


async def test_a_directory_made_by_the_operator_a_moment_ago_survives(
    disk: Disk, root: Path, tmp_path: Path
) -> None:
    (root / "data" / "store").mkdir(parents=True)
    sync_names(root)
    broker = opened(root / "data")
    await sent(broker)
    disk.image(tmp_path / "image")
    broker.store.close()
    assert bodies(tmp_path / "image" / "data") == [b"0"]


@pytest.mark.parametrize("flush", ["sync", "async"])
async def test_queues_that_a_checkpoint_passed_keep_their_names(
    disk: Disk, root: Path, tmp_path: Path, flush: str
) -> None:
    broker = opened(root / "data", flush=flush)
    await sent(broker, 250)  # three files of the queue, several of log and index
    broker.store.flush()
    disk.image(tmp_path / "image")
    broker.store.close()
    assert len(bodies(tmp_path / "image" / "data")) == 250


async def test_names_left_by_a_killed_process_are_synced_before_the_next_checkpoint(
    disk: Disk, root: Path, tmp_path: Path
) -> None:
    broker = opened(root / "data")
    await sent(broker, 50)
    broker.store._write_queues()  # in their files, under names that nothing has synced
    killed = root / "killed"
    os.rename(root / "data", killed)
    sync_names(root)
    os.unlink(killed / "store" / "lock")
    again = opened(killed)
    again.store.flush()
    disk.image(tmp_path / "image")
    again.store.close()
    assert len(bodies(tmp_path / "image" / "killed")) == 50


async def test_a_deleted_topic_stays_deleted(disk: Disk, root: Path, tmp_path: Path) -> None:
    broker = opened(root / "data")
    await sent(broker, 5)
    broker.store.flush()
    await delete_topic("t", broker)
    disk.image(tmp_path / "image")
    broker.store.close()
    assert bodies(tmp_path / "image" / "data") == []
    back = opened(tmp_path / "image" / "data")
    assert back.topics.get("t") is None
    back.store.close()


async def test_a_timer_counted_as_delivered_comes_again_when_its_delivery_was_lost(
    disk: Disk, root: Path, tmp_path: Path
) -> None:
    """A mapped page reaches the disk when the system likes: the count of the second before the message itself."""
    clock = ManualClock()
    broker = assemble(BrokerConfig(), SMALL, root / "data", clock)
    timers = Timers(broker.store, broker.stats, clock)
    for name in ("a", "b"):
        text = f"UNIQ_KEY\x01{name}\x02TIMER_DELIVER_MS\x01{clock.now() + 2_500}\x02"
        await broker.store.durable(send(Record("t", name.encode(), text, 0), PlainOrigin(), broker).end)
    await broker.topics.saved()
    timers.tick(clock.now())
    await timers.flush(clock.now())
    clock.advance(5_000)
    timers._deliver_one(timers._wheel.due(clock.now())[0], clock.now())
    timers._wheel.done(1)
    await broker.store.log_on_disk()  # the first is safe
    while timers.tick(clock.now()) == 0:
        pass
    os.fdatasync(timers._wheel._slots.descriptor)  # both are counted
    disk.image(tmp_path / "image")
    broker.store.close()
    back = assemble(BrokerConfig(), SMALL, tmp_path / "image" / "data", clock)
    again = Timers(back.store, back.stats, clock)
    while again.tick(clock.now()) == 0:
        pass
    assert [back.store.record_of("t", 0, at).body for at in range(back.store.max_offset("t", 0))] == [
        b"a",
        b"b",
    ]
    assert again.pending == 0
    back.store.close()


async def test_settings_of_a_name_server_survive(disk: Disk, root: Path, tmp_path: Path) -> None:
    path = root / "data" / "namesrv" / "kvConfig.json"
    settings = KeyValues(JsonFile(path, decode_key_values))
    settings.put("n", "k", "v")
    await settings.saved()
    disk.image(tmp_path / "image")
    assert (
        decode_key_values((tmp_path / "image" / path.relative_to(root)).read_bytes()).config_table["n"]["k"]
        == "v"
    )
