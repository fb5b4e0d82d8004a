# SPDX-License-Identifier: Apache-2.0
"""One gRPC call on the wire: messages cut out of a stream's data, and answers put into it.

    compressed 1 | length 4 | message       (repeated)

A request that is one message is served when the client has said all; of a stream of messages each one as it comes.
What is not served yet counts with the unfinished frames of all ports, through the connection.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.fronts.grpc import codes
from aerobee.fronts.grpc.codes import Code
from aerobee.protocol.http2.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aerobee.fronts.grpc.connection import GrpcConnection
    from aerobee.protocol.http2.streams import Streams

log = logging.getLogger("aerobee.grpc")

_PREFIX = struct.Struct(">BI")
_UNIT_NS = {"H": 3_600 * 10**9, "M": 60 * 10**9, "S": 10**9, "m": 10**6, "u": 1_000, "n": 1}
_MAX_DIGITS = 8
_ENDLESS_MS = 10**9  # a deadline further away is none


class Method(NamedTuple):
    """`heard` is called with the whole request; or, of a stream of messages, with each one, and then there is also what
    to call before the first. It may name others by `Exchange.hears`."""

    heard: Callable[[Exchange, bytes], None]
    opened: Callable[[Exchange], None] | None = None
    ended: Callable[[Exchange], None] | None = None


class Exchange(Stream):
    __slots__ = (
        "_begun",
        "_drained",
        "_kept",
        "_method",
        "_partial",
        "_request",
        "_task",
        "connection",
        "on_stop",
    )

    def __init__(
        self,
        connection: GrpcConnection,
        streams: Streams,
        number: int,
        fields: dict[str, str],
        method: Method,
    ) -> None:
        super().__init__(streams, number, fields)
        self.connection = connection
        self.on_stop: Callable[[], None] | None = None
        self._method = method
        self._partial: bytearray | None = None  # data that is no whole message yet
        self._request: bytes | None = None
        self._kept = 0  # bytes of both
        self._begun = False  # our headers are out
        self._task: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None

    @property
    def remaining_ms(self) -> int | None:
        """What the caller said, as it came just now."""
        text = self.fields.get("grpc-timeout", "")
        amount, unit = text[:-1], text[-1:]
        if not amount.isdigit() or len(amount) > _MAX_DIGITS or unit not in _UNIT_NS:
            return None
        found = int(amount) * _UNIT_NS[unit] // 1_000_000
        return found if found < _ENDLESS_MS else None

    # -- what the client says ------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        if self.said_all:
            return
        if self._partial is None and len(data) >= _PREFIX.size:
            compressed, size = _PREFIX.unpack_from(data)
            if not compressed and len(data) == size + _PREFIX.size <= self.connection.max_message:
                self._message(data[_PREFIX.size :])
                return
        if self._partial is None:
            self._partial = bytearray()
        self._partial += data
        self._keep(len(data))
        self._cut(self._partial)

    def _cut(self, partial: bytearray) -> None:
        at = 0
        while len(partial) - at >= _PREFIX.size and not self.said_all:
            compressed, size = _PREFIX.unpack_from(partial, at)
            if compressed:
                self.fail(
                    Code.UNIMPLEMENTED, "compressed messages are not served: grpc-accept-encoding is identity"
                )
                return
            if size > self.connection.max_message:
                text = f"a message of {size} bytes, limit {self.connection.max_message}"
                self.fail(Code.RESOURCE_EXHAUSTED, text)
                return
            start = at + _PREFIX.size
            if len(partial) < start + size:
                break
            at = start + size
            self._keep(-size - _PREFIX.size)
            self._message(bytes(partial[start:at]))
        del partial[:at]
        if not partial:
            self._partial = None

    def hears(self, heard: Callable[[Exchange, bytes], None], ended: Callable[[Exchange], None]) -> None:
        """Who is told the messages of this stream, from now on, and its end."""
        self._method = self._method._replace(heard=heard, ended=ended)

    def _message(self, message: bytes) -> None:
        self.connection.completed += 1
        if self._method.opened is not None:
            self._method.heard(self, message)
        elif self._request is None:
            self._request = message
            self._keep(len(message))
        else:
            self.fail(Code.INTERNAL, "more than one message where a call takes one")

    def ended(self) -> None:
        if self._method.opened is not None:
            if self._method.ended is not None:
                self._method.ended(self)
            return
        request, self._request = self._request, None
        if request is None or self._partial is not None:
            self.fail(Code.INTERNAL, "the call ended before its message")
            return
        self._keep(-len(request))
        self._method.heard(self, request)

    def received_last(self, data: bytes) -> None:
        """Most requests are one message in one frame, and are served without being kept."""
        if self._partial is None and self._request is None and self._method.opened is None:
            compressed, size = _PREFIX.unpack_from(data) if len(data) >= _PREFIX.size else (1, 0)
            if not compressed and len(data) == size + _PREFIX.size <= self.connection.max_message:
                self.connection.completed += 1
                self._method.heard(self, data[_PREFIX.size :])
                return
        super().received_last(data)

    def stopped(self) -> None:
        self._forget()
        self._over()

    def _over(self) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            # After its first step, which is due before: Python complains of coroutines that never began.
            asyncio.get_running_loop().call_soon(self._task.cancel)
        then, self.on_stop = self.on_stop, None
        if then is not None:
            then()

    def _keep(self, more: int) -> None:
        self._kept += more
        self.connection.kept_bytes += more

    def _forget(self) -> None:
        self._partial = self._request = None
        self._keep(-self._kept)

    # -- what we answer ------------------------------------------------------------------------------------

    def answer(self, message: bytes) -> None:
        """The whole answer."""
        if self.said_all:
            return
        data = _PREFIX.pack(0, len(message)) + message
        if self._begun or not self.streams.send_all(self, codes.HEADERS, data, codes.TRAILERS):
            self.write(message)
            self.finish()
            return
        if self._kept:
            self._forget()
        self.connection.flush()
        self._over()

    def write(self, message: bytes) -> None:
        """One of its messages; see `room`."""
        if self.said_all:
            return
        if not self._begun:
            self._begun = True
            self.streams.send_headers(self, codes.HEADERS)
        self.streams.send(self, _PREFIX.pack(0, len(message)) + message)
        self.connection.flush()

    def finish(self) -> None:
        self._end(codes.TRAILERS if self._begun else codes.ONLY_TRAILERS)

    def fail(self, code: Code, text: str) -> None:
        self._end(codes.trailers(code, text) if self._begun else codes.only_trailers(code, text))

    def turn_away(self, block: bytes) -> None:
        """It is no gRPC call."""
        self._end(block)

    def _end(self, block: bytes) -> None:
        if self.said_all:
            return
        self._forget()
        self.streams.end(self, block)
        self.connection.flush()
        self._over()

    # -- calls that wait -----------------------------------------------------------------------------------

    def hold(self, work: Coroutine[Any, Any, None]) -> None:
        """Let it answer later: until the caller's deadline, or until the caller leaves."""
        self._task = self.connection.task(self._within_deadline(work))

    async def _within_deadline(self, work: Coroutine[Any, Any, None]) -> None:
        remaining = self.remaining_ms
        try:
            async with asyncio.timeout(None if remaining is None else remaining / 1000):
                await work
        except TimeoutError:
            self.fail(Code.DEADLINE_EXCEEDED, f"not answered within {remaining} ms")
        except Exception:
            log.exception("a gRPC call failed peer=%s", self.connection.remote_text)
            self.fail(Code.INTERNAL, "the broker failed; its log says why")

    @property
    def has_room(self) -> bool:
        return not self.unsent and self.connection.has_room

    async def room(self) -> None:
        """Until the client has taken what was written: who answers in many messages waits for each."""
        while self.unsent and not self.said_all:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained
        await self.connection.room()

    def flowing(self) -> None:
        waiting, self._drained = self._drained, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
