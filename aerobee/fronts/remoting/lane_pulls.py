# SPDX-License-Identifier: Apache-2.0
"""Runs of pulls that find messages at once, served by the compiled lane.

It reads requests, chooses records and writes answers (`native/pulls.pyx`); what a reader may have is judged here, once
for all its pulls, and again when anything that was looked at has changed. `broker/operations/pull.py` is the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.delivery import reading
from aerobee.broker.operations import pull
from aerobee.clock import perf_counter_ns
from aerobee.fronts.remoting import consume
from aerobee.fronts.remoting.lane_answers import both
from aerobee.native.headers import code_of
from aerobee.native.pulls import PullLane, Reader
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.headers.consume import LitePullMessage, PullMessage
from aerobee.store.results import Found, ReadStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.broker import Broker
    from aerobee.fronts.remoting.lane_answers import Finish
    from aerobee.native.answers import Template
    from aerobee.net.connection import Connection, Reply
    from aerobee.protocol.command import Command
    from aerobee.store.results import Stretch

_HEADERS: tuple[type[PullMessage], ...] = (PullMessage, LitePullMessage)
# Values of a rendered answer that stand nowhere else in it.
_MIN, _MAX, _NEXT = 1_234_567_891, 1_234_567_892, 1_234_567_893


class PullRuns:
    """`codes` are those it serves: no gate stands before them."""

    def __init__(self, broker: Broker, is_open: Callable[[int], bool], finish: Finish) -> None:
        self._broker = broker
        headers = [header for header in _HEADERS if is_open(header.code)]
        self.codes = frozenset(header.code for header in headers)
        self._pulls = PullLane(headers, self, _found(finish))
        self._relied_on: tuple[object, ...] = ()

    def run(self, data: bytes, at: int, connection: Connection) -> tuple[int, bytes]:
        broker, pulls = self._broker, self._pulls
        store = broker.store
        relied_on = (reading.relied_on(broker), store.stands, broker.offsets.resets)
        if relied_on != self._relied_on:
            pulls.forget()
            self._relied_on = relied_on
        began = perf_counter_ns()
        warm_from = store.log_max - store.memory_bytes
        end = pulls.take(data, at, connection.limits.max_frame, connection.early_bytes, warm_from)
        if pulls.pulls:
            store.took((perf_counter_ns() - began) // len(pulls.pulls))
            pull.settle(pulls.pulls, broker)
            broker.stats.counted.rpc.add_run(code_of(data, at), perf_counter_ns() - began, len(pulls.pulls))
        return end, pulls.answers

    def plain(self, header: PullMessage) -> Reader | None:
        plain = pull.plain(consume.pull_of(header), self._broker)
        if plain is None:
            return None
        limits = (plain.limit.max_messages, plain.limit.max_bytes, plain.units)
        codes = None if plain.accept is None else plain.accept.codes or None
        return Reader(plain.request, plain.request.queue_id, limits, codes)

    def stretch(self, request: pull.Pull, offset: int, count: int) -> Stretch | None:
        topic, queue_id, broker = request.topic, request.queue_id, self._broker
        if broker.offsets.has_reset(request.group, topic, queue_id):  # which it is to be told
            return None
        return broker.store.stretch((topic, queue_id), offset, count)


def _found(finish: Finish) -> tuple[Template, Template]:
    def answer(command: Command) -> bytes | Reply:
        return consume.pulled(command, ResponseCode.SUCCESS, 0, Found(ReadStatus.FOUND, _NEXT, _MIN, _MAX))

    return both(RequestCode.PULL_MESSAGE, finish, answer, _MIN, _MAX, _NEXT)
