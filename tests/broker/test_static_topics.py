# SPDX-License-Identifier: Apache-2.0
"""Static topics on one broker, where every logic queue is the broker's queue of the same number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Server
from aerobee.broker.operations.admin import static_topics, topics
from aerobee.broker.state.static_topics import StaticTopics
from aerobee.errors import SystemFailure
from aerobee.net.pool import Pool
from aerobee.protocol.bodies import (
    MappedPart,
    QueueMapping,
    StaticTopicConfig,
    TopicConfig,
    TopicRoute,
    decode,
    encode,
)
from aerobee.protocol.command import request
from aerobee.protocol.headers.route import GetRoute
from aerobee.protocol.headers.topics import CreateStaticTopic, GetTopicConfig

if TYPE_CHECKING:
    from pathlib import Path


def mapping(queues: int, epoch: int = 1, **first: Any) -> QueueMapping:
    """As mqadmin updateStaticTopic makes it for one broker; `first` spoils logic queue 0."""
    hosted = {number: [MappedPart(bname="broker-a", queue_id=number)] for number in range(queues)}
    if first:
        hosted[0] = [MappedPart(**{"bname": "broker-a", "queue_id": 0, **first})]
    return QueueMapping(bname="broker-a", topic="st", total_queues=queues, epoch=epoch, hosted_queues=hosted)


def config(queues: int) -> TopicConfig:
    return TopicConfig(topic_name="st", read_queue_nums=queues, write_queue_nums=queues)


async def test_a_static_topic_grows_and_is_there_after_a_restart(bench: Any) -> None:
    await static_topics.put_static_topic(config(2), mapping(2), bench.broker)
    await static_topics.put_static_topic(config(3), mapping(3, epoch=2), bench.broker)
    assert bench.send("st", queue_id=2).queue_offset == 0
    bench.restart()
    known = bench.broker.topics.static.get("st")
    assert (known.total_queues, known.epoch, sorted(known.hosted_queues)) == (3, 2, [0, 1, 2])
    assert known.info().curr_id_map == {0: 0, 1: 1, 2: 2}
    assert bench.broker.topics.require("st").write_queue_nums == 3
    await topics.delete_topic("st", bench.broker)
    bench.restart()
    assert bench.broker.topics.static.get("st") is None


async def test_queues_added_to_a_static_topic_come_to_those_it_has(bench: Any) -> None:
    """Also by the mapping it has got already: a tool that was cut off asks once more."""
    await static_topics.put_static_topic(config(2), mapping(2), bench.broker)
    added = mapping(3, epoch=2)
    del added.hosted_queues[0]
    for _ in range(2):
        await static_topics.put_static_topic(config(3), added, bench.broker)
        assert sorted(bench.broker.topics.static.get("st").hosted_queues) == [0, 1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        mapping(2, bname="broker-b"),
        mapping(2, queue_id=1),
        mapping(2, logic_offset=100),
        QueueMapping(bname="broker-b", topic="st"),
        QueueMapping(bname="broker-a", topic="other"),
        QueueMapping(bname="broker-a", topic="st", hosted_queues={0: [MappedPart(bname="broker-a")] * 2}),
    ],
)
async def test_queues_that_moved_between_brokers_are_refused(bench: Any, wrong: QueueMapping) -> None:
    with pytest.raises(SystemFailure, match=r"between brokers|the mapping is of"):
        await static_topics.put_static_topic(config(2), wrong, bench.broker)
    assert bench.broker.topics.get("st") is None


async def test_an_older_mapping_is_refused(bench: Any) -> None:
    await static_topics.put_static_topic(config(2), mapping(2, epoch=7), bench.broker)
    with pytest.raises(SystemFailure, match="small epoch 6 < 7"):
        await static_topics.put_static_topic(config(3), mapping(3, epoch=6), bench.broker)
    assert bench.broker.topics.require("st").write_queue_nums == 2


async def test_its_route_and_its_settings_show_the_mapping() -> None:
    async with Server(ephemeral=True) as server:
        pool = Pool()
        broker, names = await pool.get(server.broker_address), await pool.get(server.namesrv)
        asked = CreateStaticTopic(topic="st", read_queue_nums=2, write_queue_nums=2)
        assert (await broker.call(request(asked, encode(mapping(2))))).code == 0
        route = decode((await names.call(request(GetRoute(topic="st")))).body, TopicRoute)
        shown = await broker.call(request(GetTopicConfig(topic="st", logical=True)))
        plain = await broker.call(request(GetTopicConfig(topic="st")))
        await pool.close()
    assert route.topic_queue_mapping_by_broker is not None
    assert route.topic_queue_mapping_by_broker["broker-a"]["currIdMap"] == {"0": 0, "1": 1}
    detail = decode(shown.body, StaticTopicConfig).mapping_detail
    assert detail == mapping(2)
    assert b"mappingDetail" not in plain.body


def test_each_change_of_the_mappings_is_a_new_version_of_them(tmp_path: Path) -> None:
    def version() -> int:
        return StaticTopics(tmp_path)._stored.data_version.counter

    static, seen = StaticTopics(tmp_path), []
    for change in (
        lambda: static.put(mapping(2)),
        lambda: static.put(mapping(3)),
        lambda: static.delete("st"),
    ):
        change()
        seen.append(version())
    static.delete("st")
    seen.append(version())
    assert seen == [1, 2, 3, 3]
