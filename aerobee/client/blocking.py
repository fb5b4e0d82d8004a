# SPDX-License-Identifier: Apache-2.0
"""The same client without `async`: calls run on one background event loop of the process, but for plain sends, which
the caller's own thread does (`produce/direct.py`).

`import aerobee.blocking as aerobee` gives Producer, PushConsumer, PullConsumer, SimpleConsumer, TransactionProducer,
ScheduledPull and Admin with the same arguments. The loop's thread is made when first needed and made again in a
forked child, so that it works in Spark's Python workers too; an object made before a fork belongs to the parent.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from aerobee.client import admin as _admin
from aerobee.client.consume import pull_consumer as _pull_consumer
from aerobee.client.consume import push_consumer as _push_consumer
from aerobee.client.consume import scheduled_pull as _scheduled_pull
from aerobee.client.consume import simple_consumer as _simple_consumer
from aerobee.client.consume.handler import ConsumeResult, Outcome
from aerobee.client.consume.subscriptions import Sql
from aerobee.client.message import Message, ReceivedMessage, SendResult, SendStatus
from aerobee.client.options import (
    Options,
    ProducerOptions,
    PullOptions,
    PushOptions,
    SessionOptions,
    SimpleOptions,
)
from aerobee.client.produce import producer as _producer
from aerobee.client.produce import transaction_producer as _transaction_producer
from aerobee.client.produce.transaction_producer import TransactionState
from aerobee.client.running import loop_factory

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aerobee.client.produce.direct import DirectSends
    from aerobee.client.produce.queue_selector import Selector
    from aerobee.protocol.bodies import MessageQueue

__all__ = [
    "Admin",
    "ConsumeResult",
    "Message",
    "Options",
    "Outcome",
    "Producer",
    "ProducerOptions",
    "PullConsumer",
    "PullOptions",
    "PushConsumer",
    "PushOptions",
    "ReceivedMessage",
    "ScheduledPull",
    "SendResult",
    "SendStatus",
    "SessionOptions",
    "SimpleConsumer",
    "SimpleOptions",
    "Sql",
    "TransactionProducer",
    "TransactionState",
    "run",
]

T = TypeVar("T")


class _Loop:
    """The process's background loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._starting = threading.Lock()

    def forget(self) -> None:
        """In a forked child: the thread did not come along."""
        self._loop = None
        self._starting = threading.Lock()

    def get(self) -> asyncio.AbstractEventLoop:
        with self._starting:  # callers are threads, the one place where a lock is due
            if self._loop is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._loop = (loop_factory() or asyncio.new_event_loop)()
                threading.Thread(target=self._loop.run_forever, name="aerobee-loop", daemon=True).start()
            return self._loop


_background = _Loop()
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_background.forget)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the background loop and wait for it."""
    loop = _background.get()
    if _is_running(loop):
        work.close()
        raise RuntimeError(
            "a blocking call on the background loop would wait for itself: use the async client there"
        )
    call = _Call(work)
    loop.call_soon_threadsafe(call.start)
    try:
        call.over.acquire()
    except BaseException:
        loop.call_soon_threadsafe(call.cancel)  # Ctrl-C: the call must not go on behind our back
        raise
    try:
        return call.result()
    except asyncio.CancelledError:
        raise CancelledError from None


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class _Call(Generic[T]):
    """A coroutine on its way through the loop; a bare lock wakes the caller, in half the time of a thread's future."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self.over = threading.Lock()
        self.over.acquire()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # its caller may be gone: no "never retrieved" warning
        self.over.release()

    def result(self) -> T:
        assert self._task is not None
        return self._task.result()

    def cancel(self) -> None:
        assert self._task is not None  # it was started before, for calls into the loop keep their order
        self._task.cancel()


async def _made(make: Callable[..., T], arguments: tuple[Any, ...], named: dict[str, Any]) -> T:
    return make(*arguments, **named)


class Messages:
    """What a consumer receives, one after the other; `with` gives back what was fetched and not handed out."""

    def __init__(self, source: AsyncIterator[Any]) -> None:
        self._source = source

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            return _plain(run(_next(self._source)))
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        run(self._source.aclose())  # type: ignore[attr-defined]


async def _next(source: AsyncIterator[T]) -> T:
    return await anext(source)


