# SPDX-License-Identifier: Apache-2.0
"""What happens between a stop and the first request.

Truth is the log; queues and index are told from it. A position P is chosen before which everything is known
to be on disk (checkpoint.py). After a clean stop P is the log's end and nothing is left to do but a look at
the last records. After a crash:

    1. queues and index forget whatever points at or past P (it may be half written, or point at lost
    records); 2. the log is walked from P; each record must be whole, and is dispatched again; 3. where no
    whole record follows any more, the log ends: the torn rest is cut and counted.

After a crash the log also ends at the first record past P that is not whole, whatever follows: it was never written
to its end (CommitLog.publish), or its page was lost with the power, and then nothing behind it was promised to anybody.
So a batch that was being written is gone as a whole.

Before P, and after a clean stop, a record that is not whole but is followed by one that is, is damage and no torn tail:
it is reported and its place kept, so later messages keep their offsets; readers step over it.
"""

from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING

from aerobee.errors import DiskFull, MessageIllegal, ProtocolError
from aerobee.protocol import message
from aerobee.protocol.message import MAGIC_BLANK, stored_at
from aerobee.store.commit_log import BLANK_SIZE, HEAD_SIZE
from aerobee.store.consume_queue import UNIT
from aerobee.store.log_walk import is_blank, next_whole, whole_at
from aerobee.store.record_keys import has_unit, index_keys, tag_unique_keys
from aerobee.store.record_parts import text_parts
from aerobee.store.results import RecoveryReport

if TYPE_CHECKING:
    from aerobee.store.checkpoint import Checkpoint
    from aerobee.store.commit_log import CommitLog
    from aerobee.store.key_index import KeyIndex
    from aerobee.store.queue_care import QueueCare
    from aerobee.store.queues import ConsumeQueues
    from aerobee.store.record_keys import TagCodes
    from aerobee.store.segment import Segment

log = logging.getLogger("aerobee.store")

_HEAD = struct.Struct(">ii4xi4xqqi")  # size, magic, queue id, queue offset, physical offset, sys flag
_WRITE_EVERY = 500_000  # units told before tails are written: bounds the memory of a long walk
_FORGET_EVERY = 64 << 20
_LOOK_BACK = 16 << 20  # how much of a cleanly closed log is looked at


