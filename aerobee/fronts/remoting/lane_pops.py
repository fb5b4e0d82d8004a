# SPDX-License-Identifier: Apache-2.0
"""Runs of pops and batch acks: their requests are read by the compiled lane, which knows again those of a consumer that
was looked at before (`native/repeats.pyx`). Choosing queues and leases stay Python's, whose state all of it is; records
are read by the lane anyway (`native/reads.pyx`). It also writes the answers of pops that found some, with what their
receipts are made of (`native/receipts.pyx`)."""

from __future__ import annotations

from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

from aerobee.broker.delivery import reading
from aerobee.broker.operations import pop
from aerobee.clock import perf_counter_ns
from aerobee.fronts.gates.remoting import note_later, result_of
from aerobee.fronts.remoting.lane_answers import both
from aerobee.fronts.remoting.pop import batch_acked, pop_of, popped_answer
from aerobee.native.receipts import PopAnswers
from aerobee.native.repeats import Repeats
from aerobee.net.reply import Reply, refusal, reply_frame
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers.consume import BatchAckMessage, PopMessage
from aerobee.protocol.receipt import Taken, msg_offset_info, start_offset_info

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aerobee.broker.broker import Broker
    from aerobee.fronts.remoting.lane_answers import Finish
    from aerobee.native.answers import Template
    from aerobee.net.connection import Connection
    from aerobee.protocol.command import Header

    Given = bytes | Reply | Coroutine[Any, Any, bytes | Reply]

# Values of a rendered answer that stand nowhere else in it.
_NUMBERS = (1_234_567_891, 1_234_567_892, 1_234_567_893, 1_234_567_894)
_TAKEN = [Taken("0", 1_234_567_895, 1_234_567_896, [1_234_567_897])]


class _Runs:
    """Requests with one kind of header. `codes` are those it serves: no gate stands before them."""

    def __init__(
        self, broker: Broker, finish: Finish, header: type[Header], moving: tuple[str, ...], *, is_open: bool
    ) -> None:
        self._broker = broker
        self._rpc = broker.stats.counted.rpc
        self._finish = finish
        self.codes = frozenset({header.code} if is_open else ())
        self._asked = Repeats(header, moving, ("broker_name", "lite_topic"), self._plain)
        self._places = [self._asked.place(name) for name in moving]
        self._code = header.code

    def _plain(self, header: Any) -> object | None:
        """What may be kept of a request for those that are like it; None leaves it to the ordinary way."""
        raise NotImplementedError

    def _answer(self, known: Any, command: Command) -> Given:
        raise NotImplementedError

    def run(self, data: bytes, at: int, connection: Connection) -> tuple[int, bytes]:
        """Answers are written one by one: one that fills the peer's buffer makes the next request wait."""
        asked, most = self._asked, connection.limits.max_frame
        while connection.is_reading and (known := asked.take(data, at, most)) is not None:
            at += asked.size
            self._serve(known, Command(self._code, asked.opaque, serialize=asked.serialize), connection)
        return at, b""

    def _serve(self, known: Any, command: Command, connection: Connection) -> None:
        began = perf_counter_ns()
        try:
            given = self._answer(known, command)
        except Exception as error:
            given = refusal(command, error, connection.remote_text)
        if type(given) is CoroutineType:
            connection.owe(self._later(given, command, connection, began))
        else:
            answer = cast("bytes | Reply", given)
            self._rpc.add(self._code, result_of(answer), perf_counter_ns() - began)
            connection.write(self._frame(command, answer))

    async def _later(
        self, later: Coroutine[Any, Any, bytes | Reply], command: Command, connection: Connection, began: int
    ) -> bytes:
        try:
            answer = await later
        except Exception as error:
            answer = refusal(command, error, connection.remote_text)
        note_later(self._rpc, self._code, answer, began)
        return self._frame(command, answer)

    def _frame(self, command: Command, answer: bytes | Reply) -> bytes:
        return answer if isinstance(answer, bytes) else reply_frame(command, self._finish(command, answer))


class PopRuns(_Runs):
    def __init__(self, broker: Broker, is_open: Callable[[int], bool], finish: Finish) -> None:
        super().__init__(broker, finish, PopMessage, ("born_time",), is_open=is_open(PopMessage.code))
        self._relied_on: tuple[object, ...] = ()
        self._found = PopAnswers(_popped(finish))

    def run(self, data: bytes, at: int, connection: Connection) -> tuple[int, bytes]:
        relied_on = reading.relied_on(self._broker)
        if relied_on != self._relied_on:
            self._asked.forget()
            self._relied_on = relied_on
        return super().run(data, at, connection)

    def _plain(self, header: PopMessage) -> pop.Plain | None:
        return pop.plain(pop_of(header, 0), self._broker)

    def _answer(self, known: pop.Plain, command: Command) -> Given:
        born_time = self._asked.number(self._places[0]) or self._broker.clock.wall()
        popped = pop.pop_again(known, born_time, self._broker)
        if type(popped) is CoroutineType:
            return self._held(popped, command)
        return self._popped(command, cast("pop.Popped", popped))

    async def _held(self, later: Coroutine[Any, Any, pop.Popped], command: Command) -> bytes | Reply:
        return self._popped(command, await later)

    def _popped(self, command: Command, popped: pop.Popped) -> bytes | Reply:
        if not popped.messages or popped.order_counts:
            return popped_answer(command, popped)
        numbers = (popped.pop_time, popped.invisible_ms, popped.revive_queue, popped.rest)
        return self._found.frame(command.opaque, command.serialize, numbers, popped.taken, popped.messages)


def _popped(finish: Finish) -> tuple[Template, Template]:
    found = pop.Popped(ResponseCode.SUCCESS, *_NUMBERS, messages=[b""], taken=_TAKEN)
    values = (*_NUMBERS, start_offset_info(_TAKEN), msg_offset_info(_TAKEN))
    return both(PopMessage.code, finish, lambda command: popped_answer(command, found), *values)


class BatchAckRuns(_Runs):
    def __init__(self, broker: Broker, is_open: Callable[[int], bool], finish: Finish) -> None:
        super().__init__(broker, finish, BatchAckMessage, (), is_open=is_open(BatchAckMessage.code))

    def _plain(self, header: BatchAckMessage) -> object:
        return self

    def _answer(self, known: object, command: Command) -> Given:
        return batch_acked(self._asked.body, self._broker)
