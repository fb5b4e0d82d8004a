# SPDX-License-Identifier: Apache-2.0
"""Message properties: `name 0x01 value 0x02`, repeated; and the names RocketMQ reserves."""

from __future__ import annotations

from operator import mul
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_END = "\x01"
PAIR_END = "\x02"

KEYS = "KEYS"
TAGS = "TAGS"
WAIT = "WAIT"
DELAY = "DELAY"
UNIQ_KEY = "UNIQ_KEY"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
CHECK_IMMUNITY_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
TRANSACTION_ID = "__transactionId__"
TRAN_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME = "RECONSUME_TIME"
MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
CONSUME_START_TIME = "CONSUME_START_TIME"
MSG_REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
CLUSTER = "CLUSTER"
POP_CK = "POP_CK"
POP_CK_OFFSET = "POP_CK_OFFSET"
FIRST_POP_TIME = "1ST_POP_TIME"
INNER_NUM = "INNER_NUM"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
CORRELATION_ID = "CORRELATION_ID"
REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
TTL = "TTL"
MSG_TYPE = "MSG_TYPE"
ARRIVE_TIME = "ARRIVE_TIME"
PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
INSTANCE_ID = "INSTANCE_ID"
SHARDING_KEY = "__SHARDINGKEY"
BORN_HOST = "__BORNHOST"
BORN_TIMESTAMP = "BORN_TIMESTAMP"
DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
RECORD_CRC = "__CRC32#"
LAST_ERROR = "AEROBEE_LAST_ERROR"  # why a consumer sent the message back, the last time

RESERVED = frozenset(
    value
    for name, value in list(globals().items())
    if name.isupper() and isinstance(value, str) and name not in ("NAME_END", "PAIR_END")
) | {
    "BUYER_ID",
    "TRANSFER_FLAG",
    "CORRECTION_FLAG",
    "MQ2_FLAG",
    "REDIRECT",
    "EXTEND_UNIQ_INFO",
    "DUP_INFO",
    "INNER_BASE",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "PROPERTY_FORWARD_QUEUE_ID",
    "TRACE_CONTEXT",
    "TIMER_DELAY_LEVEL",
}


def parse(text: str) -> dict[str, str]:
    """Pairs without a name or a value are dropped, a missing last 0x02 is accepted, as in Java."""
    found = {}
    for pair in text.split(PAIR_END):
        name, _, value = pair.partition(NAME_END)
        if name and value:
            found[name] = value
    return found


def render(properties: Mapping[str, str]) -> str:
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def get(text: str, name: str) -> str | None:
    """One value without parsing the rest."""
    wanted = name + NAME_END
    if text.startswith(wanted):
        at = len(wanted)
    else:
        at = text.find(PAIR_END + wanted)
        if at < 0:
            return None
        at += len(wanted) + 1
    end = text.find(PAIR_END, at)
    return text[at : end if end >= 0 else len(text)] or None


MAX_LONG = (1 << 63) - 1


def whole_number(text: str | None, low: int = 0, high: int = MAX_LONG) -> int | None:
    """The number a text is, None when it is none within the bounds. For all that comes from the wire or the log:
    `isdigit` passes what `int` refuses, and `int` what neither a struct nor Java takes."""
    if text is None or len(text) > 20 or not text.isascii():
        return None
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdigit():
        return None
    value = int(text)
    return value if low <= value <= high else None


def tag_code(tag: str | None) -> int:
    """Java's String.hashCode, the value a consume queue keeps of a tag; 0 when there is none."""
    return java_hash(tag) if tag else 0


_LONGEST = 256
_POWERS = [31**n & 0xFFFFFFFF for n in reversed(range(_LONGEST))]


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, wrapped to a signed 32-bit integer."""
    if text.isascii() and len(text) <= _LONGEST:
        value: int = sum(map(mul, text.encode(), _POWERS[_LONGEST - len(text) :]))
    else:
        value = 0
        data = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(data), 2):
            value = (value * 31 + (data[i] << 8 | data[i + 1])) & 0xFFFFFFFF
    value &= 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value
