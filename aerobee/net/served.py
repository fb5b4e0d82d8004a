# SPDX-License-Identifier: Apache-2.0
"""What a connection is made with: who answers the peer's requests, who is told of it, and what the peer may cost us."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from aerobee.net.reply import Large, Reply
from aerobee.protocol.command import MAX_HEADER, Command
from aerobee.protocol.frames import DEFAULT_MAX_FRAME

if TYPE_CHECKING:
    from aerobee.net.connection import Connection

# A whole frame (bytes), a Reply, a Large one, nothing (never answer), or a coroutine that gives one of these later.
Answer = bytes | Reply | Large | None
Handler = Callable[["Connection", Command], Answer | Coroutine[Any, Any, Answer]]
# Serves requests ahead of the handler: given bytes and where a frame begins, it returns where the first frame begins
# that it leaves alone, and the answers to those before it, none if it has written them, or a coroutine that gives them
# later.
Run = Callable[[bytes, int, "Connection"], tuple[int, bytes | Coroutine[Any, Any, bytes]]]


class Observer(Protocol):
    """Told of connections coming and going."""

    def opened(self, connection: Connection) -> None: ...
    def closed(self, connection: Connection) -> None: ...


class Limits(msgspec.Struct, frozen=True):
    max_frame: int = DEFAULT_MAX_FRAME
    max_header: int = MAX_HEADER
    pause_bytes: int = 4 * 1024 * 1024  # unread answers at which a peer's further requests wait
    max_write_buffer: int = 32 * 1024 * 1024  # unread bytes at which a peer is cut off
    max_tasks: int = 65_536  # held requests of one connection
    max_backlog: int = 1024  # requests waiting for a slow reader before its socket is read no further
