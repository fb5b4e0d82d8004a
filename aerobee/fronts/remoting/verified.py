# SPDX-License-Identifier: Apache-2.0
"""Runs for the compiled lane where access control is on: of a read, the lane gets the frames whose gates let them
through, and nothing behind the first that was not.

Nearly all are known again: the lane gathers what was signed, and one signature is reckoned (`gates/recognised.py`). The
others are decoded and pass the gates. The lane reads a frame once more, by itself. It takes none that could be read in
two ways (a field that is there twice, say): what was asked about here is what it stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.errors import ProtocolError
from aerobee.native.headers import code_of
from aerobee.native.signed import SignedRequests
from aerobee.protocol import command as wire
from aerobee.protocol import properties as props
from aerobee.protocol.accounts import ACCESS_KEY, SIGNATURE
from aerobee.protocol.headers.consume import AckMessage
from aerobee.protocol.headers.produce import SendBatch, SendMessage, SendMessageV2

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from aerobee.fronts.gates.recognised import Recognised
    from aerobee.fronts.gates.remoting import RemotingPath
    from aerobee.net.connection import Connection, Run
    from aerobee.protocol.command import Header

# Of a frame that is looked at twice when its signature is wrong: hashing a large one is what it costs.
_MOST_KNOWN_BYTES = 1 << 16
# What is remembered of who was let through: `gates/remembered.py`, which remembers no message that takes back another.
_SENT = (("topic",), props.TIMER_DEL_UNIQKEY)
_KINDS: dict[type[Header], tuple[tuple[str, ...], str]] = {
    SendMessage: _SENT,
    SendMessageV2: _SENT,
    SendBatch: _SENT,
    AckMessage: (("topic", "consumer_group"), ""),
}


class VerifiedRuns:
    def __init__(self, run: Run, path: RemotingPath) -> None:
        self._run = run
        self._admits = path.admits
        kinds = {int(header.code): header for header in _KINDS if path.may_run(header.code)}
        self._codes = frozenset(kinds)
        self._known: dict[int, tuple[SignedRequests, Recognised]] = {
            code: (SignedRequests(header, (ACCESS_KEY, SIGNATURE), *_KINDS[header]), path.recognised[code])
            for code, header in kinds.items()
            if code in path.recognised
        }

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
        most, source = min(connection.limits.max_frame, _MOST_KNOWN_BYTES), connection.remote[0]
        while (code := code_of(data, at)) in self._codes:
            known = self._known.get(code)
            if known is not None:
                request, recognised = known
                if request.read(data, at, most) and recognised.admits(request, source):
                    at += request.size
                    continue
            end = self._admitted(data, at, connection)
            if end == at:
                break  # it goes the ordinary way, where it is refused
            at = end
        return at

    def _admitted(self, data: bytes, at: int, connection: Connection) -> int:
        """Where the frame ends when its gates let it through, else where it begins."""
        view, limits = memoryview(data), connection.limits
        end = at + 4 + int.from_bytes(view[at : at + 4], "big")
        if end > len(data) or end - at > limits.max_frame:
            return at
        try:
            command = wire.decode(view[at + 4 : end], limits.max_header)
        except ProtocolError:
            return at
        return at if command.flag & wire.RESPONSE or not self._admits(connection, command) else end
