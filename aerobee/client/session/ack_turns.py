# SPDX-License-Identifier: Apache-2.0
"""Acks of one turn of the loop leave together: as one batch ack where the broker takes it, else in one write.

A batch ack is answered once. Refused, it says nothing about its members: each is then sent alone and told its own
answer. A broker that does not know batch acks (before 5.1) is asked once. Never in a batch: acks of ordered groups,
whose refusals mean something, and those of leases that have run out. (Of the others the broker passes over, without a
word, what it has no more; alone they would be refused. Either way such a message does not come again.)
"""

from __future__ import annotations

import asyncio
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from aerobee.client.session.deadlines import fail
from aerobee.errors import NetworkError, ProtocolError
from aerobee.protocol import bodies
from aerobee.protocol import command as wire
from aerobee.protocol.accounts import sign
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.fast_frames import AckTemplate
from aerobee.protocol.headers.consume import AckMessage, BatchAckMessage
from aerobee.protocol.receipt import ORDERLY_QUEUE, Receipt, bits_text, real_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.session.session import Session
    from aerobee.net.connection import Connection, Waiting
    from aerobee.protocol.command import Command, Header

MOST_ACKS = 1_000  # of one request
FURTHEST = 4_096  # from the start of its pop: the bit set of a batch has a bit for each in between
FIELDS = 8  # of a receipt
ORDERLY = str(ORDERLY_QUEUE)
RETRY_FLAGS = ("0", "1", "2")


@lru_cache(maxsize=1024)
def _ack_template(group: str, topic: str, retry: str, broker_name: str) -> AckTemplate:
    return AckTemplate(group, real_topic(topic, group, retry), broker_name)


class Ack(NamedTuple):
    """Of one message: whose, and its receipt."""

    group: str
    topic: str  # as it was asked for
    receipt: str
    waiting: Waiting


