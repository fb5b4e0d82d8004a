# SPDX-License-Identifier: Apache-2.0
"""Sends that are merged into batches against the same sends one by one."""

from __future__ import annotations

import asyncio
import os
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.client.message import Message, SendResult, SendStatus
from aerobee.client.options import ProducerOptions
from aerobee.client.produce.producer import Producer
from aerobee.client.trace import FIELD, RECORD
from aerobee.clock import ManualClock
from aerobee.errors import BrokerError, ConnectionLost, NetworkError, RequestTimeout
from aerobee.protocol.codes import RequestCode
from tests.client.scripted_broker import CUTS, FLUSH_TIMEOUT, Fault, ScriptedBroker
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCH, SINGLE = RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2
MERGED = ProducerOptions(instance="same", send_timeout_ms=30_000)
ONE_BY_ONE = ProducerOptions(instance="same", send_timeout_ms=30_000, merge_sends=False)


def message(number: int, **more: object) -> Message:
    return Message("T", b"%d" % number, message_id=f"M{number}", **more)  # type: ignore[arg-type]


async def outcomes(
    options: ProducerOptions,
    messages: Sequence[Message],
    faults: dict[str, Fault] | None = None,
    clock: ManualClock | None = None,
) -> tuple[list[SendResult | BaseException], ScriptedBroker]:
    """All sent in one turn of the loop, on a connection that is open already. A clock that stands still lets a turn take
    no time, however busy the machine."""
    broker = ScriptedBroker(faults or {})
    async with broker.listening() as address, Producer(address, options=options, clock=clock) as producer:
        await producer.send(Message("T", b"first", message_id="M-first"))
        broker.stored.clear()
        broker.frames.clear()
        return await asyncio.gather(*map(producer.send, messages), return_exceptions=True), broker


def told(outcome: SendResult | BaseException) -> object:
    """All that a user sees of it."""
    if isinstance(outcome, SendResult):
        return outcome.status, outcome.message_id, outcome.queue, outcome.queue_offset, outcome.offset_id
    return type(outcome), getattr(outcome, "code", None)


async def test_sends_of_one_turn_leave_as_a_batch_a_queue() -> None:
    results, broker = await outcomes(MERGED, [message(n) for n in range(13)], clock=ManualClock())
    # The first finds nothing under way and leaves alone; the others share three queues.
    assert broker.frames == {SINGLE: 1, BATCH: 3}
    for result in results:
        assert isinstance(result, SendResult)
        assert broker.stored[result.queue.queue_id][result.queue_offset] == result.message_id
        assert result.transaction_id in (None, result.message_id)


async def test_what_a_user_sees_of_merged_sends_is_what_he_sees_of_single_ones() -> None:
    messages = [message(n) for n in range(40)]
    merged, broker = await outcomes(MERGED, messages)
    single, other = await outcomes(ONE_BY_ONE, messages)
    assert list(map(told, merged)) == list(map(told, single))
    assert broker.stored == other.stored
    assert other.frames == {SINGLE: 40}


@pytest.mark.slow
@settings(max_examples=int(os.environ.get("MERGE_EXAMPLES", "25")), deadline=None)
@given(st.dictionaries(st.integers(0, 19), st.sampled_from([Fault.ILLEGAL, Fault.BUSY_ONCE, Fault.BUSY])))
def test_refusals_reach_those_they_are_meant_for(faults: dict[int, Fault]) -> None:
    by_id = {f"M{number}": fault for number, fault in faults.items()}
    messages = [message(n) for n in range(20)]
    merged, broker = asyncio.run(outcomes(MERGED, messages, by_id))
    single, other = asyncio.run(outcomes(ONE_BY_ONE, messages, by_id))
    assert [type(one) for one in merged] == [type(one) for one in single]
    for number, (one, two) in enumerate(zip(merged, single, strict=True)):
        if isinstance(one, SendResult):
            assert broker.stored[one.queue.queue_id][one.queue_offset] == one.message_id == f"M{number}"
        else:
            assert isinstance(one, BrokerError)
            assert isinstance(two, BrokerError)
            assert (one.code, one.remark) == (two.code, two.remark)
    # Stored once each, the refused ones not at all.
    assert sorted(chain(*broker.stored.values())) == sorted(chain(*other.stored.values()))


