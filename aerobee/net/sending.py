# SPDX-License-Identifier: Apache-2.0
"""What we send by a socket: frames of one turn in one write, as much as a slow peer may leave unread; and our own
requests, each with a number by which its answer finds who waits for it."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from aerobee.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.net.reply import Large
    from aerobee.net.served import Limits
    from aerobee.protocol.command import Command

log = logging.getLogger("aerobee.net")

T = TypeVar("T")

# So many bytes of answers leave before the rest of a read is served: the peer works on them meanwhile, and the transport
# says whether it keeps up.
EARLY_BYTES = 16 * 1024
_FORGET_AT = 1024
_LAST_NUMBER = 0x7FFFFFFF  # Java's opaque is an int; after it they begin anew


class WriteSide(asyncio.Protocol):
    """The half of a connection that reads nothing."""

    __slots__ = (
        "_calls", "_closing", "_fd", "_out", "_out_bytes", "_paused", "_transport", "early_bytes", "limits",
        "remote_text",
    )  # fmt: skip

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.early_bytes = min(EARLY_BYTES, limits.pause_bytes)
        self._transport: asyncio.Transport | None = None
        self._fd = -1  # see `fd_of`
        self._closing = False
        self._out: list[bytes] | None = None  # a list while a read is served, to be sent as one
        self._out_bytes = 0
        self._calls = Calls()
        self._paused = False  # the peer has too much to read already
        self.remote_text = ""

    @property
    def is_open(self) -> bool:
        return not self._closing and self._transport is not None and not self._transport.is_closing()

    def write(self, frame: bytes) -> None:
        """Send a frame; within `data_received` frames are collected, so that few writes have them all."""
        if self._out is None:
            self._write_now(frame)
            return
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes >= self.early_bytes:
            self._flush()
            self._out = []

    def write_at_once(self, frame: bytes) -> None:
        """As `write`, but the peer has it when this returns, wherever that can be: for one who has more to do in this
        turn, and whose peer could work meanwhile. A system call of its own, so not for many frames of a turn."""
        transport = self._transport
        if (
            self._fd < 0
            or self._out
            or self._closing
            or transport is None
            or transport.is_closing()  # then the number may be another file's already
            or transport.get_write_buffer_size()
        ):
            self.write(frame)
            return
        try:
            sent = os.write(self._fd, frame)
        except OSError:  # a full buffer, or a broken connection: the transport will find out
            sent = 0
        if sent < len(frame):
            self.write(frame[sent:])

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
        if self._paused:
            self._cut_off_if_slow(transport)

    def _cut_off_if_slow(self, transport: asyncio.Transport) -> None:
        if self._paused and transport.get_write_buffer_size() > self.limits.max_write_buffer:
            unread = transport.get_write_buffer_size()
            log.warning("cutting off peer=%s: unread_bytes=%d, it reads too slowly", self.remote_text, unread)
            self.abort()

    # -- our requests ------------------------------------------------------------------------------------

    def rendered(self, render: Callable[[int], bytes], waiting: Waiting) -> bytes:
        """A request's frame, for a caller that writes it in this turn and brings who waits for the answer."""
        if not self.is_open:
            raise ConnectionLost(f"connection to {self.remote_text} is closed")
        opaque = self._calls.number()
        frame = render(opaque)
        self._calls.waiting[opaque] = waiting
        return frame

    def ask_at_once(
        self, render: Callable[[int, int, T], bytes], queue_id: int, what: T, waiting: Waiting
    ) -> None:
        """The same for one that is written at once, on a connection that is open."""
        calls = self._calls
        opaque = calls.number()
        frame = render(opaque, queue_id, what)
        calls.waiting[opaque] = waiting
        self.write_at_once(frame)
        self.tell_if_lost()

    def tell_if_lost(self) -> bool:
        """Whoever waits hears of a write that failed now, before those who come after him in this turn. False when
        nobody does, or nothing is lost."""
        calls, transport = self._calls, self._transport
        if not calls.waiting or transport is None or not transport.is_closing():
            return False
        calls.lost(self.remote_text)
        return True

    @property
    def awaits_nothing(self) -> bool:
        """No request of ours is unanswered."""
        return not self._calls.waiting

    # -- the end -----------------------------------------------------------------------------------------

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


def fd_of(transport: asyncio.Transport) -> int:
    """The number of a plain socket whose transport writes at the end of a turn only, which is uvloop's way; else -1."""
    kind = type(transport)
    if kind.__module__ != "uvloop.loop" or kind.__name__ != "TCPTransport":
        return -1
    fd: int = transport.get_extra_info("socket").fileno()
    return fd


class Waiting(Protocol):
    """Who waits for an answer: a future, or something that stands for several of them."""

    def done(self) -> bool: ...
    def set_result(self, answer: Command, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...
    def exception(self) -> BaseException | None: ...


class Calls:
    """Our requests that are not answered yet."""

    __slots__ = ("_forget_at", "_number", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, Waiting] = {}  # by the number of the request
        self._number = 0
        self._forget_at = _FORGET_AT

    def number(self) -> int:
        """Of the next request."""
        if len(self.waiting) >= self._forget_at:
            self._forget_abandoned()
        self._number = number = (self._number + 1) & _LAST_NUMBER
        return number

    def answered(self, answer: Command, peer: str) -> None:
        call = self.waiting.pop(answer.opaque, None)
        if call is None or call.done():
            log.debug("late answer peer=%s opaque=%d", peer, answer.opaque)
        else:
            call.set_result(answer)

    def lost(self, peer: str) -> None:
        """No answer will come any more."""
        calls, self.waiting = self.waiting, {}
        for call in calls.values():
            if not call.done():
                call.set_exception(ConnectionLost(f"connection to {peer} was lost"))
                call.exception()  # may be nobody's any more: no "never retrieved" warning

    def _forget_abandoned(self) -> None:
        """Calls whose caller gave up and whose answer never came; amortised by the doubling bound."""
        self.waiting = {number: call for number, call in self.waiting.items() if not call.done()}
        self._forget_at = max(_FORGET_AT, 2 * len(self.waiting))
