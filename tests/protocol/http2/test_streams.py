# SPDX-License-Identifier: Apache-2.0
"""The server's side of HTTP/2: windows, limits, and peers that break the rules. A library plays the client."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import h2.config
import h2.connection
import h2.events
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.protocol.http2 import frames
from aerobee.protocol.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    BrokenHttp2,
    Reason,
    frame,
)
from aerobee.protocol.http2.hpack import written
from aerobee.protocol.http2.sending import FORGIVEN
from aerobee.protocol.http2.stream import Stream
from aerobee.protocol.http2.streams import RESET_COUNTS, StreamLimits, Streams

if TYPE_CHECKING:
    from collections.abc import Callable

ASKED = {":method": "POST", ":scheme": "http", ":path": "/x", ":authority": "here", "te": "trailers"}
HELLO = PREFACE + frames.settings({})
BLOCK = written((":method", "POST"), (":path", "/x"))
OPEN = frame(HEADERS, END_HEADERS, 1, BLOCK)


class Kept(Stream):
    """Remembers what it is told."""

    __slots__ = ("body", "told")

    def __init__(self, streams: Streams, number: int, fields: dict[str, str]) -> None:
        super().__init__(streams, number, fields)
        self.body = b""
        self.told: list[str] = []

    def received(self, data: bytes) -> None:
        self.body += data

    def ended(self) -> None:
        self.told.append("ended")

    def stopped(self) -> None:
        self.told.append("stopped")

    def flowing(self) -> None:
        self.told.append("flowing")


class Side:
    def __init__(self, **limits: int) -> None:
        self.made: dict[int, Kept] = {}
        self.answers = b""  # to the headers alone
        self.streams = Streams(StreamLimits(**limits), self._open)

    def _open(self, streams: Streams, number: int, fields: dict[str, str]) -> Kept:
        made = self.made[number] = Kept(streams, number, fields)
        if self.answers:
            streams.end(made, self.answers)
        return made

    def hear(self, *parts: bytes) -> None:
        self.streams.receive(b"".join(parts))

    def said(self) -> bytes:
        out = b"".join(self.streams.out)
        self.streams.out.clear()
        return out


def greeted(**limits: int) -> Side:
    side = Side(**limits)
    side.hear(HELLO)
    side.said()
    return side


def number(value: int) -> bytes:
    return struct.pack(">I", value)


# -- with a client that nobody here wrote ------------------------------------------------------------------


class Client:
    def __init__(self, side: Side) -> None:
        self.side = side
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.events: list[Any] = []

    def exchange(self) -> None:
        """Both sides hear each other until nobody has more to say."""
        while True:
            self.side.hear(self.h2.data_to_send())
            said = self.side.said()
            if not said:
                return
            self.events += self.h2.receive_data(said)

    def ask(self, number: int, body: bytes, end: bool = True) -> None:
        self.h2.send_headers(number, list(ASKED.items()))
        self.exchange()
        while body:
            size = min(len(body), self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size)
            assert size, "the server opens its windows again"
            self.h2.send_data(number, body[:size])
            body = body[size:]
            self.exchange()
        if end:
            self.h2.end_stream(number)
            self.exchange()


def test_a_body_larger_than_every_window_goes_through_both_ways() -> None:
    side = Side(window_bytes=100_000, connection_window_bytes=150_000)
    client = Client(side)
    body = bytes(range(256)) * 4_000
    client.ask(1, body)
    stream = side.made[1]
    assert (stream.body, stream.told) == (body, ["ended"])
    assert stream.fields == ASKED
    side.streams.send_headers(stream, written((":status", "200")))
    side.streams.send(stream, body)
    side.streams.end(stream, written(("grpc-status", "0")))
    assert side.streams.unsent_bytes == len(body) - 65_535
    got = b""
    while side.streams.open:
        client.events.clear()
        client.exchange()
        for event in client.events:
            if isinstance(event, h2.events.DataReceived):
                got += event.data
                client.h2.acknowledge_received_data(event.flow_controlled_length, 1)
    assert got == body
    assert side.streams.unsent_bytes == 0
    assert stream.told == ["ended", "flowing"]
    assert not side.streams._blocked


def test_streams_share_the_connections_window_and_none_is_forgotten() -> None:
    side = Side()
    client = Client(side)
    for stream in (1, 3, 5):
        client.ask(stream, b"q")
        side.streams.send_headers(side.made[stream], written((":status", "200")))
    for stream in (1, 3, 5):
        side.streams.send(side.made[stream], bytes(40_000))
        side.streams.end(side.made[stream], written(("grpc-status", "0")))
    client.exchange()
    assert sorted(side.streams.open) == [3, 5]
    for event in [each for each in client.events if isinstance(each, h2.events.DataReceived)]:
        client.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
    client.exchange()
    ended = [each.stream_id for each in client.events if isinstance(each, h2.events.StreamEnded)]
    assert ended == [1, 3, 5]
    assert not side.streams.open


# -- how it comes does not matter --------------------------------------------------------------------------


@given(st.lists(st.integers(1, 40), min_size=1))
def test_it_does_not_matter_how_the_bytes_arrive(cuts: list[int]) -> None:
    said = (
        HELLO,
        frame(HEADERS, WITH_PRIORITY | PADDED, 1, b"\x03" + bytes(5) + BLOCK[:3] + bytes(3)),
        frame(CONTINUATION, END_HEADERS, 1, BLOCK[3:]),
        frame(PING, 0, 0, b"12345678"),
        frame(DATA, PADDED, 1, b"\x02" + b"ab" + bytes(2)),
        frame(99, 0, 0, b"new"),
        frame(DATA, END_STREAM, 1, b"cd"),
    )
    data, side, at, turn = b"".join(said), Side(), 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        side.hear(data[at : at + size])
        at, turn = at + size, turn + 1
    assert side.made[1].fields == {":method": "POST", ":path": "/x"}
    assert (side.made[1].body, side.made[1].told) == (b"abcd", ["ended"])
    assert frame(PING, ACK, 0, b"12345678") in side.said()


# -- those who leave ---------------------------------------------------------------------------------------


def test_a_reset_stream_is_told_and_what_it_did_not_take_is_dropped() -> None:
    side = greeted()
    side.hear(OPEN, frame(DATA, END_STREAM, 1, b"x"))
    stream = side.made[1]
    side.streams.send(stream, bytes(100_000))
    assert side.streams.unsent_bytes == 100_000 - 65_535
    side.hear(frame(RST_STREAM, 0, 1, number(8)))
    assert (stream.told, stream.unsent, side.streams.unsent_bytes) == (["ended", "stopped"], [], 0)
    side.hear(frame(RST_STREAM, 0, 1, number(8)), frame(WINDOW_UPDATE, 0, 1, number(5)))  # crossed ours


def test_an_answer_before_the_end_of_the_request_ends_both() -> None:
    side = greeted()
    side.hear(OPEN)
    side.streams.end(side.made[1], written((":status", "415")))
    assert side.said().endswith(frames.reset(1, Reason.NO_ERROR))
    side.hear(frame(DATA, END_STREAM, 1, b"late"))
    assert side.made[1].body == b""
    assert not side.streams.open


def test_an_answer_to_the_headers_alone_leaves_no_stream_behind() -> None:
    side = greeted()
    side.answers = written((":status", "415"))
    side.hear(OPEN)
    assert not side.streams.open
    side.hear(frame(DATA, END_STREAM, 1, b"late"))
    assert side.made[1].told == []


def test_what_waits_for_a_window_is_sent_also_when_the_request_ends_after_the_answer() -> None:
    side = greeted()
    side.hear(frames.settings({frames.INITIAL_WINDOW: 0}), OPEN)
    side.streams.send(side.made[1], b"answer")
    side.streams.end(side.made[1], written(("grpc-status", "0")))
    side.hear(frame(DATA, END_STREAM, 1, b"x"))
    side.said()
    side.hear(frame(WINDOW_UPDATE, 0, 1, number(100)))
    assert side.said().startswith(frame(DATA, 0, 1, b"answer"))
    assert not side.streams.open


def test_after_the_goodbye_open_streams_are_served_and_new_ones_refused() -> None:
    side = greeted()
    side.hear(OPEN)
    side.streams.leave()
    side.streams.leave()
    assert side.said() == frames.goodbye(1, Reason.NO_ERROR)
    side.hear(frame(HEADERS, END_HEADERS, 3, BLOCK), frame(DATA, END_STREAM, 1, b"x"))
    assert side.made[1].told == ["ended"]
    assert side.said() == frames.reset(3, Reason.REFUSED_STREAM)


def test_the_end_of_the_connection_is_told_to_every_stream() -> None:
    side = greeted()
    side.hear(OPEN, frame(HEADERS, END_HEADERS, 3, BLOCK))
    side.streams.gone()
    assert [stream.told for stream in side.made.values()] == [["stopped"], ["stopped"]]
    assert not side.streams.open


# -- limits ------------------------------------------------------------------------------------------------


def test_more_streams_than_may_be_are_refused_one_by_one() -> None:
    side = greeted(max_streams=2)
    side.hear(*(frame(HEADERS, END_HEADERS, at, BLOCK) for at in (1, 3, 5)))
    assert sorted(side.made) == [1, 3]
    assert side.said() == frames.reset(5, Reason.REFUSED_STREAM)


def rapid_resets(at: int) -> bytes:
    return frame(HEADERS, END_HEADERS, 2 * at + 1, BLOCK) + frame(RST_STREAM, 0, 2 * at + 1, number(8))


@pytest.mark.parametrize(
    "trifle",
    [
        rapid_resets,
        lambda at: frames.settings({}),
        lambda at: frame(PING, 0, 0, bytes(8)),
        lambda at: frame(PRIORITY, 0, 1, bytes(5)),
        lambda at: frame(WINDOW_UPDATE, 0, 0, number(1)),
        lambda at: frame(99, 0, 0),
        lambda at: (OPEN if not at else b"") + frame(DATA, 0, 1, b""),
    ],
    ids=["resets", "settings", "pings", "priorities", "windows", "unknown", "empty data"],
)
def test_a_flood_of_frames_that_ask_for_nothing_ends_the_connection(trifle: Callable[[int], bytes]) -> None:
    each = RESET_COUNTS - FORGIVEN if trifle is rapid_resets else 1
    most = 100 * each + RESET_COUNTS  # its settings were one, and a stream is forgiven before it is reset
    side = greeted(max_trifles=most)
    side.hear(*map(trifle, range(100)))
    side.streams.forgive()
    side.hear(*(trifle(at) for at in range(100, 200)))
    with pytest.raises(BrokenHttp2, match=f"more than {most} frames a second") as broken:
        side.hear(*(trifle(at) for at in range(200, 320)))
    assert broken.value.reason is Reason.ENHANCE_YOUR_CALM


def test_windows_that_are_opened_for_answers_are_no_flood() -> None:
    side = greeted(max_trifles=10)
    side.hear(frame(WINDOW_UPDATE, 0, 0, number(1 << 30)))
    for at in range(1, 401, 2):
        side.hear(frame(HEADERS, END_HEADERS, at, BLOCK), frame(DATA, END_STREAM, at, b"x"))
        side.streams.send(side.made[at], bytes(40_000))
        opened = (frame(WINDOW_UPDATE, 0, where, number(16_384)) for where in (0, at))
        side.hear(*opened, *(frame(PING, 0, 0, bytes(8)) for _ in range(4)))
        side.streams.end(side.made[at], written(("grpc-status", "0")))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ([b"\0\x40\x01" + bytes(6)], Reason.FRAME_SIZE_ERROR),
        ([OPEN[:3] + bytes([HEADERS, 0]) + OPEN[5:], frame(PING, 0, 0, bytes(8))], Reason.PROTOCOL_ERROR),
        ([frame(CONTINUATION, 0, 1, BLOCK)], Reason.PROTOCOL_ERROR),
        (
            [frame(HEADERS, 0, 1, BLOCK)] + [frame(CONTINUATION, 0, 1, bytes(10_000))] * 2,
            Reason.ENHANCE_YOUR_CALM,
        ),
        ([frame(HEADERS, END_HEADERS, 2, BLOCK)], Reason.PROTOCOL_ERROR),
        ([OPEN, OPEN], Reason.PROTOCOL_ERROR),
        ([frame(HEADERS, END_HEADERS, 1, b"\xff")], Reason.COMPRESSION_ERROR),
        ([frame(DATA, 0, 1, b"x")], Reason.PROTOCOL_ERROR),
        ([OPEN, frame(DATA, PADDED, 1, b"\x09abc")], Reason.PROTOCOL_ERROR),
        ([OPEN, frame(DATA, 0, 1, bytes(10_001))], Reason.FLOW_CONTROL_ERROR),
        ([frame(RST_STREAM, 0, 1, number(8))], Reason.PROTOCOL_ERROR),
        ([OPEN, frame(RST_STREAM, 0, 1, b"x")], Reason.FRAME_SIZE_ERROR),
        ([frame(SETTINGS, 0, 0, b"12345")], Reason.FRAME_SIZE_ERROR),
        ([frame(SETTINGS, 0, 1)], Reason.PROTOCOL_ERROR),
        ([frames.settings({frames.INITIAL_WINDOW: 1 << 31})], Reason.FLOW_CONTROL_ERROR),
        ([frame(PING, 0, 0, b"1")], Reason.FRAME_SIZE_ERROR),
        ([frame(WINDOW_UPDATE, 0, 0, number(0))], Reason.PROTOCOL_ERROR),
        ([frame(WINDOW_UPDATE, 0, 0, number(frames.MAX_WINDOW))], Reason.FLOW_CONTROL_ERROR),
        ([OPEN, frame(WINDOW_UPDATE, 0, 1, number(frames.MAX_WINDOW))], Reason.FLOW_CONTROL_ERROR),
        ([frame(frames.PUSH_PROMISE, 0, 1, BLOCK)], Reason.PROTOCOL_ERROR),
    ],
)
def test_who_breaks_the_rules_is_told_which(said: list[bytes], reason: Reason) -> None:
    side = greeted(window_bytes=10_000)
    with pytest.raises(BrokenHttp2) as broken:
        side.hear(*said)
    assert broken.value.reason is reason


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n", b"P\0", PREFACE[:-1] + b"x"])
def test_strangers_are_known_by_their_first_words(said: bytes) -> None:
    with pytest.raises(BrokenHttp2, match="does not speak HTTP/2"):
        Side().hear(said)


def test_a_request_before_the_settings_is_none() -> None:
    with pytest.raises(BrokenHttp2, match="before the settings"):
        Side().hear(PREFACE, OPEN)


def test_a_smaller_window_counts_for_streams_that_are_open() -> None:
    side = greeted()
    side.hear(OPEN, frame(DATA, END_STREAM, 1, b"x"))
    side.streams.send(side.made[1], bytes(10_000))
    side.hear(frames.settings({frames.INITIAL_WINDOW: 5_000}))
    assert side.made[1].window == -5_000
    side.said()
    side.streams.send(side.made[1], b"y")
    assert side.said() == b""
    side.hear(frames.settings({frames.INITIAL_WINDOW: 10_001}))
    assert side.said() == frame(DATA, 0, 1, b"y") + frame(SETTINGS, ACK, 0)


@given(
    st.lists(st.tuples(st.integers(0, 10), st.integers(0, 255), st.integers(0, 5), st.binary(max_size=30)))
)
def test_odd_frames_break_the_connection_or_nothing(said: list[tuple[int, int, int, bytes]]) -> None:
    side = greeted()
    try:
        for kind, flags, stream, payload in said:
            side.hear(frame(kind, flags, stream, payload))
    except BrokenHttp2:
        return
    assert all(stream in side.made for stream in side.streams.open)
