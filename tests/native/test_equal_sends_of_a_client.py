# SPDX-License-Identifier: Apache-2.0
"""A client's single sends by the lane, against Python: the bytes of a frame, what an answer says."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee import native
from aerobee.client.message import SendResult, SendStatus
from aerobee.client.produce.sender import result_of
from aerobee.protocol import command as wire
from aerobee.protocol import fast_frames
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.protocol.fast_frames import Sending, SendTemplate
from aerobee.protocol.headers.produce import SendResult as SendResultHeader

if native.is_on:
    from aerobee.client.produce.compiled_frames import compiled
    from aerobee.native.client_sends import SendFrames, SentAnswers

pytestmark = pytest.mark.skipif(not native.is_on, reason="the lane is not built")

TEXT = st.text(max_size=30) | st.text('UNIQ_KEY\x01\x02aé"\\\x7f\x1f\ud800', max_size=30)
SENDINGS = st.builds(
    Sending,
    topic=st.just("T"),
    body=st.binary(max_size=50),
    properties_text=TEXT,
    message_id=st.just("ID"),
    born=st.integers(-(2**70), 2**70) | st.integers(0, 2**41),
    sys_flag=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(-(2**63), 2**63 - 1),
    command_flag=st.sampled_from([0, 0, 2]),
    reconsume_times=st.sampled_from([0, 0, 3]),
    max_reconsume=st.none() | st.integers(0, 16),
)
QUEUE = MessageQueue("b", 3, "T")


def rendered(template: Any, opaque: int, queue_id: int, sending: Sending) -> object:
    try:
        return template.frame(opaque, queue_id, sending)
    except UnicodeEncodeError as error:
        return str(error)


@given(SENDINGS, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.text(max_size=9), st.booleans())
def test_a_frame_has_the_same_bytes(
    sending: Sending, opaque: int, queue_id: int, group: str, is_batch: bool
) -> None:
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    template = SendTemplate(code, group, "to%pic", "b", "TBW102", 4)
    made = compiled(template)
    assert isinstance(made, SendFrames)
    for _ in range(2):  # nothing of one frame is left for the next
        found = rendered(made, opaque, queue_id, sending)
        assert found == rendered(template, opaque, queue_id, sending)


def test_a_name_that_reads_like_one_of_the_marks_is_pythons() -> None:
    template = SendTemplate(RequestCode.SEND_MESSAGE_V2, "1234567891", "T", "b", "TBW102", 4)
    assert compiled(template) is template


# -- answers -----------------------------------------------------------------------------------------------


def taken(data: bytes, opaque: int = 7) -> tuple[object, bool]:
    """What the sender was told, and whether he still waits."""
    answers = SentAnswers(SendResultHeader, SendResult, SendStatus.OK)
    future: Future[Any] = Future()
    waiting: dict[int, Any] = {opaque: answers.call(future, "ID", QUEUE)}
    was = answers.take(data, waiting)
    assert was is future.done() is (not waiting)
    return (future.result() if was else None), bool(waiting)


@given(
    st.integers(0, 2**31 - 1),
    st.text("0123456789ABCDEF", min_size=1, max_size=40),
    st.integers(0, 10**18 - 1),
    st.text("0123456789ABCDEF", min_size=1),
)
def test_an_answer_says_the_same(opaque: int, place: str, offset: int, key: str) -> None:
    data = fast_frames.sent(opaque, "Default", place, 3, offset, key)
    sending = Sending("T", b"x", "", "ID", 7)
    expected = result_of(wire.decode(data[4:]), sending, QUEUE)
    assert taken(data, opaque) == (expected, False)


@given(st.sampled_from([0, 1]), st.none() | st.text(max_size=5), st.none() | st.text(max_size=5))
def test_so_does_one_of_another_broker(serialize: int, key: str | None, handle: str | None) -> None:
    header = SendResultHeader(
        msg_id="P", queue_id=3, queue_offset=9, transaction_id=key, recall_handle=handle
    )
    command = Command(
        0, 7, wire.RESPONSE, language="JAVA", ext=wire.header_fields(header), serialize=serialize
    )
    data = wire.encode(command)
    expected = result_of(wire.decode(data[4:]), Sending("T", b"x", "", "ID", 7), QUEUE)
    found, waits = taken(data)
    assert waits or found == expected  # what is escaped in an odd way is Python's
    if key is not None and key.isascii() and key.isalnum() and handle is None:
        assert not waits


OTHERS = [
    wire.encode(Command(13, 7, wire.RESPONSE, remark="no", ext={})),
    fast_frames.sent(8, "r", "P", 3, 9, "K"),  # of another
    fast_frames.sent(7, "r", "P", 3, 10**18, "K"),
    fast_frames.sent(7, "r", "P", 4, 9, "K"),  # in another queue
    fast_frames.sent(7, "r", "P", 3, 9, "K")[:-1],
    fast_frames.sent(7, "r", "P", 3, 9, "K") * 2,
    fast_frames.sent(7, "r", "P", 3, 9, "K").replace(b'"code":0', b'"code":9'),
    fast_frames.done(7),
    wire.encode(Command(310, 7, 0, ext={"msgId": "P", "queueId": "3", "queueOffset": "9"})),
    b"",
]


@pytest.mark.parametrize("data", OTHERS)
def test_anything_else_is_left_to_python(data: bytes) -> None:
    assert taken(data) == (None, True)


def test_one_who_waits_in_another_way_is_left_to_python() -> None:
    answers = SentAnswers(SendResultHeader, SendResult, SendStatus.OK)
    future: Future[Any] = Future()
    data = fast_frames.sent(7, "r", "P", 3, 9, "K")
    assert not answers.take(data, {7: future})
    given_up = answers.call(future, "ID", QUEUE)
    future.cancel()
    assert given_up.done()
    assert not answers.take(data, {7: given_up})
