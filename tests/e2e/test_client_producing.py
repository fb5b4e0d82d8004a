# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from aerobee import Message, Producer, PullConsumer, PushConsumer
from aerobee.client.admin import Admin
from aerobee.client.message import SendStatus
from aerobee.client.produce.transaction_producer import TransactionProducer, TransactionState
from aerobee.errors import NetworkError, NoRoute, RequestTimeout

pytestmark = pytest.mark.slow


async def read_all(cluster: Any, topic: str, count: int, timeout_ms: int = 15_000) -> list[Any]:
    """Everything in a topic, by a group of its own."""
    found: list[Any] = []
    async with PullConsumer(
        cluster.namesrv,
        group=cluster.fresh("reader"),
        topics={topic: "*"},
        start="first",
        options=cluster.options,
    ) as consumer:
        while len(found) < count:
            part = await consumer.poll(timeout_ms=timeout_ms)
            if not part:
                return found
            found += part
    return found


async def test_a_message_arrives_with_everything_it_was_sent_with(cluster: Any) -> None:
    topic = await cluster.topic()
    async with Producer(cluster.namesrv, group="shop", options=cluster.options) as producer:
        message = Message(
            topic,
            b"\x00body",
            tags="paid",
            keys=["k1", "k2"],
            properties={"colour": "grün"},
            sharding_key="u",
            flag=7,
        )
        sent = await producer.send(message)
    (found,) = await read_all(cluster, topic, 1)
    assert sent.status is SendStatus.OK
    assert (found.body, found.tags, found.keys, found.flag) == (b"\x00body", "paid", ["k1", "k2"], 7)
    assert (found.properties["colour"], found.sharding_key) == ("grün", "u")
    assert (found.message_id, found.offset_id) == (sent.message_id, sent.offset_id)
    assert (found.queue, found.queue_offset) == (sent.queue, sent.queue_offset)
    assert found.topic == topic


async def test_merged_sends_have_the_ids_and_offsets_that_the_store_has(cluster: Any) -> None:
    topic = await cluster.topic()
    async with Producer(cluster.namesrv, group="shop", options=cluster.options) as producer:
        await producer.send(Message(topic, b"first"))
        messages = [Message(topic, b"%d" % n, tags="t", keys=[f"k{n}"], flag=n) for n in range(60)]
        sent = await asyncio.gather(*map(producer.send, messages))
    assert len({(one.queue, one.queue_offset) for one in sent}) == 60
    found = {message.body: message for message in await read_all(cluster, topic, 61)}
    for n, one in enumerate(sent):
        message = found[b"%d" % n]
        assert (message.message_id, message.offset_id) == (one.message_id, one.offset_id)
        assert (message.queue, message.queue_offset) == (one.queue, one.queue_offset)
        assert (message.tags, message.keys, message.flag) == ("t", [f"k{n}"], n)
        assert one.transaction_id == one.message_id
    async with Admin(cluster.namesrv, options=cluster.options) as admin:
        for one in sent[::20]:
            assert (await admin.message_by_id(one.offset_id)).message_id == one.message_id


async def test_an_unknown_topic_is_created_by_the_first_send(cluster: Any) -> None:
    topic = cluster.fresh("created")
    async with Producer(cluster.namesrv, group="shop", options=cluster.options) as producer:
        await producer.send(Message(topic, b"x"))
        assert len(await producer.queues(topic)) == 4
    assert len(await read_all(cluster, topic, 1)) == 1


async def test_big_bodies_are_compressed_on_the_way_and_whole_on_arrival(cluster: Any) -> None:
    topic, body = await cluster.topic(queues=1), b"compress me " * 10_000
    for kind in ("zlib", "lz4", "zstd"):
        options = msgspec.structs.replace(cluster.options, compression=kind)
        async with Producer(cluster.namesrv, group="shop", options=options) as producer:
            await producer.send(Message(topic, body))
    found = await read_all(cluster, topic, 3)
    assert [message.body for message in found] == [body] * 3
    assert all(message.size < 20_000 for message in found)


async def test_a_batch_keeps_its_order_in_one_queue(cluster: Any) -> None:
    topic = await cluster.topic()
    async with Producer(cluster.namesrv, group="shop", options=cluster.options) as producer:
        (sent,) = await producer.send_batch([Message(topic, b"%d" % n, tags=f"t{n}") for n in range(50)])
        assert len(sent.offset_id.split(",")) == 50
        small = msgspec.structs.replace(cluster.options, max_message_bytes=2_000)
    async with Producer(cluster.namesrv, group="shop", options=small) as producer:
        assert len(await producer.send_batch([Message(topic, b"x" * 900) for _ in range(6)])) > 2
    found = await read_all(cluster, topic, 56)
    of_batch = [message for message in found if message.queue == sent.queue and message.tags]
    assert [message.body for message in of_batch] == [b"%d" % n for n in range(50)]


