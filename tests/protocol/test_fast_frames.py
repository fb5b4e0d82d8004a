# SPDX-License-Identifier: Apache-2.0
"""Frames written as text are what the encoder makes of the same answer."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.protocol import command as wire
from aerobee.protocol import fast_frames
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, Header, header_fields
from aerobee.protocol.headers.consume import AckMessage, PopResult, PullResult
from aerobee.protocol.headers.produce import SendBatch, SendMessageV2, SendResult

OPAQUE = st.integers(0, 2**31 - 1)
LONG = st.integers(-1, 2**63 - 1)
CODE = st.integers(0, 300)
NAME = st.text(string.ascii_letters + string.digits + "-_%", max_size=40)
INFO = st.text(string.digits + " ,;%qo", max_size=60)


def encoded(
    opaque: int, header: Header | None = None, code: int = 0, remark: str | None = None, body: bytes = b""
) -> bytes:
    fields = dict(sorted(header_fields(header).items()))
    return wire.encode(Command(code, opaque, wire.RESPONSE, remark=remark, ext=fields, body=body))


@given(OPAQUE)
def test_done(opaque: int) -> None:
    assert fast_frames.done(opaque) == encoded(opaque)


@given(OPAQUE, NAME, NAME, st.integers(0, 2**31), LONG, NAME)
def test_sent(opaque: int, region: str, message_id: str, queue_id: int, offset: int, key: str) -> None:
    result = SendResult(
        msg_id=message_id, queue_id=queue_id, queue_offset=offset, transaction_id=key,
        region=region, trace_on=True,
    )  # fmt: skip
    assert fast_frames.sent(opaque, region, message_id, queue_id, offset, key) == encoded(opaque, result)


@given(OPAQUE, NAME, NAME, st.integers(0, 2**31), LONG)
def test_sent_batch(opaque: int, region: str, message_ids: str, queue_id: int, offset: int) -> None:
    result = SendResult(
        msg_id=message_ids, queue_id=queue_id, queue_offset=offset, region=region, trace_on=True
    )
    assert fast_frames.sent_batch(opaque, region, message_ids, queue_id, offset) == encoded(opaque, result)


@pytest.mark.parametrize("count", [None, 0, 17])
@given(OPAQUE, CODE, NAME, st.tuples(LONG, LONG), LONG, st.integers(0, 9), st.binary(max_size=50))
def test_pulled(
    count: int | None, opaque: int, code: int, status: str, bounds: tuple[int, int], following: int,
    broker: int, body: bytes,
) -> None:  # fmt: skip
    result = PullResult(
        suggest_which_broker_id=broker, next_begin_offset=following, min_offset=bounds[0],
        max_offset=bounds[1], record_count=count,
    )  # fmt: skip
    head = fast_frames.pulled(opaque, code, status, bounds, following, broker, count, len(body))
    assert head + body == encoded(opaque, result, code, status, body)


@given(OPAQUE, CODE, NAME, LONG, LONG, st.integers(0, 9), LONG, INFO, INFO, st.binary(max_size=50))
def test_popped(
    opaque: int, code: int, status: str, time: int, invisible: int, revive: int, rest: int, start: str,
    offsets: str, body: bytes,
) -> None:  # fmt: skip
    result = PopResult(
        pop_time=time, invisible_time=invisible, revive_qid=revive, rest_num=rest,
        start_offset_info=start, msg_offset_info=offsets,
    )  # fmt: skip
    frame = fast_frames.popped(opaque, code, status, time, invisible, revive, rest, start, offsets, body)
    assert frame == encoded(opaque, result, code, status, body)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INT = st.integers(0, 2**31 - 1)


def asked(opaque: int, flag: int, header: Header, body: bytes = b"") -> bytes:
    fields = dict(sorted(header_fields(header).items()))
    return wire.encode(Command(type(header).code, opaque, flag, ext=fields, body=body))


@pytest.mark.parametrize("kind", [SendMessageV2, SendBatch], ids=["one", "several"])
@given(OPAQUE, TEXT, TEXT, TEXT, TEXT, st.tuples(INT, INT, INT, INT, INT), TEXT, st.none() | INT, st.data())
def test_a_send(
    kind: type[SendMessageV2], opaque: int, group: str, topic: str, broker: str, template: str,
    numbers: tuple[int, int, int, int, int], properties: str, limit: int | None, data: st.DataObject,
) -> None:  # fmt: skip
    queues, queue_id, sys_flag, flag, times = numbers
    born, body = data.draw(INT), data.draw(st.binary(max_size=20))
    header = kind(
        producer_group=group, topic=topic, default_topic=template, default_topic_queue_nums=queues,
        queue_id=queue_id, sys_flag=sys_flag, born_timestamp=born, flag=flag, properties=properties,
        reconsume_times=times, unit_mode=False, max_reconsume_times=limit, batch=kind is SendBatch,
        broker_name=broker,
    )  # fmt: skip
    sending = fast_frames.Sending(
        topic, body, properties, "id", born, sys_flag=sys_flag, flag=flag, command_flag=wire.ONE_WAY,
        reconsume_times=times, max_reconsume=limit,
    )  # fmt: skip
    frames = fast_frames.SendTemplate(kind.code, group, topic, broker, template, queues)
    frame = frames.frame(opaque, queue_id, sending)
    found, expected = wire.decode(frame[4:]), wire.decode(asked(opaque, wire.ONE_WAY, header, body)[4:])
    assert found.fields(kind) == expected.fields(kind)
    assert found.ext_dict() == expected.ext_dict()
    assert frame[:4] == (len(frame) - 4).to_bytes(4, "big")
    for member in ("code", "opaque", "flag", "version", "language", "remark", "body", "serialize"):
        assert getattr(found, member) == getattr(expected, member), member


@given(OPAQUE, TEXT, TEXT, TEXT, TEXT, INT, LONG)
def test_an_ack(
    opaque: int, group: str, topic: str, broker: str, receipt: str, queue_id: int, offset: int
) -> None:
    header = AckMessage(
        consumer_group=group, topic=topic, queue_id=queue_id, extra_info=receipt, offset=offset,
        broker_name=broker,
    )  # fmt: skip
    frame = fast_frames.AckTemplate(group, topic, broker).frame(opaque, receipt, str(queue_id), str(offset))
    assert frame == asked(opaque, 0, header)


def test_the_codes_of_requests_that_are_written_as_text() -> None:
    assert (SendMessageV2.code, SendBatch.code, AckMessage.code) == (
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.ACK_MESSAGE,
    )
