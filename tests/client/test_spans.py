# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry spans: send, receive, process and ack belong together, and cost nothing where nobody traces."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from aerobee import (
    ConsumeResult,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    PushOptions,
    Server,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from aerobee.client import spans
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from opentelemetry.sdk.trace import ReadableSpan


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """An application that traces; its provider goes with the test."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(ephemeral=True) as running:
        yield running


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


async def test_a_push_handler_goes_on_with_the_trace_of_the_send(
    server: Server, exported: InMemorySpanExporter
) -> None:
    seen: list[Any] = []

    async def handle(message: Any) -> None:
        seen.append(trace.get_current_span().get_span_context())

    async with Producer(server.namesrv, group="shop") as producer:
        with trace.get_tracer("app").start_as_current_span("checkout") as checkout:
            await producer.send(Message("orders", b"{}", tags="paid", keys=["o-1"]))
        async with PushConsumer(
            server.namesrv, group="billing", topics={"orders": "*"}, handler=handle, start="first"
        ):
            await until(lambda: named(exported, "process orders"))
    (send,), (process,) = named(exported, "send orders"), named(exported, "process orders")
    assert send.kind is SpanKind.PRODUCER and process.kind is SpanKind.CONSUMER
    assert send.parent.span_id == checkout.get_span_context().span_id
    assert process.parent.span_id == send.context.span_id
    assert process.links[0].context.span_id == send.context.span_id
    assert seen == [process.context], "the handler's own spans hang on it"
    expected = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.message.body.size": 2,
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("o-1",),
    }
    assert expected.items() <= dict(send.attributes or {}).items()
    assert process.attributes["messaging.consumer.group.name"] == "billing"
    assert process.attributes["messaging.message.id"] == send.attributes["messaging.message.id"]


async def test_a_handler_in_a_thread_has_its_span_there_and_its_failure_on_it(
    server: Server, exported: InMemorySpanExporter
) -> None:
    def handle(message: Any) -> ConsumeResult | None:
        assert trace.get_current_span().get_span_context().is_valid
        if message.body == b"bad":
            raise ValueError("no such order")
        return ConsumeResult.RETRY if message.body == b"again" else None

    async with Producer(server.namesrv, group="shop") as producer:
        for body in (b"good", b"bad", b"again"):
            await producer.send(Message("orders", body))
        async with PushConsumer(
            server.namesrv, group="billing", topics={"orders": "*"}, handler=handle, start="first"
        ):
            await until(lambda: len(named(exported, "process orders")) >= 3)
    by_size = {
        span.attributes["messaging.message.body.size"]: span for span in named(exported, "process orders")
    }
    assert by_size[4].status.status_code is StatusCode.UNSET
    assert by_size[3].events[0].attributes["exception.message"] == "no such order"
    assert by_size[5].attributes["error.type"] == "retry"


async def test_a_batch_of_messages_points_at_all_their_sends(
    server: Server, exported: InMemorySpanExporter
) -> None:
    async def handle(messages: Any) -> None:
        pass

    async with Producer(server.namesrv, group="shop") as producer:
        await producer.send_batch([Message("orders", b"1"), Message("orders", b"2")])
        async with PushConsumer(
            server.namesrv,
            group="billing",
            topics={"orders": "*"},
            handler=handle,
            start="first",
            options=PushOptions(consume_batch=8),
        ):
            await until(lambda: named(exported, "process orders"))
    (send,), (process,) = named(exported, "send orders"), named(exported, "process orders")
    assert send.attributes["messaging.batch.message_count"] == 2
    assert [link.context.span_id for link in process.links] == [send.context.span_id] * 2


async def test_what_is_received_and_answered_by_hand_is_linked(
    server: Server, exported: InMemorySpanExporter
) -> None:
    async with (
        Producer(server.namesrv, group="shop") as producer,
        SimpleConsumer(server.namesrv, group="shipping", topics={"orders": "*"}, start="first") as consumer,
    ):
        await producer.send(Message("orders", b"x"))
        (message,) = await consumer.receive(max_messages=1)
        await message.extend(60_000)
        await message.ack()
    (send,) = named(exported, "send orders")
    for name in ("receive orders", "extend orders", "ack orders"):
        (span,) = named(exported, name)
        assert span.kind is SpanKind.CLIENT
        assert [link.context.span_id for link in span.links] == [send.context.span_id]
    assert named(exported, "ack orders")[0].attributes["messaging.operation.type"] == "settle"


async def test_polling_and_transactions_are_spans_too(server: Server, exported: InMemorySpanExporter) -> None:
    async with TransactionProducer(
        server.namesrv, group="tx", check=lambda message: TransactionState.COMMIT
    ) as producer:
        given = {"a": "b"}
        await producer.send_in_transaction(
            Message("orders", b"x", properties=given), lambda message, argument: TransactionState.COMMIT
        )
        assert given == {"a": "b"}, "the user's own table is left alone"
    async with PullConsumer(server.namesrv, group="audit", topics={"orders": "*"}, start="first") as consumer:
        messages: list[Any] = []
        while not messages:
            messages = await consumer.poll(max_messages=1, timeout_ms=5_000)
    assert messages[0].property("traceparent").startswith("00-")
    (receive,), (send,) = named(exported, "receive orders"), named(exported, "send orders")
    assert receive.links[0].context.span_id == send.context.span_id


async def test_without_a_provider_nothing_is_wrapped_and_nothing_sent_along(server: Server) -> None:
    async def handle(message: Any) -> None:
        pass

    assert spans.tracer() is None
    assert spans.around(handle, "g") is handle
    async with Producer(server.namesrv, group="shop") as producer:
        assert "send" not in vars(producer)
        message = Message("orders", b"x")
        await producer.send(message)
        assert not message.properties


async def test_without_opentelemetry_nothing_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert spans.tracer() is None
