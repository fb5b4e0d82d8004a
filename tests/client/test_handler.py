# SPDX-License-Identifier: Apache-2.0
"""The user's function behind one face: whatever kind it is, whatever it returns."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from aerobee.client.consume.handler import ConsumeResult, Handler, Outcome, is_async, outcome_of


class Callable:
    async def __call__(self, message: Any) -> ConsumeResult:
        return ConsumeResult.SUSPEND


async def later(message: Any) -> ConsumeResult:
    return ConsumeResult.RETRY


def plain(message: Any) -> Any:
    return later(message)


def fail(message: Any) -> None:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("returned", "result"),
    [
        (None, ConsumeResult.SUCCESS),
        (True, ConsumeResult.SUCCESS),
        ("anything", ConsumeResult.SUCCESS),
        (0, ConsumeResult.SUCCESS),
        (False, ConsumeResult.RETRY),
        *[(each, each) for each in ConsumeResult],
    ],
)
def test_only_false_and_results_mean_something(returned: object, result: ConsumeResult) -> None:
    assert outcome_of(returned) == Outcome(result)
    details = Outcome(result, delay_level=3, ack_index=1)
    assert outcome_of(details) is details


def test_what_cannot_be_called_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="handler is 'nothing', which cannot be called"):
        Handler("nothing", 1, 1, "g")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "runs_here", "result"),
    [
        (later, True, ConsumeResult.RETRY),
        (Callable(), True, ConsumeResult.SUSPEND),
        (plain, False, ConsumeResult.RETRY),
    ],
)
async def test_coroutines_run_on_the_loop_and_plain_functions_in_threads(
    make_message: Any, function: Any, runs_here: bool, result: ConsumeResult
) -> None:
    assert is_async(function) is runs_here
    handler = Handler(function, 1, 1, "g")
    assert handler.is_async is runs_here
    assert await handler.call([make_message(1)]) == Outcome(result)
    handler.close()


async def test_a_function_for_one_gets_one_and_a_function_for_many_a_list(make_message: Any) -> None:
    seen: list[Any] = []

    async def handle(work: Any) -> None:
        seen.append(work)

    messages = [make_message(1), make_message(2)]
    await Handler(handle, 1, 1, "g").call(messages[:1])
    await Handler(handle, 8, 1, "g").call(tuple(messages))
    await Handler(handle, 8, 1, "g").call(tuple(messages[:1]))
    assert seen == [messages[0], messages, messages[:1]]


async def test_a_failure_is_an_outcome_and_each_of_several_has_its_own(
    make_message: Any, caplog: Any
) -> None:
    handler = Handler(fail, 1, 1, "g")
    outcome = await handler.call([make_message(5, reconsume_times=2)])
    assert (outcome.result, repr(outcome.error)) == (ConsumeResult.RETRY, "ValueError('no')")
    said = "handler failed topic=T message_id=ID5 attempt=3 stored_in=T queue=0 offset=5: ValueError: no"
    assert said in caplog.text
    again = make_message(7, reconsume_times=3)
    again.topic = "%RETRY%g"
    again.call_it("T")
    await handler.call([again])
    said = (
        "handler failed topic=T message_id=ID7 attempt=4 stored_in=%RETRY%g queue=0 offset=7: ValueError: no"
    )
    assert said in caplog.text
    handler.close()
    mixed = Handler(lambda m: fail(m) if m.queue_offset == 1 else plain(m), 1, 1, "g")
    first, second = await mixed.call_each([[make_message(0)], [make_message(1)]])
    assert (first.result, first.error) == (ConsumeResult.RETRY, None)
    assert (second.result, type(second.error)) == (ConsumeResult.RETRY, ValueError)
    mixed.close()


async def test_a_cancelled_consumer_is_no_failure_of_the_handler(make_message: Any) -> None:
    async def handle(message: Any) -> None:
        await asyncio.Event().wait()

    call = asyncio.ensure_future(Handler(handle, 1, 1, "g").call([make_message(1)]))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_coroutine_made_by_a_plain_function_may_fail_without_harm_to_the_others(
    make_message: Any,
) -> None:
    async def later(message: Any) -> None:
        if message.queue_offset == 1:
            raise RuntimeError("no")

    handler = Handler(lambda message: later(message), 1, 1, "g")
    outcomes = await handler.call_each([[make_message(n)] for n in range(3)])
    assert [outcome.result for outcome in outcomes] == [
        ConsumeResult.SUCCESS, ConsumeResult.RETRY, ConsumeResult.SUCCESS
    ]  # fmt: skip
    assert isinstance(outcomes[1].error, RuntimeError)
    handler.close()


async def test_what_waits_for_a_thread_at_the_end_is_not_begun(make_message: Any) -> None:
    begun: list[int] = []
    running, gate = threading.Event(), threading.Event()

    def slow(message: Any) -> None:
        begun.append(message.queue_offset)
        running.set()
        gate.wait(30)

    handler = Handler(slow, 1, 1, "g")
    calls = [asyncio.ensure_future(handler.call([make_message(n)])) for n in range(2)]
    await asyncio.to_thread(running.wait, 30)
    handler.close()
    gate.set()
    await asyncio.wait(calls)
    assert (begun, calls[1].cancelled()) == ([0], True)
