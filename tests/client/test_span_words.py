# SPDX-License-Identifier: Apache-2.0
"""Spans word by word, as the conventions of OpenTelemetry have them for messaging. No broker, no global provider."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from aerobee.client import spans
from aerobee.client.consume.handler import ConsumeResult
from aerobee.client.message import Message
from aerobee.clock import ManualClock
from aerobee.errors import SystemFailure

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE, SPAN = int("0af7651916cd43dd8448eb211c80319c", 16), int("b7ad6b7169203331", 16)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def found(exporter: InMemorySpanExporter) -> Any:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider.get_tracer("tests")


def common(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {
        "messaging.system": "rocketmq",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": "T",
        **more,
    }


ONE = {
    "messaging.message.body.size": 4,
    "messaging.message.id": "ID1",
    "messaging.rocketmq.message.tag": "red",
    "messaging.rocketmq.message.keys": ("k1", "k2"),
}


def traced(make_message: Any, offset: int = 1) -> Any:
    return make_message(offset, tags="red", properties=f"KEYS\x01k1 k2\x02traceparent\x01{PARENT}\x02")


async def test_a_send_is_a_producers_span_and_its_message_carries_it(found: Any, exporter: Any) -> None:
    producer = SimpleNamespace(session=SimpleNamespace(client_id="me"))
    seen: list[Any] = []

    async def send(what: Any, *given: Any, **named: Any) -> str:
        seen.append((what, given, named))
        what.message_id = "ID1"
        return "sent"

    own = {"a": "b"}
    message = Message("T", b"body", tags="red", keys=["k1", "k2"], properties=own)
    assert await spans._sends(send, producer, found)(message, 5, queue="q") == "sent"
    assert seen == [(message, (5,), {"queue": "q"})]
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind) == ("send T", SpanKind.PRODUCER)
    assert dict(span.attributes) == common("send", "send", **ONE, **{"messaging.client.id": "me"})
    carried = message.properties or {}
    assert carried["a"] == "b"
    assert carried["traceparent"].split("-")[1:3] == [
        f"{span.context.trace_id:032x}",
        f"{span.context.span_id:016x}",
    ]
    assert own == {"a": "b"}, "the user's own table is left alone"


async def test_a_batch_is_one_span_and_nothing_is_none(found: Any, exporter: Any) -> None:
    producer = SimpleNamespace(session=SimpleNamespace(client_id="me"))

    async def send(what: Any) -> int:
        return len(what)

    batch = [Message("T", b"1", message_id="A"), Message("T", b"2", message_id="B")]
    sends = spans._sends(send, producer, found)
    assert (await sends(batch), await sends([])) == (2, 0)
    (span,) = exporter.get_finished_spans()
    expected = common("send", "send", **{"messaging.batch.message_count": 2, "messaging.client.id": "me"})
    assert dict(span.attributes) == expected
    assert all("traceparent" in (each.properties or {}) for each in batch)


async def test_what_was_received_is_linked_to_its_sends(found: Any, exporter: Any, make_message: Any) -> None:
    clock = ManualClock()
    consumer = SimpleNamespace(session=SimpleNamespace(clock=clock), group="g")
    brought: list[list[Any]] = [[], [traced(make_message), make_message(2)]]

    async def receive(*given: Any, **named: Any) -> list[Any]:
        clock.advance(700)
        return brought.pop(0)

    receives = spans._receives(receive, consumer, found)
    assert await receives() == []
    assert exporter.get_finished_spans() == (), "nothing came: no span"
    began = clock.wall()
    assert len(await receives(8, wait_ms=5)) == 2
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind, span.start_time) == ("receive T", SpanKind.CLIENT, began * 1_000_000)
    more = {"messaging.batch.message_count": 2, "messaging.consumer.group.name": "g"}
    assert dict(span.attributes) == common("receive", "receive", **more)
    assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [(TRACE, SPAN)]


async def test_a_handler_goes_on_with_the_trace_of_one_message_and_points_at_those_of_several(
    found: Any, exporter: Any, make_message: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "tracer", lambda: found)

    async def handle(work: Any) -> Any:
        return None

    handler: Any = spans.around(handle, "g")
    await handler(traced(make_message))
    await handler([traced(make_message), traced(make_message, 2)])
    one, several = exporter.get_finished_spans()
    assert (one.name, one.kind, one.context.trace_id, one.parent.span_id) == (
        "process T", SpanKind.CONSUMER, TRACE, SPAN,
    )  # fmt: skip
    assert dict(one.attributes) == common(
        "process", "process", **ONE, **{"messaging.consumer.group.name": "g"}
    )
    assert (several.parent, several.context.trace_id != TRACE, len(several.links)) == (None, True, 2)
    assert several.attributes["messaging.batch.message_count"] == 2
    assert one.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("returned", "kind"),
    [
        (None, None),
        (ConsumeResult.SUCCESS, None),
        (ConsumeResult.COMMIT, None),
        (ConsumeResult.RETRY, "retry"),
        (False, "retry"),
        (ConsumeResult.SUSPEND, "suspend"),
        (ConsumeResult.ROLLBACK, "rollback"),
    ],
)
def test_a_message_that_comes_again_is_an_error_of_its_span(
    found: Any, exporter: Any, make_message: Any, monkeypatch: pytest.MonkeyPatch, returned: Any, kind: Any
) -> None:
    monkeypatch.setattr(spans, "tracer", lambda: found)
    handler: Any = spans.around(lambda work: returned, "g")
    assert handler(make_message(1)) is returned
    (span,) = exporter.get_finished_spans()
    assert span.attributes.get("error.type") == kind
    assert span.status.status_code is (StatusCode.ERROR if kind else StatusCode.UNSET)
    assert span.status.description == ("to be delivered again" if kind else None)


class Lease:
    def __init__(self) -> None:
        self.receipt = "first"
        self.calls: list[Any] = []
        self.fails: Exception | None = None

    def expired(self, now: int) -> bool:
        return now > 5

    def ack_soon(self, waiting: Any) -> bool:
        self.calls.append(waiting)
        return True

    async def ack(self) -> None:
        self.calls.append("ack")
        if self.fails:
            raise self.fails

    async def hide(self, invisible_ms: int, failure: str = "") -> None:
        self.calls.append((invisible_ms, failure))


async def test_each_answer_for_a_message_is_a_span(found: Any, exporter: Any, make_message: Any) -> None:
    lease = Lease()
    settled = spans._Settled(lease, traced(make_message), "g", found)  # type: ignore[arg-type]
    assert (settled.receipt, settled.expired(5), settled.expired(6), settled.ack_soon("w")) == (  # type: ignore[arg-type]
        "first", False, True, True,
    )  # fmt: skip
    settled.receipt = "second"
    assert lease.receipt == "second"
    await settled.ack()
    await settled.hide(0)
    await settled.hide(30_000)
    await settled.hide(30_000, "ValueError: no")
    assert lease.calls == ["w", "ack", (0, ""), (30_000, ""), (30_000, "ValueError: no")]
    lease.fails = SystemFailure("no")
    with pytest.raises(SystemFailure):
        await settled.ack()
    done = exporter.get_finished_spans()
    assert [span.name for span in done] == ["ack T", "nack T", "extend T", "nack T", "ack T"]
    assert [span.attributes["messaging.operation.name"] for span in done] == [
        "ack",
        "nack",
        "extend",
        "nack",
        "ack",
    ]
    for span in done:
        assert span.kind is SpanKind.CLIENT
        assert span.attributes["messaging.operation.type"] == "settle"
        assert span.attributes["messaging.consumer.group.name"] == "g"
        assert [link.context.span_id for link in span.links] == [SPAN]
    assert done[-1].status.status_code is StatusCode.ERROR


async def test_leased_messages_are_answered_in_spans_too(
    found: Any, exporter: Any, make_message: Any
) -> None:
    consumer = SimpleNamespace(session=SimpleNamespace(clock=ManualClock()), group="g")
    leased, plain = make_message(1), make_message(2)
    leased.lease = lease = Lease()

    async def receive() -> list[Any]:
        return [leased, plain]

    await spans._receives(receive, consumer, found)()
    assert plain.lease is None
    await leased.lease.ack()
    assert lease.calls == ["ack"]
    assert [span.name for span in exporter.get_finished_spans()] == ["receive T", "ack T"]
