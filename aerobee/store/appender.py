# SPDX-License-Identifier: Apache-2.0
"""The hot path of a send: one record into the log, its unit into the queue, its keys into the index, one
turn.

Nothing here waits and nothing can fail after the first byte is written: room in log and index is asked for
before. The path is flat on purpose (a Python call costs what storing 300 bytes does); benchmarks/append.py
keeps its figure.
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
    from aerobee.protocol.message import Record
    from aerobee.store.commit_log import CommitLog
    from aerobee.store.consume_queue import ConsumeQueue
    from aerobee.store.dispatch import TagCodes
    from aerobee.store.key_index import KeyIndex
    from aerobee.store.queues import ConsumeQueues

_CHECK_NAME = "__CRC32#\x01"
_FIXED = 74  # a record without hosts, topic field, body and properties
_SHORT = [n.to_bytes(2, "big") for n in range(MAX_PROPERTIES + 1)]
_pack_head = HEAD_V4.pack
_pack_unit = UNIT.pack
_crc32 = zlib.crc32


class Appender:
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
        self.store_host = b""
        self.last_store_time = 0
        self._check_size = RECORD_CHECK_SIZE if config.record_check else 0
        self._max_body = config.max_message_bytes
        self._now = clock.now
        self._log = log
        self._queues = queues
        self._index = index
        self._codes = codes

    def append(self, record: Record) -> None:
        topic, queue_id, body = record.topic, record.queue_id, record.body
        queue = self._queues.loaded.get((topic, queue_id)) or self._queues.obtain(topic, queue_id)
        text = record.properties_text
        data = clean(text).encode() if self._check_size else text.encode()
        self._refuse_oversized(record, queue, len(data))
        record.store_timestamp = now = self._now()
        record.store_host = host = self.store_host
        record.size = size = (
            _FIXED
            + len(record.born_host)
            + len(host)
            + len(body)
            + len(queue.topic_field)
            + len(data)
            + self._check_size
        )
        tag, unique, keys = tag_unique_keys(text)
        words = index_keys(record.sys_flag, unique, keys)
        log, index = self._log, self._index
        if index.left < len(words):
            index.room(len(words), now)
        at = log.end
        if at + size > log.limit:
            at = log.room(size)
        record.physical_offset = at
        record.queue_offset = 0 if record.sys_flag & 4 else queue.max_offset

        start = at - log.base
        log.map[start : start + size] = self._encode(record, queue, data)  # type: ignore[index]
        log.end = at + size
        self.last_store_time = now
        code = self._dispatch(record, queue, tag, words)
        for listener in self.listeners:
            listener(record, code)

    def append_batch(self, records: list[Record]) -> None:
        """All records are of one topic and queue. They go into one file, with offsets that follow each
        other."""
        if not records:
            return
        first = records[0]
        queue = self._queues.loaded.get((first.topic, first.queue_id)) or self._queues.obtain(
            first.topic, first.queue_id
        )
        texts = [
            (clean(r.properties_text) if self._check_size else r.properties_text).encode() for r in records
        ]
        now, host = self._now(), self.store_host
        total, found = 0, []
        for record, data in zip(records, texts, strict=True):
            self._refuse_oversized(record, queue, len(data))
            record.store_timestamp, record.store_host = now, host
            record.size = (
                _FIXED + len(record.born_host) + len(host) + len(record.body)
                + len(queue.topic_field) + len(data) + self._check_size
            )  # fmt: skip
            total += record.size
            tag, unique, keys = tag_unique_keys(record.properties_text)
            found.append((tag, index_keys(record.sys_flag, unique, keys)))
        log = self._log
        self._index.prepare(sum(len(words) for _, words in found), now)
        at = log.room(total)
        offset = queue.max_offset
        for record, data in zip(records, texts, strict=True):
            record.physical_offset, record.queue_offset = at, 0 if record.sys_flag & 4 else offset
            # One by one: a kill in the middle of one big copy may leave late bytes without the early ones.
            log.map[at - log.base : at - log.base + record.size] = self._encode(record, queue, data)  # type: ignore[index]
            at += record.size
            offset += not record.sys_flag & 4
        log.end = at
        self.last_store_time = now
        codes = [self._dispatch(r, queue, tag, words) for r, (tag, words) in zip(records, found, strict=True)]
        # Last, because a listener may append: the offsets of the whole batch are taken by now.
        for record, code in zip(records, codes, strict=True):
            for listener in self.listeners:
                listener(record, code)

    def _encode(self, record: Record, queue: ConsumeQueue, text: bytes) -> bytes:
        body = record.body
        record.body_crc = crc = _crc32(body) & 0x7FFFFFFF
        if len(record.born_host) == 8 and len(record.store_host) == 8:
            head = _pack_head(
                record.size, queue.magic, crc, record.queue_id, record.flag, record.queue_offset,
                record.physical_offset, record.sys_flag & ~0x30, record.born_timestamp, record.born_host,
                record.store_timestamp, record.store_host, record.reconsume_times, record.prepared_offset, len(body),
            )  # fmt: skip
        else:
            head = encode_head(record, queue.magic)
        if not self._check_size:
            return b"".join((head, body, queue.topic_field, _SHORT[len(text)], text))
        data = b"".join((head, body, queue.topic_field, _SHORT[len(text) + RECORD_CHECK_SIZE], text))
        return b"%b__CRC32#\x01%b\x02" % (data, (b"%010d" % (_crc32(data) & 0x7FFFFFFF))[::-1])

    def _dispatch(self, record: Record, queue: ConsumeQueue, tag: str | None, words: list[str]) -> int:
        code = self._codes(record.topic, record.queue_id, tag, record.store_timestamp)
        if not record.sys_flag & 4:  # prepared and rolled-back records have no unit
            if not queue.tail:
                self._queues.dirty[queue] = None
            queue.tail += _pack_unit(record.physical_offset, record.size, code)
            queue.max_offset += 1
        if self._index.left < len(words):
            self._index.room(len(words), record.store_timestamp)
        for word in words:
            self._index.put(
                self._index.hash(record.topic, word), record.physical_offset, record.store_timestamp
            )
        return code

    def _refuse_oversized(self, record: Record, queue: ConsumeQueue, text_size: int) -> None:
        if len(record.body) > self._max_body:
            raise MessageIllegal(
                f"body of {len(record.body)} bytes, the limit is {self._max_body}; send less or compress"
            )
        if text_size + self._check_size > MAX_PROPERTIES:
            raise MessageIllegal(
                f"properties of {text_size} bytes, the limit is {MAX_PROPERTIES - self._check_size}"
            )
        if len(queue.topic_field) > 257:
            raise MessageIllegal(f"topic of {len(queue.topic_field)} bytes, the limit is 255")


def clean(text: str) -> str:
    """The properties text that a record check can follow: without an older check, with its last 0x02."""
    if _CHECK_NAME in text:
        at = text.index(_CHECK_NAME)
        text = text[:at] + text[at + RECORD_CHECK_SIZE :]
    return text + "\x02" if text and text[-1] != "\x02" else text
