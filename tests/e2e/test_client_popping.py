# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from aerobee import Message, Producer, PushConsumer, SimpleConsumer
from aerobee.client.admin import Admin

pytestmark = pytest.mark.slow


async def fill(cluster: Any, topic: str, count: int, **more: Any) -> None:
    async with Producer(cluster.namesrv, group=cluster.fresh("p"), options=cluster.options) as producer:
        await asyncio.gather(*(producer.send(Message(topic, b"%d" % n, **more)) for n in range(count)))


def simple(cluster: Any, group: str, topics: Any, **more: Any) -> SimpleConsumer:
    topics = {topics: "*"} if isinstance(topics, str) else topics
    return SimpleConsumer(cluster.namesrv, group=group, topics=topics, options=cluster.options, **more)


class TestByHand:
    @pytest.mark.seed("S000-15", "S000-16", "S000-25")
    async def test_what_is_acked_never_comes_again(self, cluster: Any) -> None:
        topic, group, seen = await cluster.topic(), await cluster.group(), Counter[bytes]()
        await fill(cluster, topic, 60)
        async with simple(cluster, group, topic) as consumer:
            while messages := await consumer.receive(invisible_ms=5_000, wait_ms=3_000):
                for message in messages:
                    seen[message.body] += 1
                    await message.ack()
            assert len(seen) == 60
            assert await consumer.receive(wait_ms=100) == []
        assert set(seen.values()) == {1}

    async def test_of_acks_that_leave_together_none_comes_again_and_the_others_do(self, cluster: Any) -> None:
        topic, group = await cluster.topic(queues=2), await cluster.group()
        await fill(cluster, topic, 40)
        async with simple(cluster, group, topic) as consumer:
            taken: list[Any] = []
            while len(taken) < 40:
                taken += await consumer.receive(invisible_ms=4_000)
            left = {m.body for m in taken if int(m.body) % 10 == 3}
            await asyncio.gather(*(m.ack() for m in taken if m.body not in left))
            again: set[bytes] = set()
            while again < left:
                part = await consumer.receive(invisible_ms=30_000, wait_ms=20_000)
                again |= {m.body for m in part}
                await asyncio.gather(*(m.ack() for m in part))
            assert again == left

    @pytest.mark.seed("S000-18", "S000-22", "S000-27")
    async def test_what_is_not_acked_comes_again(self, cluster: Any) -> None:
        topic, group = await cluster.topic(queues=1), await cluster.group()
        await fill(cluster, topic, 2)
        async with simple(cluster, group, topic) as consumer:
            first: list[Any] = []
            while len(first) < 2:
                first += await consumer.receive(invisible_ms=2_000)
            await next(m for m in first if m.body == b"0").ack()
            assert await consumer.receive(invisible_ms=2_000, wait_ms=200) == [], "still invisible"
            again: list[Any] = []
            while not again:
                again = await consumer.receive(invisible_ms=5_000, wait_ms=20_000)
            assert [(m.topic, m.body, m.attempt) for m in again] == [(topic, b"1", 2)]
            await again[0].ack()

    @pytest.mark.seed("S000-20")
    async def test_nack_and_extend_move_the_time(self, cluster: Any) -> None:
        topic, group = await cluster.topic(queues=1), await cluster.group()
        await fill(cluster, topic, 1)
        async with simple(cluster, group, topic) as consumer:
            (message,) = await consumer.receive(invisible_ms=60_000)
            await message.nack(delay_ms=1_000)
            again: list[Any] = []
            while not again:
                again = await consumer.receive(invisible_ms=1_500, wait_ms=20_000)
            assert again[0].body == b"0"
            await again[0].extend(60_000)
            assert await consumer.receive(wait_ms=4_000) == [], "extended past its first time"
            await again[0].ack()

    @pytest.mark.seed("S000-11", "S000-12")
    async def test_a_hung_consumer_does_not_hold_the_others_up(self, cluster: Any) -> None:
        topic, group, seen = await cluster.topic(queues=1), await cluster.group(), set()
        await fill(cluster, topic, 40)
        async with simple(cluster, group, topic) as hung, simple(cluster, group, topic) as other:
            taken = await hung.receive(max_messages=8, invisible_ms=3_000)
            for _ in range(40):
                for message in await other.receive(invisible_ms=10_000, wait_ms=2_000):
                    seen.add(message.body)
                    await message.ack()
                if len(seen) == 40:
                    break
            assert len(taken) > 0
            assert len(seen) == 40, "what hung comes back and is finished by the other"

    async def test_several_topics_are_received_together(self, cluster: Any) -> None:
        one, two, group = await cluster.topic(), await cluster.topic(), await cluster.group()
        await fill(cluster, one, 5)
        seen = Counter[str]()
        async with simple(cluster, group, {one: "*", two: "*"}) as consumer:
            asyncio.get_running_loop().call_later(1, lambda: asyncio.ensure_future(fill(cluster, two, 5)))
            while sum(seen.values()) < 10:
                for message in await consumer.receive(wait_ms=15_000):
                    seen[message.topic] += 1
                    await message.ack()
        assert seen == {one: 5, two: 5}

    async def test_tags_filter(self, cluster: Any) -> None:
        topic, group = await cluster.topic(queues=1), await cluster.group()
        await fill(cluster, topic, 3, tags="no")
        await fill(cluster, topic, 3, tags="yes")
        found: list[Any] = []
        async with simple(cluster, group, {topic: "yes"}) as consumer:
            while len(found) < 3:
                part = await consumer.receive(wait_ms=10_000)
                assert part
                for message in part:
                    found.append(message.tags)
                    await message.ack()
        assert found == ["yes"] * 3

    @pytest.mark.seed("S000-49")
    async def test_ordered_a_queue_gives_nothing_until_acked(self, cluster: Any) -> None:
        topic, group = await cluster.topic(queues=1), await cluster.group(consume_message_orderly=True)
        await fill(cluster, topic, 6)
        seen: list[int] = []
        async with simple(cluster, group, topic, ordered=True) as consumer:
            first = await consumer.receive(max_messages=2, invisible_ms=10_000)
            assert [m.queue_offset for m in first] == [0, 1]
            assert await consumer.receive(max_messages=2, wait_ms=300) == []
            for message in first:
                await message.ack()
                seen.append(message.queue_offset)
            while len(seen) < 6:
                for message in await consumer.receive(max_messages=2, invisible_ms=10_000, wait_ms=10_000):
                    seen.append(message.queue_offset)
                    await message.ack()
        assert seen == list(range(6))

    async def test_misuse_is_refused(self, cluster: Any) -> None:
        topic = await cluster.topic()
        with pytest.raises(ValueError, match="topics is empty"):
            simple(cluster, "g", {})
        consumer = simple(cluster, cluster.fresh("g"), topic)
        with pytest.raises(RuntimeError, match="not started"):
            await consumer.receive()
        async with consumer:
            with pytest.raises(ValueError, match="max_messages is 33"):
                await consumer.receive(max_messages=33)
            with pytest.raises(ValueError, match="invisible_ms is 0"):
                await consumer.receive(invisible_ms=0)