async def test_the_same_sharding_key_goes_to_the_same_queue(cluster: Any) -> None:
    topic = await cluster.topic()
    async with Producer(cluster.namesrv, group="shop", options=cluster.options) as producer:
        first = {(await producer.send(Message(topic, b"x", sharding_key="user-7"))).queue for _ in range(5)}
        spread = {(await producer.send(Message(topic, b"x"))).queue for _ in range(8)}
        chosen = await producer.send(
            Message(topic, b"x"), selector=lambda queues, m, n: queues[n], argument=2
        )
    assert len(first) == 1
    assert len(spread) == 4, "without a key queues take turns"
    assert chosen.queue.queue_id == 2


async def test_oneway_messages_arrive_too(cluster: Any) -> None:
    topic = await cluster.topic(queues=1)
    async with Producer(cluster.namesrv, group="shop", options=cluster.options) as producer:
        for n in range(20):
            await producer.send_oneway(Message(topic, b"%d" % n))
        await producer.send(Message(topic, b"last"))
    assert len(await read_all(cluster, topic, 21)) == 21


async def test_hundreds_of_sends_may_be_under_way(cluster: Any) -> None:
    topic = await cluster.topic()
    async with Producer(cluster.namesrv, group="shop", options=cluster.options) as producer:
        sent = await asyncio.gather(*(producer.send(Message(topic, b"%d" % n)) for n in range(1_000)))
    assert len({(result.queue, result.queue_offset) for result in sent}) == 1_000
    assert len(await read_all(cluster, topic, 1_000)) == 1_000


async def test_delayed_messages_come_when_due_and_not_before(cluster: Any, eventually: Any) -> None:
    topic = await cluster.topic(queues=1)
    arrived: dict[bytes, float] = {}
    loop = asyncio.get_running_loop()

    async def handle(message: Any) -> None:
        arrived[message.body] = loop.time()

    async with (
        PushConsumer(
            cluster.namesrv,
            group=cluster.fresh("g"),
            topics={topic: "*"},
            handler=handle,
            start="first",
            options=cluster.options,
        ),  # fmt: skip
        Producer(cluster.namesrv, group="shop", options=cluster.options) as producer,
    ):
        began = loop.time()
        await producer.send(Message(topic, b"level", delay_level=1))
        await producer.send(Message(topic, b"ms", delay_ms=2_000))
        await producer.send(Message(topic, b"now"))
        await eventually(lambda: arrived.keys() == {b"level", b"ms", b"now"})
    assert arrived[b"level"] - began >= 0.95
    assert arrived[b"ms"] - began >= 0.9, "RocketMQ's wheel counts in whole seconds and rounds down"


class TestTransactions:
    async def test_only_committed_messages_are_seen(self, cluster: Any) -> None:
        topic = await cluster.topic()
        states = {"good": TransactionState.COMMIT, "bad": TransactionState.ROLLBACK}

        async def check(message: Any) -> TransactionState:
            return TransactionState.UNKNOWN

        async with TransactionProducer(
            cluster.namesrv, group=cluster.fresh("tx"), check=check, options=cluster.options
        ) as producer:
            for name, state in states.items():
                result = await producer.send_in_transaction(
                    Message(topic, name.encode()), lambda m, a: a, state
                )
                assert result.state is state
        found = await read_all(cluster, topic, 2, timeout_ms=3_000)
        assert [message.body for message in found] == [b"good"]

    async def test_an_undecided_transaction_is_asked_for_later(self, cluster: Any, eventually: Any) -> None:
        topic, asked = await cluster.topic(), []

        def check(message: Any) -> TransactionState:
            asked.append(message.body)
            return TransactionState.COMMIT

        async with TransactionProducer(
            cluster.namesrv, group=cluster.fresh("tx"), check=check, options=cluster.options
        ) as producer:
            await producer.send_in_transaction(
                Message(topic, b"later"), lambda m, a: TransactionState.UNKNOWN
            )
            await eventually(lambda: asked, 40, "the broker asks")
            found = await read_all(cluster, topic, 1)
        assert [message.body for message in found] == [b"later"]

    async def test_a_failure_of_the_local_work_is_raised(self, cluster: Any) -> None:
        topic = await cluster.topic()

        def fail(message: Any, argument: Any) -> TransactionState:
            raise ZeroDivisionError

        async with TransactionProducer(
            cluster.namesrv,
            group=cluster.fresh("tx"),
            check=lambda m: TransactionState.ROLLBACK,
            options=cluster.options,
        ) as producer:
            with pytest.raises(ZeroDivisionError):
                await producer.send_in_transaction(Message(topic, b"x"), fail)


