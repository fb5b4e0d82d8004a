# SPDX-License-Identifier: Apache-2.0
"""What a test may ask its server, and wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee import (
    Admin,
    Message,
    Producer,
    PushConsumer,
    PushOptions,
    SendResult,
    SimpleConsumer,
    blocking,
)
from aerobee.client.admin import waiting
from aerobee.protocol.bodies.figures import GroupLag, QueueLag
from aerobee.testing import TestServer, eventually
from aerobee.testing.cluster import OutsideCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[TestServer]:
    with TestServer() as running:
        yield running


def refuse(message: object) -> None:
    raise ValueError("no such card")


async def test_all_messages_of_a_topic_are_given_in_the_order_they_were_stored(server: TestServer) -> None:
    assert server.messages_of("orders") == []
    async with Producer(server.namesrv) as producer:
        for number in range(20):
            await producer.send(Message("orders", b"%d" % number, keys=[f"k{number}"]))
    found = server.messages_of("orders")
    assert [message.body for message in found] == [b"%d" % number for number in range(20)]
    assert found[7].keys == ["k7"]


async def test_a_dead_letter_is_waited_for(server: TestServer) -> None:
    options = PushOptions(max_reconsume=0)
    async with (
        Producer(server.namesrv) as producer,
        PushConsumer(
            server.namesrv, group="g", topics={"orders": "*"}, handler=refuse, start="first", options=options
        ),
    ):
        await producer.send(Message("orders", b"doomed"))
        letter = await server.wait_for_dead_letter("g")
    assert letter.body == b"doomed"
    assert letter.property("AEROBEE_LAST_ERROR") == "ValueError: no such card"


async def test_a_dead_letter_that_was_received_by_hand_says_why_too(server: TestServer) -> None:
    async with Admin(server.namesrv) as admin:
        await admin.create_topic("bills", queues=1)
        await admin.create_group("g", retry_max_times=0)
    async with (
        Producer(server.namesrv) as producer,
        SimpleConsumer(server.namesrv, group="g", topics={"bills": "*"}, start="first") as consumer,
    ):
        await producer.send(Message("bills", b"doomed"))
        (message,) = await consumer.receive()
        await message.nack(0, KeyError("card"))
        letter = await server.wait_for_dead_letter("g")
    assert letter.property("AEROBEE_LAST_ERROR") == "KeyError: 'card'"


async def test_idle_is_when_nothing_is_left_to_do(server: TestServer) -> None:
    handled: list[bytes] = []
    options = PushOptions(persist_offsets_ms=50)
    async with Producer(server.namesrv) as producer:
        for number in range(10):
            await producer.send(Message("orders", b"%d" % number))
    async with PushConsumer(
        server.namesrv, group="g", topics={"orders": "*"}, handler=lambda message: handled.append(message.body),
        start="first", options=options,
    ):  # fmt: skip
        await server.wait_until_idle("g")
    assert len(handled) == 10


@pytest.mark.parametrize("made", [TestServer, TestServer.with_manual_clock])
async def test_waiting_in_vain_says_where_the_messages_are(made: Callable[[], TestServer]) -> None:
    with made() as server:
        async with Producer(server.namesrv) as producer:
            await producer.send(Message("orders", b"x"))
        topics = {"orders": "*"}
        async with PushConsumer(server.namesrv, group="g", topics=topics, handler=refuse, start="first"):
            await eventually(lambda: server.lag("g").delayed == 1)
            with pytest.raises(
                AssertionError, match=r"no dead letter of 'g' within 5 ms: ready \d, .* dead 0"
            ):
                await server.wait_for_dead_letter("g", timeout_ms=5)
            with pytest.raises(AssertionError, match=r"not idle after 10 ms.*a retry 1") as told:
                await server.wait_until_idle("g", timeout_ms=10)
    assert ("clock.advance()" in str(told.value)) is (made is not TestServer)


def test_plain_tests_wait_too(server: TestServer) -> None:
    options = PushOptions(max_reconsume=0, persist_offsets_ms=50)
    with (
        blocking.Producer(server.namesrv) as producer,
        blocking.PushConsumer(
            server.namesrv, group="g", topics={"orders": "*"}, handler=refuse, start="first", options=options
        ),
    ):
        producer.send(Message("orders", b"doomed"))
        assert server.blocking.wait_for_dead_letter("g").body == b"doomed"
        server.blocking.wait_until_idle("g")


def test_a_server_in_real_time_has_a_clock_that_nobody_moves(server: TestServer) -> None:
    assert server.clock.now() > 0
    with pytest.raises(RuntimeError, match=r"lives in real time; TestServer\.with_manual_clock\(\)"):
        server.clock.advance(minutes=1)


def test_what_waits_for_its_time_is_told_by_topic() -> None:
    with TestServer.with_manual_clock() as server:
        with blocking.Producer(server.namesrv, group="shop") as producer:
            producer.send(Message("orders", b"level", delay_level=16))
            sent = producer.send(Message("letters", b"timer", delay_ms=3_600_000))
        told_by_topic(server, sent)
        server.clock.advance(hours=2)
        assert server.delayed() == []


def told_by_topic(server: TestServer, sent: SendResult) -> None:
    assert [(each.topic, each.message.body, each.by) for each in server.delayed()] == [
        ("orders", b"level", "level 16"),
        ("letters", b"timer", "timer"),
    ]
    (letter,) = server.delayed("letters")
    assert letter.handle == sent.recall_handle
    assert letter.due == server.clock.wall() + 3_600_000
    assert server.delayed("nothing") == []


async def test_the_blocking_waits_refuse_to_hold_up_the_loop_of_an_async_test(server: TestServer) -> None:
    with pytest.raises(RuntimeError, match=r"blocks the running loop.*: await server\.wait_until_idle"):
        server.blocking.wait_until_idle("g")
    with pytest.raises(RuntimeError, match=r"in an async test: await server\.wait_for_dead_letter"):
        server.blocking.wait_for_dead_letter("g")


class Figures:
    """An admin of brokers that are Apache's: their figures are those of a list."""

    def __init__(self, told: list[GroupLag]) -> None:
        self._told = told

    async def lag(self, group: str) -> GroupLag:
        return self._told.pop(0) if len(self._told) > 1 else self._told[0]


