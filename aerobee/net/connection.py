# SPDX-License-Identifier: Apache-2.0
"""One socket, both directions: requests in, answers out, and our own requests matched by opaque.

The same class serves a broker's accepted connections and a client's dialled ones; the protocol is symmetric.
Frames that arrive together are handled in one turn and their answers leave in one write. A handler that can
answer at once returns the reply; one that must wait returns a coroutine, which becomes a task of this
connection and is cancelled with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import msgspec

from aerobee.errors import NetworkError, ProtocolError, RequestTimeout
from aerobee.protocol import command as wire
from aerobee.protocol.codes import VERSION
from aerobee.protocol.command import Command, Header, header_fields
from aerobee.protocol.frames import DEFAULT_MAX_FRAME, FrameDecoder

log = logging.getLogger("aerobee.net")


class Reply(msgspec.Struct, gc=False):
    """A handler's answer; the connection adds opaque, flags and the peer's serialize type."""

    code: int = 0
    header: Header | None = None
    body: bytes = b""
    remark: str | None = None
    ext: dict[str, str] | None = None  # fields beyond the header's


# A whole frame (bytes), a Reply, nothing (never answer), or a coroutine that gives one of these later.
Answer = bytes | Reply | None
Handler = Callable[["Connection", Command], Answer | Coroutine[Any, Any, Answer]]


class Observer(Protocol):
    """Told of connections coming and going."""

    def opened(self, connection: Connection) -> None: ...
    def closed(self, connection: Connection) -> None: ...


class Limits(msgspec.Struct, frozen=True):
    max_frame: int = DEFAULT_MAX_FRAME
    max_write_buffer: int = 32 * 1024 * 1024  # a reader slower than this is cut off
    max_tasks: int = 65_536  # held requests of one connection


def reply_frame(request: Command, reply: Reply) -> bytes:
    """The response frame to `request`, in the serialize type the peer used."""
    ext = header_fields(reply.header)
    if reply.ext:
        ext.update(reply.ext)
    return wire.encode(
        Command(
            reply.code,
            request.opaque,
            wire.RESPONSE,
            VERSION,
            "PYTHON",
            reply.remark,
            ext,
            reply.body,
            request.serialize,
        )
    )


class Connection(asyncio.Protocol):
    def __init__(self, handler: Handler, observer: Observer | None = None, limits: Limits | None = None) -> None:
        self._handler = handler
        self._observer = observer
        self._limits = limits or Limits()
        self._frames = FrameDecoder(self._limits.max_frame)
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, asyncio.Future[Command]] = {}
        self._opaque = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._out: list[bytes] | None = None
        self.remote: tuple[str, int] = ("", 0)
        self.remote_text = ""
        self.last_read_turns = 0
        self.attributes: dict[str, Any] = {}  # what a front remembers of its peer (client id, language...)

    # -- asyncio's side --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername") or ("", 0)
        self.remote = (peer[0], peer[1])
        self.remote_text = f"{peer[0]}:{peer[1]}"
        self._transport.set_write_buffer_limits(high=self._limits.max_write_buffer)  # type: ignore[union-attr]
        if self._observer:
            self._observer.opened(self)

    def data_received(self, data: bytes) -> None:
        self.last_read_turns += 1
        self._out = out = []
        try:
            for frame in self._frames.feed(data):
                command = wire.decode(frame)
                if command.flag & wire.RESPONSE:
                    self._answered(command)
                else:
                    self._asked(command)
        except ProtocolError as error:
            log.warning("closing peer=%s: %s", self.remote_text, error)
            self.close()
        finally:
            self._out = None
        if out and self._transport is not None:
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for task in list(self._tasks):
            task.cancel()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.done():
                call.set_exception(NetworkError(f"connection to {self.remote_text} was lost"))
                call.exception()  # may be nobody's any more: no "never retrieved" warning
        if self._observer:
            self._observer.closed(self)

    def pause_writing(self) -> None:
        # The peer reads slower than we answer and max_write_buffer bytes wait already.
        log.warning("closing peer=%s: %d unread bytes", self.remote_text, self._limits.max_write_buffer)
        if self._transport is not None:
            self._transport.abort()

    def resume_writing(self) -> None:
        """Nothing was paused: `pause_writing` closes."""

    # -- requests from the peer --------------------------------------------------------------------------

    def _asked(self, command: Command) -> None:
        answer = self._handler(self, command)
        if answer is None:
            return
        if isinstance(answer, (bytes, Reply)):
            if not command.flag & wire.ONE_WAY:
                self.write(answer if type(answer) is bytes else reply_frame(command, answer))  # type: ignore[arg-type]
            return
        if len(self._tasks) >= self._limits.max_tasks:
            answer.close()
            raise ProtocolError(f"{len(self._tasks)} requests held on one connection")
        task = asyncio.get_running_loop().create_task(self._answer_later(command, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_later(self, command: Command, answer: Awaitable[Answer]) -> None:
        result = await answer
        if result is not None and not command.flag & wire.ONE_WAY:
            self.write(result if type(result) is bytes else reply_frame(command, result))  # type: ignore[arg-type]

    def write(self, frame: bytes) -> None:
        """Send a frame; within `data_received` frames are collected into one write."""
        if self._out is not None:
            self._out.append(frame)
        elif self._transport is not None:
            self._transport.write(frame)

    # -- our requests --------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, command: Command) -> None:
        """One-way: no answer is awaited."""
        command.opaque = self._next_opaque()
        command.flag |= wire.ONE_WAY
        self.write(wire.encode(command))

    def start_call(self, command: Command) -> asyncio.Future[Command]:
        """Send a request and return the future of its response; the caller bounds the wait."""
        if not self.is_open:
            raise NetworkError(f"connection to {self.remote_text} is closed")
        command.opaque = opaque = self._next_opaque()
        call: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._calls[opaque] = call
        self.write(wire.encode(command))
        return call

    async def call(self, command: Command, timeout_ms: int = 3000) -> Command:
        """Send a request and wait for its response, whatever its code."""
        call = self.start_call(command)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await call
        except TimeoutError:
            raise RequestTimeout(
                f"no answer from {self.remote_text} to request {command.code} within {timeout_ms} ms"
            ) from None
        finally:
            self._calls.pop(command.opaque, None)

    def _answered(self, command: Command) -> None:
        call = self._calls.pop(command.opaque, None)
        if call is None or call.done():
            log.debug("late answer peer=%s opaque=%d", self.remote_text, command.opaque)
        else:
            call.set_result(command)

    def _next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
