# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee import Message, Producer, PushConsumer
from aerobee.client.admin import Admin
from aerobee.client.consume.handler import ConsumeResult, Outcome
from aerobee.client.consume.subscriptions import Sql
from aerobee.client.session.session import Session
from aerobee.errors import SubscriptionParseFailed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture
def consumer(cluster: Any) -> Any:
    """A push consumer that starts at the first message."""

    def make(group: str, topics: Any, handler: Any, **more: Any) -> PushConsumer:
        settings = msgspec.structs.replace(cluster.options, **more.pop("options", {}))
        topics = {topics: "*"} if isinstance(topics, str) else topics
        return PushConsumer(
            cluster.namesrv,
            group=group,
            topics=topics,
            handler=handler,
            start="first",
            options=settings,
            **more,
        )

    return make


@pytest.fixture
async def send(cluster: Any) -> Any:
    async with Producer(cluster.namesrv, group=cluster.fresh("p"), options=cluster.options) as producer:

        async def many(topic: str, count: int, **more: Any) -> list[Any]:
            return await asyncio.gather(
                *(producer.send(Message(topic, b"%d" % n, **more)) for n in range(count))
            )

        yield many


@pytest.mark.seed("S002-1", "S002-2", "S004-40")
async def test_every_message_is_consumed_once_and_the_offset_is_kept(
    cluster: Any, consumer: Any, send: Any, eventually: Any
) -> None:
    topic, group, seen = await cluster.topic(), cluster.fresh("g"), Counter[bytes]()

    async def handle(message: Any) -> None:
        seen[message.body] += 1

    await send(topic, 300)
    async with consumer(group, topic, handle):
        await eventually(lambda: len(seen) == 300)
    await send(topic, 5)
    async with consumer(group, topic, handle):
        await eventually(lambda: sum(seen.values()) >= 305)
        await asyncio.sleep(0.3)
    assert sum(seen.values()) == 305
    async with Admin(cluster.namesrv) as admin:
        assert (await admin.lag(group, topic)).lag == 0


async def test_plain_functions_and_batches_are_handlers_too(
    cluster: Any, consumer: Any, send: Any, eventually: Any
) -> None:
    topic, seen, sizes = await cluster.topic(), [], set()
    await send(topic, 100)
    async with consumer(cluster.fresh("g"), topic, lambda message: seen.append(message.body)):
        await eventually(lambda: len(seen) == 100)

    def batch(messages: list[Any]) -> None:
        sizes.add(len(messages))
        seen.extend(message.body for message in messages)

    async with consumer(cluster.fresh("g"), topic, batch, options={"consume_batch": 8}):
        await eventually(lambda: len(seen) == 200)
    assert max(sizes) > 1


@pytest.mark.seed("S003-35", "S004-48")
async def test_a_new_group_may_begin_at_the_end(cluster: Any, send: Any, eventually: Any) -> None:
    # A young topic whose first message is still in memory is read from the start even so: older ones would not be.
    topic, seen = await cluster.topic(queues=1), []

    async def handle(message: Any) -> None:
        seen.append(message.body)

    sent = await send(topic, 3)
    group = await cluster.group()
    async with Admin(cluster.namesrv) as admin:
        await admin.set_offset(group, sent[0].queue, 3)
    async with PushConsumer(
        cluster.namesrv,
        group=group,
        topics={topic: "*"},
        handler=handle,
        start="last",
        options=cluster.options,
    ):
        await asyncio.sleep(0.5)
        await send(topic, 1)
        await eventually(lambda: seen)
    assert len(seen) == 1


class TestFilters:
    async def test_tags_choose(self, cluster: Any, consumer: Any, send: Any, eventually: Any) -> None:
        topic, seen = await cluster.topic(), Counter[str]()

        async def handle(message: Any) -> None:
            seen[message.tags] += 1

        for tag in ("paid", "void", "AaAa", "BBBB"):
            await send(topic, 10, tags=tag)
        async with consumer(cluster.fresh("g"), {topic: "paid || AaAa"}, handle):
            await eventually(lambda: sum(seen.values()) >= 20)
            await asyncio.sleep(0.3)
        assert seen == {"paid": 10, "AaAa": 10}, "BBBB has the hash of AaAa"

    async def test_sql_chooses_by_properties(
        self, cluster: Any, consumer: Any, send: Any, eventually: Any
    ) -> None:
        topic, seen = await cluster.topic(), Counter[str]()

        async def handle(message: Any) -> None:
            seen[message.properties["amount"]] += 1

        for amount in ("5", "50", "500"):
            await send(topic, 4, properties={"amount": amount})
        async with consumer(cluster.fresh("g"), {topic: Sql("amount > 10 AND amount <> 50")}, handle):
            await eventually(lambda: sum(seen.values()) >= 4)
        assert seen == {"500": 4}

    async def test_a_bad_expression_is_refused_before_it_is_sent(self, cluster: Any, consumer: Any) -> None:
        with pytest.raises(SubscriptionParseFailed):
            consumer("g", {"t": Sql("amount >")}, lambda message: None)

    @pytest.mark.seed("S004-64")
    async def test_members_with_different_tags_lose_messages(
        self, cluster: Any, consumer: Any, send: Any, eventually: Any
    ) -> None:
        topic, group, seen = await cluster.topic(queues=1), cluster.fresh("g"), []

        async def handle(message: Any) -> None:
            seen.append(message.tags)

        await send(topic, 3, tags="A")
        await send(topic, 3, tags="B")
        async with consumer(group, {topic: "B"}, handle):
            await eventually(lambda: len(seen) == 3)
        async with consumer(group, {topic: "A"}, handle):
            await send(topic, 1, tags="A")
            await eventually(lambda: "A" in seen)
            await asyncio.sleep(0.3)
        assert Counter(seen) == {"B": 3, "A": 1}, (
            "the three A before are lost to the group: members must subscribe alike"
        )


