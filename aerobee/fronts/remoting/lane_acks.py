# SPDX-License-Identifier: Apache-2.0
"""Runs of acks of popped messages, served by the compiled lane.

It gathers them by the pop they belong to (`native/acks.pyx`); leases are Python's, and each pop's acks are applied to
its lease at once. `broker/operations/ack.py` is the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations import ack
from aerobee.clock import perf_counter_ns
from aerobee.fronts.remoting.lane_answers import both
from aerobee.fronts.remoting.pop import acked
from aerobee.native.acks import AckLane
from aerobee.protocol.headers.consume import AckMessage
from aerobee.protocol.receipt import ORDERLY_QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.broker import Broker
    from aerobee.fronts.remoting.lane_answers import Finish
    from aerobee.native.acks import Sheaf
    from aerobee.net.connection import Connection


class AckRuns:
    """`codes` are those it serves: no gate stands before them."""

    def __init__(self, broker: Broker, is_open: Callable[[int], bool], finish: Finish) -> None:
        self._broker = broker
        self.codes = frozenset({AckMessage.code} if is_open(AckMessage.code) else ())
        self._acks = AckLane(AckMessage, self, both(AckMessage.code, finish, acked), ORDERLY_QUEUE)

    def run(self, data: bytes, at: int, connection: Connection) -> tuple[int, bytes]:
        acks, began, calls = self._acks, perf_counter_ns(), 0
        end = acks.take(data, at, connection.limits.max_frame)
        for sheaf in acks.sheaves:
            place = (sheaf.topic, sheaf.group, sheaf.queue_id)
            ack.ack_bits(place, sheaf.start, sheaf.pop_time, sheaf.bits, self._broker)
            calls += sheaf.bits.bit_count()
        if calls:
            self._broker.stats.counted.rpc.add_run(AckMessage.code, perf_counter_ns() - began, calls)
        return end, acks.answers

    def open_bits(self, sheaf: Sheaf) -> int:
        place = (sheaf.topic, sheaf.group, sheaf.queue_id)
        return ack.open_bits(place, sheaf.start, sheaf.pop_time, self._broker)
