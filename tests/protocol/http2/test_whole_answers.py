# SPDX-License-Identifier: Apache-2.0
"""A whole answer to a whole request in one piece: when that may be, and what is left as it was when it may not."""

from __future__ import annotations

import pytest

from aerobee.protocol.http2 import frames
from aerobee.protocol.http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    MAX_PAYLOAD,
    PING,
    WINDOW_UPDATE,
    BrokenHttp2,
    frame,
)
from aerobee.protocol.http2.sending import FORGIVEN
from tests.protocol.http2.test_stream_edges import TRAILERS, asked
from tests.protocol.http2.test_streams import BLOCK, OPEN, Side, greeted, number

WHOLE = END_HEADERS | END_STREAM


def answered(side: Side, data: bytes, stream: int = 1) -> bool:
    return side.streams.send_all(side.made[stream], BLOCK, data, TRAILERS)


def answer(data: bytes, stream: int = 1) -> bytes:
    parts = (
        frame(HEADERS, END_HEADERS, stream, BLOCK),
        frame(DATA, 0, stream, data),
        frame(HEADERS, WHOLE, stream, TRAILERS),
    )
    return b"".join(parts)


def test_headers_data_and_trailers_leave_in_one_piece_and_the_stream_is_over() -> None:
    side = asked(max_streams=1)
    side.said()
    assert answered(side, b"found")
    assert side.streams.out == [answer(b"found")]
    assert (side.made[1].said_all, side.streams.open) == (True, {})
    side.hear(frame(HEADERS, WHOLE, 3, BLOCK))
    assert 3 in side.made, "there is room for another"


@pytest.mark.parametrize(("size", "fits"), [(100, True), (101, False)])
def test_an_answer_must_fit_the_window_of_its_stream(size: int, fits: bool) -> None:
    side = asked()
    side.hear(frames.settings({frames.INITIAL_WINDOW: 100}))
    side.said()
    assert answered(side, bytes(size)) is fits
    if not fits:
        assert (side.said(), side.made[1].said_all, side.made[1].window) == (b"", False, 100)
        side.streams.send(side.made[1], bytes(100))
        assert side.streams.unsent_bytes == 0, "nothing was taken from a window"


@pytest.mark.parametrize(("size", "fits"), [(MAX_PAYLOAD, True), (MAX_PAYLOAD + 1, False)])
def test_an_answer_must_fit_one_frame(size: int, fits: bool) -> None:
    assert answered(asked(), bytes(size)) is fits


@pytest.mark.parametrize(("size", "fits"), [(3, True), (4, False)])
def test_an_answer_counts_against_the_window_of_all(size: int, fits: bool) -> None:
    side = asked()
    for stream in (3, 5, 7, 9):
        side.hear(frame(HEADERS, WHOLE, stream, BLOCK))
        assert answered(side, bytes(16_383), stream)
    side.said()
    assert answered(side, bytes(size)) is fits, "3 of 65,535 are left"
    if not fits:
        side.hear(frame(WINDOW_UPDATE, 0, 0, number(1)))
        assert answered(side, bytes(size))


def test_a_request_that_goes_on_is_not_answered_so() -> None:
    side = greeted()
    side.hear(OPEN)
    side.said()
    assert not answered(side, b"early")
    assert (side.said(), list(side.streams.open)) == (b"", [1])


def test_an_answer_is_forgiven_for() -> None:
    side = asked(max_trifles=10)
    side.streams.forgive()
    assert answered(side, b"found")
    ping = frame(PING, 0, 0, bytes(8))
    side.hear(*[ping] * (10 + FORGIVEN))
    with pytest.raises(BrokenHttp2):
        side.hear(ping)
