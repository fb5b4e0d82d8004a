# SPDX-License-Identifier: Apache-2.0
"""A plain blocking socket that speaks remoting, for Spark's driver and workers.

Spark forks its Python workers and calls the source from ordinary threads, so no event loop is wanted here. Requests
may run ahead of the answer being decoded (`send` now, `receive` later), which is all the concurrency bulk reading needs.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

from aerobee.errors import NetworkError, RequestTimeout, error_for
from aerobee.net.tls import client_tls
from aerobee.protocol import command as wire
from aerobee.protocol.accounts import sign
from aerobee.protocol.frames import DEFAULT_MAX_FRAME

if TYPE_CHECKING:
    from aerobee.protocol.command import Command, Header
    from aerobee.spark.options import Read, Write

_LENGTH = struct.Struct(">I")
_ACCEPTED = frozenset((0, 10, 11, 12, 19, 20, 21))


class BlockingConnection:
    """`options`: the account that signs and whether to talk TLS; without them, neither."""

    def __init__(self, address: str, timeout_ms: int = 10_000, options: Read | Write | None = None) -> None:
        self.address = address
        self._timeout = timeout_ms / 1000
        self._options = options
        self._socket: socket.socket | None = None
        self._opaque = 0
        self._buffer = bytearray()
        self._asked: set[int] = set()  # on this connection, not answered yet
        self._early: dict[int, tuple[Command, bytes]] = {}  # answered before another that was asked earlier

    def call(self, header: Header, body: bytes = b"") -> Command:
        """Send a request and wait for its answer; refusals raise by response code."""
        return self.receive(self.send(header, body))

    def send(self, header: Header, body: bytes = b"") -> int:
        command = wire.request(header, body)
        return self.send_command(command)

    def ahead(self, header: Header) -> int | None:
        """Send before the answer is wanted. Should that fail, what was received is still good, and None says to ask
        again in time."""
        try:
            return self.send(header)
        except NetworkError:
            return None

    def send_command(self, command: Command) -> int:
        self._opaque += 1
        command.opaque = self._opaque
        if self._options is not None:
            sign(command, self._options)
        sock = self._connected()
        try:
            sock.sendall(wire.encode(command))
        except OSError as error:
            self.close()
            raise NetworkError(f"{self.address}: {error}") from None
        self._asked.add(command.opaque)
        return command.opaque

    def receive(self, opaque: int) -> Command:
        """The answer to `opaque`."""
        command, body = self.receive_view(opaque)
        command.body = bytes(body)
        return command

    def receive_view(self, opaque: int) -> tuple[Command, memoryview]:
        """The answer without its body, and the body, which lies in a buffer that the next answer will take."""
        if opaque in self._early:
            command, kept = self._early.pop(opaque)
            body = memoryview(kept)
        else:
            command, body = self._awaited(opaque)
        if command.code not in _ACCEPTED:
            raise error_for(command.code, command.remark)
        return command, body

    def _awaited(self, opaque: int) -> tuple[Command, memoryview]:
        while True:
            if opaque not in self._asked:
                raise NetworkError(f"{self.address}: the connection was lost before the answer came")
            frame = self._frame()
            end = 4 + int.from_bytes(frame[1:4], "big")
            command = wire.decode(bytes(frame[:end]))  # a copy: its fields are decoded later, from here
            if not command.is_response or command.opaque not in self._asked:
                continue
            self._asked.discard(command.opaque)
            if command.opaque == opaque:
                return command, frame[end:]
            self._early[command.opaque] = command, bytes(frame[end:])

    def _frame(self) -> memoryview:
        (size,) = _LENGTH.unpack(self._read(4))
        if size > DEFAULT_MAX_FRAME:
            self.close()
            raise NetworkError(f"{self.address} announced a frame of {size} bytes")
        return self._read(size)

    def _read(self, size: int) -> memoryview:
        sock = self._connected()
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        view, got = memoryview(self._buffer)[:size], 0
        try:
            while got < size and (count := sock.recv_into(view[got:])):
                got += count
        except TimeoutError:
            self.close()
            raise RequestTimeout(f"no answer from {self.address} within {self._timeout:g} s") from None
        except OSError as error:
            self.close()
            raise NetworkError(f"{self.address}: {error}") from None
        if got < size:
            self.close()
            raise NetworkError(f"{self.address} closed the connection")
        return view

    def _connected(self) -> socket.socket:
        if self._socket is None:
            host, _, port = self.address.rpartition(":")
            try:
                sock = socket.create_connection((host.strip("[]"), int(port)), self._timeout)
            except OSError as error:
                raise NetworkError(f"cannot reach {self.address}: {error}") from None
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._options is not None and self._options.tls:
                sock = self._encrypted(sock, self._options)
            self._socket = sock
        return self._socket

    def _encrypted(self, sock: socket.socket, options: Read | Write) -> socket.socket:
        context = client_tls(options.tls_ca, options.tls_cert, options.tls_key)
        try:
            return context.wrap_socket(sock)
        except OSError as error:
            sock.close()
            raise NetworkError(f"cannot reach {self.address} by TLS: {error}") from None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._asked.clear()
        self._early.clear()

    def __getstate__(self) -> dict[str, object]:
        # Spark pickles readers: a socket stays behind, and what it last said.
        return {**self.__dict__, "_socket": None, "_buffer": bytearray(), "_asked": set(), "_early": {}}


def connection_to(address: str, options: Read | Write) -> BlockingConnection:
    """A connection as the options have it: timeout, account, TLS."""
    return BlockingConnection(address, options.timeout_ms, options)