async def test_a_request_is_answered_by_a_consumer(cluster: Any) -> None:
    topic, group = await cluster.topic(queues=1), cluster.fresh("g")
    async with (
        Producer(cluster.namesrv, group=cluster.fresh("asks"), options=cluster.options) as asking,
        Producer(cluster.namesrv, group=cluster.fresh("answers"), options=cluster.options) as answering,
    ):

        async def handle(message: Any) -> None:
            await answering.reply(message, b"echo " + message.body)

        async with PushConsumer(
            cluster.namesrv,
            group=group,
            topics={topic: "*"},
            handler=handle,
            start="first",
            options=cluster.options,
        ):
            answer = await asking.request(Message(topic, b"hello"), timeout_ms=20_000)
            assert answer.body == b"echo hello"
    async with Producer(cluster.namesrv, group=cluster.fresh("asks"), options=cluster.options) as asking:
        with pytest.raises(RequestTimeout, match="no reply"):
            await asking.request(Message(topic, b"hello"), timeout_ms=300)


async def test_trace_records_tell_of_every_send(cluster: Any) -> None:
    topic, trace = await cluster.topic(), await cluster.topic(queues=1)
    options = msgspec.structs.replace(cluster.options, trace=True, trace_topic=trace)
    async with Producer(cluster.namesrv, group="shop", options=options) as producer:
        sent = await producer.send(Message(topic, b"traced", tags="t", keys=["key1"]))
    (record,) = await read_all(cluster, trace, 1)
    fields = record.body.decode().rstrip("\x02").split("\x01")
    assert (fields[0], fields[3], fields[4], fields[5]) == ("Pub", "shop", topic, sent.message_id)
    assert (fields[6], fields[7], fields[9], fields[12], fields[13]) == (
        "t",
        "key1",
        "6",
        sent.offset_id,
        "true",
    )
    assert set(record.keys) == {sent.message_id, "key1"}


async def test_misuse_is_refused_at_the_call(cluster: Any) -> None:
    producer = Producer(cluster.namesrv, group="shop", options=cluster.options)
    with pytest.raises(RuntimeError, match="not started"):
        await producer.send(Message("t", b"x"))
    async with producer:
        with pytest.raises(ValueError, match="belongs to the broker"):
            await producer.send(Message("SCHEDULE_TOPIC_XXXX", b"x"))
        with pytest.raises(RuntimeError, match="already"):
            await producer.start()
    with pytest.raises(ValueError, match="host:port"):
        Producer("", group="shop")


async def test_without_a_server_a_producer_does_not_start(unused_tcp_port: int) -> None:
    with pytest.raises(NetworkError, match=r"no name server answers at .* cannot connect"):
        await Producer(f"127.0.0.1:{unused_tcp_port}", group="shop").start()


async def test_messages_are_found_by_id_key_and_offset(cluster: Any, eventually: Any) -> None:
    topic = await cluster.topic()
    async with (
        Producer(cluster.namesrv, group="shop", options=cluster.options) as producer,
        Admin(cluster.namesrv) as admin,
    ):
        sent = await producer.send(Message(topic, b"find me", keys=["needle"]))
        await producer.send(Message(topic, b"hay", keys=["straw"]))
        assert (await admin.message_at(sent.queue, sent.queue_offset)).body == b"find me"
        assert (await admin.message_by_id(sent.offset_id)).body == b"find me"

        async def by_key() -> list[bytes]:
            return [message.body for message in await admin.messages_by_key(topic, "needle")]

        assert await eventually(by_key) == [b"find me"]
        assert (await admin.message_by_id(sent.message_id, topic)).body == b"find me"


async def test_a_topic_that_cannot_be_created_has_no_route(cluster: Any) -> None:
    options = msgspec.structs.replace(cluster.options, template_topic=cluster.fresh("no-template"))
    async with Producer(cluster.namesrv, group="shop", options=options) as producer:
        with pytest.raises(NoRoute, match="create it first"):
            await producer.send(Message(cluster.fresh("unknown"), b"x"))


async def test_a_reply_that_nobody_waits_for_any_more_is_no_failure_of_who_replies(
    cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await cluster.topic()
    async with Producer(cluster.namesrv, group=cluster.fresh("asking"), options=cluster.options) as asking:
        with pytest.raises(RequestTimeout, match="no reply"):
            await asking.request(Message(topic, b"?"), timeout_ms=1)
        (request,) = await read_all(cluster, topic, 1)
        async with Producer(cluster.namesrv, group=cluster.fresh("it"), options=cluster.options) as answering:
            with caplog.at_level(logging.INFO, "aerobee.client.producer"):
                assert await answering.reply(request, b"too late") is None, "it is there and has given up"
                await asking.stop()
                assert await answering.reply(request, b"too late") is None, "it has gone"
    told = [record.getMessage() for record in caplog.records if record.name == "aerobee.client.producer"]
    assert len(told) == 2
    assert all(
        f"no request waits for this reply any more message_id={request.message_id}" in line for line in told
    )
