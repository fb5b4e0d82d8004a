# SPDX-License-Identifier: Apache-2.0
"""Running the user's function: coroutines on the loop, plain functions in threads; what it returned, in our terms."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any

import msgspec

from aerobee.client.message import ReceivedMessage

log = logging.getLogger("aerobee.client.consumer")

Work = ReceivedMessage | list[ReceivedMessage]


class ConsumeResult(Enum):
    """What a handler may return. Nothing (None) is SUCCESS; an exception is RETRY, or SUSPEND when ordered."""

    SUCCESS = "success"
    RETRY = "retry"  # deliver again later
    SUSPEND = "suspend"  # ordered: rest, then the same message again
    COMMIT = "commit"  # ordered without auto commit: everything taken so far is done
    ROLLBACK = "rollback"  # ordered without auto commit: everything taken so far again


class Outcome(msgspec.Struct, frozen=True):
    """A result with details.

    `delay_level`: -1 straight to the dead letters, 0 the broker decides, above 0 that level. `ack_index`: in a
    batch, the index of the last good message. `suspend_ms`: ordered, how long to rest.
    """

    result: ConsumeResult = ConsumeResult.SUCCESS
    delay_level: int = 0
    ack_index: int | None = None
    suspend_ms: int = -1
    error: BaseException | None = None


Returned = Outcome | ConsumeResult | bool | None
# Of one message, or with `consume_batch` of several; async or not.
UserHandler = (
    Callable[[ReceivedMessage], Returned | Awaitable[Returned]]
    | Callable[[list[ReceivedMessage]], Returned | Awaitable[Returned]]
)

SUCCESS = Outcome()
_BY_RESULT = {result: Outcome(result) for result in ConsumeResult}


def outcome_of(returned: object) -> Outcome:
    if returned is None:
        return SUCCESS
    if isinstance(returned, ConsumeResult):
        return _BY_RESULT[returned]
    if isinstance(returned, Outcome):
        return returned
    return _BY_RESULT[ConsumeResult.RETRY] if returned is False else SUCCESS


def failure(error: BaseException) -> Outcome:
    return Outcome(ConsumeResult.RETRY, error=error)


def is_async(function: UserHandler) -> bool:
    # An object may have an async __call__; that of a plain function is never one.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


class Handler:
    """The user's function behind one face. `batch` of 1: it gets a message; more: a list."""

    def __init__(self, function: UserHandler, batch: int, threads: int, name: str) -> None:
        if not callable(function):
            raise TypeError(f"handler is {function!r}, which cannot be called")
        self._function: Callable[[Any], Any] = function
        self._single = batch == 1
        self.is_async = is_async(function)
        self._threads = (
            None if self.is_async else ThreadPoolExecutor(threads, thread_name_prefix=f"aerobee-{name}")
        )
        self._closed = False

    def _argument(self, messages: Sequence[ReceivedMessage]) -> Work:
        return messages[0] if self._single else list(messages)

    async def call(self, messages: Sequence[ReceivedMessage]) -> Outcome:
        """Never raises for what the handler does; a cancelled consumer is no failure of the handler."""
        try:
            if self.is_async:
                returned = await self._function(self._argument(messages))
            else:
                loop = asyncio.get_running_loop()
                returned = await loop.run_in_executor(self._threads, self._function, self._argument(messages))
                if isinstance(returned, Awaitable):  # a plain function that made a coroutine
                    returned = await returned
        except Exception as error:
            _log_failure(messages, error)
            return failure(error)
        return outcome_of(returned)

    async def call_each(self, batches: Sequence[Sequence[ReceivedMessage]]) -> list[Outcome]:
        """Several batches one after another in one thread: one hand-over for all of them. Fewer outcomes than batches:
        the handler was closed before the others began."""
        returned = await asyncio.get_running_loop().run_in_executor(self._threads, self._each, batches)
        for at, value in enumerate(returned):
            if isinstance(value, Awaitable):  # a plain function that made a coroutine
                try:
                    returned[at] = await value
                except Exception as error:
                    _log_failure(batches[at], error)
                    returned[at] = failure(error)
        return [outcome_of(value) for value in returned]

    def _each(self, batches: Sequence[Sequence[ReceivedMessage]]) -> list[Any]:
        results: list[Any] = []
        for messages in batches:
            if self._closed:
                break
            try:
                results.append(self._function(self._argument(messages)))
            except Exception as error:
                _log_failure(messages, error)
                results.append(failure(error))
        return results

    def close(self) -> None:
        """Nothing more begins; what runs goes on to its end."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _log_failure(messages: Sequence[ReceivedMessage], error: Exception) -> None:
    first = messages[0]
    log.warning(
        "handler failed topic=%s message_id=%s attempt=%d stored_in=%s queue=%d offset=%d: %s: %s",
        first.topic, first.message_id, first.attempt, first.retry_topic or first.topic, first.queue_id,
        first.queue_offset, type(error).__name__, error,
        exc_info=error,
    )  # fmt: skip
