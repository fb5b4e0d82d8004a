# SPDX-License-Identifier: Apache-2.0
"""What leaves by a socket: frames of one turn in one write, as much as a slow peer may leave unread, and the end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.net.reply import Large
    from aerobee.net.served import Limits

log = logging.getLogger("aerobee.net")


class WriteSide(asyncio.Protocol):
    """The half of a connection that reads nothing."""

    __slots__ = ("_closing", "_limits", "_out", "_out_bytes", "_paused", "_transport", "remote_text")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._closing = False
        self._out: list[bytes] | None = None  # a list while a read is served, to be sent as one
        self._out_bytes = 0
        self._paused = False  # the peer has too much to read already
        self.remote_text = ""

    @property
    def is_open(self) -> bool:
        return not self._closing and self._transport is not None and not self._transport.is_closing()

    def write(self, frame: bytes) -> None:
        """Send a frame; within `data_received` frames are collected into one write."""
        if self._out is None:
            self._write_now(frame)
            return
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes >= self._limits.pause_bytes:  # let the transport say whether the peer keeps up
            self._flush()
            self._out = []

    def _write_large(self, answer: Large) -> None:
        collecting = self._out is not None
        self._flush()
        if collecting:
            self._out = []
        transport = self._transport
        if transport is not None and not self._closing:
            transport.writelines(answer.parts())
            self._cut_off_if_slow(transport)

    def _flush(self) -> None:
        out, self._out, self._out_bytes = self._out, None, 0
        if out:
            self._write_now(out[0] if len(out) == 1 else b"".join(out))

    def _write_now(self, data: bytes) -> None:
        transport = self._transport
        if transport is None or self._closing:
            return
        transport.write(data)
        self._cut_off_if_slow(transport)

    def _cut_off_if_slow(self, transport: asyncio.Transport) -> None:
        if self._paused and transport.get_write_buffer_size() > self._limits.max_write_buffer:
            unread = transport.get_write_buffer_size()
            log.warning("cutting off peer=%s: unread_bytes=%d, it reads too slowly", self.remote_text, unread)
            self.abort()

    def close(self) -> None:
        """Close once what is written has left."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now; unsent bytes are lost."""
        self._closing = True
        if self._transport is not None:
            # Python 3.11.2: asyncio's TLS transport has let go of its inner part once the peer is gone.
            with suppress(AttributeError):
                self._transport.abort()
