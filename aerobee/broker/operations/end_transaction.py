# SPDX-License-Identifier: Apache-2.0
"""A producer's word on its half message: commit appends it to its real topic, rollback only closes it.

A half message is stored by `operations/send.py` (see `destination.to_half`); nothing else has to be told, the
half topic is read from here. The order of the two appends of a commit matters: message first, op record
second. A crash between them leaves the message without its op record; `_committed_before` finds that out at
the restart, so that it is neither lost nor committed twice.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.delivery.destination import Target, route_delay, target_of
from aerobee.broker.delivery.keeping import Unkept, unkept
from aerobee.broker.state.half_messages import Half, Outcome
from aerobee.errors import IllegalOperation, MessageIllegal, SystemFailure
from aerobee.protocol import message as wire
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.codes import SysFlag
from aerobee.protocol.message import Record
from aerobee.store.results import ReadLimit

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker

log = logging.getLogger("aerobee.transactions")

QUEUE = 0  # the half and op topics have one
OP_TAG = "d"
TRANSACTION_BITS = int(SysFlag.TRANSACTION_MASK)  # plain integers: flag objects cost more than a dict look-up
COMMITTED = int(SysFlag.COMMIT)
BULK = 1024  # messages read at once
BULK_BYTES = 4 * 1024 * 1024
FEW = 10_000  # open transactions that are looked up one by one at every start, not only after a crash


class EndTransaction(msgspec.Struct, frozen=True):
    producer_group: str
    half_offset: int  # queue offset in the half topic, from the send result
    physical_offset: int  # commit-log offset, from the offset message id
    outcome: Outcome
    from_check: bool = False  # the answer to a check, not the producer's first word


class Ended(msgspec.Struct, frozen=True):
    end: int = 0  # of what was written of it, in the log
    unkept: Unkept | None = None  # what its answer waits for
    message: Record | None = None  # as committed


def end_transaction(request: EndTransaction, broker: Broker) -> Ended:
    """Commit or roll back; asking the same again is harmless. Raises when the request does not fit the message."""
    catch_up(broker)
    record, target = _half_of(request, broker)
    if request.outcome is Outcome.UNKNOWN:
        return Ended()
    origin = origin_of(record)
    if _is_over(origin, record, broker):
        return _ended_before(origin, request, record, target, broker)
    _check_in_time(record, request, broker)
    message = _commit(record, target, broker) if request.outcome is Outcome.COMMIT else None
    _count(request.outcome, record, target, broker)
    end = write_op(origin, record.queue_offset, request.outcome, broker)
    return Ended(end, unkept("", end, broker), message)


def _count(outcome: Outcome, half: Record, target: Target, broker: Broker) -> None:
    counted = broker.stats.counted
    if outcome is Outcome.ROLLBACK:
        counted.rolled_back[target.topic] += 1
        return
    counted.committed[target.topic] += 1
    counted.finish_s.add(target.topic, max(0, broker.clock.wall() - half.born_timestamp) / 1000)


def _half_of(request: EndTransaction, broker: Broker) -> tuple[Record, Target]:
    """The message and where it is to go."""
    record = broker.store.record_at(request.physical_offset)
    if record is None or record.topic != names.HALF_TOPIC:
        raise SystemFailure(f"there is no half message at commit-log offset {request.physical_offset}")
    group = props.get(record.properties_text, props.PGROUP)
    if group != request.producer_group:
        raise SystemFailure(
            f"the half message is of producer group '{group}', not '{request.producer_group}'"
        )
    if record.queue_offset != request.half_offset:
        raise SystemFailure(
            f"the half message at commit-log offset {request.physical_offset} has queue offset "
            f"{record.queue_offset}, not {request.half_offset}"
        )
    target = target_of(record.properties_text)
    if target is None:
        raise SystemFailure(
            "the half message may not go where it says: no such topic and queue can be sent to"
        )
    return record, target


def origin_of(record: Record) -> int:
    """The half-queue offset of its first copy, which cannot come after it."""
    text = props.get(record.properties_text, props.TRAN_PREPARED_QUEUE_OFFSET)
    first = props.whole_number(text, 0, record.queue_offset)
    return record.queue_offset if first is None else first


def _is_over(origin: int, record: Record, broker: Broker) -> bool:
    known = broker.transactions
    if known.find(origin) is not None:
        return False
    return record.queue_offset < known.cursor or known.ended_unread(record.queue_offset)


def _ended_before(
    origin: int, request: EndTransaction, record: Record, target: Target, broker: Broker
) -> Ended:
    before = broker.transactions.outcome(origin)
    if before is None and request.outcome is Outcome.COMMIT and not _committed_before(record, broker):
        raise SystemFailure(
            f"the transaction has ended already, and topic '{target.topic}' has no message of it: rolled back, given up "
            f"after too many checks ({names.CHECK_MAX_TOPIC}), or cleaned away since"
        )
    if before is not None and before is not request.outcome:
        raise SystemFailure(
            f"the transaction has ended with {before.name} already; {request.outcome.name} comes too late"
        )
    # The same again: nothing is done twice.
    log.debug("already ended origin=%d group=%s", origin, request.producer_group)
    return Ended()


def _check_in_time(record: Record, request: EndTransaction, broker: Broker) -> None:
    """With an immunity time of its own, a message is only ended by answers to checks once that has passed."""
    immunity_ms = immunity_of(record)
    if request.from_check or immunity_ms is None:
        return
    age_ms = broker.clock.wall() - record.born_timestamp
    if age_ms > immunity_ms:
        raise IllegalOperation(
            f"{age_ms} ms after its birth a message with {immunity_ms} ms to decide is being checked"
        )


def immunity_of(record: Record) -> int | None:
    text = props.get(record.properties_text, props.CHECK_IMMUNITY_SECONDS)
    seconds = props.whole_number(text)
    return None if seconds is None else seconds * 1000


def _commit(half: Record, target: Target, broker: Broker) -> Record:
    """Append the message where it was meant to go."""
    properties = half.properties
    record = Record(
        topic=target.topic,
        body=half.body,
        queue_id=target.queue_id,
        flag=half.flag,
        sys_flag=half.sys_flag & ~TRANSACTION_BITS | COMMITTED,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        reconsume_times=half.reconsume_times,
        prepared_offset=half.physical_offset,
    )
    if broker.topics.get(record.topic) is None:
        raise SystemFailure(f"topic '{record.topic}' of the half message was deleted; it cannot be committed")
    limits = broker.store.config
    route_delay(record, properties, broker.clock.wall(), len(broker.store.delays), limits.timer_max_delay_ms)
    record.properties_text = props.render(properties)
    broker.store.append(record)
    broker.stats.moved(record.topic, 1, record.size)
    return record


def write_op(origin: int, offset: int, outcome: Outcome, broker: Broker) -> int:
    """Record the end of a transaction met as the copy at `offset`; returns where the op record ends in the log."""
    offsets = broker.transactions.end(origin, offset, outcome)
    record = Record(
        topic=names.OP_TOPIC,
        body="".join(f"{offset}," for offset in offsets).encode(),
        queue_id=QUEUE,
        properties_text=props.render({props.TAGS: OP_TAG}),
        born_timestamp=broker.clock.wall(),
        born_host=broker.store.store_host,
    )
    broker.store.append(record)
    return record.physical_offset + record.size


# -- reading the half topic
# -----------------------------------------------------------------------------------


def catch_up(broker: Broker) -> None:
    """Read what the half topic has and memory has not."""
    known, store = broker.transactions, broker.store
    if known.cursor < 0:
        _restart(broker)
    while known.room > 0 and known.cursor < store.max_offset(names.HALF_TOPIC, QUEUE):
        records, next_offset = _read(names.HALF_TOPIC, known.cursor, min(known.room, BULK), broker)
        for record in records:
            with broker.stats.skipped.over("transactions", half_offset=record.queue_offset):
                known.read(describe(record, broker))
        known.skip(next_offset)
    known.settled()


def describe(record: Record, broker: Broker) -> Half:
    """What to remember of a half message, as if this were its only copy."""
    target = target_of(record.properties_text)
    if target is None:
        raise MessageIllegal("a half message for no topic and queue that it may go to")
    checks = props.whole_number(props.get(record.properties_text, props.TRANSACTION_CHECK_TIMES)) or 0
    if checks:
        wait_ms: int | None = broker.config.transaction_check_ms
    else:
        wait_ms = immunity_of(record)
    if wait_ms is None:
        wait_ms = broker.config.transaction_timeout_ms
    offset = record.queue_offset
    stored_at = broker.store.run_time(record.store_timestamp, record.physical_offset)
    due = min(stored_at, broker.clock.now()) + wait_ms
    return Half(origin_of(record), offset, record.physical_offset, checks, due, [offset], target.topic)


def _restart(broker: Broker) -> None:
    """Begin where the last run had come to: first what has ended since, then what is open."""
    known, half, op = (
        broker.transactions,
        _reached(names.HALF_TOPIC, broker),
        _reached(names.OP_TOPIC, broker),
    )
    known.start(half, op)
    end, halves = (broker.store.max_offset(topic, QUEUE) for topic in (names.OP_TOPIC, names.HALF_TOPIC))
    while op < end:
        records, op = _read(names.OP_TOPIC, op, BULK, broker)
        for record in records:
            known.replay_op(record.queue_offset, _offsets_in(record.body, below=halves))
    catch_up(broker)
    if len(known) <= FEW or not broker.store.recovery.clean:
        _complete_commits(broker)
    if known.cursor:
        log.info("restored open=%d half_offset=%d op_offset=%d", len(known), half, op)


def _complete_commits(broker: Broker) -> None:
    """A crash, or a disk that filled up, may have left a message in its real topic and its op record unwritten."""
    for entry in broker.transactions.open():
        with broker.stats.skipped.over("transactions", half_offset=entry.offset):
            record = broker.store.record_at(entry.physical_offset)
            if record is not None and _committed_before(record, broker):
                log.warning("half_offset=%d: committed already; its op record follows now", entry.offset)
                write_op(entry.origin, entry.offset, Outcome.COMMIT, broker)


def _reached(topic: str, broker: Broker) -> int:
    """The offset to begin at, within what the store has: a crash may have cut the log below what was saved."""
    store, saved = broker.store, broker.offsets.get(names.TRANSACTION_GROUP, topic, QUEUE)
    return min(max(saved, store.min_offset(topic, QUEUE), 0), store.max_offset(topic, QUEUE))


def _committed_before(half: Record, broker: Broker) -> bool:
    """Whether the real topic already has the message."""
    topic, key = props.get(half.properties_text, props.REAL_TOPIC), half.unique_key
    if topic is None or key is None:
        return False
    found = broker.store.find_by_key(topic, key, 64, half.born_timestamp - 1, 2**63 - 1)
    return any(
        record.unique_key == key
        and record.sys_flag & TRANSACTION_BITS == COMMITTED
        # Which no producer can write; but the first half message of all may lie at 0, and a later copy be the open one.
        and (record.prepared_offset > 0 or origin_of(half) == 0)
        for record in map(wire.decode, found)
    )


def _read(topic: str, offset: int, count: int, broker: Broker) -> tuple[list[Record], int]:
    """Up to `count` records from `offset` on, and where to go on reading: past a gap that is further on."""
    found = broker.store.read(topic, QUEUE, offset, ReadLimit(count, BULK_BYTES, count))
    if found.messages:
        records = []
        for at, raw in zip(found.offsets, found.messages, strict=True):
            with broker.stats.skipped.over("transactions", topic=topic, offset=at):
                records.append(wire.decode(raw))
        return records, found.next_offset
    log.warning("topic=%s offset=%d cannot be read: %s", topic, offset, found.status)
    return [], max(found.next_offset, offset + 1)


def _offsets_in(body: bytes, below: int) -> list[int]:
    """`12,57,` or, from old brokers, a single number. None past the half topic's end is kept in memory."""
    numbers = (
        props.whole_number(part.strip(), 0, below - 1) for part in body.decode(errors="replace").split(",")
    )
    return [number for number in numbers if number is not None]
