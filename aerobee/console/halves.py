# SPDX-License-Identifier: Apache-2.0
"""Half messages that wait for their producer's word, read from a broker's two topics as any RocketMQ broker keeps them.

The half topic has the messages: each check appends one again, with how often it was asked about and the offset of the
first copy. The op topic has the half-queue offsets of those that have ended. The group CID_RMQ_SYS_TRANS says how far
the broker itself is in both: what is before that is over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import MessageQueue

if TYPE_CHECKING:
    from aerobee.client.admin import Admin
    from aerobee.client.message import ReceivedMessage

HALVES_READ = 1_000
OPS_READ = 5_000
MAX_BYTES = 16 * 1024 * 1024


class Open(NamedTuple):
    message: ReceivedMessage  # its newest copy
    topic: str  # where it would go
    group: str  # of the producer
    checks: int
    sent_at: int


@dataclass
class Halves:
    open: list[Open] = field(default_factory=list)
    looked_at: int = 0
    all_looked_at: bool = True
    all_ends_known: bool = True  # else some of the open ones may have ended


async def open_halves(admin: Admin, broker: str) -> Halves:
    """Those that are open, the oldest first; of the first so many that the broker has not passed."""
    ended, all_known = await _ended(admin, broker)
    queue = MessageQueue(topic=names.HALF_TOPIC, broker_name=broker, queue_id=0)
    begin, end = await _ahead(admin, queue)
    found, read_bytes = Halves(all_ends_known=all_known), 0
    copies: dict[int, list[ReceivedMessage]] = {}
    async for message in admin.browse(queue, begin, min(end, begin + HALVES_READ)):
        found.looked_at += 1
        read_bytes += len(message.body)
        message.topic = names.HALF_TOPIC  # where a look for it finds it
        copies.setdefault(_origin(message), []).append(message)
        if read_bytes > MAX_BYTES:
            break
    found.all_looked_at = begin + found.looked_at >= end
    for origin, several in copies.items():
        if not ended.intersection({origin, *(each.queue_offset for each in several)}):
            found.open.append(_open(several[-1]))
    found.open.sort(key=lambda each: each.sent_at)
    return found


def _origin(message: ReceivedMessage) -> int:
    text = message.properties.get(props.TRAN_PREPARED_QUEUE_OFFSET)
    first = props.whole_number(text, 0, message.queue_offset)
    return message.queue_offset if first is None else first


def _open(newest: ReceivedMessage) -> Open:
    table = newest.properties
    checks = props.whole_number(table.get(props.TRANSACTION_CHECK_TIMES)) or 0
    topic, group = table.get(props.REAL_TOPIC, ""), table.get(props.PGROUP, "")
    return Open(newest, topic, group, checks, newest.born_timestamp)


async def _ended(admin: Admin, broker: str) -> tuple[set[int], bool]:
    """Half-queue offsets of those that have ended, and whether all were read."""
    queue = MessageQueue(topic=names.OP_TOPIC, broker_name=broker, queue_id=0)
    begin, end = await _ahead(admin, queue)
    found: set[int] = set()
    async for message in admin.browse(queue, begin, min(end, begin + OPS_READ)):
        for text in message.body.decode(errors="replace").split(","):
            offset = props.whole_number(text)
            if offset is not None:
                found.add(offset)
    return found, end - begin <= OPS_READ


async def _ahead(admin: Admin, queue: MessageQueue) -> tuple[int, int]:
    """From where the broker has come to, up to the end."""
    low, high = await admin.offset_range(queue)
    reached = await admin.offset(names.TRANSACTION_GROUP, queue)
    return min(high, max(low, reached or 0)), high