class _Blocking:
    """Stands for an async client: its methods, run to their end; its attributes. Types are in `blocking.pyi`."""

    _made_of: Callable[..., Any]
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls) -> None:
        cls.__doc__ = cls.__doc__ or _unawaited(cls._made_of.__doc__)
        cls.__signature__ = inspect.signature(cls._made_of)  # what help() shows of it
        for name, member in inspect.getmembers(cls._made_of, inspect.isfunction):
            if not name.startswith("_"):
                own = getattr(cls, name, None)
                setattr(cls, name, functools.wraps(member)(own) if own is not None else _twin(member))

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._client = run(_made(type(self)._made_of, arguments, named))
        self._pid = os.getpid()

    def __enter__(self) -> Any:
        run(self._client.start())
        return self

    def __exit__(self, *_: object) -> None:
        if self._pid == os.getpid():
            self.stop()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._here(), name)

    def _here(self) -> Any:
        if self._pid != os.getpid():
            raise RuntimeError(f"this {type(self).__name__} was made before a fork; make one in this process")
        return self._client


def _unawaited(text: str | None) -> str | None:
    """A description of the async client for a caller who waits. A function that is handed in stays `async def`."""
    return text and re.sub(r"\b(?:async (?=with|for)|await )", "", text)


def _twin(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method of an async client for a caller who waits."""
    if inspect.iscoroutinefunction(method):

        def called(self: _Blocking, *arguments: Any, **named: Any) -> Any:
            return _plain(run(method(self._here(), *arguments, **named)))
    else:

        def called(self: _Blocking, *arguments: Any, **named: Any) -> Any:
            result = method(self._here(), *arguments, **named)
            return Messages(result) if isinstance(result, AsyncIterator) else result

    wrapped = functools.wraps(method)(called)
    wrapped.__doc__ = _unawaited(method.__doc__)
    return wrapped


class BlockingMessage:
    """A received message whose ack, nack and extend block."""

    __slots__ = ("_message",)

    def __init__(self, message: ReceivedMessage) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def __repr__(self) -> str:
        return repr(self._message)

    def ack(self) -> None:
        run(self._message.ack())

    def nack(self, delay_ms: int = 0, reason: BaseException | str = "") -> None:
        run(self._message.nack(delay_ms, reason))

    def extend(self, invisible_ms: int) -> None:
        run(self._message.extend(invisible_ms))


def _plain(value: Any) -> Any:
    """Leased messages get blocking methods; everything else is as the async client gives it."""
    if isinstance(value, list):
        return [_plain(each) for each in value] if value and isinstance(value[0], ReceivedMessage) else value
    if isinstance(value, ReceivedMessage) and value.lease is not None:
        return BlockingMessage(value)
    return value


class _DirectSending:
    """Plain sends without a hand-over; whatever does not work out at once goes on in the loop."""

    _direct: DirectSends

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._direct = self._client._direct_sends()  # type: ignore[attr-defined]

    def send(
        self: Any,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        argument: Any = None,
    ) -> SendResult:
        client = self._here()
        if not _is_running(_background.get()):
            sent = self._direct.send(message, queue, selector, argument)
            if isinstance(sent, SendResult):
                return sent
            if sent is not None:
                return run(client._sender.send_elsewhere(*sent))
        return run(client.send(message, queue=queue, selector=selector, argument=argument))

    def stop(self: Any) -> None:
        client = self._here()
        self._direct.close(client.session.options.stop_wait_ms)
        run(client.stop())


class Producer(_DirectSending, _Blocking):
    _made_of = _producer.Producer


class TransactionProducer(_DirectSending, _Blocking):
    _made_of = _transaction_producer.TransactionProducer


class PushConsumer(_Blocking):
    """The handler runs on the loop when it is a coroutine function, else in threads of its own."""

    _made_of = _push_consumer.PushConsumer


class PullConsumer(_Blocking):
    _made_of = _pull_consumer.PullConsumer

    def __exit__(self, *how: Any) -> None:
        if self._pid == os.getpid():
            run(self._client.__aexit__(*how))

    def __iter__(self) -> Messages:
        return Messages(self._here().messages())


class SimpleConsumer(_Blocking):
    _made_of = _simple_consumer.SimpleConsumer

    def __iter__(self) -> Messages:
        return Messages(self._here().messages())


class ScheduledPull(_Blocking):
    _made_of = _scheduled_pull.ScheduledPull


class Admin(_Blocking):
    _made_of = _admin.Admin
