# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from aerobee import Message, Producer, PullConsumer
from aerobee.client.admin import Admin
from aerobee.client.consume.raw_pull import PullStatus
from aerobee.client.consume.scheduled_pull import ScheduledPull

pytestmark = pytest.mark.slow


@pytest.fixture
async def filled(cluster: Any) -> Any:
    """A topic of two queues with 20 messages in each, bodies 0 to 39."""
    topic = await cluster.topic(queues=2)
    async with Producer(cluster.namesrv, group=cluster.fresh("p"), options=cluster.options) as producer:
        queues = await producer.queues(topic)
        for n in range(40):
            await producer.send(
                Message(topic, b"%d" % n, tags="even" if n % 2 == 0 else "odd"), queue=queues[n // 20]
            )
    return topic


def reader(cluster: Any, group: str, topic: str | None, **more: Any) -> PullConsumer:
    options = msgspec.structs.replace(cluster.options, **more.pop("options", {}))
    topics = {topic: more.pop("expression", "*")} if topic else None
    return PullConsumer(cluster.namesrv, group=group, topics=topics, start="first", options=options, **more)


async def poll_until(consumer: PullConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        part = await consumer.poll(timeout_ms=10_000)
        if not part:
            break
        found += part
    return found


async def test_poll_gives_everything_once_and_goes_on_where_it_stopped(cluster: Any, filled: str) -> None:
    group = cluster.fresh("g")
    async with reader(cluster, group, filled) as consumer:
        found = await poll_until(consumer, 40)
        assert sorted(int(message.body) for message in found) == list(range(40))
        assert await consumer.poll(timeout_ms=50) == []
    async with reader(cluster, group, filled) as consumer:
        assert await consumer.poll(timeout_ms=500) == []


async def test_poll_respects_its_limit(cluster: Any, filled: str) -> None:
    async with reader(cluster, cluster.fresh("g"), filled) as consumer:
        sizes: list[int] = []
        while sum(sizes) < 40:
            sizes.append(len(await consumer.poll(max_messages=7, timeout_ms=10_000)))
        assert max(sizes) <= 7
        with pytest.raises(ValueError, match="max_messages is 0"):
            await consumer.poll(max_messages=0)
        with pytest.raises(ValueError, match="timeout_ms is -1"):
            await consumer.poll(timeout_ms=-1)


async def test_without_auto_commit_only_commit_counts(cluster: Any, filled: str) -> None:
    group, options = cluster.fresh("g"), {"auto_commit_ms": 0}
    async with reader(cluster, group, filled, options=options) as consumer:
        await poll_until(consumer, 40)
    async with reader(cluster, group, filled, options=options) as consumer:
        found = await poll_until(consumer, 40)
        assert len(found) == 40, "nothing was committed"
        queue = found[0].queue
        await consumer.commit({queue: 15})
        assert await consumer.committed(queue) == 15
    async with Admin(cluster.namesrv) as admin:
        assert await admin.offset(group, queue) == 15


async def test_tags_filter(cluster: Any, filled: str) -> None:
    async with reader(cluster, cluster.fresh("g"), filled, expression="even") as consumer:
        found = await poll_until(consumer, 20)
        assert {message.tags for message in found} == {"even"}
        assert len(found) == 20


async def test_assigned_queues_are_read_and_sought(cluster: Any, filled: str) -> None:
    async with reader(cluster, cluster.fresh("g"), None) as consumer:
        queues = await consumer.queues(filled)
        await consumer.assign([queues[0]])
        assert consumer.assignment == [queues[0]]
        assert [int(m.body) for m in await poll_until(consumer, 20)] == list(range(20))
        await consumer.seek(queues[0], 18)
        assert [int(m.body) for m in await poll_until(consumer, 2)] == [18, 19]
        await consumer.seek_to_begin(queues[0])
        assert int((await consumer.poll(max_messages=1, timeout_ms=5_000))[0].body) == 0
        await consumer.seek_to_end(queues[0])
        assert await consumer.poll(timeout_ms=300) == []
        await consumer.seek_to_time(queues[0], 0)
        assert int((await consumer.poll(max_messages=1, timeout_ms=5_000))[0].body) == 0
        assert await consumer.offset_range(queues[0]) == (0, 20)
        with pytest.raises(ValueError, match="outside"):
            await consumer.seek(queues[0], 21)
        with pytest.raises(ValueError, match="not assigned"):
            await consumer.seek(queues[1], 0)


async def test_sharing_and_assigning_exclude_each_other(cluster: Any, filled: str) -> None:
    async with reader(cluster, cluster.fresh("g"), filled) as consumer:
        with pytest.raises(TypeError, match="assign needs one without"):
            await consumer.assign(await consumer.queues(filled))


async def test_paused_queues_are_not_fetched(cluster: Any, filled: str) -> None:
    async with reader(cluster, cluster.fresh("g"), None) as consumer:
        queues = await consumer.queues(filled)
        consumer.pause([queues[1]])
        await consumer.assign(queues)
        assert {m.queue for m in await poll_until(consumer, 20)} == {queues[0]}
        assert await consumer.poll(timeout_ms=300) == []
        consumer.resume([queues[1]])
        assert {m.queue for m in await poll_until(consumer, 20)} == {queues[1]}


@pytest.mark.seed("S002-1", "S003-30", "S004-50", "S004-51")
async def test_pulling_by_hand_until_there_is_nothing_new(cluster: Any, filled: str) -> None:
    group = cluster.fresh("g")
    async with reader(cluster, group, None) as consumer:
        found, statuses = [], Counter[PullStatus]()
        for queue in await consumer.queues(filled):
            offset = 0
            while True:
                answer = await consumer.pull(queue, offset, max_messages=8)
                statuses[answer.status] += 1
                offset = answer.next_offset
                if answer.status is PullStatus.NO_NEW_MESSAGE:
                    break
                found += answer.messages
            await consumer.commit({queue: offset})
        assert sorted(int(m.body) for m in found) == list(range(40))
        assert (statuses[PullStatus.FOUND], statuses[PullStatus.NO_NEW_MESSAGE]) == (6, 2), "20 in steps of 8"
        far = await consumer.pull(queue, 1_000)
        assert (far.status, far.next_offset) == (PullStatus.OFFSET_ILLEGAL, 20)
        nothing = await consumer.pull(queue, 0, expression="neither")
        assert (nothing.status, nothing.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 20)
        with pytest.raises(ValueError, match="offset is -1"):
            await consumer.pull(queue, -1)
    async with reader(cluster, group, None) as consumer:
        kept = {queue.queue_id: await consumer.committed(queue) for queue in await consumer.queues(filled)}
        assert kept == {0: 20, 1: 20}, "its own offsets, for whoever comes next"


@pytest.mark.seed("S003-1", "S003-10", "S003-24", "S003-41")
async def test_a_schedule_calls_back_for_every_owned_queue(
    cluster: Any, filled: str, eventually: Any
) -> None:
    calls = Counter[int]()
    errors: list[Any] = []

    async def callback(queue: Any, turn: Any) -> None:
        calls[queue.queue_id] += 1
        if queue.queue_id == 1 and not errors:
            errors.append(1)
            turn.next_delay_ms = 1
            raise RuntimeError("the schedule goes on")
        turn.next_delay_ms = 20

    group = cluster.fresh("g")
    async with ScheduledPull(
        cluster.namesrv, group=group, callbacks={filled: callback}, options=cluster.options
    ) as first:
        await eventually(lambda: calls[0] >= 3 and calls[1] >= 2)
        async with ScheduledPull(
            cluster.namesrv,
            group=group,
            callbacks={filled: lambda queue, turn: None},
            options=cluster.options,
        ):
            await eventually(lambda: len(first.consumer.assignment) == 1)
            kept = first.consumer.assignment[0].queue_id
            lost = calls[1 - kept]
            before = calls[kept]
            await eventually(lambda: calls[kept] >= before + 3)
            assert calls[1 - kept] <= lost + 1, "its turns have ended"


@pytest.mark.seed("S003-3", "S003-41")
async def test_two_readers_share(cluster: Any, filled: str, eventually: Any) -> None:
    group = cluster.fresh("g")
    async with reader(cluster, group, filled) as one, reader(cluster, group, filled) as two:
        await eventually(lambda: len(one.assignment) == len(two.assignment) == 1)
        assert one.assignment != two.assignment
        await asyncio.sleep(0)
