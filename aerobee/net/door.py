# SPDX-License-Identifier: Apache-2.0
"""The way in of every port: accept, tell TLS from plain by the first byte, finish the handshake, hand over.

asyncio's own server reads the first bytes before anybody can decide, and answers a lack of descriptors with a traceback
a second. So sockets are accepted here, their first byte is looked at without taking it, and only then is the socket
given to its protocol. Whoever does not get that far within `handshake_ms` is closed, and all it held is freed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import msgspec

from aerobee.errors import NetworkError
from aerobee.net.complaints import Complaints
from aerobee.net.tls import FIRST_BYTE, TlsMode
from aerobee.protocol.addresses import format_address

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from aerobee.clock import Clock

log = logging.getLogger("aerobee.net")

HANDSHAKE_MS = 5_000
_BACKLOG = 1024
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_CLOSE_SECONDS = 2.0  # for who is being admitted to end
_RETRY_SECONDS = 0.2  # after running out of descriptors


class PortTls(Protocol):
    """How a port speaks TLS: `context` is for the next connection, made when first asked for where it takes long."""

    @property
    def mode(self) -> TlsMode: ...
    @property
    def context(self) -> ssl.SSLContext: ...


class DoorLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_connections: int = 100_000
    handshake_ms: int = HANDSHAKE_MS
    # Where plain peers are welcome beside TLS ones. Java clients open connections that they do not use yet.
    first_byte_ms: int = HANDSHAKE_MS


class Door:
    """`protocol` makes the protocol of an admitted connection; `inside` says how many there are, and `drop_silent`
    closes those that have said nothing since before a time."""

    def __init__(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        inside: Callable[[], int],
        clock: Clock,
        *,
        limits: DoorLimits | None = None,
        tls: PortTls | None = None,
        drop_silent: Callable[[int], None] = lambda before: None,
    ) -> None:
        self._protocol = protocol
        self._inside = inside
        self._clock = clock
        self._limits = limits or DoorLimits()
        self._tls = tls
        self._drop_silent = drop_silent
        self._complaints = Complaints(log, clock)
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._admitting: dict[asyncio.Task[None], int] = {}  # -> since when
        self._full = False
        self.host = ""
        self.port = 0

    @property
    def address(self) -> str:
        return format_address(self.host, self.port)

    @property
    def waiting(self) -> int:
        """Accepted, but not admitted yet."""
        return len(self._admitting)

    async def open(self, host: str, port: int) -> None:
        try:
            self._socket = _listening_socket(host, port)
        except OSError as error:
            raise _cannot_listen(host, port, error) from error
        self.host, self.port = host, self._socket.getsockname()[1]
        self._accepting = asyncio.get_running_loop().create_task(self._accept(self._socket))

    async def close(self) -> None:
        """Accept nobody any more; those being admitted are turned away."""
        if self._socket is not None:
            with suppress(OSError):  # some systems know no shutdown of a listening socket
                self._socket.shutdown(socket.SHUT_RDWR)  # in this turn; the loop lets go of it in a later one
        tasks = [task for task in (self._accepting, *self._admitting) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
        if self._socket is not None:
            self._socket.close()

    # -- one after the other -----------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        starved = False
        while True:
            try:
                accepted, _ = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in _OUT_OF_FILES:
                    if not starved:  # once until it is over: it is retried several times a second
                        log.error("cannot accept address=%s: %s; retrying", self.address, error.strerror)
                    starved = True
                    self._make_room()
                    await asyncio.sleep(_RETRY_SECONDS)
                continue  # else the peer left between its SYN and our accept
            if starved:
                starved = False
                log.info("accepting again address=%s", self.address)
            self._take(accepted)

    def _take(self, accepted: socket.socket) -> None:
        limit = self._limits.max_connections
        if self._inside() + len(self._admitting) >= limit:
            if not self._full:  # once until one is admitted again: a flood must not fill the log too
                log.warning(
                    "refusing connections address=%s: max_connections=%d reached", self.address, limit
                )
            self._full = True
            accepted.close()
            return
        self._full = False
        task = asyncio.get_running_loop().create_task(self._admit(accepted))
        self._admitting[task] = self._clock.now()
        task.add_done_callback(self._admitting.pop)

    def _make_room(self) -> None:
        """No descriptor is left: those go who came a while ago and have not said anything yet."""
        before = self._clock.now() - self._limits.handshake_ms
        for task, since in self._admitting.items():
            if since <= before:
                task.cancel()
        self._drop_silent(before)

    async def _admit(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            context = await self._context_for(accepted)
            seconds = self._limits.handshake_ms / 1000 if context else None
            await loop.connect_accepted_socket(
                self._protocol,
                accepted,
                ssl=context,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=seconds,
            )
        except (OSError, TimeoutError) as error:  # SSLError is an OSError
            peer = _peer_of(accepted)
            self._complaints.add(
                f"not admitted peer={peer} address={self.address}: {error or 'nothing said in time'}"
            )
            accepted.close()
        except BaseException:
            accepted.close()
            raise

    async def _context_for(self, accepted: socket.socket) -> ssl.SSLContext | None:
        """What the peer is to be spoken to with: None is plain. ConnectionError when it may not come in."""
        tls = self._tls
        if tls is None:
            return None
        required = tls.mode is TlsMode.REQUIRED
        async with asyncio.timeout(
            (self._limits.handshake_ms if required else self._limits.first_byte_ms) / 1000
        ):
            if await _first_byte(accepted) == FIRST_BYTE:
                return tls.context
        if required:
            raise ConnectionError("plain connection where TLS is required")
        return None


def refuse_taken(*places: tuple[str, int]) -> None:
    """NetworkError when somebody has one of the ports: asked before a start that takes long, and says much, is begun.
    Any free port, and none, are always free."""
    for host, port in places:
        if port <= 0:
            continue
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as asking:
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                asking.bind((host, port))
            except OSError as error:
                raise _cannot_listen(host, port, error) from error


def _cannot_listen(host: str, port: int, error: OSError) -> NetworkError:
    address = format_address(host, port)
    return NetworkError(
        f"cannot listen on {address}: {error.strerror}; stop who listens there, or give this server another port"
    )


def _listening_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


async def _first_byte(accepted: socket.socket) -> bytes:
    """The first byte, left where it is; ConnectionError when the peer leaves without one."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(accepted, ready)
    try:
        await readable
        first = accepted.recv(1, socket.MSG_PEEK)
    finally:
        loop.remove_reader(accepted)
    if not first:
        raise ConnectionError("closed before its first byte")
    return first


def _peer_of(accepted: socket.socket) -> str:
    """Who asked; one that has gone already is nobody."""
    try:
        host, port = accepted.getpeername()[:2]
    except (OSError, ValueError):
        return "gone"
    return f"{host}:{port}"
