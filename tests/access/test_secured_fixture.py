# SPDX-License-Identifier: Apache-2.0
"""The fixture for users' tests, and a whole client on a secured server: what may is served, what may not is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee import Message, Options, Producer, PullConsumer, PushConsumer, SimpleConsumer
from aerobee.errors import NoPermission

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