class Recovery:
    def __init__(
        self, commit_log: CommitLog, queues: ConsumeQueues, index: KeyIndex, care: QueueCare, codes: TagCodes
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._care = care
        self._index = index
        self._codes = codes
        self._waiting = 0
        self._synced = -1  # the log is on disk whole up to here; unknown where another broker wrote it
        self.report = RecoveryReport()
        self.index_is_complete = True
        self.last_store_time = 0

    def run(self, checkpoint: Checkpoint, *, clean: bool) -> None:
        self._log.end = self._log.segments[-1].base + self._log.segment_bytes if self._log.segments else 0
        if self._is_ours(checkpoint):
            self._synced = checkpoint.position
        if checkpoint.is_latest and self._queues.has_files:
            self._queues.trust()
        start = self._start(checkpoint, clean=clean)
        self.report.clean = clean
        self.report.scanned_from = start
        if clean and start == checkpoint.position and self._nothing_at(start):
            self._look_back(checkpoint)
            end = start
            self._queues.log_end = end
            if self._queues.are_few or not self._queues.sums.is_known:
                self._care.mend(self._queues.look_at_all(), end)
        else:
            self._care.rebuild(self._queues.cut(start), start)
            self._index.cut(start, self._log.store_time)
            end = self._walk(start)
            self._cut_after(end)
        self._log.start_at(end)
        self._queues.log_end = max(end, start)
        self._queues.sums.is_known = True
        self._queues.sums.save()

    # -- where to start --------------------------------------------------------------------------------

    def _start(self, checkpoint: Checkpoint, *, clean: bool) -> int:
        segments = self._log.segments
        if not segments:
            return 0
        first = segments[0].base
        if checkpoint.has_queues and not self._queues.has_files:
            return first  # no queues where there were some: removed by hand to have them built again
        if self._synced >= 0:
            return self._synced
        if clean:
            return segments[-1].base
        # RocketMQ's rule: the newest file that begins before what log and queues both have on disk.
        until = min(checkpoint.log_time, checkpoint.queue_time) - 3000
        for segment in reversed(segments):
            if 0 < self._log.store_time(segment.base) <= until:
                return segment.base
        return first

    def _is_ours(self, checkpoint: Checkpoint) -> bool:
        """The checkpoint's position is one of this log as it is now."""
        if not self._log.min_offset <= checkpoint.position <= self._log.end:
            return False
        return checkpoint.is_latest or self._is_boundary(checkpoint.position)

    def _is_boundary(self, position: int) -> bool:
        """A record or nothing is there. RocketMQ, running after us, may have cut the log and written it anew."""
        segment = self._log.segment_at(position)
        if segment is None:
            return True
        return self._nothing_at(position) or whole_at(segment, position - segment.base) is not None

    def _nothing_at(self, position: int) -> bool:
        segment = self._log.segment_at(position)
        return segment is None or not segment.map[
            position - segment.base : position - segment.base + 64
        ].strip(b"\0")

    def _look_back(self, checkpoint: Checkpoint) -> None:
        """After a clean stop: are the last records what the checkpoint says?"""
        at = checkpoint.checked_from
        if not 0 <= checkpoint.position - at <= _LOOK_BACK or at < self._log.min_offset:
            return
        while at < checkpoint.position and (segment := self._log.segment_at(at)) is not None:
            size, magic = self._log.header(at)
            if magic == MAGIC_BLANK:
                at = segment.base + segment.size
                continue
            if whole_at(segment, at - segment.base) is None:
                self._damaged(at, "after a clean stop")
                return
            self.report.messages += 1
            self.last_store_time = self._log.store_time(at)
            at += size

    # -- the walk --------------------------------------------------------------------------------------

    def _walk(self, at: int) -> int:
        """Dispatch every whole record from `at` on; where the log ends."""
        forgotten = at
        while (segment := self._log.segment_at(at)) is not None:
            start = at - segment.base
            if start + BLANK_SIZE > segment.size:
                return at
            if is_blank(segment, start):
                at = segment.base + segment.size
                continue
            raw = whole_at(segment, start)
            if raw is not None:
                self._dispatch(raw, at)
                self.report.messages += 1
                at += len(raw)
            else:
                following = None if self._is_torn(segment, at) else next_whole(self._log, segment, start)
                if following is None:
                    return at
                self._damaged(at, f"{following - at} bytes are stepped over")
                self._keep_place(segment, at, following)
                at = following
            if at - forgotten > _FORGET_EVERY:
                segment.forget_pages(max(0, at - segment.base))
                forgotten = at
        return at

    def _is_torn(self, segment: Segment, at: int) -> bool:
        """What is not whole at `at` was being written when the broker went down."""
        if self.report.clean:
            return False
        if self._synced >= 0:
            return at >= self._synced
        return segment.map[at - segment.base + HEAD_SIZE - 1] == 0  # no magic: never published

    def _damaged(self, at: int, what: str) -> None:
        self.report.corrupt += 1
        log.error("corrupt record physical_offset=%d, %s; it is not served", at, what)

    def _keep_place(self, segment: Segment, at: int, following: int) -> None:
        """The damaged record's unit, when what is left of it says convincingly whose it is."""
        try:
            record = message.decode(segment.map[at - segment.base : following - segment.base])
        except ProtocolError:
            return
        queue = self._queues.find(record.topic, record.queue_id)
        if queue is not None and record.queue_offset == queue.max_offset and has_unit(record.sys_flag):
            self._queues.put(queue, record.queue_offset, UNIT.pack(at, following - at, 0))

    def _dispatch(self, raw: bytes, at: int) -> None:
        try:
            self._dispatch_sound(raw, at)
        except (
            MessageIllegal,
            UnicodeDecodeError,
        ) as error:  # whole, but by a broker that did not check names
            self._damaged(at, f"stepped over: {error}")

    def _dispatch_sound(self, raw: bytes, at: int) -> None:
        size, _, queue_id, queue_offset, _, sys_flag = _HEAD.unpack_from(raw)
        topic, text = text_parts(raw)
        self.last_store_time = time = stored_at(raw)
        tag, unique, keys = tag_unique_keys(text)
        if has_unit(sys_flag):
            queue = self._queues.obtain(topic, queue_id)
            code = self._codes(topic, queue_id, tag, time)
            self._queues.put(queue, queue_offset, UNIT.pack(at, size, code))
        words = index_keys(sys_flag, unique, keys)
        if words and self.index_is_complete:
            self._put_keys(topic, words, at, time)
        self.report.dispatched += 1
        self._waiting += 1
        if self._waiting >= _WRITE_EVERY:
            self._waiting = 0
            self._queues.write_oldest(len(self._queues.dirty))

    def _put_keys(self, topic: str, words: list[str], at: int, time: int) -> None:
        try:
            if self._index.left < len(words):
                self._index.room(len(words), time)
        except DiskFull as error:
            # Reads matter more than keys: open without the rest of the index and build it after the next start.
            log.error("key index not rebuilt: %s", error)
            self.index_is_complete = False
            return
        for word in words:
            self._index.put(topic, word, at, time)

    # -- the end ---------------------------------------------------------------------------------------

    def _cut_after(self, end: int) -> None:
        for segment in self._log.segments:
            if segment.base + segment.size > end:
                start = max(0, end - segment.base)
                left = segment.map[start : segment.data_end()].rstrip(b"\0")
                self.report.truncated_bytes += len(left)
                segment.cut(start)
        if self.report.truncated_bytes:
            log.warning("commit log cut at offset=%d torn_bytes=%d", end, self.report.truncated_bytes)
