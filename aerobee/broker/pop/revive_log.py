# SPDX-License-Identifier: Apache-2.0
"""The revive log: checkpoints that outlived memory, and what was acked of them, as messages of a system topic.

The messages are RocketMQ's own (tags `ck`, `ack`, `bAck`; JSON bodies), so each broker can go on where the
other stopped. What differs is when they are written: RocketMQ sends them through its timer and reads them
when they are due, Aerobee writes them at once and keeps the due time in memory. Hence both ways:
  - a RocketMQ broker finds checkpoints that are not due yet and waits for them, as its reader does anyway;
  - here, messages that RocketMQ's timer still holds arrive later (`unread`), the acks after their checkpoint.
A fourth tag, `drop`, which RocketMQ ignores, says that leases written before it are void: an offset was
reset, a topic or a group deleted. It is written to every queue, since a lane's checkpoints are spread over
all of them.

The revive group's committed offset is, as in RocketMQ, the last one that is done with.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from aerobee.broker.pop.in_flight import MAX_BATCH, MAX_TIME
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.message import Record
from aerobee.protocol.receipt import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECKPOINT_TAG,
    MAX_BITS,
    AckRecord,
    CheckpointRecord,
    decode_ack,
    decode_checkpoint,
    encode_revive,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.state.offsets import Offsets
    from aerobee.broker.state.skipped import Skipped
    from aerobee.store.results import Unit

GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
DROP_TAG = "drop"
QUEUE_BITS = 8
BLOCK_SHIFT = 8


class Drop(msgspec.Struct, kw_only=True):
    """Leases written before this are void. None = any."""

    topic: str | None = msgspec.field(default=None, name="t")
    group: str | None = msgspec.field(default=None, name="c")
    queue_id: int | None = msgspec.field(default=None, name="q")
    from_offset: int = msgspec.field(default=0, name="so")


class Entry(NamedTuple):
    position: int
    physical_offset: int
    value: CheckpointRecord | AckRecord | Drop
    foreign: bool  # came through RocketMQ's timer, so its acks may still be on their way


class Log(Protocol):
    """What is needed of the store."""

    def append(self, record: Record) -> None: ...
    def record_of(self, topic: str, queue_id: int, offset: int) -> Record | None: ...
    def max_offset(self, topic: str, queue_id: int) -> int: ...
    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def unit(self, topic: str, queue_id: int, offset: int) -> Unit | None: ...


def pack(queue_id: int, offset: int) -> int:
    return offset << QUEUE_BITS | queue_id


def unpack(position: int) -> tuple[int, int]:
    return position & (1 << QUEUE_BITS) - 1, position >> QUEUE_BITS


class ReviveLog:
    def __init__(
        self, store: Log, offsets: Offsets, named: tuple[str, str], queues: int, skipped: Skipped
    ) -> None:
        """`named` after the cluster and the broker."""
        cluster, self._broker_name = named
        self.topic = names.revive_topic(cluster)
        self.queues = queues
        self._store = store
        self._offsets = offsets
        self._skipped = skipped
        self._read = [self._first_unread(queue_id) for queue_id in range(queues)]
        # Per queue: checkpoints not done with, counted by blocks of log offsets.
        self._pending: list[dict[int, int]] = [{} for _ in range(queues)]
        self.written: Counter[tuple[str, str, str]] = Counter()  # by group, topic and kind

    def _first_unread(self, queue_id: int) -> int:
        committed = self._offsets.get(GROUP, self.topic, queue_id)
        return max(committed + 1, self._store.min_offset(self.topic, queue_id))

    # -- writing -----------------------------------------------------------------------------------------

    def write_checkpoint(self, queue_id: int, checkpoint: CheckpointRecord, now: int) -> int:
        """Returns its position."""
        checkpoint.broker_name = self._broker_name
        record = self._record(CHECKPOINT_TAG, encode_revive(checkpoint), checkpoint.unique_key, now)
        position = self._append(queue_id, record, checkpoint.revive_time - 1000)
        self.written[checkpoint.group, checkpoint.topic, CHECKPOINT_TAG] += 1
        return position

    def write_ack(self, queue_id: int, ack: AckRecord, now: int, due: int) -> None:
        ack.broker_name = self._broker_name
        tag = BATCH_ACK_TAG if ack.offsets else ACK_TAG
        self._append(queue_id, self._record(tag, encode_revive(ack), ack.unique_key, now), due)
        self.written[ack.group, ack.topic, ACK_TAG] += 1

    def write_drop(self, drop: Drop, now: int) -> int:
        """Returns its place in the commit log."""
        records = [self._record(DROP_TAG, msgspec.json.encode(drop), "", now) for _ in range(self.queues)]
        for queue_id, record in enumerate(records):
            self._append(queue_id, record, now)
        return records[0].physical_offset

    def _record(self, tag: str, body: bytes, key: str, now: int) -> Record:
        text = {props.TAGS: tag, props.UNIQ_KEY: key} if key else {props.TAGS: tag}
        return Record(topic=self.topic, body=body, properties_text=props.render(text), born_timestamp=now)

    def _append(self, queue_id: int, record: Record, deliver_at: int) -> int:
        queue_id %= self.queues  # a handle from before the number of queues was changed
        record.queue_id = queue_id
        # RocketMQ's reader takes this as the time up to which it has seen everything.
        record.properties_text += f"{props.TIMER_OUT_MS}\x01{deliver_at}\x02"
        self._store.append(record)
        if record.queue_offset == self._read[queue_id]:  # else something foreign came before it
            self._read[queue_id] += 1
        return pack(queue_id, record.queue_offset)

    # -- reading -----------------------------------------------------------------------------------------

    def checkpoint_at(self, position: int) -> tuple[CheckpointRecord, int] | None:
        """The checkpoint and its place in the commit log; None when it is gone or no checkpoint."""
        queue_id, offset = unpack(position)
        entry = self._entry(queue_id, offset)
        if entry is None or not isinstance(entry.value, CheckpointRecord):
            return None
        return entry.value, entry.physical_offset

    def unread(self, limit: int) -> Iterator[Entry | None]:
        """What was written before the start, and what others (RocketMQ's timer) have written since; None where that
        is nothing for us.

        In the order it was written, whichever queue it is in: a drop voids what came before it, nothing else.
        """
        queues = [self._unread_of(queue_id) for queue_id in range(self.queues)]
        merged = heapq.merge(*queues, key=lambda found: found[0])
        for _, queue_id, entry in itertools.islice(merged, limit):
            self._read[queue_id] += 1
            yield entry

    def _unread_of(self, queue_id: int) -> Iterator[tuple[int, int, Entry | None]]:
        end = self._store.max_offset(self.topic, queue_id)
        for offset in range(self._read[queue_id], end):
            entry = self._entry(queue_id, offset)
            yield -1 if entry is None else entry.physical_offset, queue_id, entry

    def speaks_for(self, entry: Entry, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the message there is the one a checkpoint means: it exists, and was written before it.

        Else it is gone, or its topic was deleted and created again since (8479).
        """
        unit = self._store.unit(topic, queue_id, offset)
        return unit is not None and unit.physical_offset < entry.physical_offset

    def _entry(self, queue_id: int, offset: int) -> Entry | None:
        with self._skipped.over("revive", queue=queue_id, offset=offset):
            record = self._store.record_of(self.topic, queue_id, offset)
            value = None if record is None else _value(record)
            if record is not None and value is not None:
                foreign = props.get(record.properties_text, props.TIMER_DELIVER_MS) is not None
                return Entry(pack(queue_id, offset), record.physical_offset, value, foreign)
        return None

    # -- progress ----------------------------------------------------------------------------------------

    def pending(self, position: int) -> None:
        """A checkpoint there has to be kept until `done`."""
        queue_id, offset = unpack(position)
        blocks = self._pending[queue_id]
        blocks[offset >> BLOCK_SHIFT] = blocks.get(offset >> BLOCK_SHIFT, 0) + 1

    def done(self, position: int) -> None:
        queue_id, offset = unpack(position)
        blocks = self._pending[queue_id]
        left = blocks.get(offset >> BLOCK_SHIFT, 0) - 1
        if left > 0:
            blocks[offset >> BLOCK_SHIFT] = left
        else:
            blocks.pop(offset >> BLOCK_SHIFT, None)

    def commit(self) -> None:
        """Move the revive group's offset up to the first checkpoint that is not done with (by whole blocks)."""
        for queue_id, blocks in enumerate(self._pending):
            first = min(blocks) << BLOCK_SHIFT if blocks else self._read[queue_id]
            last_done = min(first, self._read[queue_id]) - 1
            if last_done > self._offsets.get(GROUP, self.topic, queue_id):
                self._offsets.set(GROUP, self.topic, queue_id, last_done)

    @property
    def behind(self) -> int:
        """Log messages after the committed offset: what a restart would read."""
        return sum(map(self.behind_in, range(self.queues)))

    def behind_in(self, queue_id: int) -> int:
        committed = self._offsets.get(GROUP, self.topic, queue_id)
        return self._store.max_offset(self.topic, queue_id) - 1 - committed


def _value(record: Record) -> CheckpointRecord | AckRecord | Drop | None:
    """What a message of the log says, None when nothing that concerns us. Raises when it cannot be meant so."""
    tag = record.tags
    if tag == CHECKPOINT_TAG:
        checkpoint = decode_checkpoint(record.body)
        _check_checkpoint(checkpoint)
        return checkpoint
    if tag in (ACK_TAG, BATCH_ACK_TAG):
        return decode_ack(record.body)
    return msgspec.json.decode(record.body, type=Drop) if tag == DROP_TAG else None


def _check_checkpoint(checkpoint: CheckpointRecord) -> None:
    """As a pop request's topic, group and times would be checked: the messages it names are given to its group."""
    names.check_group(checkpoint.group)
    if not names.may_deliver(checkpoint.topic):
        raise ValueError(f"a checkpoint of topic {checkpoint.topic[:64]!r}, which cannot be popped")
    if not (0 <= checkpoint.pop_time <= MAX_TIME and 0 <= checkpoint.invisible_time <= MAX_TIME):
        raise ValueError(f"popped at {checkpoint.pop_time} for {checkpoint.invisible_time} ms: no such time")
    start, offsets = checkpoint.start_offset, checkpoint.offsets[:MAX_BATCH]
    if not offsets or not 0 <= start <= offsets[0] or offsets[-1] - start >= MAX_BITS or _falls(offsets):
        raise ValueError(f"offsets from {start} on that no pop can have returned")


def _falls(offsets: list[int]) -> bool:
    return any(first >= second for first, second in itertools.pairwise(offsets))
