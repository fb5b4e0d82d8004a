# SPDX-License-Identifier: Apache-2.0
"""What an operator was told is done survives kill -9 at that very moment; what he was refused is not in force."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.broker import assemble
from aerobee.broker.operations.admin import groups, progress, topics
from aerobee.broker.operations.admin.static_topics import put_static_topic
from aerobee.broker.operations.assignment import set_mode
from aerobee.broker.operations.reset_offset import Reset, reset_offset
from aerobee.broker.pop.orders import OrderedBatch
from aerobee.broker.state.topics import Topics
from aerobee.errors import DiskFull
from aerobee.fronts.remoting.routes import ROUTES
from aerobee.net.routes import Request
from aerobee.protocol import names
from aerobee.protocol.bodies import GroupConfig, MappedPart, Mode, QueueMapping, RequestMode, TopicConfig
from aerobee.protocol.command import request
from aerobee.protocol.headers.produce import SendBack, SendBatch, SendMessageV2
from aerobee.settings import BrokerConfig
from aerobee.store.metadata import JsonFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aerobee.broker.broker import Broker


class Peer:
    remote = ("127.0.0.1", 1)
    remote_text = "127.0.0.1:1"
    remote_packed = b"\x7f\x00\x00\x01\x00\x00\x00\x01"

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}


@pytest.fixture
def after_kill(tmp_path: Path, clock: Any) -> Iterator[Callable[[Any], Broker]]:
    """The broker as it comes back from the files as they are now."""
    opened: list[Broker] = []

    def kill(bench: Any) -> Broker:
        copy = tmp_path.with_name(f"{tmp_path.name}-{len(opened)}")
        shutil.copytree(bench.directory, copy)
        opened.append(assemble(BrokerConfig(), bench.broker.store.config, copy, clock))
        return opened[-1]

    yield kill
    for broker in opened:
        broker.store.close()


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def refuse(file: JsonFile, data: bytes) -> None:
        raise DiskFull(f"cannot save {file.path}: no space")

    return lambda: monkeypatch.setattr(JsonFile, "save", refuse)


async def test_topics_created_and_changed_are_kept(bench: Any, after_kill: Any) -> None:
    await topics.put_topic(
        TopicConfig(topic_name="t", read_queue_nums=4, write_queue_nums=4), "", bench.broker
    )
    await topics.put_topic(
        TopicConfig(topic_name="t", read_queue_nums=9, write_queue_nums=9), "", bench.broker
    )
    await topics.put_topics([TopicConfig(topic_name="u"), TopicConfig(topic_name="v")], bench.broker)
    found = after_kill(bench).topics
    assert found.require("t").write_queue_nums == 9
    assert found.get("u") and found.get("v")


async def test_static_topics_are_kept_with_their_mapping(bench: Any, after_kill: Any) -> None:
    hosted = {number: [MappedPart(bname="broker-a", queue_id=number)] for number in range(2)}
    mapping = QueueMapping(bname="broker-a", topic="st", total_queues=2, epoch=1, hosted_queues=hosted)
    await put_static_topic(
        TopicConfig(topic_name="st", read_queue_nums=2, write_queue_nums=2), mapping, bench.broker
    )
    found = after_kill(bench).topics
    assert found.require("st").write_queue_nums == 2
    assert found.static.get("st") == mapping


async def test_a_deleted_topic_stays_deleted_with_offsets_and_mode(bench: Any, after_kill: Any) -> None:
    for _ in range(3):
        bench.send("t")
    broker = bench.broker
    await _seen_by_a_group(broker)
    await topics.delete_topic("t", broker)
    back = after_kill(bench)
    assert back.topics.get("t") is None
    assert back.store.max_offset("t", 0) == 0
    assert back.offsets.topics_of("g") == set()
    assert back.pops.modes.get("t", "g").mode is Mode.PULL
    assert back.pops.orders.get("t", "g", 0) is None


async def _seen_by_a_group(broker: Broker) -> None:
    """An offset, a mode and an ordered batch of `g` on `t`, all of them on disk."""
    broker.offsets.set("g", "t", 0, 2)
    broker.pops.orders.popped(("t", "g", 0), [0, 1], OrderedBatch(pop_time=1, invisible_time=60_000))
    await set_mode(RequestMode(topic="t", consumer_group="g", mode=Mode.POP), broker)
    await broker.offsets.saved()
    await broker.pops.orders.saved()


async def test_groups_are_kept_changed_and_deleted(bench: Any, after_kill: Any) -> None:
    bench.broker.topics.ensure("t")
    await groups.put_groups([GroupConfig(group_name="g", consume_enable=False)], bench.broker)
    await groups.forbid("g", "t", False, bench.broker)
    back = after_kill(bench).groups
    assert not back.get("g").consume_enable
    assert back.forbidden("g", "t")
    await _seen_by_a_group(bench.broker)
    known = after_kill(bench)
    assert known.offsets.get("g", "t", 0) == 2
    assert known.pops.orders.get("t", "g", 0) is not None
    await groups.delete_group("g", bench.broker, clean_offsets=True)
    back = after_kill(bench)
    assert back.groups.get("g") is None
    assert back.offsets.get("g", "t", 0) == -1
    assert back.pops.modes.get("t", "g").mode is Mode.PULL
    assert back.pops.orders.get("t", "g", 0) is None


async def test_modes_resets_and_cloned_offsets_are_kept(bench: Any, after_kill: Any) -> None:
    for _ in range(5):
        bench.send("t")
    broker = bench.broker
    mode = RequestMode(topic="t", consumer_group="g", mode=Mode.POP, pop_share_queue_num=3)
    await set_mode(mode, broker)
    await reset_offset(Reset("g", "t", queue_id=0, offset=4), broker)
    await progress.clone_offsets("g", "other", "t", broker, offline=True)
    back = after_kill(bench)
    assert back.pops.modes.get("t", "g").pop_share_queue_num == 3
    assert back.groups.get("g") is not None, "made by setting the mode"
    assert back.offsets.get("g", "t", 0) == back.offsets.get("other", "t", 0) == 4


async def test_what_is_refused_for_a_full_disk_is_not_in_force(
    bench: Any, full_disk: Callable[[], None]
) -> None:
    broker = bench.broker
    await topics.put_topic(TopicConfig(topic_name="t", write_queue_nums=4), "", broker)
    await groups.put_groups([GroupConfig(group_name="g")], broker)
    full_disk()
    with pytest.raises(DiskFull):
        await topics.put_topic(TopicConfig(topic_name="t", write_queue_nums=9), "", broker)
    with pytest.raises(DiskFull):
        await topics.put_topics([TopicConfig(topic_name="u"), TopicConfig(topic_name="v")], broker)
    with pytest.raises(DiskFull):
        await groups.put_groups([GroupConfig(group_name="g", consume_enable=False)], broker)
    with pytest.raises(DiskFull):
        await groups.forbid("g", "t", False, broker)
    with pytest.raises(DiskFull):
        await set_mode(RequestMode(topic="t", consumer_group="g", mode=Mode.POP), broker)
    assert broker.topics.require("t").write_queue_nums == 4
    assert broker.topics.get("u") is broker.topics.get("v") is None
    assert broker.groups.require("g").consume_enable
    assert not broker.groups.forbidden("g", "t")
    assert broker.pops.modes.get("t", "g").mode is Mode.PULL


# -- topics made by messages -------------------------------------------------------------------------------


def ask(header: Any, body: bytes, broker: Broker) -> Any:
    command = request(header, body)
    return ROUTES[command.code].adapter(Request(Peer(), command), header, broker)  # type: ignore[arg-type]


async def test_the_first_send_waits_for_its_topic_and_later_ones_do_not(bench: Any, after_kill: Any) -> None:
    header = SendMessageV2(topic="new", default_topic_queue_nums=7, queue_id=0)
    later = ask(header, b"x", bench.broker)
    second = ask(header, b"x", bench.broker)  # comes before the settings are on disk
    await later
    assert after_kill(bench).topics.require("new").write_queue_nums == 7
    await second
    assert type(ask(header, b"x", bench.broker)) is bytes


async def test_a_send_to_a_queue_just_added_waits_for_the_settings(bench: Any, after_kill: Any) -> None:
    bench.send("t")
    bench.broker.topics.save()
    bench.broker.topics.put(TopicConfig(topic_name="t", read_queue_nums=30, write_queue_nums=30))
    await ask(SendMessageV2(topic="t", queue_id=29), b"x", bench.broker)
    assert after_kill(bench).topics.require("t").read_queue_nums == 30


async def test_a_batch_and_a_message_sent_back_wait_too(bench: Any, after_kill: Any) -> None:
    bodies = bytes.fromhex("00000017 00000000 00000000 00000000 00000001 78 0000".replace(" ", ""))
    await ask(SendBatch(topic="new", default_topic_queue_nums=5, batch=True), bodies, bench.broker)
    sent = bench.send("t")
    bench.broker.groups.put(GroupConfig(group_name="g", retry_queue_nums=3))
    await ask(SendBack(group="g", offset=sent.physical_offset), b"", bench.broker)
    back = after_kill(bench).topics
    assert back.require("new").write_queue_nums == 5
    assert back.require(names.retry_topic("g")).write_queue_nums == 3


async def test_a_send_is_refused_when_its_new_topic_cannot_be_saved_but_others_are_not(
    bench: Any, full_disk: Callable[[], None]
) -> None:
    bench.send("t")
    bench.broker.topics.save()
    full_disk()
    with pytest.raises(DiskFull):
        await ask(SendMessageV2(topic="new"), b"x", bench.broker)
    assert type(ask(SendMessageV2(topic="t"), b"x", bench.broker)) is bytes
    # Its message is in the log, so it can be read; the settings are saved when there is space again.
    assert bench.broker.topics.get("new") is not None
    assert "new" in bench.broker.topics.unsaved


async def test_messages_without_settings_are_neither_hidden_nor_refused(bench: Any, after_kill: Any) -> None:
    """topics.json is lost, or a retry topic was made by the broker itself a moment before the kill."""
    bench.send("t", queue_id=2)
    bench.broker.topics.ensure(names.retry_topic("g"))
    bench.send(names.retry_topic("g"))
    for table in (bench.directory / "store" / "config").glob("topics.json*"):
        table.unlink()
    back = after_kill(bench)
    assert back.topics.require("t").read_queue_nums == BrokerConfig().default_queues
    assert back.topics.require(names.retry_topic("g")).read_queue_nums == 1
    assert back.store.max_offset("t", 2) == 1


def test_a_new_brokers_own_topics_are_on_disk_before_it_serves(bench: Any, clock: Any) -> None:
    saved = Topics(bench.directory / "store" / "config", clock)
    assert names.TIMER_TOPIC in saved.all()
