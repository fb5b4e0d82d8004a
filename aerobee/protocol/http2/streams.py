# SPDX-License-Identifier: Apache-2.0
"""The server's side of an HTTP/2 connection: fed bytes, it tells its streams, and collects what is to be written.

    idle --HEADERS--> open --END_STREAM of the peer--> half closed --our END_STREAM--> gone
                        \\-------- RST_STREAM of either side ---------------------------^

A stream is known until both sides have said all. What the peer may make us keep is bounded: streams open at once, a
header block, what a stream's window lets through (it is opened again as data is taken, so whoever keeps data bounds it),
and frames that cost us work and it next to nothing (resets, pings, settings) by the second, beside
those that honest requests come with. What the peer does not take
waits in `unsent` of its stream and counts in `unsent_bytes`: who adds to it looks at it first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from aerobee.errors import ProtocolError
from aerobee.protocol.http2 import frames
from aerobee.protocol.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEAD,
    HEAD_BYTES,
    HEADERS,
    INITIAL_WINDOW,
    MAX_HEADERS,
    MAX_PAYLOAD,
    MAX_STREAMS,
    MAX_WINDOW,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    USUAL_WINDOW,
    WINDOW_UPDATE,
    WITH_PRIORITY,
    BrokenHttp2,
    Reason,
    frame,
)
from aerobee.protocol.http2.hpack import HeaderBlocks
from aerobee.protocol.http2.sending import FORGIVEN, Sending

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.protocol.http2.stream import Stream

_PRIORITY_BYTES = 5
RESET_COUNTS = 5  # trifles: a call that is begun and not wanted is more work than a ping


class StreamLimits(NamedTuple):
    max_streams: int = 4_000
    max_headers: int = 16 * 1024  # bytes of a request's
    window_bytes: int = 1 << 20  # of each stream
    connection_window_bytes: int = 1 << 24
    max_trifles: int = 10_000  # frames between two calls of `forgive` that cost only us


class ReadsHeaders(Protocol):
    def read(self, block: bytes) -> dict[str, str]: ...


class Streams(Sending):
    """`headers` makes what reads the peer's header blocks, told how many bytes one may have."""

    def __init__(
        self,
        limits: StreamLimits,
        open_stream: Callable[[Streams, int, dict[str, str]], Stream],
        headers: Callable[[int], ReadsHeaders] = HeaderBlocks,
    ) -> None:
        self.limits = limits
        self._open = open_stream
        super().__init__()
        self.heard = False  # the peer's settings, without which it is none
        self.answered_pings = 0
        self._allowed = limits.connection_window_bytes  # to receive, of all
        self._rest = b""
        self._greeted = False
        self._headers = headers(limits.max_headers)
        self._block: tuple[int, int, bytearray] | None = None  # stream, flags and block that goes on
        self._newest = 0
        self._last: int | None = None  # the newest stream that is still served, once we are leaving
        self._others: dict[int, Callable[[int, int, bytes], None]] = {
            PRIORITY: self._trifle,
            RST_STREAM: self._reset,
            SETTINGS: self._settings,
            PING: self._ping,
            GOAWAY: self._trifle,
            WINDOW_UPDATE: self._window_update,
            CONTINUATION: self._continuation,
        }

    # -- what comes in -----------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """BrokenHttp2 when the connection has to end."""
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        if not self._greeted:
            said = data[: len(PREFACE)]
            if not PREFACE.startswith(said):
                raise BrokenHttp2(Reason.PROTOCOL_ERROR, f"does not speak HTTP/2, it began with {said!r}")
            if len(said) < len(PREFACE):
                self._rest = data
                return
            self._greeted, at = True, len(PREFACE)
            self._greet()
        while end - at >= HEAD_BYTES:
            length_and_kind, flags, number = HEAD.unpack_from(data, at)
            length = length_and_kind >> 8
            if length > MAX_PAYLOAD:
                raise BrokenHttp2(Reason.FRAME_SIZE_ERROR, f"a frame of {length} bytes, limit {MAX_PAYLOAD}")
            start = at + HEAD_BYTES
            if start + length > end:
                break
            at = start + length
            self._frame(length_and_kind & 0xFF, flags, number & MAX_WINDOW, data[start:at])
        self._rest = data[at:]

    def _greet(self) -> None:
        limits = self.limits
        self.out.append(
            frames.settings(
                {
                    MAX_STREAMS: limits.max_streams,
                    INITIAL_WINDOW: limits.window_bytes,
                    MAX_HEADERS: limits.max_headers,
                }
            )
            + frames.window_update(0, limits.connection_window_bytes - USUAL_WINDOW)
        )

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None and kind != CONTINUATION:
            raise BrokenHttp2(Reason.PROTOCOL_ERROR, "a header block was interrupted")
        if kind == DATA:
            self._data(flags, number, payload)
        elif kind == HEADERS:
            self._header_block(flags, number, payload)
        elif kind in self._others:
            self._others[kind](flags, number, payload)
        elif kind == frames.PUSH_PROMISE:
            raise BrokenHttp2(Reason.PROTOCOL_ERROR, "a client promised to push")
        else:
            self._trifle(flags, number, payload)

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._take(size)
        stream = self.open.get(number)
        if stream is None or stream.heard_all:
            if number > self._newest or not number & 1:
                raise BrokenHttp2(Reason.PROTOCOL_ERROR, f"data of stream {number}, which was never opened")
            self._trifle(flags, number, payload)  # on its way when we ended the stream
            return
        stream.allowed -= size
        if stream.allowed < 0:
            raise BrokenHttp2(Reason.FLOW_CONTROL_ERROR, f"more data than the window of stream {number}")
        if flags & PADDED:
            payload = frames.unpadded(payload)
        if flags & END_STREAM:
            if payload and stream.said_all:
                stream.received(payload)
            self._heard_all(stream, payload)
            return
        if payload:
            stream.received(payload)
        else:
            self._trifle(flags, number, payload)
        if stream.allowed < self.limits.window_bytes // 2 and number in self.open:
            self.out.append(frames.window_update(number, self.limits.window_bytes - stream.allowed))
            stream.allowed = self.limits.window_bytes

    def _take(self, size: int) -> None:
        """Against the window of the connection, which is opened again at once: streams have theirs."""
        self._allowed -= size
        if self._allowed < 0:
            raise BrokenHttp2(Reason.FLOW_CONTROL_ERROR, "more data than the connection's window")
        if self._allowed < self.limits.connection_window_bytes // 2:
            self.out.append(frames.window_update(0, self.limits.connection_window_bytes - self._allowed))
            self._allowed = self.limits.connection_window_bytes

    def _heard_all(self, stream: Stream, last: bytes = b"") -> None:
        stream.heard_all = True
        if not stream.said_all:
            stream.received_last(last)

    def _header_block(self, flags: int, number: int, payload: bytes) -> None:
        if flags & PADDED:
            payload = frames.unpadded(payload)
        if flags & WITH_PRIORITY:
            payload = payload[_PRIORITY_BYTES:]
        if flags & END_HEADERS:
            self._headers_whole(flags, number, payload)
        else:
            self._block = number, flags, bytearray(payload)

    def _continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise BrokenHttp2(Reason.PROTOCOL_ERROR, "a header block goes on that was never begun")
        self._trifle(flags, number, payload)
        _, first_flags, block = self._block
        block += payload
        if len(block) > self.limits.max_headers:
            raise BrokenHttp2(
                Reason.ENHANCE_YOUR_CALM, f"headers of more than {self.limits.max_headers} bytes"
            )
        if flags & END_HEADERS:
            self._block = None
            self._headers_whole(first_flags, number, bytes(block))

    def _headers_whole(self, flags: int, number: int, block: bytes) -> None:
        if not self.heard:
            raise BrokenHttp2(Reason.PROTOCOL_ERROR, "a request before the settings")
        try:
            fields = self._headers.read(block)
        except ProtocolError as error:
            raise BrokenHttp2(Reason.COMPRESSION_ERROR, str(error)) from None
        if number <= self._newest:
            self._trailers(flags, number)
            return
        if not number & 1:
            raise BrokenHttp2(Reason.PROTOCOL_ERROR, f"a client opened stream {number}: its numbers are odd")
        self._newest = number
        if self._last is not None or len(self.open) >= self.limits.max_streams:
            self._trifle(flags, number, block)
            self.out.append(frames.reset(number, Reason.REFUSED_STREAM))
            return
        self._trifles -= FORGIVEN
        stream = self._open(self, number, fields)
        if not stream.said_all or stream.ends_with is not None:  # else it was answered by its headers
            self.open[number] = stream
        if flags & END_STREAM:
            self._heard_all(stream)

    def _trailers(self, flags: int, number: int) -> None:
        stream = self.open.get(number)
        if stream is None or stream.heard_all:
            self._trifle(flags, number, b"")
        elif flags & END_STREAM:
            self._heard_all(stream)
        else:
            raise BrokenHttp2(Reason.PROTOCOL_ERROR, f"headers in the middle of stream {number}")

    # -- frames beside the requests ------------------------------------------------------------------------

    def _trifle(self, flags: int, number: int, payload: bytes) -> None:
        self._trifles += 1
        if self._trifles > self.limits.max_trifles:
            raise BrokenHttp2(
                Reason.ENHANCE_YOUR_CALM,
                f"more than {self.limits.max_trifles} frames a second that ask for nothing",
            )

    def forgive(self) -> None:
        """Called every second."""
        self._trifles = 0

    def _reset(self, flags: int, number: int, payload: bytes) -> None:
        self._trifles += RESET_COUNTS - 1
        self._trifle(flags, number, payload)
        frames.number_in(payload)
        if number > self._newest or not number & 1:
            raise BrokenHttp2(Reason.PROTOCOL_ERROR, f"reset of stream {number}, which was never opened")
        stream = self.open.pop(number, None)
        if stream is not None:
            self._drop_unsent(stream)
            stream.said_all = True
            stream.stopped()

    def _settings(self, flags: int, number: int, payload: bytes) -> None:
        self._trifle(flags, number, payload)
        if number:
            raise BrokenHttp2(Reason.PROTOCOL_ERROR, "settings of a stream")
        if flags & ACK:
            return
        for setting, value in frames.settings_in(payload):
            if setting == INITIAL_WINDOW:
                if value > MAX_WINDOW:
                    raise BrokenHttp2(Reason.FLOW_CONTROL_ERROR, f"a window of {value} bytes")
                self._resize_windows(value)
        self.heard = True
        self.out.append(frame(SETTINGS, ACK, 0))

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        self._trifle(flags, number, payload)
        if number or len(payload) != 8:
            raise BrokenHttp2(Reason.FRAME_SIZE_ERROR, f"a ping of {len(payload)} bytes on stream {number}")
        if flags & ACK:
            self.answered_pings += 1
        else:
            self.out.append(frame(PING, ACK, 0, payload))

    def _window_update(self, flags: int, number: int, payload: bytes) -> None:
        self._trifle(flags, number, payload)
        size = frames.number_in(payload)
        if not size:
            raise BrokenHttp2(Reason.PROTOCOL_ERROR, "a window that opens by nothing")
        if number:
            self._open_window(self.open.get(number), size)
        else:
            self._open_all(size)

    # -- the connection as a whole ---------------------------------------------------------------------------

    def ping(self) -> None:
        self.out.append(frame(PING, 0, 0, bytes(8)))

    def leave(self, reason: Reason = Reason.NO_ERROR, text: str = "") -> None:
        """Say goodbye: streams that are open are served to their end, new ones refused."""
        if self._last is None:
            self._last = self._newest
            self.out.append(frames.goodbye(self._last, reason, text))

    def gone(self) -> None:
        """The connection is lost."""
        for stream in list(self.open.values()):
            self._drop_unsent(stream)
            stream.said_all = True
            stream.stopped()
        self.open.clear()