class AckTurns:
    """Of all groups of a session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._together: dict[Connection, list[Ack]] = {}  # of this turn
        self._alone: dict[Connection, list[Ack]] = {}
        self._one_by_one: set[str] = set()  # addresses of brokers that take no batches

    def add(self, ack: Ack) -> bool:
        """Send it with the others of this turn; False when there is no open connection to do it on."""
        if not may_join(ack.receipt):
            return self.add_alone(ack)
        connection = self._connection(ack)
        if connection is None:
            return False
        together = self._together.get(connection)
        if together is None:
            together = self._together[connection] = []
        together.append(ack)
        return True

    def add_alone(self, ack: Ack) -> bool:
        """The same for one that needs an answer of its own."""
        connection = self._connection(ack)
        if connection is None:
            return False
        self._alone.setdefault(connection, []).append(ack)
        return True

    def _connection(self, ack: Ack) -> Connection | None:
        session = self._session
        address = session.routes.master(ack.receipt.split(" ", 6)[5])
        connection = session.open_connection(address) if address else None
        if connection is not None and not self._together and not self._alone:
            asyncio.get_running_loop().call_soon(self._end_turn)
        return connection

    def _end_turn(self) -> None:
        together, self._together = self._together, {}
        alone, self._alone = self._alone, {}
        for connection, acks in together.items():
            if len(acks) == 1 or connection.remote_text in self._one_by_one:
                alone[connection] = acks + alone.get(connection, [])
                continue
            for at in range(0, len(acks), MOST_ACKS):
                self._send_together(connection, acks[at : at + MOST_ACKS])
        for connection, acks in alone.items():
            self.send_each(connection, acks)

    def _send_together(self, connection: Connection, acks: list[Ack]) -> None:
        try:
            body = bodies.encode(as_batch(acks))
        except ValueError:  # a receipt that is none
            self.send_each(connection, acks)
            return
        frame = self._frame(
            connection, self._general(BatchAckMessage(), body), AckBatch(self, connection, acks)
        )
        connection.write(frame)

    def send_each(self, connection: Connection, acks: list[Ack]) -> None:
        connection.write(b"".join([self._alone_frame(connection, ack) for ack in acks]))

    def _alone_frame(self, connection: Connection, ack: Ack) -> bytes:
        try:
            render = self._single(ack)
        except ProtocolError as error:  # a receipt that is none must not take the others along
            fail(ack.waiting, error)
            return b""
        return self._frame(connection, render, ack.waiting)

    def takes_no_batches(self, connection: Connection) -> None:
        self._one_by_one.add(connection.remote_text)

    def _frame(self, connection: Connection, render: Callable[[int], bytes], waiting: Waiting) -> bytes:
        session = self._session
        try:
            frame = connection.rendered(render, waiting)
        except NetworkError as error:  # lost within this turn
            fail(waiting, error)
            return b""
        session.deadlines.watch(waiting, session.clock.now() + session.options.request_timeout_ms)
        return frame

    def _single(self, ack: Ack) -> Callable[[int], bytes]:
        if self._session.options.access_key:
            return self._general(ack_header(ack.group, ack.topic, ack.receipt), b"")
        parts = ack.receipt.split(" ")
        retry, broker_name, queue_id, offset = parts[4:8]
        template = _ack_template(ack.group, ack.topic, retry, broker_name)
        return partial(template.frame, receipt=ack.receipt, queue_id=queue_id, offset=offset)

    def _general(self, header: Header, body: bytes) -> Callable[[int], bytes]:
        command = sign(wire.request(header, body), self._session.options)

        def render(opaque: int) -> bytes:
            command.opaque = opaque
            return wire.encode(command)

        return render


class AckBatch:
    """Acks that wait for one answer; to a connection, one that waits."""

    __slots__ = ("_acks", "_connection", "_turns")

    def __init__(self, turns: AckTurns, connection: Connection, acks: list[Ack]) -> None:
        self._turns = turns
        self._connection = connection
        self._acks = acks

    def done(self) -> bool:
        return all(ack.waiting.done() for ack in self._acks)

    def set_result(self, answer: Command) -> None:
        waiting = [ack for ack in self._acks if not ack.waiting.done()]
        if answer.code != ResponseCode.SUCCESS:
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                self._turns.takes_no_batches(self._connection)
            self._turns.send_each(self._connection, waiting)
            return
        for ack in waiting:
            ack.waiting.set_result(answer)

    def set_exception(self, error: BaseException) -> None:
        for ack in self._acks:
            fail(ack.waiting, type(error)(*error.args))

    def exception(self) -> BaseException | None:
        """Nobody asks: members have been told."""
        return None


def ack_header(group: str, topic: str, receipt: str) -> AckMessage:
    parsed = Receipt.parse(receipt)
    return AckMessage(
        consumer_group=group,
        topic=parsed.real_topic(topic, group),
        queue_id=parsed.queue_id,
        extra_info=receipt,
        offset=parsed.offset,
        broker_name=parsed.broker_name,
    )


def may_join(receipt: str) -> bool:
    """Whether a batch ack can hold it: one of a group without order, not too far from the start of its pop."""
    parts = receipt.split(" ")
    return (
        len(parts) == FIELDS
        and parts[3] != ORDERLY
        and parts[4] in RETRY_FLAGS
        and 0 <= int(parts[7]) - int(parts[0]) < FURTHEST
    )


def as_batch(acks: list[Ack]) -> bodies.BatchAck:
    """An entry for each pop and queue."""
    pops: dict[tuple[str, str, str], list[int]] = {}
    for ack in acks:
        pop, _, offset = ack.receipt.rpartition(" ")
        pops.setdefault((ack.group, ack.topic, pop), []).append(int(offset))
    entries = []
    broker_name = ""
    for (group, topic, pop), offsets in pops.items():
        start, pop_time, invisible, revive, retry, broker_name, queue_id = pop.split(" ")
        first = int(start)
        entries.append(
            bodies.BatchAckEntry(
                bits=bits_text([offset - first for offset in offsets]),
                consumer_group=group,
                invisible_time=int(invisible),
                pop_time=int(pop_time),
                queue_id=int(queue_id),
                retry=retry,
                revive_queue_id=int(revive),
                start_offset=first,
                topic=topic,
            )
        )
    return bodies.BatchAck(acks=entries, broker_name=broker_name)
