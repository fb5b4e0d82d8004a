# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from aerobee import Message, Producer
from aerobee.client.admin import Admin
from aerobee.errors import AerobeeError, NoRoute, QueryNotFound

pytestmark = pytest.mark.slow


@pytest.fixture
async def admin(cluster: Any) -> Any:
    async with Admin(cluster.namesrv, options=cluster.options) as found:
        yield found


async def test_topics_come_and_go(cluster: Any, admin: Admin, eventually: Any) -> None:
    topic = cluster.fresh("topic")
    await admin.create_topic(topic, queues=3)

    async def known() -> bool:
        return await admin.topic_exists(topic)

    await eventually(known)
    assert topic in await admin.user_topics()
    assert len((await admin.route(topic)).readable) == 3
    (config,) = (await admin.topic_config(topic)).values()
    assert (config.topic_name, config.read_queue_nums, config.perm) == (topic, 3, 6)
    await admin.create_topic(topic, queues=5)

    async def grown() -> bool:
        return len((await admin.route(topic)).readable) == 5

    await eventually(grown)
    await admin.delete_topic(topic)

    async def gone() -> bool:
        return not await admin.topic_exists(topic)

    await eventually(gone)


async def test_groups_come_and_go(cluster: Any, admin: Admin) -> None:
    group = cluster.fresh("group")
    await admin.create_group(group, retry_max_times=3)
    assert (await admin.group_config(group)).retry_max_times == 3
    assert group in await admin.groups()
    assert await admin.members(group) is None
    await admin.delete_group(group)
    assert group not in await admin.groups()
    with pytest.raises(TypeError, match="no such setting"):
        await admin.create_group(group, colour="red")


async def test_stats_and_progress(cluster: Any, admin: Admin) -> None:
    topic, group = await cluster.topic(queues=2), await cluster.group()
    async with Producer(cluster.namesrv, group="shop", options=cluster.options) as producer:
        queues = await producer.queues(topic)
        for _ in range(5):
            await producer.send(Message(topic, b"x"), queue=queues[0])
    stats = await admin.topic_stats(topic)
    assert [(stats[queue].min_offset, stats[queue].max_offset) for queue in queues] == [(0, 5), (0, 0)]
    await admin.set_offset(group, queues[0], 2)
    assert await admin.offset(group, queues[0]) == 2
    lag = await admin.lag(group, topic)
    assert (lag.ready, lag.in_flight, lag.dead, lag.online) == (3, 0, 0, False)
    assert topic in await admin.group_topics(group)
    assert group in await admin.groups_of(topic)
    other = await cluster.group()
    await admin.clone_offsets(group, other, topic)
    assert await admin.offset(other, queues[0]) == 2
    assert await admin.offset_range(queues[0]) == (0, 5)
    assert await admin.offset_at(queues[0], 0) == 0
    assert [m.queue_offset async for m in admin.browse(queues[0], 1, 4)] == [1, 2, 3]


async def test_a_group_without_members_is_reset(cluster: Any, admin: Admin) -> None:
    topic, group = await cluster.topic(queues=1), await cluster.group()
    async with Producer(cluster.namesrv, group="shop", options=cluster.options) as producer:
        sent = [await producer.send(Message(topic, b"x")) for _ in range(4)]
    queue = sent[0].queue
    await admin.set_offset(group, queue, 3)
    for to, expected in (("first", 0), ("last", 4)):
        assert (await admin.reset_offsets(group, topic, to))[queue] == expected
        assert await admin.offset(group, queue) == expected
    assert (await admin.reset_offsets(group, topic, 2, queue_id=0))[queue] == 2
    with pytest.raises(ValueError, match="to is 'tomorrow'"):
        await admin.reset_offsets(group, topic, "tomorrow")


async def test_the_cluster_and_its_broker_are_shown(cluster: Any, admin: Admin) -> None:
    info = await admin.cluster()
    (name,) = info.broker_addr_table
    address = (await admin.masters())[name]
    assert "bootTimestamp" in await admin.broker_runtime(address)
    assert (await admin.broker_config(address))["brokerName"] == name
    with pytest.raises(NoRoute, match="nowhere"):
        await admin.masters("nowhere")


async def test_what_is_not_there_is_said(cluster: Any, admin: Admin) -> None:
    topic = await cluster.topic(queues=1)
    with pytest.raises(NoRoute):
        await admin.topic_stats(cluster.fresh("unknown"))
    with pytest.raises(QueryNotFound):
        await admin.message_by_id("not an id", topic)
    with pytest.raises(QueryNotFound):
        await admin.message_at((await admin.route(topic)).readable[0], 99)
    with pytest.raises(AerobeeError):
        await admin.message_by_id("7F0000010000000000000000000003E8", topic)
    with pytest.raises(ValueError, match="mode is 'PUSH'"):
        await admin.set_consume_mode(topic, "g", "PUSH")
    assert [letter async for letter in admin.dead_letters(cluster.fresh("g"))] == []
