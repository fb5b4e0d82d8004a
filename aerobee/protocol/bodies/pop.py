# SPDX-License-Identifier: Apache-2.0
"""POP: batches of acks, and orderly POP's memory."""

from __future__ import annotations

import msgspec
from msgspec import field

from aerobee.protocol import java_json
from aerobee.protocol.bodies.values import Body


class BatchAckEntry(msgspec.Struct, kw_only=True):
    """Acks of one checkpoint: bit i of `bits` (base64) acks offset `start_offset` + i."""

    bits: str = field(default="", name="b")
    consumer_group: str = field(default="", name="c")
    invisible_time: int = field(default=0, name="it")
    pop_time: int = field(default=0, name="pt")
    queue_id: int = field(default=0, name="q")
    retry: str = field(default="0", name="r")
    revive_queue_id: int = field(default=0, name="rq")
    start_offset: int = field(default=0, name="so")
    topic: str = field(default="", name="t")


class BatchAck(Body):
    acks: list[BatchAckEntry] = field(default_factory=list)
    broker_name: str = ""


class _LongEntry(msgspec.Struct, rename="camel", kw_only=True):
    """`BatchAckEntry` under the long member names that Java also reads."""

    bits: str = field(default="", name="bitSet")
    consumer_group: str = ""
    invisible_time: int = 0
    pop_time: int = 0
    queue_id: int = 0
    retry: str = "0"
    revive_queue_id: int = 0
    start_offset: int = 0
    topic: str = ""


class _LongBatchAck(Body):
    acks: list[_LongEntry] = field(default_factory=list)


def decode_batch_ack(data: bytes) -> BatchAck:
    """As `decode`, with short or long member names."""
    found = java_json.decode_request(data, BatchAck)
    if not all(entry.topic for entry in found.acks):
        long = java_json.decode_request(data, _LongBatchAck)
        found.acks = [BatchAckEntry(**msgspec.structs.asdict(entry)) for entry in long.acks]
    return found


class OrderInfo(msgspec.Struct, kw_only=True):
    """Orderly POP's memory of one queue; `offsets`: the first absolute, the rest deltas to it."""

    attempt_id: str | None = field(default=None, name="a")
    commit_bits: int = field(default=0, name="cm")
    invisible_time: int = field(default=0, name="i")
    last_consume: int = field(default=0, name="l")
    offsets: list[int] = field(default_factory=list, name="o")
    consumed_counts: dict[int, int] = field(default_factory=dict, name="oc")
    next_visible: dict[int, int] = field(default_factory=dict, name="ot")
    pop_time: int = field(default=0, name="popTime")


class OrderInfos(Body):
    """`consumerOrderInfo.json`, by `topic@group`, then queue."""

    table: dict[str, dict[int, OrderInfo]] = field(default_factory=dict)
