# SPDX-License-Identifier: Apache-2.0
"""A popped message is done: one at a time, or many in one request.

Idempotent: a receipt that is expired, was used before or was never given is answered like any other, since
the message is then somebody else's business. Only what cannot be a message of this broker is refused.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker import checks
from aerobee.broker.pop.bits import offsets_at
from aerobee.broker.pop.in_flight import MAX_TIME, TIME_BITS
from aerobee.broker.pop.orders import NO_PROGRESS, OTHER_POP
from aerobee.errors import MessageIllegal, NoMessage, SystemFailure
from aerobee.protocol.receipt import MAX_BITS, ORDERLY_QUEUE, Receipt, real_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.broker.broker import Broker
    from aerobee.broker.pop.in_flight import LaneKey
    from aerobee.protocol.bodies import BatchAckEntry

_FEWEST_FIELDS = 6
_as_tuple = tuple.__new__

MAX_BATCH_ACKS = 4_000  # entries of one request, each of one pop


class Ack(msgspec.Struct, frozen=True):
    group: str
    topic: str  # the real one: the retry topic for a message that came from there
    queue_id: int
    offset: int
    receipt: Receipt


def read_receipt(text: str, queue_id: int, offset: int) -> Receipt:
    """What an ack needs of a handle, of which older clients send fewer fields. Raises SystemFailure."""
    parts = text.split(" ")
    if len(parts) < _FEWEST_FIELDS:
        raise SystemFailure(
            f"receipt handle {text[:200]!r} has {len(parts)} fields, not {_FEWEST_FIELDS} or more"
        )
    try:
        start, pop_time, invisible, revive = map(int, parts[:4])
    except ValueError:
        raise SystemFailure(f"receipt handle {text[:200]!r}: the first four fields are numbers") from None
    # As `Receipt(...)`, of which an ack would feel the call: a named tuple is made by a function in Python.
    return _as_tuple(Receipt, (start, pop_time, invisible, revive, parts[4], parts[5], queue_id, offset, -1))


def ack(request: Ack, broker: Broker) -> None:
    place = (request.topic, request.group, request.queue_id)
    receipt = request.receipt
    at = request.offset - receipt.start_offset
    is_orderly = receipt.revive_qid == ORDERLY_QUEUE
    # A lease that is known needs no further checks: this is nearly every ack.
    if not is_orderly and 0 <= at < MAX_BITS and _ack_leased(place, receipt, 1 << at, broker):
        return
    check_queue(request.topic, request.queue_id, broker)
    low = broker.store.kept_from(request.topic, request.queue_id)
    high = broker.store.max_offset(request.topic, request.queue_id)
    if not low <= request.offset <= high:
        raise NoMessage(
            f"topic '{request.topic}' queue {request.queue_id} holds offsets {low} to {high}, not {request.offset}"
        )
    if is_orderly:
        ack_ordered(place, receipt.pop_time, request.offset, broker)


def open_bits(place: LaneKey, start: int, pop_time: int, broker: Broker) -> int:
    """The messages of a checkpoint, by their offset after its start, that `ack` would close without a further word: it
    is in memory only, and they lie together. 0 when it is otherwise."""
    in_flight = broker.pops.leases.in_flight
    lane = in_flight.lanes.get(place)
    young = None if lane is None or start < 0 or pop_time < 0 else in_flight.young_of(lane, start, pop_time)
    return young.open if young is not None and young.diffs is None else 0


def ack_bits(place: LaneKey, start: int, pop_time: int, bits: int, broker: Broker) -> None:
    """Ack messages that `open_bits` has named in this turn of the loop, each by a request of its own."""
    in_flight = broker.pops.leases.in_flight
    in_flight.ack(in_flight.lanes[place], start, pop_time, bits)
    broker.stats.acked_one_by_one(place[1], place[0], bits.bit_count())


def check_queue(topic: str, queue_id: int, broker: Broker) -> None:
    config = broker.topics.require(topic)
    if not 0 <= queue_id < config.read_queue_nums:
        raise MessageIllegal(
            f"topic '{topic}' has {config.read_queue_nums} queues to read; asked for {queue_id}"
        )


def _ack_leased(place: LaneKey, receipt: Receipt, places: int, broker: Broker) -> int:
    leases = broker.pops.leases
    start, pop_time = receipt.start_offset, receipt.pop_time
    lane, young = leases.in_flight.lanes.get(place), None
    if lane is not None and start >= 0 and 0 <= pop_time < MAX_TIME:
        young = lane.young.get(start << TIME_BITS | pop_time)
    if young is not None and young.diffs is None:
        # Nearly every one: nothing of it is written, so nobody has to look at the clock.
        known = leases.in_flight.close(young, places).bit_count()
    else:
        known = leases.ack(place, receipt, places, broker.clock.now())
    if known:
        broker.stats.acked(place[1], place[0], known)
    return known


def ack_ordered(place: LaneKey, pop_time: int, offset: int, broker: Broker) -> None:
    """Progress moves to the first un-acked message; a queue that is free now wakes a reader."""
    topic, group, queue_id = place
    if offset < broker.offsets.get(group, topic, queue_id):
        return
    now = broker.clock.wall()
    reached = broker.pops.orders.ack(place, offset, pop_time, now)
    if reached == OTHER_POP:
        return
    if reached == NO_PROGRESS:
        raise MessageIllegal(
            f"topic '{topic}' queue {queue_id}: offset {offset} is not out to group '{group}'"
        )
    if not broker.offsets.has_reset(group, topic, queue_id):
        broker.offsets.set(group, topic, queue_id, reached)
    broker.stats.acked(group, topic, 1)
    released(place, now, broker)


def released(place: LaneKey, now: int, broker: Broker) -> None:
    """After a change of an ordered batch: wake readers now that it is free, or exactly when it will be."""
    info = broker.pops.orders.get(*place)
    free_at = 0 if info is None else info.free_at()
    if free_at > now:
        broker.pops.release_at(place, free_at)
    else:
        broker.pops.wake(*place)


# -- many at once -----------------------------------------------------------------------------------------


def batch_ack(entries: Sequence[BatchAckEntry], broker: Broker) -> None:
    """Entries and bits that fit no queue are skipped; one that cannot be read fails the request."""
    if not entries:
        raise NoMessage("a batch of acks without any ack")
    checks.at_most(MAX_BATCH_ACKS, len(entries), "acks")
    for entry, places in [(entry, _places(entry)) for entry in entries]:
        _ack_entry(entry, places, broker)


def _places(entry: BatchAckEntry) -> int:
    """The bit set, little-endian: bit i acks the message i offsets after the start."""
    if entry.retry not in ("0", "1", "2"):
        raise SystemFailure(f"batch ack: retry flag {entry.retry!r} is none of 0, 1, 2")
    if not 0 < len(entry.bits) <= MAX_BITS // 6 + 8:
        raise SystemFailure(f"batch ack: a bit set of {len(entry.bits)} characters")
    try:
        return int.from_bytes(b64decode(entry.bits, validate=True), "little")
    except ValueError as error:
        raise SystemFailure(f"batch ack: bit set {entry.bits[:64]!r}: {error}") from None


def _ack_entry(entry: BatchAckEntry, places: int, broker: Broker) -> None:
    topic = real_topic(entry.topic, entry.consumer_group, entry.retry)
    config = broker.topics.get(topic)
    if config is None or not 0 <= entry.queue_id < config.read_queue_nums:
        return
    start = entry.start_offset
    below = max(0, broker.store.kept_from(topic, entry.queue_id) - start)
    above = max(0, broker.store.max_offset(topic, entry.queue_id) + 1 - start)
    if below >= MAX_BITS:
        return
    places = places >> below << below & (1 << min(above, MAX_BITS)) - 1  # the rest is in no queue
    place = (topic, entry.consumer_group, entry.queue_id)
    if entry.revive_queue_id == ORDERLY_QUEUE:
        for offset in offsets_at(start, places):
            ack_ordered(place, entry.pop_time, offset, broker)
    elif places:
        receipt = Receipt(
            start,
            entry.pop_time,
            entry.invisible_time,
            entry.revive_queue_id,
            entry.retry,
            "",
            entry.queue_id,
            start,
        )
        _ack_leased(place, receipt, places, broker)
