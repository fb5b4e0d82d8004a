# SPDX-License-Identifier: Apache-2.0
"""Trace records, byte for byte as RocketMQ's tools read them; and tracing that never disturbs what it traces."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.client import trace
from aerobee.client.consume.hooks import Hooks, ReturnType
from aerobee.client.message import Message, SendResult, SendStatus
from aerobee.client.options import Options
from aerobee.errors import NetworkError
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.fast_frames import Sending
from aerobee.protocol.message import offset_message_id

OFFSET_ID = offset_message_id(b"\x7f\0\0\x01\0\0\x2a\x9f", 4_096)


class Sender:
    """Keeps what it is given, or fails."""

    def __init__(self) -> None:
        self.sent: list[Sending] = []
        self.error: Exception | None = None

    async def send(self, sending: Sending, code: RequestCode, queue: MessageQueue | None) -> None:
        assert (code, queue) == (RequestCode.SEND_MESSAGE_V2, None)
        if self.error is not None:
            raise self.error
        self.sent.append(sending)

    @property
    def records(self) -> list[list[str]]:
        text = "".join(each.body.decode() for each in self.sent)
        return [record.split("\x01") for record in text.split("\x02")[:-1]]


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def tracer(session: Any, sender: Sender) -> trace.Tracer:
    return trace.Tracer(session, sender, "g")  # type: ignore[arg-type]


def result(offset_id: str = OFFSET_ID, status: SendStatus = SendStatus.OK) -> SendResult:
    return SendResult(status, "ID", offset_id, MessageQueue("a", 0, "T"), 7)


def publish(message: Message, given: SendResult) -> list[str]:
    sending = Sending("T", message.body, "", "ID", 1_000)
    text = trace.publish_record("shop", message, sending, given, 1_025)
    assert text.endswith("\x02")
    return text[:-1].split("\x01")


def test_a_sent_message_is_one_record_of_fourteen_fields() -> None:
    found = publish(Message("T", b"body", tags="A", keys=["k1", "k2"]), result())
    assert found == [
        "Pub", "1000", "DefaultRegion", "shop", "T", "ID", "A", "k1 k2", "127.0.0.1:10911", "4", "25", "0",
        OFFSET_ID, "true",
    ]  # fmt: skip


@pytest.mark.parametrize("delay", [{"delay_level": 3}, {"delay_ms": 0}, {"deliver_at": 1}])
def test_a_delayed_message_is_of_the_delayed_kind(delay: dict[str, int]) -> None:
    assert publish(Message("T", b"x", **delay), result())[11] == "3"  # type: ignore[arg-type]


def test_what_is_not_known_is_left_empty() -> None:
    found = publish(Message("T", b"x"), result("no id", SendStatus.FLUSH_DISK_TIMEOUT))
    assert (found[6], found[7], found[8], found[13]) == ("", "", "", "false")
    batch = publish(Message("T", b"x"), result(f"{OFFSET_ID},{OFFSET_ID}"))
    assert batch[8] == "127.0.0.1:10911", "the first of a batch's"


@pytest.mark.parametrize(
    ("kind", "success", "code"),
    [
        (ReturnType.SUCCESS, "true", "0"),
        (ReturnType.TIME_OUT, "false", "1"),
        (ReturnType.EXCEPTION, "false", "2"),
        (ReturnType.FAILED, "false", "4"),
    ],
)
async def test_a_consumed_message_is_two_records_tied_by_one_request(
    tracer: trace.Tracer,
    sender: Sender,
    session: Any,
    make_message: Any,
    kind: ReturnType,
    success: str,
    code: str,
) -> None:
    message = make_message(5, reconsume_times=2, properties="KEYS\x01k1 k2\x02")
    session.clock.set_wall(50_000)
    tracer.consuming([message])
    session.clock.set_wall(50_020)
    tracer.consumed([message], kind, 20)
    await tracer.close()
    before, after = sender.records
    assert before == ["SubBefore", "50000", "DefaultRegion", "g", "ID5@2", "ID5", "2", "k1 k2"]
    assert after == ["SubAfter", "ID5@2", "ID5", "20", success, "k1 k2", code, "50020", "g"]
    (sent,) = sender.sent
    found = props.parse(sent.properties_text)
    assert (sent.topic, found["KEYS"], found["WAIT"]) == ("RMQ_SYS_TRACE_TOPIC", "ID5 k1 k2", "false")
    assert (sent.born, len(found["UNIQ_KEY"])) == (50_020, 32)


async def test_who_consumes_the_traces_leaves_none(
    tracer: trace.Tracer, sender: Sender, make_message: Any
) -> None:
    """Else each trace would be traced, without an end."""
    message = make_message(5, topic="RMQ_SYS_TRACE_TOPIC")
    tracer.consuming([message])
    tracer.consumed([message], ReturnType.SUCCESS, 1)
    await tracer.close()
    assert sender.sent == []


async def test_records_go_together_after_half_a_second(
    tracer: trace.Tracer, sender: Sender, session: Any, make_message: Any, settle: Any
) -> None:
    tracer.consuming([make_message(1), make_message(2)])
    await settle()
    session.clock.advance(499)
    await settle()
    assert sender.sent == []
    session.clock.advance(1)
    await settle()
    assert [record[5] for record in sender.records] == ["ID1", "ID2"]
    tracer.consuming([make_message(3)])
    await settle()
    session.clock.advance(500)
    await settle()
    assert len(sender.sent) == 2, "and the next ones too"


async def test_a_hundred_are_sent_at_once_and_no_more_in_one_message(
    tracer: trace.Tracer, sender: Sender, make_message: Any, settle: Any
) -> None:
    tracer.consuming([make_message(n) for n in range(99)])
    await settle()
    assert sender.sent == []
    tracer.consuming([make_message(n) for n in range(99, 250)])
    await settle()
    assert [each.body.count(b"\x02") for each in sender.sent] == [100, 100, 50]


async def test_a_full_buffer_drops_the_newest_and_tells_how_many(
    tracer: trace.Tracer, sender: Sender, make_message: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(trace, "MAX_WAITING", 3)
    tracer.consuming([make_message(n) for n in range(5)])
    assert tracer.dropped == 2
    await tracer.close()
    assert [record[5] for record in sender.records] == ["ID0", "ID1", "ID2"]
    assert "group=g: 2 trace records dropped" in caplog.text


async def test_records_that_cannot_be_sent_are_lost_and_nothing_else_is(
    tracer: trace.Tracer, sender: Sender, make_message: Any, caplog: Any
) -> None:
    sender.error = NetworkError("gone")
    tracer.consuming([make_message(1)])
    await tracer.close()
    assert "trace records lost count=1: gone" in caplog.text
    assert "dropped" not in caplog.text


def test_a_consumer_is_traced_when_its_options_say_so(session: Any) -> None:
    hooks = Hooks(900_000)
    assert trace.of_consumer(session, "g", hooks) is None
    assert not hooks.active
    session.options = Options(trace=True)
    assert trace.of_consumer(session, "g", hooks) is not None
    assert hooks.active


@pytest.mark.parametrize(("count", "sent"), [(99, 0), (100, 1), (101, 2)])
async def test_a_hundred_records_do_not_wait_for_the_half_second(
    tracer: trace.Tracer, sender: Sender, settle: Any, count: int, sent: int
) -> None:
    for number in range(count):
        tracer._add(f"r{number}\x02", [f"k{number}"])
    await settle()
    assert len(sender.sent) == sent
    await tracer.close()
    assert len(sender.records) == count


async def test_what_is_too_much_is_dropped_the_newest_first_and_told_at_the_end(
    tracer: trace.Tracer, sender: Sender, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "MAX_WAITING", 3)
    for number in range(5):
        tracer._add(f"r{number}\x02", [])
    assert tracer.dropped == 2
    await tracer.close()
    assert sender.records == [["r0"], ["r1"], ["r2"]]
    assert "group=g: 2 trace records dropped" in caplog.text
