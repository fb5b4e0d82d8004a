# SPDX-License-Identifier: Apache-2.0
"""Where the compiled lane meets the broker: runs of the busiest requests that need no decision, ahead of the handler.

`run` is given the bytes of a read, and has those served that lie at its start and are of one kind, as far as that kind's
part of the lane understands them. What it leaves alone takes the ordinary way, which is the reference: answers, files
and figures are the same on both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aerobee.fronts.remoting.lane_acks import AckRuns
from aerobee.fronts.remoting.lane_changes import ChangeRuns
from aerobee.fronts.remoting.lane_pops import BatchAckRuns, PopRuns
from aerobee.fronts.remoting.lane_pulls import PullRuns
from aerobee.fronts.remoting.lane_sends import SendRuns
from aerobee.native.headers import code_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from aerobee.broker.broker import Broker
    from aerobee.fronts.remoting.lane_answers import Finish
    from aerobee.net.connection import Connection, Run


class _Runs(Protocol):
    @property
    def codes(self) -> frozenset[int]: ...

    def run(
        self, data: bytes, at: int, connection: Connection
    ) -> tuple[int, bytes | Coroutine[Any, Any, bytes]]: ...


_KINDS = (SendRuns, PullRuns, PopRuns, AckRuns, BatchAckRuns, ChangeRuns)


class Lane:
    """One port's. It serves the codes that no gate stands before."""

    def __init__(self, broker: Broker, is_open: Callable[[int], bool], finish: Finish) -> None:
        self._runs: dict[int, Run] = {}
        for kind in _KINDS:
            runs: _Runs = kind(broker, is_open, finish)
            self._runs.update(dict.fromkeys(runs.codes, runs.run))

    def run(
        self, data: bytes, at: int, connection: Connection
    ) -> tuple[int, bytes | Coroutine[Any, Any, bytes]]:
        """See `net.connection.Run`."""
        run = self._runs.get(code_of(data, at))
        return (at, b"") if run is None else run(data, at, connection)