@pytest.mark.slow
@settings(max_examples=int(os.environ.get("MERGE_EXAMPLES", "15")), deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 19),
        # None that passes: how many tries a lost connection leaves for it is a matter of timing, merged or not.
        st.sampled_from([Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.ILLEGAL]),
        min_size=1,
    )
)
def test_a_connection_lost_on_the_way_loses_nothing_and_mixes_up_nothing(faults: dict[int, Fault]) -> None:
    by_id = {f"M{number}": fault for number, fault in faults.items()}
    messages = [message(n) for n in range(20)]
    merged, broker = asyncio.run(outcomes(MERGED, messages, by_id))
    single, _ = asyncio.run(outcomes(ONE_BY_ONE, messages, by_id))
    assert [type(one) for one in merged] == [type(one) for one in single]
    for number, one in enumerate(merged):
        if isinstance(one, SendResult):
            assert broker.stored[one.queue.queue_id][one.queue_offset] == one.message_id == f"M{number}"
        else:
            assert by_id[f"M{number}"] is Fault.ILLEGAL


def published(broker: ScriptedBroker) -> list[tuple[str, ...]]:
    """Topic, message id, body size, kind and outcome of every trace, in order of the ids."""
    records = [record.split(FIELD) for text in broker.traces for record in text.split(RECORD) if record]
    return sorted((r[4], r[5], r[9], r[11], r[13]) for r in records if r[5] != "M-first")


@pytest.mark.slow
@settings(max_examples=int(os.environ.get("MERGE_EXAMPLES", "12")), deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 19), st.sampled_from([Fault.ILLEGAL, Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.BUSY])
    )
)
def test_traces_of_merged_sends_are_those_of_single_ones_whatever_fails(faults: dict[int, Fault]) -> None:
    if Fault.BUSY in faults.values():  # how many tries a lost connection leaves for it is a matter of timing
        faults = {number: fault for number, fault in faults.items() if fault not in CUTS}
    by_id = {f"M{number}": fault for number, fault in faults.items()}
    messages = [message(n, tags="t", keys=[f"k{n}"]) for n in range(20)]
    traced = msgspec.structs.replace(MERGED, trace=True)
    merged, broker = asyncio.run(outcomes(traced, messages, by_id))
    single, other = asyncio.run(outcomes(msgspec.structs.replace(traced, merge_sends=False), messages, by_id))
    assert [type(one) for one in merged] == [type(one) for one in single]
    assert published(broker) == published(other)
    assert [each[1] for each in published(broker)] == sorted(
        one.message_id for one in merged if isinstance(one, SendResult)
    )


async def in_silence(options: ProducerOptions, silent: set[int]) -> tuple[list[object], ScriptedBroker]:
    """Twenty sends, of which requests with these are never answered, until their time is over."""
    clock = ManualClock()
    broker = ScriptedBroker({f"M{number}": Fault.SILENT for number in silent})
    async with broker.listening() as address, Producer(address, options=options, clock=clock) as producer:
        await producer.send(Message("T", b"first", message_id="M-first"))
        broker.stored.clear()
        tasks = [asyncio.ensure_future(producer.send(message(n))) for n in range(20)]
        await until(lambda: all(task.done() or f"M{n}" in broker.silenced for n, task in enumerate(tasks)))
        clock.advance(options.send_timeout_ms)
        return await asyncio.gather(*tasks, return_exceptions=True), broker


@pytest.mark.slow
@settings(max_examples=int(os.environ.get("MERGE_EXAMPLES", "12")), deadline=None)
@given(st.sets(st.integers(0, 19), max_size=6), st.sampled_from([0, 2]))
def test_a_time_out_is_told_to_those_whose_request_was_not_answered_and_to_nobody_else(
    silent: set[int], retries: int
) -> None:
    options = msgspec.structs.replace(MERGED, send_retries=retries)
    merged, broker = asyncio.run(in_silence(options, silent))
    single, other = asyncio.run(in_silence(msgspec.structs.replace(options, merge_sends=False), silent))
    for results, seen in ((merged, broker), (single, other)):
        for number, one in enumerate(results):
            if f"M{number}" in seen.silenced:
                assert isinstance(one, RequestTimeout)
            else:
                assert isinstance(one, SendResult)
                assert seen.stored[one.queue.queue_id][one.queue_offset] == one.message_id
    assert other.silenced == {f"M{number}" for number in silent} <= broker.silenced
    # It may have arrived, the error says; here all has, once: what was not answered in time is not sent again.
    assert sorted(chain(*broker.stored.values())) == sorted(f"M{n}" for n in range(20))


async def test_without_retries_each_of_a_lost_batch_is_told_by_an_error_of_its_own() -> None:
    options = ProducerOptions(send_retries=0)
    results, _ = await outcomes(options, [message(n) for n in range(7)], {"M5": Fault.CUT_BEFORE})
    lost = [one for one in results if isinstance(one, NetworkError)]
    assert len(lost) >= 2
    assert len({id(one) for one in lost}) == len(lost)


