# SPDX-License-Identifier: Apache-2.0
"""The fixture that gives users Apache's own broker: the questions of `TestServer`, answered by RocketMQ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee import Message, Options, Producer, PushConsumer

if TYPE_CHECKING:
    from aerobee.testing.apache import ApacheServer


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
