# SPDX-License-Identifier: Apache-2.0
"""Frames written as text are what the encoder makes of the same answer."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.protocol import command as wire
from aerobee.protocol import fast_frames
from aerobee.protocol.command import Command, Header, header_fields
from aerobee.protocol.headers.consume import PopResult, PullResult
from aerobee.protocol.headers.produce import SendResult

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
