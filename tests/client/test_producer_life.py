# SPDX-License-Identifier: Apache-2.0
"""From start to stop: what a producer tells, what it waits for, and what is left of it. No network."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.client.message import Message, SendResult, SendStatus
from aerobee.client.options import Options
from aerobee.client.produce.producer import Producer
from aerobee.client.session.session import Session
from aerobee.errors import InvalidHandle, NetworkError, SystemBusy
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.produce import RecallMessage, RecallResult
from aerobee.protocol.recall_handle import recall_handle

QUEUE = MessageQueue("a", 2, "T")
SENT = SendResult(SendStatus.OK, "ID", "OFFSET-ID", QUEUE, 7)


@pytest.fixture
def producer(session: Any, monkeypatch: pytest.MonkeyPatch) -> Producer:
    monkeypatch.setattr(Session, "of_role", staticmethod(lambda *_: session))
    session.met = None

    async def meet() -> None:
        session.story.append("meet")
        if session.met is not None:
            raise session.met

    session.meet_name_server = meet
    return Producer(group="shop")


async def test_a_producer_is_known_from_its_start_to_its_stop(producer: Producer, session: Any) -> None:
    async with producer as entered:
        assert entered is producer
        assert session.producers == {"shop": producer}
        assert session.story == ["start", "meet"]
        with pytest.raises(RuntimeError, match="was started already"):
            await producer.start()
        with pytest.raises(ValueError, match="group 'shop' has a producer in this session already"):
            await Producer(group="shop").start()
    assert session.story[2:] == ["leave {'producer_group': 'shop'}", "stop"]
    assert (session.producers, session.users) == ({}, 0)
    await producer.stop()
    assert session.users == 0, "a second stop does nothing"
    with pytest.raises(RuntimeError, match="is not started, or stopped"):
        await producer.send(Message("T", b"x"))


async def test_one_that_finds_no_name_server_is_not_there(producer: Producer, session: Any) -> None:
    session.met = NetworkError("no name server answers")
    with pytest.raises(NetworkError, match="no name server answers"):
        await producer.start()
    assert (session.producers, session.users) == ({}, 0)
    session.met = None
    await producer.start()
    await producer.stop()


async def test_the_end_waits_for_what_is_under_way_and_for_the_traces(
    producer: Any, session: Any, settle: Any
) -> None:
    class Traces:
        async def close(self) -> None:
            session.story.append("traces")

    await producer.start()
    producer._tracer = Traces()
    producer._sender._deadlines.watch(asyncio.get_running_loop().create_future(), session.clock.now() + 9)
    assert producer._under_way.try_enter(5)
    stopping = asyncio.ensure_future(producer.stop())
    await settle()
    assert session.story == ["start", "meet"], "one is under way"
    with pytest.raises(RuntimeError, match="is not started, or stopped"):
        await producer.send(Message("T", b"late"))
    producer._under_way.leave(5)
    await stopping
    assert session.story[2:] == ["traces", "leave {'producer_group': 'shop'}", "stop"]
    assert producer._sender._deadlines._timer is None, "nothing is left to ring"


@pytest.mark.parametrize("options", [Options(stop_wait_ms=1)])
async def test_the_end_does_not_wait_for_ever(producer: Any, session: Any) -> None:
    await producer.start()
    producer._under_way.try_enter(5)
    await producer.stop()
    assert session.users == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_a_send_is_under_way_until_it_has_ended_however_it_ends(
    producer: Any, session: Any, fails: bool
) -> None:
    seen: list[tuple[int, int]] = []

    async def send(sending: Any, code: Any, queue: Any) -> SendResult:
        seen.append((producer._under_way.count, producer._under_way.bytes))
        if fails:
            raise SystemBusy("busy")
        return SENT

    async with producer:
        producer._sender.start_now = lambda *_: None
        producer._sender.send = send
        one = asyncio.gather(
            producer.send(Message("T", b"12345")),
            producer.send_batch([Message("T", b"1"), Message("T", b"2")]),
            return_exceptions=True,
        )
        assert [isinstance(each, SystemBusy) for each in await one] == [fails, fails]
        assert seen[0] == (1, 5)
        assert seen[1][0] in (1, 2)
        assert (producer._under_way.count, producer._under_way.bytes) == (0, 0)


async def test_a_send_without_an_answer_has_an_id_and_the_flag_that_says_so(
    producer: Any, session: Any
) -> None:
    sent: list[Any] = []

    async def send_oneway(sending: Any, queue: Any) -> None:
        sent.append((sending, queue))

    async with producer:
        producer._sender.send_oneway = send_oneway
        await producer.send_oneway(Message("T", b"x"))
        await producer.send_oneway(Message("T", b"x", sharding_key="k", message_id="MINE"))
        await producer.send_oneway(Message("T", b"x", sharding_key="k"), queue=QUEUE)
    (first, none), (second, by_key), (_, given) = sent
    assert (first.command_flag, none, given) == (2, None, QUEUE)
    assert (len(first.message_id), second.message_id) == (32, "MINE")
    assert by_key in (await session.route("T")).writable


async def test_a_message_is_taken_back_from_the_broker_that_keeps_it(producer: Any, session: Any) -> None:
    session.know("T", brokers=("a", "b"))
    handle = recall_handle("T", "b", 1_700_000_000_000, "KEY")
    session.answers[RecallMessage] = [(0, RecallResult(msg_id="KEY"), b"")]
    async with producer:
        assert await producer.recall("T", handle) == "KEY"
        with pytest.raises(InvalidHandle, match="recall handle is None"):
            await producer.recall("T", None)
    address, header, _ = session.asked[-1]
    assert (address, header.topic, header.producer_group) == ("b:1", "T", "shop")
    assert (header.recall_handle, header.broker_name) == (handle, "b")


async def test_a_batch_is_cut_to_size_and_each_part_sent_after_the_other(producer: Any, session: Any) -> None:
    sent: list[Any] = []

    async def send(sending: Any, code: Any, queue: Any) -> SendResult:
        sent.append((sending.message_id.count(",") + 1, code, queue))
        return SENT

    producer._options = Options(max_message_bytes=300)
    async with producer:
        producer._sender.send = send
        messages = [Message("T", bytes(60), message_id=f"M{n}") for n in range(5)]
        assert await producer.send_batch(messages, queue=QUEUE) == [SENT] * len(sent)
        with pytest.raises(ValueError, match="the batch is empty"):
            await producer.send_batch([])
    assert [count for count, *_ in sent] == [2, 2, 1]
    assert {each[1:] for each in sent} == {(RequestCode.SEND_BATCH_MESSAGE, QUEUE)}


@pytest.mark.parametrize("was_started", [False, True])
async def test_one_that_is_not_open_sends_nothing_in_any_way(
    producer: Any, session: Any, make_message: Any, was_started: bool
) -> None:
    if was_started:
        await producer.start()
        await producer.stop()
    asked: list[Any] = []
    producer._sender = SimpleNamespace(**{
        name: lambda *_, name=name: asked.append(name) for name in ("send", "send_oneway", "queues", "patiently")
    })  # fmt: skip
    message = Message("T", b"x")
    for way in (
        producer.send(message),
        producer.send_oneway(message),
        producer.send_batch([message]),
        producer.recall("T", "handle"),
        producer.request(message),
        producer.reply(make_message(), b"x"),
    ):
        with pytest.raises(RuntimeError, match="producer of group 'shop' is not started, or stopped"):
            await way
    assert (asked, message.message_id) == ([], None)
