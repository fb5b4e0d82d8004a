# SPDX-License-Identifier: Apache-2.0
"""A blocking caller's first try, on a socket of its own: no event loop, no hand-over to another thread and back.

Only the first try, when all that it needs is known. Whatever comes of it but success (a broker that refuses, a
connection that breaks, no answer in time) goes on as the async producer's failed first try does: with the same further
tries, in the loop. And what needs more from the start (an unknown route, TLS, a trace, brokers to be avoided) does not
begin here.

A thread takes a line, an open socket to a broker, for one send; so there are as many as threads that ever sent at once.
A line that failed in any way, Ctrl-C included, is closed and not used again: an answer may still be on its way. They
say no heartbeat, so brokers ask nothing on them.
"""

from __future__ import annotations

import socket
import threading
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.client.produce import queue_selector
from aerobee.errors import AerobeeError, ConnectionLost, NetworkError, RequestTimeout
from aerobee.protocol import command as wire
from aerobee.protocol.addresses import parse_address
from aerobee.protocol.frames import FrameDecoder

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.message import Message, SendResult
    from aerobee.client.options import ProducerOptions
    from aerobee.client.produce.queue_selector import Selector
    from aerobee.client.produce.sender import Sender
    from aerobee.client.session.session import Session
    from aerobee.protocol.bodies import MessageQueue
    from aerobee.protocol.command import Command
    from aerobee.protocol.fast_frames import Sending

READ_BYTES = 64 * 1024
DIAL_MS = 3_000
# Brokers close what is idle for long; that one of them restarts is met by trying again.
SURELY_OPEN_MS = 1_000


class Failed(NamedTuple):
    """A first try, for the loop to go on with: `Sender.send_elsewhere` takes just this."""

    error: AerobeeError
    sending: Sending
    queue: MessageQueue | None
    chosen: MessageQueue


class Line:
    """One socket, for one thread at a time."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self._address = address
        try:
            self._socket = socket.create_connection(parse_address(address), min(timeout_s, DIAL_MS / 1000))
        except OSError as error:
            raise NetworkError(f"cannot connect to {address}: {error.strerror or error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(timeout_s)
        self._timeout_s = timeout_s
        self.last_used = 0
        self._frames = FrameDecoder()
        self._opaque = 0

    def ask(self, render: Callable[[int], bytes]) -> Command:
        self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
        try:
            self._socket.sendall(render(opaque))
            while True:
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise ConnectionLost(f"connection to {self._address} was lost")
                for frame in self._frames.feed(data):
                    command = wire.decode(frame)
                    if command.flag & wire.RESPONSE and command.opaque == opaque:
                        return command
        except NetworkError:
            raise
        except TimeoutError:
            raise RequestTimeout("no answer in time") from None
        except OSError as error:
            raise ConnectionLost(f"connection to {self._address}: {error.strerror or error}") from None

    def is_open(self) -> bool:
        """Nothing is to be read between two sends but the end."""
        try:
            self._socket.settimeout(0)
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            self._socket.settimeout(self._timeout_s)
            return True
        except OSError:
            pass
        return False

    def close(self) -> None:
        self._socket.close()


class DirectSends:
    """The lines of one producer; used from any thread."""

    def __init__(
        self, session: Session[ProducerOptions], sender: Sender, prepared: Callable[[Message], Sending]
    ) -> None:
        self._now = session.clock.now
        self._routes = session.routes
        self._sender = sender
        self._prepared = prepared
        self._options = options = session.options
        self._closed = options.tls == "on" or options.trace or options.avoid_slow_brokers
        self._lines: dict[str, deque[Line]] = defaultdict(deque)
        self._in_use = 0
        self._idle = threading.Condition()  # callers are threads: a lock is due

    def send(
        self, message: Message, queue: MessageQueue | None, selector: Selector | None, argument: Any
    ) -> SendResult | Failed | None:
        """None: it has not begun, send it through the loop."""
        known = self._routes.get(message.topic)
        if self._closed or known is None or not known.writable:
            return None
        sending = self._prepared(message)
        if queue is None and selector is not None:
            queue = queue_selector.by_selector(known.writable, message, selector, argument)
        elif queue is None and message.sharding_key:
            queue = queue_selector.by_sharding_key(known.writable, message.sharding_key)
        way = self._sender.way(sending, queue)
        if way is None:
            return None
        chosen, address, render = way
        try:
            answer = self._ask(address, render)
            return self._sender.finish(answer, sending, chosen)
        except AerobeeError as error:
            return Failed(error, sending, queue, chosen)

    def _ask(self, address: str, render: Callable[[int], bytes]) -> Command:
        timeout_s = self._options.send_timeout_ms / 1000
        with self._idle:
            self._in_use += 1
        line = None
        try:
            line = self._open_line(address) or Line(address, timeout_s)
            answer = line.ask(render)
            line.last_used = self._now()
        except BaseException:
            if line is not None:
                line.close()
            raise
        finally:
            with self._idle:
                self._in_use -= 1
                self._idle.notify_all()
        self._lines[address].append(line)
        if self._closed:  # it was not waited for so long
            self._close_lines()
        return answer

    def _open_line(self, address: str) -> Line | None:
        lines = self._lines[address]
        while True:
            try:
                line = lines.pop()
            except IndexError:
                return None
            if self._now() - line.last_used < SURELY_OPEN_MS or line.is_open():
                return line
            line.close()

    def close(self, wait_ms: int) -> None:
        """No further send begins here; those under way are waited for, so long at most."""
        self._closed = True
        with self._idle:
            self._idle.wait_for(lambda: not self._in_use, wait_ms / 1000)
        self._close_lines()

    def _close_lines(self) -> None:
        for address in list(self._lines):
            while (line := self._open_line(address)) is not None:
                line.close()
