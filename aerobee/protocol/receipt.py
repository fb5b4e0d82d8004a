# SPDX-License-Identifier: Apache-2.0
"""POP's strings: receipt handles, the info strings of a pop response, and the revive log's JSON.

A handle is `startOffset popTime invisibleTime reviveQid retry brokerName queueId msgQueueOffset`, and in gRPC
a commit-log offset. Info strings are entries `retry queueId value` joined by `;`, where retry is 0 for the
topic itself and 1 or 2 for its retry topic.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aerobee.errors import ProtocolError
from aerobee.protocol import names
from aerobee.protocol.java_json import decode as _decode_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ORDERLY_QUEUE = 999  # the reviveQid of orderly POP, which has no checkpoint
CHECKPOINT_TAG, ACK_TAG, BATCH_ACK_TAG = "ck", "ack", "bAck"
MAX_BITS = 65_536  # a pop returns 32 messages; this leaves room for sparse ones


def real_topic(topic: str, group: str, retry: str) -> str:
    """The topic that a receipt's retry flag ("0", "1", "2") stands for."""
    if retry == "1":
        return names.pop_retry_topic(topic, group)
    if retry == "2":
        return names.pop_retry_topic_v2(topic, group)
    return topic


def retry_flag(topic: str) -> str:
    """The flag for a topic read by POP."""
    if not topic.startswith(names.RETRY_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


class Receipt(NamedTuple):
    """Proof of one delivery, and all that is needed to ack it."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_qid: int
    retry: str
    broker_name: str
    queue_id: int
    offset: int
    commit_log_offset: int = -1

    @property
    def text(self) -> str:
        fields = f"{self.start_offset} {self.pop_time} {self.invisible_time} {self.revive_qid} {self.retry}"
        handle = f"{fields} {self.broker_name} {self.queue_id} {self.offset}"
        return handle if self.commit_log_offset < 0 else f"{handle} {self.commit_log_offset}"

    @property
    def visible_at(self) -> int:
        return self.pop_time + self.invisible_time

    @property
    def is_orderly(self) -> bool:
        return self.revive_qid == ORDERLY_QUEUE

    def expired(self, now: int) -> bool:
        return self.visible_at <= now

    def real_topic(self, topic: str, group: str) -> str:
        return real_topic(topic, group, self.retry)

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """8 fields, or 9 with a commit-log offset; later ones are ignored. ProtocolError otherwise."""
        parts = text.split(" ")
        if len(parts) < 8:
            raise ProtocolError(f"receipt handle {text[:200]!r} has {len(parts)} fields, not 8")
        try:
            start, popped, invisible, revive = map(int, parts[:4])
            log_offset = int(parts[8]) if len(parts) > 8 else -1
            return cls(
                start, popped, invisible, revive, parts[4], parts[5], int(parts[6]), int(parts[7]), log_offset
            )
        except ValueError as error:
            raise ProtocolError(f"receipt handle {text[:200]!r}: {error}") from None


# -- info strings -----------------------------------------------------------------------------------


class Taken(NamedTuple):
    """What one pop took from one queue."""

    retry: str
    queue_id: int
    start_offset: int
    offsets: Sequence[int]


def start_offset_info(taken: Iterable[Taken]) -> str:
    return ";".join([f"{t.retry} {t.queue_id} {t.start_offset}" for t in taken])


def msg_offset_info(taken: Iterable[Taken]) -> str:
    return ";".join([f"{t.retry} {t.queue_id} {','.join(map(str, t.offsets))}" for t in taken])


def order_count_entries(retry: str, queue_id: int, counts: Iterable[tuple[int, int]]) -> list[str]:
    """One queue's entries of orderCountInfo, from (offset, times delivered before) of each message taken."""
    entries, least = [], None
    for offset, count in counts:
        if count > 0:
            entries.append(f"{retry} qo{queue_id}%{offset} {count}")
        least = count if least is None or count < least else least
    entries.append(f"{retry} {queue_id} {max(least or 0, 0)}")
    return entries


def parse_info(text: str | None) -> dict[tuple[str, str], str]:
    """Entries by (retry flag, second part): a queue id, or `qo<queueId>%<offset>`."""
    found: dict[tuple[str, str], str] = {}
    for entry in (text or "").split(";"):
        if not entry:
            continue
        parts = entry.split(" ")
        if len(parts) != 3:
            raise ProtocolError(f"pop info entry {entry[:200]!r} has {len(parts)} parts, not 3")
        if (parts[0], parts[1]) in found:
            raise ProtocolError(f"pop info names {parts[0]} {parts[1]} twice")
        found[parts[0], parts[1]] = parts[2]
    return found


def parse_start_offsets(text: str | None) -> dict[tuple[str, int], int]:
    try:
        return {(retry, int(queue)): int(value) for (retry, queue), value in parse_info(text).items()}
    except ValueError as error:
        raise ProtocolError(f"startOffsetInfo: {error}") from None


def parse_msg_offsets(text: str | None) -> dict[tuple[str, int], list[int]]:
    try:
        return {
            (retry, int(queue)): list(map(int, value.split(",")))
            for (retry, queue), value in parse_info(text).items()
        }
    except ValueError as error:
        raise ProtocolError(f"msgOffsetInfo: {error}") from None


def parse_order_counts(text: str | None) -> dict[tuple[str, str], int]:
    """Counts by (retry flag, queue id or `qo<queueId>%<offset>`)."""
    try:
        return {key: int(value) for key, value in parse_info(text).items()}
    except ValueError as error:
        raise ProtocolError(f"orderCountInfo: {error}") from None


# -- bit sets ---------------------------------------------------------------------------------------


def bits_text(bits: Iterable[int]) -> str:
    """Base64 of a little-endian bit set."""
    value = 0
    for bit in bits:
        value |= 1 << bit
    return b64encode(value.to_bytes((value.bit_length() + 7) // 8, "little")).decode()


def parse_bits(text: str) -> list[int]:
    """The bits set, ascending; ProtocolError for no base64 or more than MAX_BITS bits."""
    if len(text) > MAX_BITS // 6 + 8:
        raise ProtocolError(f"bit set of {len(text)} characters, more than {MAX_BITS} bits")
    try:
        value = int.from_bytes(b64decode(text, validate=True), "little")
    except (Base64Error, ValueError) as error:
        raise ProtocolError(f"bit set {text[:64]!r}: {error}") from None
    found = []
    while value:
        low = value & -value
        found.append(low.bit_length() - 1)
        value ^= low
    return found


# -- the revive log ---------------------------------------------------------------------------------


class CheckpointRecord(msgspec.Struct, kw_only=True):
    """What one pop took from one queue, as written to the revive topic. Members in Java's order."""

    bitmap: int = msgspec.field(default=0, name="bm")
    broker_name: str = msgspec.field(default="", name="bn")
    group: str = msgspec.field(name="c")
    diffs: list[int] = msgspec.field(default_factory=list, name="d")
    invisible_time: int = msgspec.field(default=0, name="it")
    count: int = msgspec.field(default=0, name="n")
    pop_time: int = msgspec.field(default=0, name="pt")
    queue_id: int = msgspec.field(default=0, name="q")
    revive_offset: int = msgspec.field(default=0, name="ro")
    reput_times: str = msgspec.field(default="0", name="rp")
    start_offset: int = msgspec.field(default=0, name="so")
    topic: str = msgspec.field(name="t")
    # Not RocketMQ's, and left out where there is none: why its consumer gave it back.
    failure: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="aerobeeFailure")

    @property
    def revive_time(self) -> int:
        return self.pop_time + self.invisible_time

    @property
    def offsets(self) -> list[int]:
        """Old data has no diffs: contiguous offsets."""
        if not self.diffs:
            return list(range(self.start_offset, self.start_offset + min(max(self.count, 0), MAX_BITS)))
        return [self.start_offset + diff for diff in self.diffs]

    @property
    def unique_key(self) -> str:
        where = f"{self.topic}@{self.queue_id}@{self.start_offset}"
        return f"{where}@{self.group}@{self.pop_time}@{self.broker_name}@{CHECKPOINT_TAG}"

    @property
    def merge_key(self) -> tuple[str, str, int, int, int, str]:
        """What its acks have in common with it."""
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_time, self.broker_name


class AckRecord(msgspec.Struct, kw_only=True):
    """One or, with `offsets`, several acks of one checkpoint, as written to the revive topic."""

    offset: int = msgspec.field(default=-1, name="ao")
    offsets: list[int] = msgspec.field(default_factory=list, name="aol")
    broker_name: str = msgspec.field(default="", name="bn")
    group: str = msgspec.field(default="", name="c")
    pop_time: int = msgspec.field(default=0, name="pt")
    queue_id: int = msgspec.field(default=0, name="q")
    start_offset: int = msgspec.field(default=0, name="so")
    topic: str = msgspec.field(default="", name="t")

    @property
    def acked(self) -> list[int]:
        return self.offsets or [self.offset]

    @property
    def unique_key(self) -> str:
        where = f"{self.topic}@{self.queue_id}@{self.offset}"
        return f"{where}@{self.group}@{self.pop_time}@{self.broker_name}@{ACK_TAG}"

    @property
    def merge_key(self) -> tuple[str, str, int, int, int, str]:
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_time, self.broker_name


class _LongAck(msgspec.Struct, rename="camel", kw_only=True):
    """`AckRecord` under the long member names Java also accepts."""

    offset: int = msgspec.field(default=-1, name="ackOffset")
    offsets: list[int] = msgspec.field(default_factory=list, name="ackOffsetList")
    broker_name: str = ""
    group: str = msgspec.field(default="", name="consumerGroup")
    pop_time: int = 0
    queue_id: int = 0
    start_offset: int = 0
    topic: str = ""


def encode_revive(entry: CheckpointRecord | AckRecord) -> bytes:
    """The body of a message of the revive topic. A single ack has no list."""
    if isinstance(entry, AckRecord) and not entry.offsets:
        single = msgspec.to_builtins(entry)
        del single["aol"]
        return msgspec.json.encode(single)
    return msgspec.json.encode(entry)


def decode_checkpoint(body: bytes) -> CheckpointRecord:
    return _decode_json(body, CheckpointRecord)


def decode_ack(body: bytes) -> AckRecord:
    found = _decode_json(body, AckRecord)
    if found.topic:
        return found
    return AckRecord(**msgspec.structs.asdict(_decode_json(body, _LongAck)))
