# SPDX-License-Identifier: Apache-2.0
"""Ask producers what became of their half messages (code 39), some times, then give up.

Before each question the half message is appended again with its count of checks raised, so that the count
survives a restart and the half topic's progress moves on. A message asked about often enough goes to
TRANS_CHECK_MAX_TIME_TOPIC, from where an operator can bring it back (code 323). Only questions that could be sent
count: while no producer of the group is online a message waits, however long that is.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.access.may import may
from aerobee.broker.delivery.destination import target_of
from aerobee.broker.operations.end_transaction import QUEUE, catch_up, write_op
from aerobee.broker.state.half_messages import Outcome
from aerobee.errors import MessageIllegal, SystemFailure
from aerobee.protocol import access, command, names
from aerobee.protocol import message as wire
from aerobee.protocol import properties as props
from aerobee.protocol.headers.transaction import CheckTransaction

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.state.clients import Member
    from aerobee.broker.state.half_messages import Half
    from aerobee.protocol.message import Record

log = logging.getLogger("aerobee.transactions")

CHECKS_PER_TURN = 200
# Op records a restart may have to read: past this, the transaction that holds progress back is moved on.
MAX_OPS_KEPT = 100_000


def check_transactions(now: int, broker: Broker) -> int:
    """Ask about what is due at `now`, a bounded number at once; returns how many were due."""
    catch_up(broker)
    known = broker.transactions
    due = known.due(now, CHECKS_PER_TURN)
    left = deque(due)
    try:
        while left:
            with broker.stats.skipped.over("transactions", half_offset=left[0].offset):
                _check(left[0], now, broker)
            left.popleft()  # one that cannot be handled stays open for its producer's word, and is not asked about
    finally:  # the disk refused: these are asked about later
        for half in left:
            known.postpone(half, now + broker.config.transaction_check_ms)
    if known.ops_kept > MAX_OPS_KEPT and (head := known.head()) is not None:
        _move_on(head, broker)
    _remember_progress(broker)
    return len(due)


def _check(half: Half, now: int, broker: Broker) -> None:
    record = broker.store.record_at(half.physical_offset)
    if record is None:
        log.warning("half_offset=%d is no longer in the store: forgotten", half.offset)
        broker.transactions.forget(half.origin)
        return
    next_time = now + broker.config.transaction_check_ms
    producers = _producers(record, broker)
    if not producers:
        _wait_for_producers(half, record, broker)
        broker.transactions.postpone(half, next_time)
    elif half.checks >= broker.config.transaction_check_max:
        _give_up(half, record, broker)
    else:
        copy = _append_again(half, record, half.checks + 1, broker)
        half.checks += 1
        broker.transactions.moved(half, copy.queue_offset, copy.physical_offset, next_time)
        _ask(copy, producers, broker)


def _producers(half: Record, broker: Broker) -> list[Member]:
    """Who says to be of the group may be anybody: the message is shown to those who may write its topic."""
    group = props.get(half.properties_text, props.PGROUP) or ""
    members = [member for member in broker.clients.producers(group) if member.link.is_open]
    target = target_of(half.properties_text)
    if broker.guard is None or target is None:
        return members
    need = access.topic(target.topic, access.Action.PUB)
    return [each for each in members if may(broker.guard, each.user, need, each.link.remote_text)]


def _wait_for_producers(half: Half, record: Record, broker: Broker) -> None:
    """Nobody is there to be asked, so this is no check. However long they stay away, retention does not take it."""
    age = broker.clock.wall() - record.store_timestamp
    if age > broker.store.config.retention_hours * 3_600_000 / 2:
        _move_on(half, broker)
    log.debug("half_offset=%d: no producer online to ask", half.offset)


def _move_on(half: Half, broker: Broker) -> None:
    """To the end of the half topic, without a check."""
    with broker.stats.skipped.over("transactions", half_offset=half.offset):
        record = broker.store.record_at(half.physical_offset)
        if record is not None:
            copy = _append_again(half, record, half.checks, broker)
            broker.transactions.moved(half, copy.queue_offset, copy.physical_offset, half.due)
        return
    broker.transactions.forget(half.origin)


def _append_again(half: Half, record: Record, checks: int, broker: Broker) -> Record:
    properties = record.properties
    properties[props.TRANSACTION_CHECK_TIMES] = str(checks)
    properties[props.TRAN_PREPARED_QUEUE_OFFSET] = str(half.origin)
    copy = msgspec.structs.replace(record, properties_text=props.render(properties))
    broker.store.append(copy)
    broker.stats.moved(copy.topic, 1, copy.size)
    return copy


def _give_up(half: Half, record: Record, broker: Broker) -> None:
    broker.topics.ensure(names.CHECK_MAX_TOPIC)
    dead = msgspec.structs.replace(
        record, topic=names.CHECK_MAX_TOPIC, queue_id=0, properties_text=props.render(record.properties)
    )
    broker.store.append(dead)
    write_op(half.origin, half.offset, Outcome.ROLLBACK, broker)
    log.warning(
        "group=%s half_offset=%d: no answer to %d checks, moved to %s; bring it back with message id %s",
        props.get(record.properties_text, props.PGROUP),
        half.origin,
        half.checks,
        names.CHECK_MAX_TOPIC,
        dead.offset_id,
    )


def _ask(half: Record, producers: list[Member], broker: Broker) -> None:
    """Send the question to one of the producers of the message's group."""
    properties, target = half.properties, target_of(half.properties_text)
    if target is None:
        raise MessageIllegal("a half message for no topic and queue that it may go to")
    unique_key = properties.get(props.UNIQ_KEY)
    header = CheckTransaction(
        topic=half.topic,
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.physical_offset,
        msg_id=unique_key,
        transaction_id=unique_key,
        offset_msg_id=half.offset_id,
        broker_name=broker.config.name,
    )
    shown = msgspec.structs.replace(
        half, topic=target.topic, queue_id=target.queue_id, properties_text=props.render(properties)
    )
    # Spread over the producers by message, so that one dead process is not asked every time.
    member = producers[half.queue_offset % len(producers)]
    member.link.send(command.request(header, wire.encode(shown)))


def resume_check(message_id: str, broker: Broker) -> None:
    """Put a message that was given up back into the half topic, with all its checks before it."""
    try:
        _, physical_offset = wire.parse_offset_message_id(message_id)
    except ValueError as error:
        raise SystemFailure(str(error)) from None
    record = broker.store.record_at(physical_offset)
    if record is None or record.topic not in (names.CHECK_MAX_TOPIC, names.HALF_TOPIC):
        raise SystemFailure(f"message id {message_id} names no half message of this broker")
    properties = record.properties
    properties[props.TRANSACTION_CHECK_TIMES] = "0"
    properties.pop(props.TRAN_PREPARED_QUEUE_OFFSET, None)
    text = props.render(properties)
    copy = msgspec.structs.replace(record, topic=names.HALF_TOPIC, queue_id=QUEUE, properties_text=text)
    broker.store.append(copy)


def _remember_progress(broker: Broker) -> None:
    known, offsets, group = broker.transactions, broker.offsets, names.TRANSACTION_GROUP
    for topic, reached in ((names.HALF_TOPIC, known.half_progress), (names.OP_TOPIC, known.op_progress)):
        if reached != offsets.get(group, topic, QUEUE):
            offsets.set(group, topic, QUEUE, reached)
