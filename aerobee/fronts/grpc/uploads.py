# SPDX-License-Identifier: Apache-2.0
"""How much of gRPC messages that are not whole yet a client has sent: grpc itself keeps them without a bound.

Watches the bytes of one connection, changes none. HTTP/2 frames, as far as they matter here:

    length 3 | type 1 | flags 1 | stream 4 | payload        DATA payloads of a stream, joined, are its messages:
    compressed 1 | length 4 | message                       (repeated)
"""

from __future__ import annotations

import struct

from aerobee.errors import ProtocolError

_FRAME = struct.Struct(">IBI")  # length and type, flags, stream
_NONE = -1
_DATA, _HEADERS, _RST_STREAM = 0, 1, 3
_END_STREAM, _PADDED = 0x1, 0x8
_PREFIX = struct.Struct(">xI")


class _Upload:
    __slots__ = ("got", "padded", "prefix", "wanted")

    def __init__(self) -> None:
        self.prefix = b""
        self.wanted = 0  # bytes of the message still to come
        self.got = 0
        self.padded = False


class Uploads:
    def __init__(self, preface_bytes: int, max_message: int, max_streams: int) -> None:
        self._max_message = max_message
        self._max_streams = max_streams
        self._streams: dict[int, _Upload] = {}  # those with a message under way
        self._refused: set[int] = set()  # streams whose message grpc refuses: nothing of them is kept
        self._head = b""  # the first bytes of a frame's head, until it is whole
        self._left = preface_bytes  # of the payload under way
        self._kind, self._flags, self._stream = _NONE, 0, 0
        self.pending_bytes = 0
        self.completed = 0  # messages so far

    def feed(self, data: bytes) -> None:
        """ProtocolError when more messages are under way than there may be."""
        at, end = 0, len(data)
        while at < end:
            if self._left:
                stop = min(at + self._left, end)
                if self._kind == _DATA and self._stream not in self._refused:
                    self._count(data, at, stop)
                self._left -= stop - at
                at = stop
            else:
                at = self._begin(data, at)
            if not self._left and not self._head:
                self._end()

    def _begin(self, data: bytes, at: int) -> int:
        """The head of a frame; returns where its payload starts."""
        stop = at + _FRAME.size - len(self._head)
        head = self._head + data[at:stop]
        if len(head) < _FRAME.size:
            self._head = head
            return stop
        self._head = b""
        length_and_kind, self._flags, stream = _FRAME.unpack(head)
        self._left, self._kind = length_and_kind >> 8, length_and_kind & 0xFF
        self._stream = stream & 0x7FFFFFFF
        return stop

    def _end(self) -> None:
        """A frame was whole: it may have been the last of its stream."""
        if (self._kind in (_DATA, _HEADERS) and self._flags & _END_STREAM) or self._kind == _RST_STREAM:
            self._refused.discard(self._stream)
            self._forget(self._streams.get(self._stream))
        self._kind = _NONE

    def _count(self, data: bytes, at: int, end: int) -> None:
        upload = self._streams.get(self._stream)
        if upload is None:
            if len(self._streams) >= self._max_streams:
                raise ProtocolError(f"more than {self._max_streams} messages under way on one connection")
            upload = self._streams[self._stream] = _Upload()
        if self._flags & _PADDED or upload.padded:
            # No client pads. Where its messages end is not looked for: all of it counts until the stream ends.
            upload.padded = True
            self._add(upload, end - at)
            return
        while at < end and self._stream in self._streams:
            at = self._go_on(upload, data, at, end)
        if not upload.wanted and not upload.prefix:
            self._forget(upload)

    def _go_on(self, upload: _Upload, data: bytes, at: int, end: int) -> int:
        """A step further, in the message or in the five bytes before it; returns where it led."""
        if upload.wanted:
            stop = min(at + upload.wanted, end)
            upload.wanted -= stop - at
            self._add(upload, stop - at)
        else:
            stop = min(at + _PREFIX.size - len(upload.prefix), end)
            upload.prefix += data[at:stop]
            if len(upload.prefix) < _PREFIX.size:
                return stop
            (upload.wanted,) = _PREFIX.unpack(upload.prefix)
            upload.prefix = b""
            if upload.wanted > self._max_message:
                self._refuse(upload)
        if not upload.wanted:
            self.completed += 1
            self._add(upload, -upload.got)
        return stop

    def _add(self, upload: _Upload, size: int) -> None:
        upload.got += size
        self.pending_bytes += size

    def _refuse(self, upload: _Upload) -> None:
        if len(self._refused) >= self._max_streams:
            self._refused.clear()  # grpc told their senders long ago
        self._refused.add(self._stream)
        self._forget(upload)

    def _forget(self, upload: _Upload | None) -> None:
        if upload is not None:
            self._add(upload, -upload.got)
            self._streams.pop(self._stream, None)
