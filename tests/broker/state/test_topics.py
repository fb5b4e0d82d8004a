# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aerobee.broker.state.topics import Topics
from aerobee.clock import ManualClock
from aerobee.errors import DiskFull, InvalidParameter, TopicNotFound
from aerobee.protocol.bodies import TopicConfig

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.state.conftest import BrokenDisk


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def topics(tmp_path: Path, clock: ManualClock) -> Topics:
    return Topics(tmp_path, clock)


def test_topic_created_by_a_send_takes_the_model_of_the_default_topic(topics: Topics) -> None:
    topics.ensure("TBW102", 8, 7)
    created = topics.create_for_send("orders", "TBW102", 4, "group")
    assert (created.read_queue_nums, created.write_queue_nums, created.perm) == (4, 4, 6)
    assert topics.create_for_send("more", "TBW102", 40, "group").write_queue_nums == 8


def test_topic_is_not_created_when_the_model_is_missing_or_does_not_allow_it(topics: Topics) -> None:
    with pytest.raises(TopicNotFound, match="orders"):
        topics.create_for_send("orders", "TBW102", 4, "group")
    topics.ensure("TBW102", 8, 6)
    with pytest.raises(TopicNotFound):
        topics.create_for_send("orders", "TBW102", 4, "group")


@pytest.mark.seed("S004-53")
def test_retry_topic_has_one_queue_and_may_be_read_and_written(topics: Topics) -> None:
    retry = topics.create_for_send("%RETRY%group", "none", 4, "group")
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)
    assert (retry.topic_filter_type, retry.order, retry.topic_sys_flag) == ("SINGLE_TAG", False, 0)


@pytest.mark.seed("S004-3", "S004-56")
def test_topics_are_there_again_after_a_restart_even_when_the_file_is_broken(
    tmp_path: Path, clock: ManualClock, topics: Topics
) -> None:
    topics.ensure("first", 2)
    topics.save()
    topics.ensure("second", 3)
    topics.save()
    assert sorted(Topics(tmp_path, clock).all()) == ["first", "second"]
    (tmp_path / "topics.json").write_text('{"topicConfigTable": {"fi')
    assert sorted(Topics(tmp_path, clock).all()) == ["first"]  # the backup is one save older


def test_file_has_the_shape_of_rocketmq(tmp_path: Path, topics: Topics) -> None:
    topics.ensure("orders", 2)
    topics.save()
    stored = json.loads((tmp_path / "topics.json").read_text())
    assert stored["topicConfigTable"]["orders"] == {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": 2,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }
    assert stored["dataVersion"]["counter"] == 1


async def test_what_cannot_be_saved_is_taken_back_when_an_operator_put_it(
    clock: ManualClock, topics: Topics, broken_disk: BrokenDisk
) -> None:
    topics.put(TopicConfig(topic_name="orders", read_queue_nums=4))
    await topics.saved()
    heard: list[str] = []
    topics.listeners.append(heard.append)
    broken_disk.refuse = True
    topics.put(TopicConfig(topic_name="orders", read_queue_nums=8))
    topics.put(TopicConfig(topic_name="new"))
    topics.ensure("made by a send")
    with pytest.raises(DiskFull):
        await topics.saved()
    assert topics.require("orders").read_queue_nums == 4
    assert topics.plain("orders") is topics.get("orders")
    assert topics.get("new") is topics.plain("new") is None
    assert topics.get("made by a send") is not None
    assert heard == ["orders", "new", "made by a send", "new", "orders"]
    broken_disk.refuse = False
    await topics.saved()
    assert not topics.unsaved


def test_listeners_hear_of_changes_and_only_of_changes(topics: Topics) -> None:
    heard: list[tuple[str, int]] = []
    topics.listeners.append(lambda name: heard.append((name, topics.data_version.counter)))
    topics.ensure("orders")
    topics.ensure("orders")
    topics.put(TopicConfig(topic_name="orders", perm=4))
    topics.delete("orders")
    topics.delete("orders")
    assert heard == [("orders", 1), ("orders", 2), ("orders", 3)]


def test_reserved_and_retry_topics_are_not_plain(topics: Topics) -> None:
    for name in ("orders", "SCHEDULE_TOPIC_XXXX", "%RETRY%group"):
        topics.ensure(name)
    assert topics.plain("orders") is not None
    assert topics.plain("SCHEDULE_TOPIC_XXXX") is None
    assert topics.plain("%RETRY%group") is None
    for odd in ("or ders", "orders+", "a" * 128, "audit_REPLY_TOPIC"):
        topics.ensure(odd)
        assert topics.plain(odd) is None, odd
    topics.delete("orders")
    assert topics.plain("orders") is None


async def test_a_deleted_topic_is_gone_from_the_file_too(tmp_path: Path) -> None:
    topics = Topics(tmp_path, ManualClock())
    topics.ensure("orders")
    await topics.saved()
    topics.delete("orders")
    await topics.saved()
    assert Topics(tmp_path, ManualClock()).get("orders") is None
    topics.delete("orders")
    assert not topics.unsaved, "what is not there is no change"


def test_a_topic_is_made_with_as_many_queues_as_its_model_allows_but_not_with_none(tmp_path: Path) -> None:
    topics = Topics(tmp_path, ManualClock())
    topics.ensure("model", 4, 7)
    for asked, made in ((3, 3), (9, 4)):
        config = topics.create_for_send(f"t{asked}", "model", asked, "shop")
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (made, made, 6)
    for none in (0, -1):
        with pytest.raises(InvalidParameter, match=f"asked for with {none} queues"):
            topics.create_for_send("t", "model", none, "shop")
    assert topics.get("t") is None


def test_a_topic_made_by_a_send_has_no_more_queues_than_its_model_is_written_to(topics: Topics) -> None:
    topics.put(TopicConfig(topic_name="TBW102", read_queue_nums=8, write_queue_nums=3, perm=7))
    made = topics.create_for_send("new", "TBW102", 4, "a test")
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (3, 3, 6)
