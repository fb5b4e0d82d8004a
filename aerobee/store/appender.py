# SPDX-License-Identifier: Apache-2.0
"""The hot path of a send: one record into the log, its unit into the queue, its keys into the index, in one turn.

Nothing here waits and nothing can fail after the first byte is written: room in index and log is asked for before.
What is written is there when its first eight bytes are (`CommitLog.publish`), a batch like a record: all or nothing.
The path is flatter than we write elsewhere, because a Python call costs what storing 300 bytes does:
benchmarks/append.py keeps the figure.
"""

from __future__ import annotations

import struct
import zlib
from itertools import accumulate
from typing import TYPE_CHECKING, NoReturn

from aerobee.errors import MessageIllegal
from aerobee.protocol.message import (
    CHECK_BACKWARDS,
    HEAD_V4,
    LENGTHS,
    MAX_PROPERTIES,
    RECORD_CHECK_SIZE,
    decode,
    encode_head,
)
from aerobee.store.batch_columns import Layout, Places, encode
from aerobee.store.commit_log import RUN_BYTES, WORTH_A_CALL
from aerobee.store.consume_queue import UNIT
from aerobee.store.key_index import RUN_KEYS
from aerobee.store.record_keys import index_keys, looked_at, tag_unique_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.clock import Clock
    from aerobee.errors import StoreError
    from aerobee.native.drafts import Draft
    from aerobee.protocol.batch import Batch
    from aerobee.protocol.message import Record
    from aerobee.settings import InForce, StoreConfig
    from aerobee.store.commit_log import CommitLog
    from aerobee.store.consume_queue import ConsumeQueue
    from aerobee.store.key_index import KeyIndex
    from aerobee.store.queues import ConsumeQueues
    from aerobee.store.record_keys import TagCodes
    from aerobee.store.results import Listener

    _Part = tuple[Record, bytes, str | None, list[str]]  # properties as stored, tag, keys

_CHECK_NAME = "__CRC32#\x01"
_MAX_HELD_MS = 24 * 3600 * 1000
_FIXED = 74  # a record without hosts, topic field, body and properties
_MAX_TOPIC_FIELD = 257
_pack_first = struct.Struct(">ii").pack  # size and magic
_pack_head = struct.Struct(">" + HEAD_V4.format[3:]).pack  # the rest before the body
_pack_unit = UNIT.pack
_crc32 = zlib.crc32


