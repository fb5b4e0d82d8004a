# SPDX-License-Identifier: Apache-2.0
"""The fixture that gives users Apache's own broker: the questions of `TestServer`, answered by RocketMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee import Message, Options, Producer, PushConsumer
from aerobee.errors import NoPermission
from aerobee.testing.apache import ApacheServer

if TYPE_CHECKING:
    from collections.abc import Mapping


@pytest.fixture(scope="session")
def aerobee_apache_settings() -> Mapping[str, str]:
    return {"recallMessageEnable": "true"}


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
