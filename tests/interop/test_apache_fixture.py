# SPDX-License-Identifier: Apache-2.0
"""The fixture that gives users Apache's own broker: the questions of `TestServer`, answered by RocketMQ."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from aerobee import (
    ConsumeResult,
    Message,
    Options,
    Outcome,
    Producer,
    PullConsumer,
    PushConsumer,
    PushOptions,
    TransactionProducer,
    TransactionState,
)
from aerobee.errors import NoPermission
from aerobee.testing import eventually
from aerobee.testing.apache import ApacheServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee import ReceivedMessage


@pytest.fixture(scope="session")
def aerobee_apache_settings() -> Mapping[str, str]:
    return {
        "recallMessageEnable": "true",
        "transactionCheckInterval": "2000",
        "transactionTimeOut": "2000",
    }


async def test_a_test_of_ones_own_runs_on_apaches_broker(aerobee_apache_server: ApacheServer) -> None:
    server = aerobee_apache_server
    server.create_topic("fixture-orders", queues=2)
    seen: list[bytes] = []

    def handle(message: object) -> None:
        seen.append(message.body)  # type: ignore[attr-defined]
        if message.body == b"doomed":  # type: ignore[attr-defined]
            raise ValueError("no such card")

    options = Options(persist_offsets_ms=200, max_reconsume=0)
    async with Producer(server.namesrv) as producer:
        for body in (b"good", b"doomed"):
            await producer.send(Message("fixture-orders", body))
    async with PushConsumer(
        server.namesrv, group="fixture-billing", topics={"fixture-orders": "*"}, handler=handle, start="first",
        options=options,
    ):  # fmt: skip
        letter = await server.wait_for_dead_letter("fixture-billing", timeout_ms=30_000)
        await server.wait_until_idle("fixture-billing", timeout_ms=30_000)
    assert letter.body == b"doomed"
    assert letter.property("AEROBEE_LAST_ERROR") is None, "RocketMQ takes the field and stores nothing of it"
    assert {message.body for message in server.messages_of("fixture-orders")} == {b"good", b"doomed"}
    assert sorted(seen) == [b"doomed", b"good"]


@pytest.mark.parametrize("number", range(4))
async def test_idle_is_not_before_a_group_has_told_how_far_it_is(
    aerobee_apache_server: ApacheServer, aerobee_group: str, number: int
) -> None:
    """A new group has no offset anywhere for its first moments, with whatever it is at work on."""
    server, done = aerobee_apache_server, list[bytes]()
    server.create_topic(aerobee_group)

    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(0.2)
        done.append(message.body)

    with pytest.raises(AssertionError, match=r"the broker knows no offset of that group$"):
        await server.wait_until_idle(aerobee_group, timeout_ms=50)
    quick = PushOptions(persist_offsets_ms=50)
    async with Producer(server.namesrv) as producer:
        await asyncio.gather(*(producer.send(Message(aerobee_group, b"%d" % n)) for n in range(2)))
    async with PushConsumer(
        server.namesrv, group=aerobee_group, topics={aerobee_group: "*"}, handler=handle, start="first", options=quick
    ):  # fmt: skip
        assert server.lag(aerobee_group).lag == 2
        await server.wait_until_idle(aerobee_group)
        assert sorted(done) == [b"0", b"1"]


async def test_idle_is_not_while_a_message_waits_for_its_next_try(
    aerobee_apache_server: ApacheServer, aerobee_group: str
) -> None:
    server, attempts = aerobee_apache_server, list[int]()
    server.create_topic(aerobee_group)

    async def handle(message: ReceivedMessage) -> Outcome | None:
        attempts.append(message.attempt)
        return Outcome(ConsumeResult.RETRY, delay_level=2) if message.attempt == 1 else None

    quick = PushOptions(persist_offsets_ms=50)
    async with (
        Producer(server.namesrv) as producer,
        PushConsumer(
            server.namesrv, group=aerobee_group, topics={aerobee_group: "*"}, handler=handle, start="first",
            options=quick,
        ),
    ):  # fmt: skip
        await producer.send(Message(aerobee_group, b"x"))
        await eventually(lambda: server.lag(aerobee_group).delayed == 1)
        await server.wait_until_idle(aerobee_group, timeout_ms=30_000)
    assert attempts == [1, 2]


async def test_what_comes_after_a_pull_consumer_has_gone_is_ready(
    aerobee_apache_server: ApacheServer, aerobee_group: str
) -> None:
    server = aerobee_apache_server
    server.create_topic(aerobee_group, queues=1)
    async with Producer(server.namesrv) as producer:
        await producer.send(Message(aerobee_group, b"first"))
        topics = {aerobee_group: "*"}
        async with PullConsumer(
            server.namesrv, group=aerobee_group, topics=topics, start="first"
        ) as consumer:
            assert len(await consumer.poll(timeout_ms=20_000)) == 1
            assert await consumer.poll(timeout_ms=500) == []
        await producer.send(Message(aerobee_group, b"second"))
        await asyncio.sleep(0.2)  # for the broker to answer the pull that it held
    lag = server.lag(aerobee_group)
    assert (lag.online, lag.ready, lag.in_flight) == (False, 1, 0)


async def test_its_settings_are_those_of_a_fixture_of_ones_own(aerobee_apache_server: ApacheServer) -> None:
    async with Producer(aerobee_apache_server.namesrv) as producer:
        sent = await producer.send(Message("fixture-reminders", b"tea", delay_ms=600_000))
        await producer.recall("fixture-reminders", sent.recall_handle)


async def test_as_it_comes_it_takes_no_message_back_and_the_error_says_what_to_set() -> None:
    with ApacheServer() as server:
        async with Producer(server.namesrv) as producer:
            sent = await producer.send(Message("fixture-reminders", b"tea", delay_ms=600_000))
            with pytest.raises(NoPermission, match="recall failed, operation is forbidden") as refused:
                await producer.recall("fixture-reminders", sent.recall_handle)
    assert "recallMessageEnable=true" in refused.value.__notes__[0]


async def test_apaches_broker_asks_a_producer_that_has_sent_nothing_what_another_left(
    aerobee_apache_server: ApacheServer,
) -> None:
    server, asked = aerobee_apache_server, list[list[str]]()
    server.create_topic("fixture-left", queues=1)

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.keys)
        return TransactionState.COMMIT

    async with TransactionProducer(
        server.namesrv, group="fixture-tx", check=lambda m: TransactionState.UNKNOWN
    ) as dies:
        await dies.send_in_transaction(
            Message("fixture-left", b"tea", keys=["o-1"]), lambda m, a: TransactionState.UNKNOWN
        )
    async with TransactionProducer(server.namesrv, group="fixture-tx", check=check):
        await eventually(lambda: asked == [["o-1"]], timeout_ms=60_000)
        await eventually(lambda: len(server.messages_of("fixture-left")) == 1, timeout_ms=10_000)