class TestPush:
    def push(self, cluster: Any, group: str, topic: str, handler: Any, **options: Any) -> PushConsumer:
        settings = msgspec.structs.replace(cluster.options, **options)
        return PushConsumer(
            cluster.namesrv,
            group=group,
            topics={topic: "*"},
            handler=handler,
            start="first",
            options=settings,
        )

    async def pop_group(self, cluster: Any, topic: str, share: int = 0) -> str:
        group = await cluster.group()
        async with Admin(cluster.namesrv) as admin:
            await admin.set_consume_mode(topic, group, "POP", share)
            assert (await admin.consume_modes())[topic][group].mode == "POP"
        return group  # type: ignore[no-any-return]

    @pytest.mark.seed("S000-1", "S000-3", "S000-6", "S000-23", "S000-81")
    async def test_a_push_consumer_pops_when_the_broker_says_so(self, cluster: Any, eventually: Any) -> None:
        topic = await cluster.topic()
        group, seen = await self.pop_group(cluster, topic), Counter[bytes]()

        async def handle(message: Any) -> None:
            assert message.receipt
            seen[message.body] += 1

        await fill(cluster, topic, 200)
        async with self.push(cluster, group, topic, handle) as consumer:
            await eventually(lambda: len(seen) == 200, 30)
            assert [q.queue_id for q in consumer.queues if q.topic == topic] == [-1]
        assert set(seen.values()) == {1}

    @pytest.mark.seed("S000-11")
    async def test_more_consumers_than_queues_all_get_work(self, cluster: Any, eventually: Any) -> None:
        topic = await cluster.topic(queues=1)
        group, seen = await self.pop_group(cluster, topic), Counter[int]()

        def member(number: int) -> PushConsumer:
            async def handle(message: Any) -> None:
                seen[number] += 1
                await asyncio.sleep(0.02)

            return self.push(cluster, group, topic, handle, pop_batch=4, pop_unacked=4, concurrency=2)

        async with member(1), member(2), member(3):
            await fill(cluster, topic, 300)
            await eventually(lambda: sum(seen.values()) >= 300, 40)
        assert len(seen) == 3

    @pytest.mark.seed("S000-3", "S000-7")
    async def test_the_mode_changes_while_it_runs(self, cluster: Any, eventually: Any) -> None:
        topic, group, seen = await cluster.topic(), await cluster.group(), Counter[bytes]()

        async def handle(message: Any) -> None:
            seen[message.body] += 1

        async with Admin(cluster.namesrv) as admin, self.push(cluster, group, topic, handle) as consumer:
            await eventually(lambda: len([q for q in consumer.queues if q.topic == topic]) == 4)
            await fill(cluster, topic, 20)
            await eventually(lambda: len(seen) == 20)
            await asyncio.sleep(0.6)
            await admin.set_consume_mode(topic, group, "POP")
            await eventually(lambda: [q.queue_id for q in consumer.queues if q.topic == topic] == [-1], 20)
            await fill(cluster, topic, 20)
            await eventually(lambda: sum(seen.values()) >= 40, 20)
            await admin.set_consume_mode(topic, group, "PULL")
            await eventually(lambda: len([q for q in consumer.queues if q.topic == topic]) == 4, 20)
            await fill(cluster, topic, 20)
            await eventually(lambda: sum(seen.values()) >= 60, 20)
        assert set(seen) == {b"%d" % n for n in range(20)}

    @pytest.mark.seed("S000-21")
    async def test_a_failure_comes_back_after_its_delay(self, cluster: Any, eventually: Any) -> None:
        topic = await cluster.topic(queues=1)
        group, seen = await self.pop_group(cluster, topic), []
        loop = asyncio.get_running_loop()

        async def handle(message: Any) -> None:
            seen.append((message.attempt, loop.time()))
            if message.attempt == 1:
                raise RuntimeError("again, please")

        await fill(cluster, topic, 1)
        async with self.push(cluster, group, topic, handle):
            await eventually(lambda: len(seen) == 2, 40)
        (one, began), (two, came) = seen
        assert (one, two) == (1, 2)
        assert came - began >= 9.0, "the first delay is 10 s"
