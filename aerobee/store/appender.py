# SPDX-License-Identifier: Apache-2.0
"""The hot path of a send: one record into the log, its unit into the queue, its keys into the index, in one turn.

Nothing here waits and nothing can fail after the first byte is written: room in index and log is asked for before.
The path is flatter than we write elsewhere, because a Python call costs what storing 300 bytes does:
benchmarks/append.py keeps the figure.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from aerobee.errors import MessageIllegal
from aerobee.protocol.message import HEAD_V4, MAX_PROPERTIES, RECORD_CHECK_SIZE, encode_head
from aerobee.store.consume_queue import UNIT
from aerobee.store.dispatch import index_keys, tag_unique_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.clock import Clock
    from aerobee.config import StoreConfig
    from aerobee.errors import StoreError
    from aerobee.protocol.message import Record
    from aerobee.store.commit_log import CommitLog
    from aerobee.store.consume_queue import ConsumeQueue
    from aerobee.store.dispatch import TagCodes
    from aerobee.store.key_index import KeyIndex
    from aerobee.store.queues import ConsumeQueues

    _Part = tuple[Record, bytes, str | None, list[str]]  # properties as stored, tag, keys

_CHECK_NAME = "__CRC32#\x01"
_FIXED = 74  # a record without hosts, topic field, body and properties
_MAX_TOPIC_FIELD = 257
_SHORT = [n.to_bytes(2, "big") for n in range(MAX_PROPERTIES + 1)]
_pack_head = HEAD_V4.pack
_pack_unit = UNIT.pack
_crc32 = zlib.crc32


class Appender:
    """`refused`, when set, makes the error that every append raises: a full or a failed disk."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        log: CommitLog,
        queues: ConsumeQueues,
        index: KeyIndex,
        codes: TagCodes,
    ) -> None:
        self.listeners: list[Callable[[Record, int], None]] = []
        self.refused: Callable[[], StoreError] | None = None
        self.store_host = b""
        self.last_store_time = 0
        self._check_size = RECORD_CHECK_SIZE if config.record_check else 0
        self._max_body = config.max_message_bytes
        self._max_text = MAX_PROPERTIES - self._check_size
        self._now = clock.now
        self._log = log
        self._queues = queues
        self._loaded = queues.loaded
        self._index = index
        self._codes = codes

    def append(self, record: Record) -> None:
        """Store one message and dispatch it; the record is stamped with its place. DiskFull, StoreError."""
        if self.refused is not None:
            raise self.refused()
        topic, queue_id, text, flags = record.topic, record.queue_id, record.properties_text, record.sys_flag
        queue = self._loaded.get((topic, queue_id)) or self._queues.obtain(topic, queue_id)
        if self._check_size and ("__CRC32#" in text or (text and text[-1] != "\x02")):
            text = clean(text)
        data = text.encode()
        tag, unique, keys = tag_unique_keys(text)
        words = [unique] if unique and not keys and not flags else index_keys(flags, unique, keys)
        now = self._now()
        size = self._stamp(record, queue, len(data), now)
        log, index = self._log, self._index
        if index.left < len(words):
            index.room(len(words), now)
        at = log.end
        if at + size > log.limit:
            at = log.room(size)
        record.physical_offset = at
        record.queue_offset = 0 if flags & 4 else queue.max_offset

        start = at - log.base
        log.map[start : start + size] = self._encode(record, queue, data)  # type: ignore[index]
        log.end = at + size
        self.last_store_time = now
        # As in _write, for one.
        code = self._codes(topic, queue_id, tag, now)
        if not flags & 4:  # prepared and rolled-back records have no unit
            if not queue.tail:
                self._queues.dirty[queue] = None
            queue.tail += _pack_unit(at, size, code)
            queue.max_offset += 1
        for word in words:
            index.put(topic, word, at, now)
        for listener in self.listeners:
            listener(record, code)

    def append_batch(self, records: list[Record]) -> None:
        """Store messages of one topic and queue, all in one file with consecutive offsets, or none."""
        if self.refused is not None:
            raise self.refused()
        if not records:
            return
        queue = self._queues.obtain(records[0].topic, records[0].queue_id)
        now, total, keys, parts = self._now(), 0, 0, []
        for record in records:
            text, flags = record.properties_text, record.sys_flag
            data = (clean(text) if self._check_size else text).encode()
            tag, unique, named = tag_unique_keys(text)
            words = [unique] if unique and not named and not flags else index_keys(flags, unique, named)
            total += self._stamp(record, queue, len(data), now)
            keys += len(words)
            parts.append((record, data, tag, words))
        self._index.prepare(keys, now)
        at = self._log.room(total)
        codes = self._write(parts, queue, at)
        self._log.end = at + total
        self.last_store_time = now
        # Last, because a listener may append: the offsets of the whole batch are taken by now.
        for record, code in zip(records, codes, strict=True):
            for listener in self.listeners:
                listener(record, code)

    def _write(self, parts: list[_Part], queue: ConsumeQueue, at: int) -> list[int]:
        """The records of a batch from `at` on, with their units and keys; their tags codes."""
        topic, queue_id, index, offset = queue.topic, queue.queue_id, self._index, queue.max_offset
        log_map, base, units, codes = self._log.map, self._log.base, [], []
        for record, data, tag, words in parts:
            size, now = record.size, record.store_timestamp
            record.physical_offset, record.queue_offset = at, 0 if record.sys_flag & 4 else offset
            # One by one: a kill in the middle of one big copy may leave late bytes without the early ones.
            log_map[at - base : at - base + size] = self._encode(record, queue, data)  # type: ignore[index]
            code = self._codes(topic, queue_id, tag, now)
            codes.append(code)
            if not record.sys_flag & 4:  # prepared and rolled-back records have no unit
                units.append(_pack_unit(at, size, code))
                offset += 1
            if index.left < len(words):
                index.room(len(words), now)
            for word in words:
                index.put(topic, word, at, now)
            at += size
        if units:
            if not queue.tail:
                self._queues.dirty[queue] = None
            queue.tail += b"".join(units)
            queue.max_offset = offset
        return codes

    def _stamp(self, record: Record, queue: ConsumeQueue, text_size: int, now: int) -> int:
        """Time, host and size of the record to be; refuses what no record can hold."""
        body_size, topic_size, host = len(record.body), len(queue.topic_field), self.store_host
        if body_size > self._max_body or text_size > self._max_text or topic_size > _MAX_TOPIC_FIELD:
            raise MessageIllegal(
                f"topic {record.topic[:40]!r}: a name of {len(record.topic)} characters, a body of {body_size} bytes, "
                f"properties of {text_size}; the limit is 255, {self._max_body}, {self._max_text}"
            )
        record.store_timestamp = now
        record.store_host = host
        size = (
            _FIXED + len(record.born_host) + len(host) + body_size + topic_size + text_size + self._check_size
        )
        record.size = size
        return size

    def _encode(self, record: Record, queue: ConsumeQueue, text: bytes) -> bytes:
        body = record.body
        record.body_crc = crc = _crc32(body) & 0x7FFFFFFF
        if len(record.born_host) == 8 and len(record.store_host) == 8:
            head = _pack_head(
                record.size, queue.magic, crc, record.queue_id, record.flag, record.queue_offset,
                record.physical_offset, record.sys_flag & ~0x30, record.born_timestamp, record.born_host,
                record.store_timestamp, record.store_host, record.reconsume_times, record.prepared_offset,
                len(body),
            )  # fmt: skip
        else:
            head = encode_head(record, queue.magic)
        if not self._check_size:
            return b"".join((head, body, queue.topic_field, _SHORT[len(text)], text))
        data = b"".join((head, body, queue.topic_field, _SHORT[len(text) + RECORD_CHECK_SIZE], text))
        return b"%b__CRC32#\x01%b\x02" % (data, (b"%010d" % (_crc32(data) & 0x7FFFFFFF))[::-1])


def clean(text: str) -> str:
    """The properties text that a record check can follow: without an older check, with its last 0x02."""
    if _CHECK_NAME in text:
        at = text.index(_CHECK_NAME)
        text = text[:at] + text[at + RECORD_CHECK_SIZE :]
    return text + "\x02" if text and text[-1] != "\x02" else text
