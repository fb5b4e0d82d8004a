# SPDX-License-Identifier: Apache-2.0
"""The sending half of an HTTP/2 connection: frames within the windows that the peer has opened.

Data counts against the window of its stream and that of the connection. What does not fit waits with its stream, in
order, its trailers behind it, until the peer opens a window again. `unsent_bytes` is all that waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.protocol.http2 import frames
from aerobee.protocol.http2.frames import (
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    MAX_PAYLOAD,
    MAX_WINDOW,
    USUAL_WINDOW,
    BrokenHttp2,
    Reason,
)

if TYPE_CHECKING:
    from aerobee.protocol.http2.stream import Stream


FORGIVEN = 2  # trifles for a frame of data sent, and for a stream opened: windows that are opened for it


class Sending:
    def __init__(self) -> None:
        self.out: list[bytes] = []  # for the owner to write
        self.open: dict[int, Stream] = {}
        self.first_window = USUAL_WINDOW  # of a new stream
        self.unsent_bytes = 0
        self._window = USUAL_WINDOW  # of all streams
        self._blocked: dict[int, Stream] = {}  # with something unsent
        self._trifles = 0  # frames of the peer that cost only us

    def send_headers(self, stream: Stream, block: bytes) -> None:
        self.out.append(HEAD.pack(len(block) << 8 | HEADERS, END_HEADERS, stream.number) + block)

    def send(self, stream: Stream, data: bytes) -> None:
        """As far as the windows allow; the rest waits in order."""
        size = len(data)
        if size <= MAX_PAYLOAD and size <= stream.window and size <= self._window and not stream.unsent:
            stream.window -= size
            self._window -= size
            self._trifles -= FORGIVEN
            self.out.append(HEAD.pack(size << 8, 0, stream.number) + data)
            return
        stream.unsent.append(memoryview(data))  # cut up without copying it again and again
        self.unsent_bytes += size
        self._blocked[stream.number] = stream
        self._drain(stream)

    def send_all(self, stream: Stream, block: bytes, data: bytes, trailers: bytes) -> bool:
        """The whole answer to a whole request, if the windows allow; else nothing is done."""
        size, number = len(data), stream.number
        if size > MAX_PAYLOAD or size > stream.window or size > self._window or not stream.heard_all:
            return False
        self._window -= size
        self._trifles -= FORGIVEN
        stream.said_all = True
        self.out.append(
            b"".join(
                (
                    HEAD.pack(len(block) << 8 | HEADERS, END_HEADERS, number),
                    block,
                    HEAD.pack(size << 8, 0, number),
                    data,
                    HEAD.pack(len(trailers) << 8 | HEADERS, END_HEADERS | END_STREAM, number),
                    trailers,
                )
            )
        )
        self.open.pop(number, None)
        return True

    def end(self, stream: Stream, block: bytes) -> None:
        """Trailers, after what is unsent; nothing may be sent after them."""
        stream.said_all = True
        if stream.unsent:
            stream.ends_with = block
            return
        self.out.append(HEAD.pack(len(block) << 8 | HEADERS, END_HEADERS | END_STREAM, stream.number) + block)
        if stream.heard_all:
            self.open.pop(stream.number, None)
        else:  # the rest of the request is of no use any more
            self.out.append(frames.reset(stream.number, Reason.NO_ERROR))
            self.open.pop(stream.number, None)

    def _send_unsent(self) -> None:
        for stream in list(self._blocked.values()):
            if self._window <= 0:
                return
            self._drain(stream)

    def _drain(self, stream: Stream) -> None:
        unsent, at = stream.unsent, 0
        while unsent:
            size = min(len(unsent[0]) - at, MAX_PAYLOAD, stream.window, self._window)
            if size <= 0:
                unsent[0] = unsent[0][at:]
                return
            self.out.append(HEAD.pack(size << 8, 0, stream.number) + unsent[0][at : at + size])
            stream.window -= size
            self._window -= size
            self.unsent_bytes -= size
            self._trifles -= FORGIVEN
            at += size
            if at == len(unsent[0]):
                del unsent[0]
                at = 0
        self._blocked.pop(stream.number, None)
        if stream.ends_with is not None:
            self.end(stream, stream.ends_with)
        stream.flowing()

    def _drop_unsent(self, stream: Stream) -> None:
        self.unsent_bytes -= sum(map(len, stream.unsent))
        stream.unsent.clear()
        stream.ends_with = None
        self._blocked.pop(stream.number, None)

    # -- windows -------------------------------------------------------------------------------------------

    def _open_all(self, size: int) -> None:
        self._window += size
        if self._window > MAX_WINDOW:
            raise BrokenHttp2(Reason.FLOW_CONTROL_ERROR, "the connection's window is too large")
        self._send_unsent()

    def _open_window(self, stream: Stream | None, size: int) -> None:
        if stream is None:
            return  # it ended meanwhile
        stream.window += size
        if stream.window > MAX_WINDOW:
            raise BrokenHttp2(Reason.FLOW_CONTROL_ERROR, f"the window of stream {stream.number} is too large")
        if stream.unsent:
            self._drain(stream)

    def _resize_windows(self, size: int) -> None:
        """Of the streams that are open, too; a window may be below zero for a while."""
        more, self.first_window = size - self.first_window, size
        for stream in self.open.values():
            stream.window += more
        if more > 0:
            self._send_unsent()