class TestRetry:
    @pytest.mark.seed("S004-21", "S004-25", "S004-52", "S004-65")
    async def test_a_failed_message_comes_again_with_its_own_topic(
        self, cluster: Any, consumer: Any, send: Any, eventually: Any
    ) -> None:
        topic, group, seen = await cluster.topic(), cluster.fresh("g"), []

        async def handle(message: Any) -> Outcome | None:
            seen.append((message.topic, message.body, message.attempt))
            return Outcome(ConsumeResult.RETRY, delay_level=1) if message.attempt < 3 else None

        await send(topic, 1)
        async with consumer(group, topic, handle):
            await eventually(lambda: len(seen) == 3, 40)
        assert seen == [(topic, b"0", 1), (topic, b"0", 2), (topic, b"0", 3)]

    @pytest.mark.seed("S004-28", "S004-30")
    async def test_past_the_limit_it_is_a_dead_letter_and_can_be_sent_again(
        self, cluster: Any, consumer: Any, send: Any, eventually: Any
    ) -> None:
        topic, group, attempts = await cluster.topic(), cluster.fresh("g"), []

        async def handle(message: Any) -> Outcome:
            attempts.append(message.attempt)
            return Outcome(ConsumeResult.RETRY, delay_level=1)

        await send(topic, 1, tags="t", keys=["k"])
        async with Admin(cluster.namesrv) as admin:

            async def dead() -> list[Any]:
                return [letter async for letter in admin.dead_letters(group)]

            async with consumer(group, topic, handle, options={"max_reconsume": 1}):
                (letter,) = await eventually(dead, 40)
            assert attempts == [1, 2]
            assert (letter.body, letter.tags, letter.keys) == (b"0", "t", ["k"])
            assert (await admin.lag(group)).dead == 1
            (again,) = await admin.resend_dead_letters(group)
            assert again.queue.topic == topic
            back = await admin.message_at(again.queue, again.queue_offset)
            assert (back.body, back.tags, back.keys) == (b"0", "t", ["k"])

    @pytest.mark.seed("S004-28")
    async def test_a_handler_may_send_straight_to_the_dead_letters(
        self, cluster: Any, consumer: Any, send: Any, eventually: Any
    ) -> None:
        topic, group, seen = await cluster.topic(), cluster.fresh("g"), []

        async def handle(message: Any) -> Outcome:
            seen.append(message.attempt)
            return Outcome(ConsumeResult.RETRY, delay_level=-1)

        await send(topic, 2)
        async with Admin(cluster.namesrv) as admin, consumer(group, topic, handle):

            async def dead() -> bool:
                return len([letter async for letter in admin.dead_letters(group)]) == 2

            await eventually(dead)
        assert seen == [1, 1]