class AsApache(OutsideCluster):
    namesrv = broker_address = ""

    def __init__(self, *told: GroupLag) -> None:
        self._admin = Figures(list(told))

    async def _ask(self, question: Any) -> Any:
        return await question(self._admin)


async def test_a_group_that_has_told_no_offset_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(waiting, "of_all", none)
    known = GroupLag(
        group="g", online=True, exact=False, queues=[QueueLag(topic="T", broker_name="b", queue_id=0)]
    )
    nothing = GroupLag(group="g", online=True, exact=False)
    await AsApache(nothing, nothing, known).wait_until_idle("g")
    for online, told in ((True, "of that group, which is connected$"), (False, "of that group$")):
        with pytest.raises(AssertionError, match=f"not idle after 1 ms: the broker knows no offset {told}"):
            await AsApache(GroupLag(group="g", online=online, exact=False)).wait_until_idle("g", timeout_ms=1)


async def test_a_retry_that_waits_or_comes_due_meanwhile_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [[object()], [], []]

    async def one_by_one(admin: object, topic: str, now: int) -> list[object]:
        assert topic == "%RETRY%g"
        return looks.pop(0)

    monkeypatch.setattr(waiting, "of_all", one_by_one)
    queues = [QueueLag(topic="T", broker_name="b", queue_id=0)]
    idle = GroupLag(group="g", exact=False, queues=queues)
    due = GroupLag(group="g", exact=False, queues=queues, retrying=1)
    fake = AsApache(idle, GroupLag(group="g", exact=False, queues=queues), due, idle)
    await fake.wait_until_idle("g")
    assert looks == []
