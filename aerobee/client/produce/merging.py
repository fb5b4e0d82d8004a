# SPDX-License-Identifier: Apache-2.0
"""Plain sends of one turn of the loop to one queue leave as one batch, and nobody can tell: each has its own id,
offset, result and failure.

- A lone send, with nothing else under way to its broker, leaves at once and by itself.
- Members share queue and birth, the two things of a message that a batch has only once: the queue each would have gone
  to alone, and the time the first of them has. They lie in the queue in the order they were sent in.
- A batch is stored as a whole or refused as a whole, be it for one member. So a refusal says nothing about the others:
  each is then sent by itself, and fails, or does not, for its own reasons. Others may have been stored before it by
  then, which is why sends whose order matters (those with a sharding key, or to a queue that was chosen) are not merged.
- Whatever else goes wrong (no answer, a connection lost) is told to each member, which tries again by itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aerobee.client.message import STATUS_BY_CODE, SendResult
from aerobee.client.produce.outgoing import merge
from aerobee.client.session.deadlines import fail
from aerobee.errors import ProtocolError
from aerobee.protocol.batch import OVERHEAD
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.headers.produce import SendResult as SendResultHeader

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.net.connection import Connection, Waiting
    from aerobee.protocol.command import Command
    from aerobee.protocol.fast_frames import Sending

    # What a send waits for: a single one's answer, or its own part of a batch's.
    Call = asyncio.Future[Command | SendResult]
    # The frame of a request and where to write it; None when there is no way now, of which the one who waits is told.
    Frame = tuple[Connection, bytes] | None
    Render = Callable[[Sending, MessageQueue, Waiting], Frame]

MOST_BYTES = 128 * 1024  # of a batch: larger ones gain nothing
MOST_MEMBERS = 256
SAME_TIME_MS = 5  # a turn may be longer than a millisecond


class Merged:
    """Sends to one queue, and who waits for them; to a connection, one that waits."""

    __slots__ = ("_alone", "_born", "_loop", "_size", "calls", "queue", "sendings")

    def __init__(self, queue: MessageQueue, alone: Render) -> None:
        self.queue = queue
        self.sendings: list[Sending] = []
        self.calls: list[Call] = []
        self._alone = alone
        self._loop = asyncio.get_running_loop()
        self._born = self._size = 0

    def add(self, sending: Sending) -> Call | None:
        """One more; None when it does not go together with the others."""
        size = self._size + OVERHEAD + len(sending.body) + len(sending.properties_text)
        together = size <= MOST_BYTES and 0 <= sending.born - self._born <= SAME_TIME_MS
        return self._add(sending, size) if together and len(self.calls) < MOST_MEMBERS else None

    def begin(self, sending: Sending) -> Call:
        """The first, however large."""
        self._born = sending.born
        return self._add(sending, OVERHEAD + len(sending.body) + len(sending.properties_text))

    def _add(self, sending: Sending, size: int) -> Call:
        call: Call = self._loop.create_future()
        sending.born = self._born
        self._size = size
        self.sendings.append(sending)
        self.calls.append(call)
        return call

    # -- as one that waits ---------------------------------------------------------------------------------

    def done(self) -> bool:
        return all(call.done() for call in self.calls)

    def set_result(self, answer: Command) -> None:
        if answer.code not in STATUS_BY_CODE:
            self._send_alone()
            return
        try:
            results = results_of(answer, self.sendings, self.queue)
        except ProtocolError as error:
            self.set_exception(error)
            return
        for call, result in zip(self.calls, results, strict=True):
            if not call.done():
                call.set_result(result)

    def _send_alone(self) -> None:
        write(self.each_alone())

    def each_alone(self) -> list[Frame]:
        """A frame for each; what cannot be rendered fails for its sender only."""
        frames: list[Frame] = []
        for sending, call in zip(self.sendings, self.calls, strict=True):
            if not call.done():
                try:
                    frames.append(self._alone(sending, self.queue, call))
                except Exception as error:  # text that is no UTF-8, say
                    fail(call, error)
        return frames

    def set_exception(self, error: BaseException) -> None:
        for call in self.calls:
            fail(call, type(error)(*error.args))  # its own: whoever catches one may change it

    def exception(self) -> BaseException | None:
        """Nobody asks: members have been told."""
        return None


class Merging:
    """The sends of a turn, in their order."""

    def __init__(self, batched: Render, alone: Render) -> None:
        self._batched = batched
        self._alone = alone
        self.turn: list[Merged] = []
        self._open: dict[MessageQueue, Merged] = {}  # those of the turn that take more

    def join(self, sending: Sending, queue: MessageQueue) -> Call | None:
        """With those of its queue that wait for the end of the turn; None when there are none that take it."""
        merged = self._open.get(queue)
        return None if merged is None else merged.add(sending)

    def add(self, sending: Sending, queue: MessageQueue) -> Call:
        """As the first of its queue, for others to join."""
        merged = self._open[queue] = self._next(queue)
        return merged.begin(sending)

    def add_alone(self, sending: Sending, queue: MessageQueue) -> Call:
        """In a frame of its own, after those that go to the same queue and were sent before."""
        self._open.pop(queue, None)
        return self._next(queue).begin(sending)

    def _next(self, queue: MessageQueue) -> Merged:
        if not self.turn:
            asyncio.get_running_loop().call_soon(self._end_turn)
        merged = Merged(queue, self._alone)
        self.turn.append(merged)
        return merged

    def _end_turn(self) -> None:
        turn, self.turn = self.turn, []
        self._open.clear()
        write([frame for merged in turn for frame in self._frames(merged)])

    def _frames(self, merged: Merged) -> list[Frame]:
        if len(merged.calls) == 1:
            return merged.each_alone()
        try:
            return [self._batched(merge(merged.sendings), merged.queue, merged)]
        except Exception:  # one that cannot be rendered must not take the others along
            return merged.each_alone()


def write(frames: list[Frame]) -> None:
    """In one piece a connection."""
    by_connection: dict[Connection, list[bytes]] = {}
    for each in frames:
        if each is not None:
            by_connection.setdefault(each[0], []).append(each[1])
    for connection, own in by_connection.items():
        connection.write(own[0] if len(own) == 1 else b"".join(own))


def results_of(answer: Command, sendings: list[Sending], queue: MessageQueue) -> list[SendResult]:
    """Of a batch's answer, which has the members' places as a list and the offset of the first."""
    fields = answer.fields(SendResultHeader)
    status, first = STATUS_BY_CODE[answer.code], fields.queue_offset
    if fields.queue_id != queue.queue_id:
        queue = MessageQueue(queue.broker_name, fields.queue_id, queue.topic)
    places = fields.msg_id.split(",")
    if len(places) != len(sendings):  # a batch topic keeps them as one record
        places = [fields.msg_id] * len(sendings)
    return [
        SendResult(status, sending.message_id, place, queue, offset, sending.message_id)
        for offset, (sending, place) in enumerate(zip(sendings, places, strict=True), first)
    ]