class TestOrdered:
    @pytest.mark.seed("S004-67")
    async def test_each_queue_is_consumed_in_order_also_through_failures(
        self, cluster: Any, consumer: Any, send: Any, eventually: Any
    ) -> None:
        topic, group = await cluster.topic(), cluster.fresh("g")
        done: dict[Any, list[int]] = defaultdict(list)
        failed: set[Any] = set()

        async def handle(message: Any) -> ConsumeResult:
            place = message.queue_id, message.queue_offset
            if message.queue_offset % 5 == 2 and place not in failed:
                failed.add(place)
                return ConsumeResult.SUSPEND
            done[message.queue_id].append(message.queue_offset)
            return ConsumeResult.SUCCESS

        await send(topic, 80)
        async with consumer(group, topic, handle, ordered=True, options={"suspend_queue_ms": 20}):
            await eventually(lambda: sum(map(len, done.values())) == 80, 40)
        for offsets in done.values():
            assert offsets == list(range(len(offsets)))
        assert failed

    @pytest.mark.seed("S003-27", "S003-28", "S004-11")
    async def test_order_holds_while_a_second_consumer_joins_and_leaves(
        self, cluster: Any, consumer: Any, send: Any, eventually: Any
    ) -> None:
        topic, group = await cluster.topic(), cluster.fresh("g")
        done: dict[int, list[int]] = defaultdict(list)

        async def handle(message: Any) -> None:
            await asyncio.sleep(0.002)
            done[message.queue_id].append(message.queue_offset)

        options = {"lock_renew_ms": 500}
        async with consumer(group, topic, handle, ordered=True, options=options):
            await send(topic, 100)
            async with consumer(group, topic, handle, ordered=True, options=options) as second:
                await eventually(lambda: len([q for q in second.queues if q.topic == topic]) == 2)
                await send(topic, 100)
            await send(topic, 100)
            await eventually(lambda: sum(len(set(o)) for o in done.values()) == 300, 40)
        for offsets in done.values():
            firsts = list(dict.fromkeys(offsets))
            assert firsts == sorted(firsts), "a message is never consumed before an earlier one"

    async def test_past_the_limit_it_is_a_dead_letter_and_the_queue_goes_on(
        self, cluster: Any, consumer: Any, send: Any, eventually: Any
    ) -> None:
        topic, group, seen = await cluster.topic(queues=1), cluster.fresh("g"), []

        async def handle(message: Any) -> ConsumeResult:
            seen.append(message.queue_offset)
            return ConsumeResult.SUSPEND if message.body == b"0" else ConsumeResult.SUCCESS

        await send(topic, 2)
        options = {"max_reconsume": 2, "suspend_queue_ms": 20}
        async with (
            Admin(cluster.namesrv) as admin,
            consumer(group, topic, handle, ordered=True, options=options),
        ):

            async def dead() -> list[bytes]:
                return [letter.body async for letter in admin.dead_letters(group)]

            assert await eventually(dead) == [b"0"]
            await eventually(lambda: 1 in seen)
        assert Counter(seen)[0] == 3


@pytest.mark.seed("S003-7", "S003-32")
async def test_broadcast_reaches_every_consumer_and_resumes_from_its_file(
    cluster: Any, consumer: Any, send: Any, eventually: Any, tmp_path: Path
) -> None:
    topic, group, seen = await cluster.topic(), cluster.fresh("g"), [Counter[bytes](), Counter[bytes]()]

    def member(index: int) -> PushConsumer:
        async def handle(message: Any) -> None:
            seen[index][message.body] += 1

        return consumer(  # type: ignore[no-any-return]
            group, topic, handle, model="broadcasting",
            options={"local_offsets": str(tmp_path / str(index)), "instance": f"i{index}"},
        )  # fmt: skip

    await send(topic, 20)
    async with member(0), member(1):
        await eventually(lambda: len(seen[0]) == len(seen[1]) == 20)
        await asyncio.sleep(0.1)
    await send(topic, 3)
    async with member(0):
        await eventually(lambda: sum(seen[0].values()) >= 23)
        await asyncio.sleep(0.2)
    assert sum(seen[0].values()) == 23


@pytest.mark.seed("S003-14", "S003-16", "S003-17", "S003-45", "S004-80")
async def test_members_share_the_queues_without_gap_or_overlap(
    cluster: Any, consumer: Any, eventually: Any
) -> None:
    topic, group = await cluster.topic(queues=8), cluster.fresh("g")

    async def handle(message: Any) -> None: ...

    def owned(member: PushConsumer) -> set[int]:
        return {queue.queue_id for queue in member.queues if queue.topic == topic}

    async with AsyncExitStack() as stack:
        members = [await stack.enter_async_context(consumer(group, topic, handle)) for _ in range(3)]

        def divided() -> bool:
            shares = [owned(member) for member in members]
            return sum(map(len, shares)) == 8 and set().union(*shares) == set(range(8))

        await eventually(lambda: divided() and sorted(map(len, map(owned, members))) == [2, 3, 3])
        await members.pop().stop()
        await eventually(lambda: divided() and sorted(map(len, map(owned, members))) == [4, 4])


async def test_pause_and_resume(cluster: Any, consumer: Any, send: Any, eventually: Any) -> None:
    topic, seen = await cluster.topic(), []

    async def handle(message: Any) -> None:
        seen.append(message.body)

    async with consumer(
        cluster.fresh("g"), topic, handle, options={"suspended_ms": 50, "pull_hold_ms": 200}
    ) as one:
        await send(topic, 4)
        await eventually(lambda: len(seen) == 4)
        one.pause()
        await asyncio.sleep(0.5)
        await send(topic, 4)
        await asyncio.sleep(0.3)
        assert len(seen) == 4
        one.resume()
        await eventually(lambda: len(seen) == 8)


