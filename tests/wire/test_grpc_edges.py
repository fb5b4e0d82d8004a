# SPDX-License-Identifier: Apache-2.0
"""What only shows between a gRPC client and the broker: one leaves in the middle, tags collide, keys choose queues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from aerobee.protocol.bodies import TopicConfig
from tests.wire.grpc_calls import OK, RECEIVE, in_flight, line, message
from tests.wire.scene import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable

ROOMY = msgspec.structs.replace(SMALL, commit_log_segment_bytes=1 << 25)
MIB = 1 << 20


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - the broker has no event to wait for
            await asyncio.sleep(0)


@pytest.mark.slow
async def test_what_a_client_that_leaves_in_the_middle_did_not_get_is_given_back() -> None:
    """Its lease of 30 s is cut to a second; what it had read stays with it."""
    async with line(ROOMY, pull_bytes=1 << 24) as here:
        for number in range(12):
            await here.send(f"{number:02}" * (MIB // 2))
        stream = here.stream("ReceiveMessage", RECEIVE)
        assert (await stream.read()).status.code
        assert (await stream.read()).message.body[:2] == b"00"
        assert in_flight(here) == 12
        stream.cancel()  # more is on the way than the connection takes: the rest is still the broker's
        port = here.server._grpc._public  # type: ignore[union-attr]
        await until(lambda: not port._held())  # it has heard of it: only then time moves
        retries = ("%RETRY%billing_orders", 0)

        def given_back() -> int:
            here.clock.advance(100)
            return int(here.broker.store.max_offset(*retries))

        await until(given_back)
        assert here.clock.now() - here.broker.stats.started_at < 30_000
        back = [here.broker.store.record_of(*retries, at).body[:2] for at in range(given_back())]
        assert b"11" in back
        assert b"00" not in back


async def test_a_message_whose_tag_only_hashes_alike_is_acked_away() -> None:
    """Aa and BB are the same to the store, which compares hashes."""
    async with line() as here:
        await here.send("other", tag="BB")
        await here.send("wanted", tag="Aa")
        (found,) = await here.receive(filter_expression={"type": "TAG", "expression": "Aa"})
        assert found["system_properties"]["tag"] == "Aa"
        assert in_flight(here) == 1
        handle = found["system_properties"]["receipt_handle"]
        await here.ask(
            "AckMessage",
            {
                "group": {"name": "billing"},
                "topic": {"name": "orders"},
                "entries": [{"message_id": "m", "receipt_handle": handle}],
            },
        )
        here.clock.advance(60_000)
        await here.send("later")
        assert here.broker.offsets.get("billing", "orders", 0) == 2
        assert here.broker.topics.get("%RETRY%billing_orders") is None


# What Math.abs(group.hashCode() % 5) is in Java.
@pytest.mark.parametrize(("group", "queue"), [("user-7", 4), ("a", 2), ("polygenelubricants", 3)])
async def test_messages_of_a_group_go_to_the_queue_that_every_producer_counts(group: str, queue: int) -> None:
    async with line() as here:
        here.broker.topics.put(TopicConfig(topic_name="bills", read_queue_nums=5, write_queue_nums=5))
        for text in ("one", "two"):
            fields = message(text, "bills", message_group=group, message_type="FIFO")
            assert (await here.ask("SendMessage", {"messages": [fields]}))["status"] == OK
        ends = [here.broker.store.max_offset("bills", number) for number in range(5)]
        assert ends == [2 if number == queue else 0 for number in range(5)]
