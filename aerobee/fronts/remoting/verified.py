# SPDX-License-Identifier: Apache-2.0
"""Runs for the compiled lane where access control is on: of a read, the lane gets the frames whose gates let them
through, and nothing behind the first that was not.

The lane reads a frame once more, by itself. It takes none that could be read in two ways (a field that is there twice,
say): what was asked about here is what it stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.errors import ProtocolError
from aerobee.native.headers import code_of
from aerobee.protocol import command as wire
from aerobee.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aerobee.net.connection import Connection, Run
    from aerobee.protocol.command import Command

    Admits = Callable[[Connection, Command], bool]


_RUN = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.ACK_MESSAGE,
)


class VerifiedRuns:
    def __init__(self, run: Run, admits: Admits, may_run: Callable[[int], bool]) -> None:
        self._run = run
        self._admits = admits
        self._codes = frozenset(int(code) for code in _RUN if may_run(code))

    def run(
        self, data: bytes, at: int, connection: Connection
    ) -> tuple[int, bytes | Coroutine[Any, Any, bytes]]:
        """See `net.connection.Run`."""
        end = self._verified(data, at, connection)
        if end == at:
            return at, b""
        return self._run(data if end == len(data) else data[:end], at, connection)

    def _verified(self, data: bytes, at: int, connection: Connection) -> int:
        """Where the first frame begins that is not let through, or not whole, or not the lane's."""
        view, size, limits = memoryview(data), len(data), connection.limits
        while size - at >= 4 and code_of(data, at) in self._codes:
            end = at + 4 + int.from_bytes(view[at : at + 4], "big")
            if end > size or end - at > limits.max_frame:
                break
            try:
                command = wire.decode(view[at + 4 : end], limits.max_header)
            except ProtocolError:
                break
            if command.flag & wire.RESPONSE or not self._admits(connection, command):
                break  # it goes the ordinary way, where it is refused
            at = end
        return at