async def test_a_batch_that_is_not_answered_in_time_fails_for_each_of_its_members() -> None:
    options = ProducerOptions(send_timeout_ms=100, send_retries=0)
    broker = ScriptedBroker({})
    async with broker.listening() as address, Producer(address, options=options) as producer:
        await producer.send(message(0))
        broker._sent = lambda *_: None  # type: ignore[method-assign, assignment]
        results = await asyncio.gather(
            *(producer.send(message(n)) for n in range(1, 8)), return_exceptions=True
        )
    assert {type(one) for one in results} == {RequestTimeout}


async def test_the_status_of_a_batch_is_that_of_each_of_its_members() -> None:
    broker = ScriptedBroker({})
    async with broker.listening() as address, Producer(address, options=MERGED) as producer:
        await producer.send(message(0))
        broker.status = FLUSH_TIMEOUT
        results = await asyncio.gather(*(producer.send(message(n)) for n in range(1, 8)))
    assert {one.status for one in results} == {SendStatus.FLUSH_DISK_TIMEOUT}


@pytest.mark.parametrize(
    "more",
    [{"delay_level": 3}, {"delay_ms": 5}, {"deliver_at": 10**13}, {"sharding_key": "k"}],
    ids=lambda more: next(iter(more)),
)
async def test_what_is_delayed_or_in_order_is_never_merged(more: dict[str, object]) -> None:
    results, broker = await outcomes(MERGED, [message(n, **more) for n in range(9)])
    assert broker.frames == {SINGLE: 9}
    assert all(isinstance(one, SendResult) for one in results)


async def test_a_compressed_body_travels_alone() -> None:
    bodies = [b"x" * 10_000, b"small", b"small", b"small", b"small"]
    messages = [Message("T", body, message_id=f"M{n}") for n, body in enumerate(bodies * 3)]
    _, broker = await outcomes(MERGED, messages)
    assert broker.frames[SINGLE] >= 3
    assert sum(map(len, broker.stored.values())) == 15


async def test_large_bodies_are_not_put_into_one_huge_batch() -> None:
    options = ProducerOptions(compression="none", instance="same")
    messages = [Message("T", b"x" * 50_000, message_id=f"M{n}") for n in range(13)]
    results, broker = await outcomes(options, messages, clock=ManualClock())
    assert broker.frames[BATCH] == 6  # twelve of them, two at a time
    assert all(isinstance(one, SendResult) for one in results)


async def test_a_send_to_a_given_queue_does_not_overtake_a_merged_one_before_it() -> None:
    broker = ScriptedBroker({})
    async with broker.listening() as address, Producer(address) as producer:
        queues = await producer.queues("T")
        await producer.send(message(0))
        broker.stored.clear()
        sends = [producer.send(message(1))]
        for n in range(2, 20):
            free = producer.send(message(n), queue=queues[n % 3]) if n % 2 else producer.send(message(n))
            sends.append(free)
        await asyncio.gather(*sends)
    for queue in broker.stored.values():
        numbers = [int(one[1:]) for one in queue]
        assert numbers == sorted(numbers)


async def test_a_send_given_up_leaves_the_others_of_its_batch_alone() -> None:
    broker = ScriptedBroker({})
    async with broker.listening() as address, Producer(address) as producer:
        await producer.send(message(0))
        sends = [asyncio.ensure_future(producer.send(message(n))) for n in range(1, 12)]
        await asyncio.sleep(0)
        sends[5].cancel()
        results = await asyncio.gather(*sends, return_exceptions=True)
        await until(lambda: broker.frames[BATCH] == 3)
    assert sum(isinstance(one, SendResult) for one in results) == 10
    assert isinstance(results[5], asyncio.CancelledError)


async def test_a_connection_lost_within_the_turn_fails_those_that_still_wait() -> None:
    options = ProducerOptions(send_retries=0)
    broker = ScriptedBroker({})
    async with broker.listening() as address, Producer(address, options=options) as producer:
        await producer.send(message(0))
        sends = [asyncio.ensure_future(producer.send(message(n))) for n in range(1, 6)]
        await asyncio.sleep(0)
        sends[1].cancel()
        for connection in producer.session._pool.connections.values():
            connection.abort()
        results = await asyncio.gather(*sends, return_exceptions=True)
    assert isinstance(results[1], asyncio.CancelledError)
    assert {type(one) for one in results if one is not results[1]} == {ConnectionLost}


async def test_one_that_cannot_be_rendered_fails_alone() -> None:
    messages = [message(n, tags="\ud800" if n == 7 else "t") for n in range(13)]
    for options in (MERGED, ONE_BY_ONE):
        results, _ = await outcomes(options, messages)
        assert isinstance(results.pop(7), UnicodeEncodeError)
        assert all(isinstance(one, SendResult) for one in results)