@pytest.mark.seed("S004-90")
async def test_a_stop_waits_for_running_handlers(
    cluster: Any, consumer: Any, send: Any, eventually: Any
) -> None:
    topic, group, started, ended = await cluster.topic(queues=1), cluster.fresh("g"), [], []

    async def handle(message: Any) -> None:
        started.append(message.body)
        await asyncio.sleep(0.3)
        ended.append(message.body)

    await send(topic, 1)
    async with consumer(group, topic, handle):
        await eventually(lambda: started)
    assert started == ended
    async with Admin(cluster.namesrv) as admin:
        assert (await admin.lag(group, topic)).lag == 0


@pytest.mark.seed("S001-19", "S001-26")
async def test_an_offset_the_broker_has_not_is_repaired(
    cluster: Any, consumer: Any, send: Any, eventually: Any
) -> None:
    topic, group, seen = await cluster.topic(queues=1), await cluster.group(), []

    async def handle(message: Any) -> None:
        seen.append(message.body)

    (sent,) = await send(topic, 1)
    async with Admin(cluster.namesrv) as admin:
        await admin.set_offset(group, sent.queue, 1_000)
        async with consumer(group, topic, handle):

            async def repaired() -> bool:
                return await admin.offset(group, sent.queue) == 1

            await eventually(repaired)
            await send(topic, 2)
            await eventually(lambda: len(seen) == 2)


async def test_subscriptions_change_while_running(
    cluster: Any, consumer: Any, send: Any, eventually: Any
) -> None:
    one, two, seen = await cluster.topic(), await cluster.topic(), Counter[str]()

    async def handle(message: Any) -> None:
        seen[message.topic] += 1

    async with consumer(cluster.fresh("g"), one, handle) as running:
        await send(one, 3)
        await running.subscribe(two)
        await send(two, 3)
        await eventually(lambda: seen == {one: 3, two: 3})
        await running.unsubscribe(one)
        await eventually(lambda: not [queue for queue in running.queues if queue.topic == one])


@pytest.mark.seed("S004-9", "S001-5")
async def test_one_session_serves_several_groups_and_refuses_the_same_twice(
    cluster: Any, send: Any, eventually: Any
) -> None:
    topic, seen = await cluster.topic(), Counter[str]()
    session = Session(cluster.namesrv, cluster.options)
    groups = [cluster.fresh("g"), cluster.fresh("g")]

    def member(group: str) -> PushConsumer:
        async def handle(message: Any) -> None:
            seen[group] += 1

        return PushConsumer(session, group=group, topics={topic: "*"}, handler=handle, start="first")

    await send(topic, 10)
    async with member(groups[0]), member(groups[1]):
        await eventually(lambda: seen == dict.fromkeys(groups, 10))
        with pytest.raises(ValueError, match="already"):
            await member(groups[0]).start()


async def test_the_operator_sees_and_moves_a_running_consumer(
    cluster: Any, consumer: Any, send: Any, eventually: Any
) -> None:
    topic, group, seen = await cluster.topic(), cluster.fresh("g"), []

    async def handle(message: Any) -> None:
        seen.append(message.body)

    (sent,) = await send(topic, 1)
    async with Admin(cluster.namesrv) as admin, consumer(group, topic, handle) as running:
        await eventually(lambda: len(seen) == 1)
        members = await admin.members(group)
        assert members is not None
        assert [connection.client_id for connection in members.connection_set] == [running.session.client_id]
        info = await admin.running_info(group, running.session.client_id)
        assert {queue.topic for queue in info.mq_table} >= {topic}
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        result = await admin.consume_directly(group, running.session.client_id, sent.offset_id, topic)
        assert result.consume_result == "CR_SUCCESS"
        assert len(seen) == 2
        await admin.reset_offsets(group, topic, "first")
        await eventually(lambda: len(seen) == 3, 40, "consumed again from the first")


async def test_a_reset_is_followed_within_seconds_by_who_runs_and_at_once_by_who_starts(
    cluster: Any, send: Any, eventually: Any
) -> None:
    topic, group, seen = await cluster.topic(queues=2), cluster.fresh("g"), []

    async def handle(message: Any) -> None:
        seen.append(message.body)

    def usual() -> PushConsumer:  # with every client's own timing
        return PushConsumer(cluster.namesrv, group=group, topics={topic: "*"}, handler=handle, start="first")

    await send(topic, 4)
    async with Admin(cluster.namesrv) as admin:
        async with usual():
            await eventually(lambda: len(seen) == 4)
            await admin.reset_offsets(group, topic, "first")
            await eventually(lambda: len(seen) == 8, 5, "consumed again by who runs")
        await admin.reset_offsets(group, topic, "first")
        async with usual():
            await eventually(lambda: len(seen) == 12, 5, "consumed again by who starts")
