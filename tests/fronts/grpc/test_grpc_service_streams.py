# SPDX-License-Identifier: Apache-2.0
"""Telemetry and answers of many messages, byte by byte on the real service: what waits for a slow client, what a client
gets that says goodbye, how what fails is told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.broker import assemble
from aerobee.broker.operations.send import PlainOrigin, send
from aerobee.clock import ManualClock
from aerobee.fronts.grpc import convert, service
from aerobee.fronts.grpc.codes import Code
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.routes import ROUTES
from aerobee.fronts.grpc.service import Service
from aerobee.protocol.http2 import frames
from aerobee.protocol.http2.frames import DATA, END_STREAM, PREFACE, Reason, frame
from aerobee.protocol.message import Record
from aerobee.settings import BrokerConfig, StoreConfig
from tests.grpc_line import Line, as_message
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 20, consume_queue_units=1000, index_slots=1000, index_entries=4000
)
SERVICE = "/apache.rocketmq.v2.MessagingService/"
WHO = {"x-mq-client-id": "c1"}


class Bench:
    def __init__(self, broker: Any) -> None:
        self.broker = broker
        self.service = Service(broker)

    def line(self, **limits: Any) -> Line:
        return Line(self.service.method, **limits)

    @property
    def peer(self) -> Any:
        (found,) = self.service.peers
        return found


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    broker = assemble(BrokerConfig(), SMALL, tmp_path, ManualClock())
    yield Bench(broker)
    broker.store.close()


def telemetry(line: Line, *said: Any) -> int:
    """A stream on which so much was said; it stays open."""
    number, headers = line.open(SERVICE + "Telemetry", WHO)
    line.say(headers, *(frame(DATA, 0, number, as_message(each.SerializeToString())) for each in said))
    return number


def settings(topic: str = "orders") -> Any:
    told = pb.Settings()
    told.publishing.topics.add().name = topic
    return pb.TelemetryCommand(settings=told)


def note(text: str) -> Any:
    return pb.TelemetryCommand(status=pb.Status(code=pb.OK, message=text))


def heard(line: Line, number: int) -> list[Any]:
    return [pb.TelemetryCommand.FromString(data) for data in line.hear(number).messages]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


# -- telemetry -------------------------------------------------------------------------------------------------


async def test_what_a_client_does_not_take_waits_and_does_not_fill_the_line(bench: Bench) -> None:
    line = bench.line(greets=False)
    line.say(PREFACE, frames.settings({frames.INITIAL_WINDOW: 0}))
    number = telemetry(line)
    for text in ("one", "two", "three"):
        bench.peer.push(note(text))
    await turns()
    assert [each.status.message for each in bench.peer.waiting()] == ["two", "three"]
    line.say(frames.window_update(number, 1_000))
    assert [each.status.message for each in heard(line, number)] == ["one"]
    bench.peer.push(note("four"))
    await until(lambda: len(heard(line, number)) == 2)
    await line.close()


async def test_who_says_all_is_told_all_and_then_it_is_over(bench: Bench) -> None:
    line = bench.line()
    number = telemetry(line, settings())
    bench.peer.push(note("by the way"))
    line.say(frame(DATA, END_STREAM, number, b""))
    await until(lambda: line.hear(number).ended)
    answer, farewell = heard(line, number)
    assert (answer.status.code, answer.settings.publishing.max_body_size) == (pb.OK, 4 * 1024 * 1024)
    assert farewell.status.message == "by the way"
    assert line.hear(number).status == 0
    assert not bench.peer.is_open
    await until(lambda: not line.connection.held)
    await line.close()


@pytest.mark.parametrize("leaves", ["reset", "lost"])
async def test_a_client_is_open_as_long_as_a_stream_of_it(bench: Bench, leaves: str) -> None:
    line = bench.line()
    first, second = telemetry(line), telemetry(line)
    peer = bench.peer
    line.say(frames.reset(first, Reason.NO_ERROR))
    assert peer.is_open, "there is another"
    if leaves == "reset":
        line.say(frames.reset(second, Reason.NO_ERROR))
    else:
        line.wire.abort()
    assert not peer.is_open
    await until(lambda: not line.connection.held)
    await line.close()


async def test_every_word_on_the_stream_is_a_sign_of_life(bench: Bench) -> None:
    line = bench.line()
    number = telemetry(line)
    for ms in (1_000, 2_500):
        bench.broker.clock.advance(ms)
        line.say(frame(DATA, 0, number, as_message(note("here").SerializeToString())))
        assert bench.peer.last_seen == bench.broker.clock.now()
    await line.close()


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [
        (b"\xff\xff", Code.INVALID_ARGUMENT, "the request is no TelemetryCommand"),
        (settings("bad name").SerializeToString(), Code.INVALID_ARGUMENT, "bad name"),
        (
            pb.TelemetryCommand(settings=pb.Settings()).SerializeToString(),
            Code.INVALID_ARGUMENT,
            "settings hold neither publishing nor subscription",
        ),
    ],
)
async def test_settings_that_are_not_taken_end_the_stream(
    bench: Bench, said: bytes, code: Code, text: str
) -> None:
    line = bench.line()
    number = telemetry(line)
    peer = bench.peer
    line.say(frame(DATA, 0, number, as_message(said)))
    found = line.hear(number)
    assert found.status == code
    assert text in found.headers[-1]["grpc-message"]
    assert not peer.is_open
    await until(lambda: not line.connection.held)
    await line.close()


async def test_who_does_not_say_who_it_is_has_no_stream(bench: Bench) -> None:
    line = bench.line()
    number, headers = line.open(SERVICE + "Telemetry", {})
    line.say(headers)
    (told,) = heard(line, number)
    assert (told.status.code, line.hear(number).status) == (pb.CLIENT_ID_REQUIRED, 0)
    line.say(frame(DATA, END_STREAM, number, as_message(settings().SerializeToString())))
    assert list(bench.service.peers) == []
    await line.close()


# -- calls -----------------------------------------------------------------------------------------------------


async def test_a_call_that_nobody_serves_is_told_so_by_its_path(bench: Bench) -> None:
    line = bench.line()
    for path, why in (
        (SERVICE + "Fly", "this broker does not serve this call"),
        (SERVICE + "SyncLiteSubscription", "this broker does not serve lite topics (RocketMQ 5.5)"),
    ):
        found = line.hear(line.call(path, b"q"))
        assert (found.status, found.headers[-1]["grpc-message"]) == (Code.UNIMPLEMENTED, f"{path}: {why}")
    await line.close()


def pulling(count: int) -> bytes:
    asked = pb.PullMessageRequest(batch_size=count)
    asked.group.name = "billing"
    asked.message_queue.topic.name = "orders"
    return asked.SerializeToString()  # type: ignore[no-any-return]


async def test_an_answer_of_many_messages_goes_at_the_clients_pace(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    original = convert.from_record

    def counted(*given: Any) -> Any:
        made.append(1)
        return original(*given)

    monkeypatch.setattr(convert, "from_record", counted)
    for _ in range(5):
        send(Record("orders", bytes(40_000), "", 0), PlainOrigin(), bench.broker)
    line = bench.line(greets=False)
    line.say(PREFACE, frames.settings({}))
    number, headers = line.open(SERVICE + "PullMessage", WHO)
    line.say(headers, frame(DATA, END_STREAM, number, as_message(pulling(5))))
    await until(lambda: len(made) == 2)
    await turns()
    assert len(made) == 2, "more than fits its window is not even made"
    line.say(frames.window_update(0, 1 << 20), frames.window_update(number, 1 << 20))
    await until(lambda: line.hear(number).ended)
    answers = [pb.PullMessageResponse.FromString(data) for data in line.hear(number).messages]
    assert [each.WhichOneof("content") for each in answers] == ["status", *["message"] * 5, "next_offset"]
    await line.close()


@pytest.mark.parametrize("name", ["QueryOffset", "RecallMessage", "PullMessage"])
async def test_a_bug_is_logged_and_told_as_the_brokers_failure(
    bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a call that answers at once, of one that waits, of one that answers in many messages."""

    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("a bug")

    async def fails_later(*_: Any) -> Any:
        raise ZeroDivisionError("a bug")

    async def fails_midway(*_: Any) -> Any:
        yield pb.PullMessageResponse(status=pb.Status(code=pb.OK))
        raise ZeroDivisionError("a bug")

    broken = {"QueryOffset": fails, "RecallMessage": fails_later, "PullMessage": fails_midway}
    route = ROUTES[name]._replace(adapter=broken[name])
    monkeypatch.setattr(service, "ROUTES", {**ROUTES, name: route})
    line = Line(Service(bench.broker).method)
    number, headers = line.open(SERVICE + name, WHO)
    line.say(headers, frame(DATA, END_STREAM, number, as_message(b"")))
    await until(lambda: line.hear(number).ended)
    told = [getattr(pb, f"{name}Response").FromString(data).status for data in line.hear(number).messages]
    assert (told[-1].code, told[-1].message) == (pb.INTERNAL_SERVER_ERROR, "a bug")
    assert line.hear(number).status == 0
    (record,) = [each for each in caplog.records if each.exc_info]
    assert record.getMessage() == f"{name} failed"
    await line.close()


async def test_what_is_refused_is_no_news(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    line = bench.line()
    asked = pb.QueryOffsetRequest()
    asked.message_queue.topic.name = "nowhere"
    number, headers = line.open(SERVICE + "QueryOffset", WHO)
    line.say(headers, frame(DATA, END_STREAM, number, as_message(asked.SerializeToString())))
    (data,) = line.hear(number).messages
    assert pb.QueryOffsetResponse.FromString(data).status.code == pb.TOPIC_NOT_FOUND
    assert not caplog.records
    await line.close()
