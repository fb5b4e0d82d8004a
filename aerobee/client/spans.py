# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry spans of a client: send, receive, process and ack of a message in one trace, told from client to client
by the W3C properties `traceparent` and `tracestate`.

Applications that trace have imported OpenTelemetry and set its provider up before they make a client. Then its methods
are wrapped here, once, when it is made; otherwise nothing is, and nothing of this costs anything. Names are those of
the semantic conventions for messaging. The broker needs nothing for it, and RocketMQ's own trace topic is another thing.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from aerobee import __version__
from aerobee.client.consume.handler import ConsumeResult, Outcome, is_async, outcome_of

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from aerobee.client.consume.handler import UserHandler
    from aerobee.client.message import Leased, Message, ReceivedMessage
    from aerobee.net.connection import Waiting

_GOOD = (ConsumeResult.SUCCESS, ConsumeResult.COMMIT)
Method = Callable[..., Awaitable[Any]]


def tracer() -> Tracer | None:
    """None unless the application traces."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None or isinstance(api.get_tracer_provider(), api.ProxyTracerProvider):
        return None
    found: Tracer = api.get_tracer("aerobee", __version__)
    return found


# -- what applications call --------------------------------------------------------------------------------


def watch_producer(producer: Any) -> None:
    """Each send is a span, and its messages carry where it belongs."""
    if (found := tracer()) is not None:
        for name in ("send", "send_oneway", "send_batch", "send_in_transaction"):
            if hasattr(producer, name):
                setattr(producer, name, _sends(getattr(producer, name), producer, found))


def watch_receiver(consumer: Any, method: str) -> None:
    """Each call that brought messages is a span with links to where they were sent; so is the answer for each."""
    if (found := tracer()) is not None:
        setattr(consumer, method, _receives(getattr(consumer, method), consumer, found))


def around(handler: UserHandler, group: str) -> UserHandler:
    """The handler in a span of the trace that its message belongs to."""
    found = tracer()
    if found is None:
        return handler
    if is_async(handler):

        @functools.wraps(handler)
        async def processes(work: Any) -> Any:
            with _Process(found, group, work) as ended:
                return ended(await cast("Awaitable[Any]", handler(work)))

        return processes

    @functools.wraps(handler)
    def processes_in_a_thread(work: Any) -> Any:
        with _Process(found, group, work) as ended:
            return ended(handler(work))

    return processes_in_a_thread


# -- spans -------------------------------------------------------------------------------------------------


def _sends(method: Method, producer: Any, found: Tracer) -> Method:
    from opentelemetry.trace import SpanKind

    @functools.wraps(method)
    async def sends(what: Message | Sequence[Message], *given: Any, **named: Any) -> Any:
        messages = list(what) if isinstance(what, Sequence) else [what]
        if not messages:
            return await method(what, *given, **named)
        attributes = {**_common("send", "send", messages), "messaging.client.id": producer.session.client_id}
        with found.start_as_current_span(
            f"send {messages[0].topic}", kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            for message in messages:
                message.properties = _injected(message.properties)
            result = await method(what, *given, **named)
            if len(messages) == 1 and messages[0].message_id:
                span.set_attribute("messaging.message.id", messages[0].message_id)
            return result

    return sends


def _receives(method: Method, consumer: Any, found: Tracer) -> Method:
    from opentelemetry.trace import SpanKind

    clock, group = consumer.session.clock, consumer.group

    @functools.wraps(method)
    async def receives(*given: Any, **named: Any) -> Any:
        began = clock.wall()
        messages = await method(*given, **named)
        if messages:
            span = found.start_span(
                f"receive {messages[0].topic}",
                kind=SpanKind.CLIENT,
                attributes={
                    **_common("receive", "receive", messages),
                    "messaging.consumer.group.name": group,
                },
                links=_links(messages),
                start_time=began * 1_000_000,
            )
            span.end()
            for message in messages:
                if message.lease is not None:
                    message.lease = _Settled(message.lease, message, group, found)
        return messages

    return receives


class _Process:
    """Entered around a handler; what it gives is told what the handler returned."""

    def __init__(self, found: Tracer, group: str, work: Any) -> None:
        from opentelemetry.trace import SpanKind

        messages: list[ReceivedMessage] = work if isinstance(work, list) else [work]
        attributes = {**_common("process", "process", messages), "messaging.consumer.group.name": group}
        # One message's handling goes on with its trace; that of several can only point at theirs.
        self._current = found.start_as_current_span(
            f"process {messages[0].topic}",
            context=_context_of(messages[0]) if len(messages) == 1 else None,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=_links(messages),
        )
        self._span: Span | None = None

    def __enter__(self) -> Callable[[Any], Any]:
        self._span = self._current.__enter__()
        return self._returned

    def __exit__(self, *error: Any) -> bool | None:
        return self._current.__exit__(*error)

    def _returned(self, value: Any) -> Any:
        from opentelemetry.trace import StatusCode

        outcome: Outcome = outcome_of(value)
        if self._span is not None and outcome.result not in _GOOD:
            self._span.set_attribute("error.type", outcome.result.value)
            self._span.set_status(StatusCode.ERROR, "to be delivered again")
        return value


class _Settled:
    """A lease whose answers are spans."""

    def __init__(self, lease: Leased, message: ReceivedMessage, group: str, found: Tracer) -> None:
        self._lease = lease
        self._topic = message.topic
        self._tracer = found
        self._attributes = {**_common("ack", "settle", [message]), "messaging.consumer.group.name": group}
        self._links = _links([message])

    @property
    def receipt(self) -> str:
        return self._lease.receipt

    @receipt.setter
    def receipt(self, receipt: str) -> None:
        self._lease.receipt = receipt

    def expired(self, now: int) -> bool:
        return self._lease.expired(now)

    def ack_soon(self, waiting: Waiting) -> bool:
        return self._lease.ack_soon(waiting)

    async def ack(self) -> None:
        with self._span("ack"):
            await self._lease.ack()

    async def hide(self, invisible_ms: int, failure: str = "") -> None:
        with self._span("nack" if invisible_ms == 0 or failure else "extend"):
            await self._lease.hide(invisible_ms, failure)

    def _span(self, name: str) -> Any:
        from opentelemetry.trace import SpanKind

        return self._tracer.start_as_current_span(
            f"{name} {self._topic}",
            kind=SpanKind.CLIENT,
            attributes={**self._attributes, "messaging.operation.name": name},
            links=self._links,
        )


# -- words of the conventions ------------------------------------------------------------------------------


def _common(name: str, kind: str, messages: Sequence[Any]) -> dict[str, Any]:
    first = messages[0]
    said: dict[str, Any] = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": first.topic,
    }
    if len(messages) > 1:
        return {**said, "messaging.batch.message_count": len(messages)}
    said["messaging.message.body.size"] = len(first.body)
    if first.message_id:
        said["messaging.message.id"] = first.message_id
    if first.tags:
        said["messaging.rocketmq.message.tag"] = first.tags
    if first.keys:
        said["messaging.rocketmq.message.keys"] = list(first.keys)
    return said


def _injected(properties: dict[str, str] | None) -> dict[str, str]:
    """With where the span belongs; the user's own table is left alone."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carried = dict(properties or {})
    TraceContextTextMapPropagator().inject(carried)
    return carried


def _context_of(message: ReceivedMessage) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(message.properties)


def _links(messages: Sequence[ReceivedMessage]) -> list[Any]:
    from opentelemetry.trace import Link, get_current_span

    contexts = (get_current_span(_context_of(message)).get_span_context() for message in messages)
    return [Link(context) for context in contexts if context.is_valid]
