# SPDX-License-Identifier: Apache-2.0
"""gRPC by the wire, where one request is like another but for a detail: offsets at their ends, answers that wait for the
disk, clients that come and go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.protocol.bodies import TopicConfig
from tests.turning import until
from tests.wire.grpc_calls import ID, OK, QUEUE, TRANSACTION, Line, line, message, moment, received
from tests.wire.scene import NOW, SMALL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SYNC = msgspec.structs.replace(SMALL, flush="sync")
BILLING = {"group": {"name": "billing"}}


# -- offsets -------------------------------------------------------------------------------------------------------


async def test_a_group_may_begin_again_at_the_first_message() -> None:
    async with line() as at:
        await received(at, "one", "two")
        fields = {**BILLING, "message_queue": QUEUE}
        assert await at.ask("UpdateOffset", {**fields, "offset": 2}) == {"status": OK}
        assert await at.ask("UpdateOffset", {**fields, "offset": 0}) == {"status": OK}
        assert at.broker.offsets.get("billing", "orders", 0) == 0


async def test_of_messages_of_one_moment_a_time_finds_the_first() -> None:
    async with line() as at:
        for _ in range(3):
            await at.send()
        at.clock.advance(1_000)
        await at.send()
        fields = {"message_queue": QUEUE, "query_offset_policy": "TIMESTAMP"}
        assert await at.ask("QueryOffset", {**fields, "timestamp": moment(NOW)}) == {"status": OK}
        later = {"status": OK, "offset": "3"}
        assert await at.ask("QueryOffset", {**fields, "timestamp": moment(NOW + 1)}) == later
        assert await at.ask("QueryOffset", {**fields, "timestamp": moment(NOW + 1_000)}) == later


async def test_queues_that_are_not_there_have_no_offsets() -> None:
    async with line() as at:
        await received(at, "one")
        absent = {"topic": {"name": "orders"}, "id": 7}
        for policy in ("BEGINNING", "END"):
            answer = await at.ask("QueryOffset", {"message_queue": absent, "query_offset_policy": policy})
            assert answer["status"]["code"] == "BAD_REQUEST"
            assert "offset" not in answer
        nowhere = {"topic": {"name": "nowhere"}, "id": 0}
        answer = await at.ask("QueryOffset", {"message_queue": nowhere, "query_offset_policy": "END"})
        assert answer["status"]["code"] == "TOPIC_NOT_FOUND"
        write_only = TopicConfig(topic_name="outbox", read_queue_nums=1, write_queue_nums=1, perm=2)
        at.broker.topics.put(write_only)
        closed = {"topic": {"name": "outbox"}, "id": 0}
        answer = await at.ask("QueryOffset", {"message_queue": closed, "query_offset_policy": "END"})
        assert answer["status"]["code"] == "FORBIDDEN"


async def test_a_pull_counts_the_tries_of_a_message_from_one() -> None:
    async with line() as at:
        await at.send("one")
        fields = {**BILLING, "message_queue": QUEUE, "offset": 0, "batch_size": 1}
        _, found, _ = await at.all("PullMessage", fields)
        assert found["message"]["system_properties"]["delivery_attempt"] == 1


async def test_only_who_asks_for_it_has_its_leases_renewed() -> None:
    async with line() as at:
        await received(at, "one", "two")
        assert len(at.broker.pops.renewals) == 0
        await at.send("three")
        assert len(await at.receive(auto_renew=True)) == 1
        assert len(at.broker.pops.renewals) == 1


# -- answers that wait for the disk --------------------------------------------------------------------------------


async def sending(at: Line) -> Callable[[], Awaitable[Any]]:
    return lambda: at.ask("SendMessage", {"messages": [message("one"), message("two")]})


async def committing(at: Line) -> Callable[[], Awaitable[Any]]:
    entry = await at.send("half", **TRANSACTION)
    fields = {
        "topic": {"name": "orders"}, "message_id": ID, "source": "SOURCE_CLIENT",
        "transaction_id": entry["transaction_id"], "resolution": "COMMIT",
    }  # fmt: skip
    return lambda: at.ask("EndTransaction", fields)


async def recalling(at: Line) -> Callable[[], Awaitable[Any]]:
    entry = await at.send("late", delivery_timestamp=moment(NOW + 30_000), message_type="DELAY")
    fields = {"topic": {"name": "orders"}, "recall_handle": entry["recall_handle"]}
    return lambda: at.ask("RecallMessage", fields)


async def giving_up(at: Line) -> Callable[[], Awaitable[Any]]:
    (handle,) = await received(at, "poison")
    fields = {
        **BILLING, "topic": {"name": "orders"}, "receipt_handle": handle, "message_id": ID,
        "delivery_attempt": 1, "max_delivery_attempts": 1,
    }  # fmt: skip
    return lambda: at.ask("ForwardMessageToDeadLetterQueue", fields)


@pytest.mark.parametrize("prepare", [sending, committing, recalling, giving_up])
async def test_what_stores_is_answered_when_it_is_on_disk(prepare: Any, monkeypatch: Any) -> None:
    async with line(SYNC) as at:
        ask = await prepare(at)
        on_disk = asyncio.Event()
        waited: list[int] = []

        async def durable(end: int, calls: int = 1) -> None:
            waited.append(end)
            await on_disk.wait()

        monkeypatch.setattr(at.broker.store, "durable", durable)
        asked = asyncio.ensure_future(ask())
        await until(lambda: waited or asked.done())
        assert not asked.done()
        assert waited[-1] == at.broker.store.log_max, "all of it, of several the last one too"
        on_disk.set()
        assert (await asked)["status"] == OK


# -- clients -------------------------------------------------------------------------------------------------------


async def test_a_stream_that_is_closed_is_not_written_to_any_more() -> None:
    """The client may be back: what it is to be told waits for its next stream."""
    async with line() as at:
        stream = at.telemetry()
        await stream.write(settings())
        assert (await stream.read()).settings.publishing.max_body_size
        (peer,) = at.server._grpc.service.peers  # type: ignore[union-attr]
        assert peer.is_open
        stream.cancel()
        await until(lambda: not peer.is_open)
        again = at.telemetry()
        await again.write(settings())
        assert (await again.read()).settings.publishing.max_body_size
        assert peer.is_open
        await again.done_writing()
        await until(lambda: not peer.is_open)


async def test_who_only_speaks_on_its_stream_is_alive() -> None:
    async with line() as at:
        stream = at.telemetry()
        await stream.write(settings())
        await stream.read()
        (peer,) = at.server._grpc.service.peers  # type: ignore[union-attr]
        assert peer.last_seen == NOW
        at.clock.advance(9_000)
        await stream.write(settings())
        await stream.read()
        assert peer.last_seen == NOW + 9_000
        stream.cancel()


def settings() -> Any:
    from aerobee.fronts.grpc.generated import messaging_pb2 as pb

    told = pb.Settings()
    told.publishing.topics.add().name = "orders"
    return pb.TelemetryCommand(settings=told)
