# SPDX-License-Identifier: Apache-2.0
"""Ordered POP: the batch each queue has out, and whether it blocks the queue. Kept in consumerOrderInfo.json.

An ordered pop has no checkpoint. One record per (topic, group, queue) says which offsets are out, which of
them are acked and until when the others are invisible. The queue is blocked while any of them is; then the
batch is simply read again from the committed offset, which never passes the first un-acked message.

All its times are the wall clock's, as in the file; the `now` it is told is too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol import bodies, java_json
from aerobee.store.saved_table import SavedTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.store.metadata import JsonFile

IDLE_MS = 24 * 3600 * 1000

Key = tuple[str, str, int]  # topic, group, queue id

NO_PROGRESS = -1  # the offset is not out, or nothing is
OTHER_POP = -2  # the receipt belongs to an earlier pop


class OrderedBatch(bodies.OrderInfo):
    """One queue's batch. `offsets` is packed as in the file: the first absolute, the rest relative to it."""

    @property
    def absolute(self) -> list[int]:
        return self.offsets[:1] + [self.offsets[0] + diff for diff in self.offsets[1:]]

    def open_offsets(self) -> list[int]:
        return [offset for i, offset in enumerate(self.absolute) if not self.commit_bits >> i & 1]

    def visible_at(self, offset: int) -> int:
        return self.next_visible.get(offset, self.pop_time + self.invisible_time)

    def free_at(self) -> int:
        """When the last un-acked message becomes visible; 0 when all are acked.

        The last, not RocketMQ's first that is still invisible: at that moment the queue may still be blocked.
        """
        return max((self.visible_at(offset) for offset in self.open_offsets()), default=0)


class Orders(SavedTable):
    def __init__(self, file: JsonFile | None = None) -> None:
        super().__init__(file)
        self._table: dict[tuple[str, str], dict[int, OrderedBatch]] = {}
        data = file.load() if file is not None else None
        if data is not None:
            self.load(data)

    def get(self, topic: str, group: str, queue_id: int) -> OrderedBatch | None:
        queues = self._table.get((topic, group))
        return None if queues is None else queues.get(queue_id)

    def blocked(self, key: Key, attempt_id: str | None, now: int) -> bool:
        info = self.get(*key)
        if info is None or (attempt_id is not None and attempt_id == info.attempt_id):
            return False  # the same attempt again: its answer was lost
        return info.free_at() > now

    def popped(self, key: Key, offsets: Sequence[int], lease: OrderedBatch) -> list[tuple[int, int]]:
        """A batch went out. Returns (offset, times delivered before) of each message."""
        old = self.get(*key)
        if old is not None and lease.attempt_id is not None and lease.attempt_id == old.attempt_id:
            lease.consumed_counts = old.consumed_counts
        elif old is not None:
            before = set(old.absolute)
            counts = old.consumed_counts
            lease.consumed_counts = {o: counts.get(o, 0) + 1 for o in offsets if o in before}
        lease.offsets = [offsets[0], *(offset - offsets[0] for offset in offsets[1:])]
        topic, group, queue_id = key
        self._table.setdefault((topic, group), {})[queue_id] = lease
        self.changed()
        return [(offset, lease.consumed_counts.get(offset, 0)) for offset in offsets]

    def ack(self, key: Key, offset: int, pop_time: int, now: int) -> int:
        """The offset to commit, or NO_PROGRESS or OTHER_POP."""
        info = self.get(*key)
        if info is None:
            return offset + 1
        if not info.offsets:
            return NO_PROGRESS
        if pop_time != info.pop_time:
            return OTHER_POP
        offsets = info.absolute
        if offset not in offsets:
            return NO_PROGRESS
        info.commit_bits |= 1 << offsets.index(offset)
        info.last_consume = now
        self.changed()
        left = info.open_offsets()
        return left[0] if left else offsets[-1] + 1

    def set_visible(self, key: Key, offset: int, pop_time: int, visible_at: int) -> None:
        """Ignored when the batch is another pop's."""
        info = self.get(*key)
        if info is not None and info.pop_time == pop_time:
            info.next_visible[offset] = visible_at
            self.changed()

    def moved(self, jump: int) -> None:
        """The wall clock, by which all of this is, was set: what is invisible stays so for as long as it was to."""
        for queues in self._table.values():
            for info in queues.values():
                for offset in info.open_offsets():
                    info.next_visible[offset] = info.visible_at(offset) + jump
                info.last_consume += jump
                self.changed()

    def clear(self, key: Key) -> None:
        """The group's offset was reset: nothing blocks the queue any more."""
        topic, group, queue_id = key
        queues = self._table.get((topic, group))
        if queues is not None and queues.pop(queue_id, None) is not None:
            self.changed()
            if not queues:
                del self._table[topic, group]

    def forget(self, topic: str | None, group: str | None) -> None:
        for key in [k for k in self._table if topic in (None, k[0]) and group in (None, k[1])]:
            del self._table[key]
            self.changed()

    def drop_idle(self, now: int) -> None:
        for (topic, group), queues in list(self._table.items()):
            for queue_id in [q for q, info in queues.items() if now - info.last_consume > IDLE_MS]:
                self.clear((topic, group, queue_id))

    def counts(self, topic: str, group: str, queue_id: int, now: int) -> tuple[int, int]:
        """Messages in flight, and those acked behind the first of these: the offset cannot show the latter yet.

        When nothing of the batch is in flight any more it is read again as a whole, what was acked too.
        """
        info = self.get(topic, group, queue_id)
        left = [] if info is None else info.open_offsets()
        if info is None or info.free_at() <= now:
            return 0, 0
        acked = sum(offset > left[0] for offset in info.absolute) - (len(left) - 1)
        return sum(info.visible_at(offset) > now for offset in left), acked

    def keys(self) -> list[Key]:
        return [
            (topic, group, queue_id) for (topic, group), queues in self._table.items() for queue_id in queues
        ]

    # -- the file ----------------------------------------------------------------------------------------

    def text(self) -> bytes:
        table = {f"{topic}@{group}": queues for (topic, group), queues in self._table.items()}
        return msgspec.json.format(msgspec.json.encode({"table": table}), indent=1)

    def load(self, data: bytes) -> None:
        for key, queues in decode(data).table.items():
            topic, _, group = key.partition("@")
            if topic and group:
                self._table[topic, group] = {q: info for q, info in queues.items() if info.offsets}


class _File(msgspec.Struct):
    table: dict[str, dict[int, OrderedBatch]] = {}


def decode(data: bytes) -> _File:
    """Java writes integer keys bare; ValueError or a DecodeError when it is not such a file."""
    return java_json.decode(data, _File)