class Appender:
    """`refused`, when set, makes the error that every append raises: a full or a failed disk."""

    def __init__(
        self,
        settings: InForce[StoreConfig],
        clock: Clock,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex,
        codes: TagCodes,
    ) -> None:
        self.listeners: list[Listener] = []
        self.refused: Callable[[], StoreError] | None = None
        self.store_host = b""
        self.last_store_time = 0
        self._check_size = RECORD_CHECK_SIZE if settings.value.record_check else 0
        self._settings = settings
        self._max_text = MAX_PROPERTIES - self._check_size
        self._wall = clock.wall
        self._log = log
        self._queues = queues
        self._loaded = queues.loaded
        self._index = index
        self._codes = codes.__call__  # bound here: looking the method up would be done at every append

    def append(self, record: Record) -> None:
        """Store one message and dispatch it; the record is stamped with its place. DiskFull, StoreError."""
        if self.refused is not None:
            raise self.refused()
        topic, queue_id, flags = record.topic, record.queue_id, record.sys_flag
        queue = self._loaded.get((topic, queue_id)) or self._queues.obtain(topic, queue_id)
        data, tag, words = self._parts(record, queue)
        wall = self._wall()
        now = record.store_timestamp = wall if wall >= self.last_store_time else self._stamp(wall)
        size = record.size
        log, index = self._log, self._index
        if index.left < len(words):
            index.room(len(words), now)
        at = log.end
        if at + size > log.limit:
            at = log.room(size)
        record.physical_offset = at
        record.queue_offset = 0 if flags & 4 else queue.max_offset

        start, log_map, (first, rest) = at - log.base, log.map, self._encode(record, queue, data)
        # As CommitLog.publish does, without the call.
        log_map[start + 8 : start + size] = rest  # type: ignore[index]
        log_map[start : start + 8] = first  # type: ignore[index]
        log.end = at + size
        self.last_store_time = now
        # As in _enter, for one.
        code = self._codes(topic, queue_id, tag, wall)
        if not flags & 4:  # prepared and rolled-back records have no unit
            if not queue.tail:
                self._queues.dirty[queue] = None
            queue.tail += _pack_unit(at, size, code)
            queue.max_offset += 1
        for word in words:
            if index.left > 0:  # as KeyIndex.put, without the call
                index.left -= 1
                index.waiting.append((topic, word, at, now))
        for listener in self.listeners:
            if listener.count:
                listener.arrived(record, code)

    def append_batch(self, records: list[Record]) -> None:
        """Store messages of one topic and queue, all in one file with consecutive offsets, or none."""
        if self.refused is not None:
            raise self.refused()
        if not records:
            return
        queue = self._queues.obtain(records[0].topic, records[0].queue_id)
        now, total, keys, parts = self._stamp(self._wall()), 0, 0, []
        for record in records:
            data, tag, words = self._parts(record, queue)
            record.store_timestamp = now
            total += record.size
            keys += len(words)
            parts.append((record, data, tag, words))
        self._index.prepare(keys, now)
        at = self._log.room(total)
        self._log.publish(at, self._encode_all(parts, queue, at))
        codes = self._enter(parts, queue, now)
        self._log.end = at + total
        self.last_store_time = now
        # Last, because a listener may append: the offsets of the whole batch are taken by now.
        for listener in self.listeners:
            for record, code in zip(records, codes, strict=True) if listener.count else ():
                listener.arrived(record, code)

    def append_columns(self, batch: Batch) -> Places:
        """Store a producer's batch as `append_batch` would, only faster. It must not be transactional."""
        if len(batch.born_host) != 8 or len(self.store_host) != 8:
            return self._append_records(batch)
        if self.refused is not None:
            raise self.refused()
        _, bodies, texts = batch.members
        queue, log = self._queues.obtain(batch.topic, batch.queue_id), self._log
        if self._check_size:
            texts = [
                text if text[-1:] == "\x02" and "__CRC32#" not in text else clean(text) for text in texts
            ]
        data = [text.encode() for text in texts]
        longest = max(map(len, bodies)), max(map(len, data))
        if (
            longest[0] > self._settings.value.max_message_bytes
            or longest[1] > self._max_text
            or len(queue.topic_field) > _MAX_TOPIC_FIELD
        ):
            self._refuse(*longest, queue)
        tags, words = self._names(batch, texts)
        now = self._stamp(self._wall())
        fixed = _FIXED + 16 + len(queue.topic_field) + self._check_size
        sizes = [fixed + len(body) + len(text) for body, text in zip(bodies, data, strict=True)]
        self._index.prepare(sum(map(len, words)), now)
        at = log.room(sum(sizes))
        *places, end = accumulate(sizes, initial=at)
        layout = Layout(data, sizes, places)
        try:
            records = encode(batch, queue, layout, (now, self.store_host), self._check_size)
        except struct.error as error:
            raise _no_number(queue, error) from None
        log.publish(at, records)
        code_of = {tag: self._codes(batch.topic, batch.queue_id, tag, now) for tag in set(tags)}
        codes = [code_of[tag] for tag in tags]
        stored = Places(queue.max_offset, places, end)
        if not queue.tail:
            self._queues.dirty[queue] = None
        queue.tail += b"".join(map(_pack_unit, places, sizes, codes))
        queue.max_offset += len(sizes)
        self._index.put_all(batch.topic, words, places, now)
        log.end = end
        self.last_store_time = now
        self._tell(batch, stored, codes)
        return stored

    def _append_records(self, batch: Batch) -> Places:
        records = list(batch.records())
        self.append_batch(records)
        end = records[-1].physical_offset + records[-1].size
        return Places(records[0].queue_offset, [record.physical_offset for record in records], end)

    def _names(self, batch: Batch, texts: list[str]) -> tuple[list[str | None], list[list[str]]]:
        """Tags and keys of a batch's messages."""
        named = [tag_unique_keys(text) for text in texts]
        flags = batch.sys_flag
        return [tag for tag, _, _ in named], [
            [unique] if unique and not keys and not flags else index_keys(flags, unique, keys)
            for _, unique, keys in named
        ]

    def _tell(self, batch: Batch, stored: Places, codes: list[int]) -> None:
        """Records are made only when somebody waits for the queue."""
        place = (batch.topic, batch.queue_id)
        awaited = [each.arrived for each in self.listeners if each.count and place in each.awaited()]
        if not awaited:
            return
        for n, (record, code) in enumerate(zip(batch.records(), codes, strict=True)):
            record.queue_offset = stored.queue_offset + n
            record.physical_offset = stored.physical_offsets[n]
            for tell in awaited:
                tell(record, code)

    # -- runs of the compiled lane ----------------------------------------------------------------------

    def new_draft(self) -> Draft:
        from aerobee.native.drafts import Draft

        return Draft(self._loaded.get)

    def begin(self, draft: Draft) -> bool:
        """Make a draft ready for what may be appended now; False when that is Python's business."""
        log, index, host, settings = self._log, self._index, self.store_host, self._settings.value
        if self.refused is not None or log.map is None:
            return False
        wall, unloaded = self._wall(), self._queues.unloaded
        now = wall if wall >= self.last_store_time else self._stamp(wall)
        if draft.goes_on(log.end, now, index, host, settings, unloaded):
            return True
        keys = index.room_for_draft()
        if not keys:
            return False
        sizes = (self._check_size, self._max_text, settings.max_message_bytes)
        draft.begin(log.end, log.room_for_draft(), keys, now, host, sizes, unloaded)
        draft.lease(settings, index.files[-1], RUN_BYTES, RUN_KEYS)
        return True

    def keep(self, draft: Draft) -> None:
        """Store what was drafted since `begin`, all of it or, when the disk refuses, nothing. `dispatch` follows in the
        same turn."""
        log = self._log
        if not draft.keep_in(log.map, draft.start - log.base, WORTH_A_CALL):
            draft.published(log.publish)
        log.end = draft.start + draft.size
        self.last_store_time = draft.now

    def dispatch(self, draft: Draft) -> None:
        """What was kept: into its queues and the index, and to whoever waits for it."""
        draft.enter_units(self._queues.dirty)
        self._index.enter(draft)
        # Records are made only for queues somebody waits for, and told in the order of the log.
        awaited = draft.awaited(self.listeners)
        if awaited is None:
            return
        for queue, code, raw in draft.records_of(awaited):
            record = decode(raw)
            for tell in awaited[queue]:
                tell(record, code)

    # -- parts ---------------------------------------------------------------------------------------------

    def _encode_all(self, parts: list[_Part], queue: ConsumeQueue, at: int) -> bytes:
        """The records of a batch, which is to begin at `at`, each stamped with its place."""
        encoded: list[bytes] = []
        offset = queue.max_offset
        for record, data, _, _ in parts:
            has_unit = not record.sys_flag & 4  # prepared and rolled-back records have none
            record.physical_offset, record.queue_offset = at, offset if has_unit else 0
            encoded += self._encode(record, queue, data)
            offset += has_unit
            at += record.size
        return b"".join(encoded)

    def _enter(self, parts: list[_Part], queue: ConsumeQueue, now: int) -> list[int]:
        """Units and keys of a batch that is in the log; its tags codes."""
        topic, queue_id, index, units, codes = queue.topic, queue.queue_id, self._index, [], []
        for record, _, tag, words in parts:
            at = record.physical_offset
            code = self._codes(topic, queue_id, tag, now)
            codes.append(code)
            if not record.sys_flag & 4:
                units.append(_pack_unit(at, record.size, code))
            if index.left < len(words):
                index.room(len(words), now)
            for word in words:
                index.put(topic, word, at, now)
        if units:
            if not queue.tail:
                self._queues.dirty[queue] = None
            queue.tail += b"".join(units)
            queue.max_offset += len(units)
        return codes

    def _stamp(self, wall: int) -> int:
        """The store time of what is written now: never before the last one, since searches by time rely on that.

        A clock that was set back is waited for; one set back by more than a day had been plainly wrong.
        """
        last = self.last_store_time
        return last if 0 < last - wall <= _MAX_HELD_MS else wall

    def _parts(self, record: Record, queue: ConsumeQueue) -> tuple[bytes, str | None, list[str]]:
        """Properties as stored, tag, keys. The record is stamped with our host and the size it will have; what no record
        can hold is refused."""
        text, flags = record.properties_text, record.sys_flag
        if self._check_size and ("__CRC32#" in text or text[-1:] != "\x02"):
            text = clean(text)
        data = text.encode()
        body_size, text_size, topic_size = len(record.body), len(data), len(queue.topic_field)
        if (
            body_size > self._settings.value.max_message_bytes
            or text_size > self._max_text
            or topic_size > _MAX_TOPIC_FIELD
        ):
            self._refuse(body_size, text_size, queue)
        record.store_host = host = self.store_host
        hosts = len(record.born_host) + len(host)
        record.size = _FIXED + hosts + body_size + topic_size + text_size + self._check_size
        tag, unique, keys = looked_at(text)
        return data, tag, [unique] if unique and not keys and not flags else index_keys(flags, unique, keys)

    def _refuse(self, body_size: int, text_size: int, queue: ConsumeQueue) -> NoReturn:
        max_body, name_size = self._settings.value.max_message_bytes, len(queue.topic.encode())
        found = (
            (name_size, _MAX_TOPIC_FIELD - 2, "a name of {} bytes; the limit is {}"),
            (body_size, max_body, "a body of {} bytes; the limit is {}, the broker's max_message_bytes"),
            (text_size, self._max_text, "properties of {} bytes; the limit is {}"),
        )
        too_large = [text.format(size, limit) for size, limit, text in found if size > limit]
        raise MessageIllegal(f"topic {queue.topic[:40]!r}: {', and '.join(too_large)}")

    def _encode(self, record: Record, queue: ConsumeQueue, text: bytes) -> tuple[bytes, bytes]:
        """The first eight bytes of the record, and the rest."""
        body = record.body
        record.body_crc = crc = _crc32(body) & 0x7FFFFFFF
        try:
            if len(record.born_host) == 8 and len(record.store_host) == 8:
                first = _pack_first(record.size, queue.magic)
                head = _pack_head(
                    crc, record.queue_id, record.flag, record.queue_offset,
                    record.physical_offset, record.sys_flag & ~0x30, record.born_timestamp, record.born_host,
                    record.store_timestamp, record.store_host, record.reconsume_times, record.prepared_offset,
                    len(body),
                )  # fmt: skip
            else:
                head = encode_head(record, queue.magic)
                first, head = head[:8], head[8:]
        except struct.error as error:
            raise _no_number(queue, error) from None
        if not self._check_size:
            return first, b"".join((head, body, queue.topic_field, LENGTHS[len(text)], text))
        rest = b"".join((head, body, queue.topic_field, LENGTHS[len(text) + RECORD_CHECK_SIZE], text))
        check = CHECK_BACKWARDS % (_crc32(rest, _crc32(first)) & 0x7FFFFFFF)
        return first, rest + check[::-1]


def _no_number(queue: ConsumeQueue, error: struct.error) -> MessageIllegal:
    return MessageIllegal(f"topic {queue.topic!r}: a flag, count or time that a record cannot hold: {error}")


def clean(text: str) -> str:
    """The properties text that a record check can follow: without an older check, with its last 0x02."""
    if _CHECK_NAME in text:
        at = text.index(_CHECK_NAME)
        text = text[:at] + text[at + RECORD_CHECK_SIZE :]
    return text + "\x02" if text and text[-1] != "\x02" else text
