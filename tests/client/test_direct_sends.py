# SPDX-License-Identifier: Apache-2.0
"""Blocking sends, done by the caller's own thread, and what becomes of those that do not work out at once."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import aerobee.blocking as aerobee
from aerobee.client.produce import direct
from aerobee.errors import BrokerError, RequestTimeout
from aerobee.protocol.codes import RequestCode
from tests.client.scripted_broker import BUSY, ILLEGAL, Fault, ScriptedBroker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SINGLE = RequestCode.SEND_MESSAGE_V2


def message(name: str, **more: Any) -> aerobee.Message:
    return aerobee.Message("T", b"body", message_id=name, **more)


@contextmanager
def handed_over(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The coroutines that were run in the loop meanwhile."""
    names: list[str] = []
    original = aerobee.run

    def run(work: Any) -> Any:
        names.append(work.__name__)
        return original(work)

    with monkeypatch.context() as patch:
        patch.setattr("aerobee.client.blocking.run", run)
        yield names


async def with_producer(
    broker: ScriptedBroker, work: Callable[[Any], Any], options: aerobee.ProducerOptions | None = None
) -> Any:
    """`work` in a thread, with a producer that has sent before."""

    def use(address: str) -> Any:
        with aerobee.Producer(address, options=options) as producer:
            producer.send(message("first"))
            broker.stored.clear()
            return work(producer)

    async with broker.listening() as address:
        return await asyncio.to_thread(use, address)


async def test_a_plain_send_is_not_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ScriptedBroker({})

    def work(producer: Any) -> Any:
        with handed_over(monkeypatch) as names:
            queues = producer.queues("T")
            sent = [
                producer.send(message("M1")),
                producer.send(message("M2"), queue=queues[2]),
                producer.send(message("M3", sharding_key="k")),
                producer.send(
                    message("M4"), selector=lambda queues, message, argument: queues[argument], argument=1
                ),
            ]
        return names, sent

    names, sent = await with_producer(broker, work)
    assert names == ["queues"]
    for one in sent:
        assert broker.stored[one.queue.queue_id][one.queue_offset] == one.message_id
    assert (sent[1].queue.queue_id, sent[3].queue.queue_id) == (2, 1)
    assert broker.frames == {SINGLE: 5}


@pytest.mark.parametrize(
    ("fault", "code"), [(Fault.ILLEGAL, ILLEGAL), (Fault.BUSY, BUSY)], ids=["final", "tried again"]
)
async def test_a_refusal_is_told_as_by_the_async_producer(fault: Fault, code: int) -> None:
    def work(producer: Any) -> int:
        with pytest.raises(BrokerError) as refused:
            producer.send(message("M1"))
        assert producer.send(message("M2")).message_id == "M2"
        return int(refused.value.code)

    broker = ScriptedBroker({"M1": fault})
    assert await with_producer(broker, work) == code
    tries = 1 if fault is Fault.ILLEGAL else 3
    assert broker.frames[SINGLE] == 1 + tries + 1


@pytest.mark.parametrize("fault", [Fault.BUSY_ONCE, Fault.CUT_BEFORE, Fault.CUT_AFTER])
async def test_what_passes_is_tried_again(fault: Fault) -> None:
    broker = ScriptedBroker({"M1": fault})
    one, two = await with_producer(broker, lambda p: (p.send(message("M1")), p.send(message("M2"))))
    for sent in (one, two):
        assert broker.stored[sent.queue.queue_id][sent.queue_offset] == sent.message_id


async def test_no_answer_in_time_is_told_and_the_line_not_used_again() -> None:
    broker = ScriptedBroker({})

    def work(producer: Any) -> None:
        answer, broker._sent = broker._sent, lambda *_: None  # type: ignore[method-assign, assignment]
        with pytest.raises(RequestTimeout):
            producer.send(message("M1"))
        assert not any(producer._direct._lines.values())
        broker._sent = answer  # type: ignore[method-assign]
        assert producer.send(message("M2")).message_id == "M2"

    await with_producer(broker, work, aerobee.ProducerOptions(send_timeout_ms=100, send_retries=0))


async def test_a_line_that_the_broker_closed_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "SURELY_OPEN_MS", 0)
    broker = ScriptedBroker({})

    def work(producer: Any) -> Any:
        producer.send(message("M1"))
        (lines,) = producer._direct._lines.values()
        lines[0]._socket.shutdown(2)  # what a broker does with one that is idle
        with handed_over(monkeypatch) as names:
            return names, producer.send(message("M2"))

    names, sent = await with_producer(broker, work)
    assert (names, sent.message_id) == ([], "M2")


async def test_threads_send_side_by_side() -> None:
    broker = ScriptedBroker({})

    def work(producer: Any) -> list[Any]:
        sent: list[Any] = []

        def some(number: int) -> None:
            sent.extend(producer.send(message(f"M{number}-{n}")) for n in range(20))

        threads = [threading.Thread(target=some, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sent

    sent = await with_producer(broker, work)
    assert len({one.message_id for one in sent}) == 80
    for one in sent:
        assert broker.stored[one.queue.queue_id][one.queue_offset] == one.message_id


async def test_an_interrupted_send_leaves_no_line_with_an_answer_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    def work(producer: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(direct.Line, "ask", interrupted)
            with pytest.raises(KeyboardInterrupt):
                producer.send(message("M1"))
        assert not any(producer._direct._lines.values())
        assert producer._direct._in_use == 0
        assert producer.send(message("M2")).message_id == "M2"

    await with_producer(ScriptedBroker({}), work)


async def test_after_the_end_nothing_is_sent() -> None:
    broker = ScriptedBroker({})

    def use(address: str) -> None:
        with aerobee.Producer(address) as producer:
            producer.send(message("M1"))
            producer.send(message("M2"))
        assert not any(producer._direct._lines.values())  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="not started, or stopped"):
            producer.send(message("M3"))

    async with broker.listening() as address:
        await asyncio.to_thread(use, address)
    assert broker.frames[SINGLE] == 2


@pytest.mark.parametrize(
    "options", [aerobee.ProducerOptions(trace=True), aerobee.ProducerOptions(avoid_slow_brokers=True)]
)
async def test_what_needs_the_loop_is_sent_through_it(
    options: aerobee.ProducerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(producer: Any) -> list[str]:
        with handed_over(monkeypatch) as names:
            producer.send(message("M1"))
        return names

    assert await with_producer(ScriptedBroker({}), work, options) == ["send"]
