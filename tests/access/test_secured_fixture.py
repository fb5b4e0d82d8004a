# SPDX-License-Identifier: Apache-2.0
"""The fixture for users' tests, and a whole client on a secured server: what may is served, what may not is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee import (
    Message,
    Options,
    Producer,
    PullConsumer,
    PushConsumer,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from aerobee.errors import NoPermission
from aerobee.testing import eventually

if TYPE_CHECKING:
    from aerobee.testing import TestServer


async def test_producers_and_consumers_with_exactly_their_rights(aerobee_secured_server: TestServer) -> None:
    server = aerobee_secured_server
    server.create_topic("orders", queues=2)
    shop = Options(**server.add_user("shop", "shop-secret", {"Topic:orders": "Pub"}))
    rights = {"Topic:orders": "Sub", "Group:*": "Sub"}
    billing = Options(**server.add_user("billing", "billing-secret", rights))
    async with Producer(server.namesrv, group="p", options=shop) as producer:
        await producer.send(Message("orders", b"hello"))
        with pytest.raises(NoPermission, match="Topic:payroll"):
            await producer.send(Message("payroll", b"not mine"))
    topics = {"orders": "*"}
    async with PullConsumer(
        server.namesrv, group="g1", topics=topics, start="first", options=billing
    ) as pulling:
        assert [each.body for each in await pulling.poll(timeout_ms=5_000)] == [b"hello"]
    async with SimpleConsumer(
        server.namesrv, group="g2", topics=topics, start="first", options=billing
    ) as simple:
        (message,) = await simple.receive(1, wait_ms=5_000)
        await message.ack()
    async with Producer(server.namesrv, group="p", options=billing) as producer:
        with pytest.raises(NoPermission, match="Topic:orders"):
            await producer.send(Message("orders", b"not mine"))
    async with Producer(server.namesrv, group="p") as producer:
        with pytest.raises(NoPermission, match="username cannot be null"):
            await producer.send(Message("orders", b"nobody's"))
    assert server.lag("g2") is not None


@pytest.mark.parametrize(
    "rights",
    [
        {"Topic:orders": "Sub"},
        {"Group:*": "Sub"},
        {},
        {"Topic:orders": "Sub", "Group:g": "Get"},
        {"Topic:orders": "Get", "Group:g": "Sub"},
    ],
    ids=["no group", "no topic", "nothing", "looks at the group", "looks at the topic"],
)
async def test_a_consumer_without_the_right_does_not_start(
    aerobee_secured_server: TestServer, rights: dict[str, str]
) -> None:
    server = aerobee_secured_server
    server.create_topic("orders", queues=2)
    options = Options(**server.add_user("reader", "reader-secret", rights))
    consumers = (
        PushConsumer(server.namesrv, group="g", topics={"orders": "*"}, handler=print, options=options),
        PullConsumer(server.namesrv, group="g", topics={"orders": "*"}, options=options),
        SimpleConsumer(server.namesrv, group="g", topics={"orders": "*"}, options=options),
    )
    for consumer in consumers:
        with pytest.raises(NoPermission, match="has no permission to access"):
            await consumer.start()


async def test_a_transaction_needs_only_the_right_to_send(aerobee_secured_server: TestServer) -> None:
    server = aerobee_secured_server
    server.create_topic("orders", queues=1)
    shop = Options(**server.add_user("shop", "shop-secret", {"Topic:orders": "Pub"}))

    async def commit(*_: object) -> TransactionState:
        return TransactionState.COMMIT

    async with TransactionProducer(server.namesrv, group="tx", check=commit, options=shop) as producer:
        result = await producer.send_in_transaction(Message("orders", b"hello"), execute=commit)
    assert result.state is TransactionState.COMMIT
    assert [each.body for each in server.messages_of("orders")] == [b"hello"]


async def test_dead_letters_of_a_consumer_without_a_right_to_them_are_written(
    aerobee_secured_server: TestServer,
) -> None:
    server = aerobee_secured_server
    server.create_topic("orders", queues=1)
    rights = {"Topic:orders": "Pub,Sub", "Group:billing": "Sub"}
    account = server.add_user("billing", "billing-secret", rights)

    async def fail(message: object) -> None:
        raise RuntimeError("no")

    async with Producer(server.namesrv, group="p", options=Options(**account)) as producer:
        await producer.send(Message("orders", b"hello"))
    options = Options(max_reconsume=0, **account)
    async with PushConsumer(
        server.namesrv, group="billing", topics={"orders": "*"}, handler=fail, start="first", options=options
    ):
        await eventually(lambda: server.lag("billing").dead == 1, timeout_ms=10_000)
