# SPDX-License-Identifier: Apache-2.0
"""One socket, both directions: requests in, answers out, and our own requests matched by opaque.

The same class serves a broker's accepted connections and a client's dialled ones; the protocol is symmetric.
Frames that arrive together are handled in one turn and their answers leave in one write. A handler that can
answer at once returns the reply; one that must wait returns a coroutine, which becomes a task of this
connection and is cancelled with it.

A peer that reads slower than we answer is served no further request until it has read (they wait in a small
backlog, then in its own socket buffer); what is already under way may still be written, up to
`max_write_buffer` unread bytes, and past that the peer is cut off.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aerobee.errors import ConnectionLost, ProtocolError, RequestTimeout
from aerobee.net.reply import Large, Reply, refusal, reply_frame
from aerobee.net.sending import Waiting, WriteSide, fd_of
from aerobee.net.served import Answer, Handler, Limits, Observer, Run
from aerobee.protocol import command as wire
from aerobee.protocol.addresses import format_address
from aerobee.protocol.frames import FrameDecoder
from aerobee.protocol.message import pack_host

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aerobee.net.unfinished import Unfinished
    from aerobee.protocol.command import Command

__all__ = [
    "Answer",
    "Connection",
    "Handler",
    "Large",
    "Limits",
    "Observer",
    "Reply",
    "Run",
    "Waiting",
    "refusal",
    "reply_frame",
]

log = logging.getLogger("aerobee.net")

T = TypeVar("T")

# A read smaller than this that completes no frame is no sign of life: a peer that drips bytes is idle.
_PROGRESS_BYTES = 4096


class Connection(WriteSide):
    __slots__ = (
        "__weakref__",
        "_backlog",
        "_backlog_bytes",
        "_drained",
        "_frames",
        "_handler",
        "_held_back",
        "_held_bytes",
        "_observer",
        "_run",
        "_tasks",
        "_turn",
        "_unfinished",
        "ahead",
        "answered_ns",
        "attributes",
        "last_read_turns",
        "remote",
        "remote_packed",
    )

    def __init__(
        self,
        handler: Handler,
        observer: Observer | None = None,
        limits: Limits | None = None,
        unfinished: Unfinished | None = None,
        run: Run | None = None,
    ) -> None:
        super().__init__(limits or Limits())
        self._handler = handler
        self._run = run
        self._observer = observer
        self._unfinished = unfinished
        self._held_bytes = 0  # of a frame under way
        self._frames = FrameDecoder(self.limits.max_frame)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turn: list[bytes] | None = None  # frames of `start_frame` in this turn of the loop
        self._backlog: list[Command] = []
        self._backlog_bytes = 0
        self._held_back = False  # the socket is not read, for the backlog is full
        self._drained: asyncio.Future[None] | None = None
        self.remote: tuple[str, int] = ("", 0)
        self.remote_packed = b""  # as records have it
        self.answered_ns = 0  # by the stopwatch of who serves requests: the last of this read; none of it yet
        self.last_read_turns = 0  # grows with every sign of life; idle peers are found by looking at it
        # Takes a read that is one answer, for somebody among those who wait, ahead of us; or leaves it.
        self.ahead: Callable[[bytes, dict[int, Waiting]], bool] | None = None
        self.attributes: dict[str, Any] = {}  # what a front remembers of its peer (client id, language...)

    # -- asyncio's side --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        self._fd = fd_of(transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.remote = (peer[0], peer[1])
        self.remote_text = format_address(peer[0], peer[1])
        self.remote_packed = pack_host(peer[0], peer[1])
        transport.set_write_buffer_limits(high=self.limits.pause_bytes)
        if self._observer:
            self._observer.opened(self)

    def data_received(self, data: bytes) -> None:
        if self.ahead is not None and not self._frames.pending and self.ahead(data, self._calls.waiting):
            self.last_read_turns += 1
            return
        self._out = []
        self.answered_ns = 0
        try:
            if self._run is None:
                frames = self._frames.feed(data)
                self._progress(len(data), len(frames))
                self._serve(frames)
            else:
                self._serve_runs(self._run, data)
        except ProtocolError as error:
            self._broken(error)
        else:
            if self._out:
                self._flush()
            self._out = None

    def _serve(self, frames: list[bytes]) -> None:
        for frame in frames:
            command = wire.decode(frame, self.limits.max_header)
            if command.flag & wire.RESPONSE:
                self._calls.answered(command, self.remote_text)
            elif self._paused or self._backlog:
                self._postpone(command)
            else:
                self._asked(command)

    def _serve_runs(self, run: Run, data: bytes) -> None:
        """The same with somebody ahead of the handler: he takes the frames that he likes, in runs."""
        joined, at = self._frames.join(data) if self._frames.pending else data, 0
        while at < len(joined):
            if not (self._paused or self._backlog):  # as `is_reading` says, without the call
                end, answers = run(joined, at, self)
                if end > at:
                    if type(answers) is not bytes:
                        self.owe(answers)  # type: ignore[arg-type]
                    elif answers:
                        self.write(answers)
                    at, self.answered_ns = end, 0
                    continue  # what follows may be of another kind that he takes
            frame, at = self._frames.cut(joined, at)
            if frame is not None:
                self._serve([frame])
        # Of a frame that is not whole yet nothing was joined.
        self._progress(len(data), max(0, len(joined) - len(self._frames.pending)))

    def _progress(self, read_bytes: int, completed: int) -> None:
        """`completed` frames, or bytes of them."""
        if completed or read_bytes >= _PROGRESS_BYTES:
            self.last_read_turns += 1
        if self._frames.pending or self._held_bytes:
            self._account(completed)

    def _account(self, completed: int) -> None:
        """What is left of the read is a frame under way: a new one when others were completed before it."""
        self._held_bytes = self._frames.pending_bytes
        if self._unfinished is None:
            return
        if completed:
            self._unfinished.release(self)
        if self._held_bytes:
            self._unfinished.hold(self, self._held_bytes)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closing = True
        for task in list(self._tasks):
            task.cancel()
        self._backlog.clear()
        if self._unfinished is not None:
            self._unfinished.release(self)
        self._wake_callers()
        self._calls.lost(self.remote_text)
        if self._observer:
            self._observer.closed(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake_callers()
        if self._backlog:
            asyncio.get_running_loop().call_soon(self._catch_up)

    # -- requests from the peer --------------------------------------------------------------------------

    def _asked(self, command: Command) -> None:
        try:
            answer = self._handler(self, command)
        except Exception as error:
            answer = refusal(command, error, self.remote_text)
        if type(answer) is bytes:  # the usual one: no call more than it needs
            if not command.flag & wire.ONE_WAY:
                self.write(answer)
        elif isinstance(answer, (bytes, Reply, Large)):
            self._answer(command, answer)
        elif answer is not None:
            self._hold(answer, partial(self._answer_ready, command))

    def _hold(self, later: Coroutine[Any, Any, T], ready: Callable[[asyncio.Task[T]], None]) -> None:
        if len(self._tasks) >= self.limits.max_tasks:
            later.close()
            raise ProtocolError(f"{len(self._tasks)} requests held on one connection")
        task = asyncio.get_running_loop().create_task(later)
        self._tasks.add(task)
        task.add_done_callback(ready)

    def owe(self, frames: Coroutine[Any, Any, bytes]) -> None:
        """Write them when they are there."""
        self._hold(frames, self._run_ready)

    def _run_ready(self, task: asyncio.Task[bytes]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self.write(task.result())

    def _answer_ready(self, command: Command, task: asyncio.Task[Answer]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        answer = task.result() if error is None else refusal(command, error, self.remote_text)
        if answer is not None:
            self._answer(command, answer)

    def _answer(self, command: Command, answer: bytes | Reply | Large) -> None:
        if command.flag & wire.ONE_WAY:
            return
        if isinstance(answer, Large):
            self._write_large(answer)
        else:
            self.write(answer if isinstance(answer, bytes) else reply_frame(command, answer))

    def _postpone(self, command: Command) -> None:
        self._backlog.append(command)
        self._backlog_bytes += len(command.body)
        limits = self.limits
        full = len(self._backlog) >= limits.max_backlog or self._backlog_bytes >= limits.pause_bytes
        if full and self._transport is not None:
            self._transport.pause_reading()
            self._held_back = True

    def _catch_up(self) -> None:
        """The slow reader has read: serve what waited, until its answers fill the buffer again."""
        waiting, self._backlog = self._backlog, []
        self._out = []
        self.answered_ns = 0
        served = 0
        try:
            for command in waiting:
                if self._paused:
                    break
                served += 1
                self._asked(command)
        except ProtocolError as error:
            self._broken(error)
            return
        self._flush()
        self._backlog = waiting[served:]
        self._backlog_bytes = sum(len(command.body) for command in self._backlog)
        if self._held_back and not self._backlog and self._transport is not None:
            self._held_back = False
            self._transport.resume_reading()

    # -- our requests --------------------------------------------------------------------------------

    @property
    def is_reading(self) -> bool:
        """Whether the peer has read its answers so far, or as good as: else its further requests wait."""
        return not (self._paused or self._backlog)

    @property
    def held(self) -> frozenset[asyncio.Task[Any]]:
        """Requests of the peer that are not answered yet."""
        return frozenset(self._tasks)

    def send(self, command: Command) -> None:
        """One-way: no answer is awaited."""
        command.opaque = self._calls.number()
        command.flag |= wire.ONE_WAY
        self.write(wire.encode(command))

    def start_call(self, command: Command) -> asyncio.Future[Command]:
        """Send a request and return the future of its response; the caller bounds the wait."""
        if not self.is_open:
            raise ConnectionLost(f"connection to {self.remote_text} is closed")
        command.opaque = opaque = self._calls.number()
        call: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._calls.waiting[opaque] = call
        self.write(wire.encode(command))
        return call

    def start_frame(self, render: Callable[[int], bytes]) -> asyncio.Future[Command]:
        """As `start_call`, for a caller that renders the frame itself, given the opaque. Frames of one turn of the loop
        leave together: a system call each would cost more than the rest."""
        loop = asyncio.get_running_loop()
        call: asyncio.Future[Command] = loop.create_future()
        frame = self.rendered(render, call)
        if self._turn is None:
            self._turn = []
            loop.call_soon(self._send_turn)
        self._turn.append(frame)
        return call

    def _send_turn(self) -> None:
        frames, self._turn = self._turn, None
        if frames:
            self.write(frames[0] if len(frames) == 1 else b"".join(frames))

    async def call(self, command: Command, timeout_ms: int = 3000) -> Command:
        """Send a request and wait for its response, whatever its code."""
        loop = asyncio.get_running_loop()
        if self._paused:
            await self._until_drained(command, timeout_ms)
        call = self.start_call(command)
        # A bare timer: asyncio.timeout costs several times as much on a client's busiest path.
        timer = loop.call_later(timeout_ms / 1000, self._time_out, call, command.code, timeout_ms)
        try:
            return await call
        finally:
            timer.cancel()
            self._calls.waiting.pop(command.opaque, None)

    async def _until_drained(self, command: Command, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._paused and self.is_open:
                    if self._drained is None:
                        self._drained = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._drained)
        except TimeoutError:
            raise RequestTimeout(
                f"{self.remote_text} reads nothing; request {command.code} not sent within {timeout_ms} ms"
            ) from None

    def _time_out(self, call: asyncio.Future[Command], code: int, timeout_ms: int) -> None:
        if not call.done():
            call.set_exception(
                RequestTimeout(f"no answer from {self.remote_text} to request {code} within {timeout_ms} ms")
            )

    def _wake_callers(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.set_result(None)

    # -- the end -----------------------------------------------------------------------------------------

    def _broken(self, error: ProtocolError) -> None:
        log.warning("closing peer=%s: %s", self.remote_text, error)
        self._flush()  # what was asked before the break is answered
        self.close()

    def stop_reading(self) -> None:
        """Take no more requests; held ones may still be answered."""
        self._held_back = False  # and nobody resumes it
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
