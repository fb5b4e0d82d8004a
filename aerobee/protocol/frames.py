# SPDX-License-Identifier: Apache-2.0
"""Cutting a byte stream into frames: fed bytes, returns what is complete, buffers at most one frame."""

from __future__ import annotations

import struct

from aerobee.errors import ProtocolError

_LENGTH = struct.Struct(">I")
DEFAULT_MAX_FRAME = 16 * 1024 * 1024


class FrameDecoder:
    """`feed` returns the frames completed by `data`, each without its 4-byte length."""

    __slots__ = ("_max_frame", "pending")

    def __init__(self, max_frame: int = DEFAULT_MAX_FRAME) -> None:
        self.pending = bytearray()  # what has come of a frame that is not whole
        self._max_frame = max_frame

    @property
    def pending_bytes(self) -> int:
        return len(self.pending)

    def feed(self, data: bytes) -> list[bytes]:
        if not self.pending and len(data) >= 4:
            (size,) = _LENGTH.unpack_from(data)
            if size + 4 == len(data) <= self._max_frame:  # the usual read: one frame, whole
                return [data[4:]]
        if self.pending:
            self.pending += data
            if self._end_of_frame(self.pending, 0) > len(self.pending):
                return []
            frames, at = self._cut(bytes(self.pending))
            del self.pending[:at]
        else:
            frames, at = self._cut(data)
            if at < len(data):
                self.pending += data[at:] if at else data
        return frames

    # For a reader that takes some frames as they come, before they are cut: `join`, then `cut` until the end.

    def join(self, data: bytes) -> bytes:
        """What was kept and `data` behind it, which the decoder forgets; empty while its first frame is not whole."""
        if not self.pending:
            return data
        self.pending += data
        if self._end_of_frame(self.pending, 0) > len(self.pending):
            return b""
        joined = bytes(self.pending)
        self.pending.clear()
        return joined

    def cut(self, joined: bytes, at: int) -> tuple[bytes | None, int]:
        """The frame at `at` and where it ends; or none, and what is left is kept."""
        end = self._end_of_frame(joined, at)
        if end <= len(joined):
            return joined[at + 4 : end], end
        self.pending += joined[at:]
        return None, len(joined)

    def _end_of_frame(self, data: bytes | bytearray, at: int) -> int:
        """Past the end of `data` when it is not whole."""
        if len(data) - at < 4:
            return len(data) + 1
        (size,) = _LENGTH.unpack_from(data, at)
        if size + 4 > self._max_frame:
            raise ProtocolError(f"frame of {size + 4} bytes, limit {self._max_frame}")
        return at + 4 + int(size)

    def _cut(self, data: bytes) -> tuple[list[bytes], int]:
        """The whole frames at the start of `data`, and where they end."""
        frames = []
        at, end = 0, len(data)
        while end - at >= 4:
            (size,) = _LENGTH.unpack_from(data, at)
            if size + 4 > self._max_frame:  # refuse before buffering, not after
                raise ProtocolError(f"frame of {size + 4} bytes, limit {self._max_frame}")
            stop = at + 4 + size
            if stop > end:
                break
            frames.append(data[at + 4 : stop])
            at = stop
        return frames, at
