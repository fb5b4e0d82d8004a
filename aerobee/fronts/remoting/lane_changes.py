# SPDX-License-Identifier: Apache-2.0
"""Runs of changes of the invisible time, read and answered by the compiled lane (`native/changes.pyx`).

Leases are Python's: each request has its own changed by `broker/operations/change_invisible.py`, the reference, which
also has those that it refuses, by the ordinary way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations.change_invisible import Change, change_invisible
from aerobee.clock import perf_counter_ns
from aerobee.fronts.remoting.lane_answers import both
from aerobee.native.changes import ChangeLane
from aerobee.net.reply import Reply
from aerobee.protocol.headers.consume import ChangeInvisible, ChangeInvisibleResult
from aerobee.protocol.receipt import ORDERLY_QUEUE, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.broker import Broker
    from aerobee.fronts.remoting.lane_answers import Finish
    from aerobee.native.answers import Template
    from aerobee.net.connection import Connection
    from aerobee.protocol.command import Command

# Values of a rendered answer that stand nowhere else in it.
_POP_TIME, _INVISIBLE, _REVIVE_QUEUE = 1_234_567_891, 1_234_567_892, 1_234_567_893


class ChangeRuns:
    """`codes` are those it serves: no gate stands before them."""

    def __init__(self, broker: Broker, is_open: Callable[[int], bool], finish: Finish) -> None:
        self._broker = broker
        self.codes = frozenset({ChangeInvisible.code} if is_open(ChangeInvisible.code) else ())
        self._changes = ChangeLane(ChangeInvisible, self, _changed(finish), ORDERLY_QUEUE)

    def run(self, data: bytes, at: int, connection: Connection) -> tuple[int, bytes]:
        changes, began = self._changes, perf_counter_ns()
        end = changes.take(data, at, connection.limits.max_frame)
        if changes.calls:
            took_ns = perf_counter_ns() - began
            self._broker.stats.counted.rpc.add_run(ChangeInvisible.code, took_ns, changes.calls)
        return end, changes.answers

    def change(
        self, place: tuple[str, str, int], offset: int, receipt: tuple[int, int, int, int], invisible_ms: int
    ) -> int | None:
        topic, group, queue_id = place
        # Where the message came from and who gave it out decide nothing here.
        known = Receipt(*receipt, "", "", queue_id, offset)
        try:
            request = Change(group, topic, queue_id, offset, known, invisible_ms)
            return change_invisible(request, self._broker).pop_time
        except Exception:  # whatever it is, the ordinary way meets it again and answers it
            return None


def _changed(finish: Finish) -> tuple[Template, Template]:
    def answer(command: Command) -> Reply:
        result = ChangeInvisibleResult(
            pop_time=_POP_TIME, invisible_time=_INVISIBLE, revive_qid=_REVIVE_QUEUE
        )
        return Reply(header=result)

    return both(ChangeInvisible.code, finish, answer, _POP_TIME, _INVISIBLE, _REVIVE_QUEUE)
