# SPDX-License-Identifier: Apache-2.0
"""Messages that were popped and not acked in time: to the group's retry topic, in the end to its dead letters."""

from __future__ import annotations

import logging
import shlex
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker.delivery.deliver import stamped, without_check
from aerobee.errors import BrokerError, CorruptRecord, ProtocolError
from aerobee.protocol import message, names
from aerobee.protocol import properties as props
from aerobee.protocol.failure_text import noted
from aerobee.protocol.message import Record
from aerobee.store.results import ReadLimit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.broker import Broker
    from aerobee.protocol.bodies import GroupConfig

log = logging.getLogger("aerobee.revive")

_MAX_BYTES = 16 * 1024 * 1024


class Expired(NamedTuple):
    """Leased messages whose time is over."""

    topic: str  # the real one
    group: str
    queue_id: int
    pop_time: int
    offsets: list[int]
    # Where the checkpoint is in the commit log. A message written after it was not popped by it: its topic was
    # deleted and created again meanwhile (8479). None = the lease never left memory, so that cannot be.
    logged_at: int | None = None
    failure: str = ""  # why its consumer gave it back, where it said


def redeliver(expired: Expired, broker: Broker) -> int:
    """Store the copies; returns how many. What no longer exists is left out. Raises StoreError when refused."""
    group = broker.groups.get(expired.group)
    if group is None or broker.topics.get(expired.topic) is None:
        return 0
    copies: list[Record] = []
    dead: list[Record] = []
    topic = _retry_topic(expired, broker)
    for original in _originals(expired, broker):
        if 0 <= group.retry_max_times <= original.reconsume_times:
            dead.append(_with_reason(_dead_letter(original, group, broker), expired.failure))
        else:
            copies.append(_with_reason(_retry(original, topic, expired.pop_time), expired.failure))
    for batch in (copies, dead):
        _append(batch, broker)
    origin = names.normal_topic(expired.topic, expired.group)
    broker.stats.counted.retried[expired.group, origin] += len(copies)
    if dead:
        broker.stats.counted.dead[expired.group, origin] += len(dead)
        log.warning(
            "no retries left group=%s topic=%s queue=%d messages=%d first_message_id=%s: not acked after %d "
            "redeliveries, they went to %s; `aerobee groups dead %s` shows them",
            expired.group,
            expired.topic,
            expired.queue_id,
            len(dead),
            dead[0].message_id,
            group.retry_max_times,
            dead[0].topic,
            shlex.quote(expired.group),
        )
    return len(copies) + len(dead)


def _append(batch: list[Record], broker: Broker) -> None:
    """All at once, or where they cannot be stored so, one by one: a message does not take others with it."""
    try:
        if len(batch) == 1:
            broker.store.append(batch[0])
        elif batch:
            broker.store.append_batch(batch)
    except BrokerError:
        for record in batch:
            with broker.stats.skipped.over("revive", retry_topic=record.topic, message_id=record.message_id):
                broker.store.append(record)
                broker.stats.moved(record.topic, 1, record.size)
    else:
        if batch:
            broker.stats.moved(batch[0].topic, len(batch), sum(record.size for record in batch))


def _originals(expired: Expired, broker: Broker) -> Iterator[Record]:
    """Exactly the messages that were popped: never the next one in place of one that is gone (7724, 6652)."""
    first, last = expired.offsets[0], expired.offsets[-1]
    limit = ReadLimit(last - first + 1, _MAX_BYTES, last - first + 1)
    found = broker.store.read(expired.topic, expired.queue_id, first, limit)  # most are neighbours: one read
    raw = dict(zip(found.offsets, found.messages, strict=True))
    for offset in expired.offsets:
        record = _original(expired, offset, raw.get(offset), broker)
        if record is None:
            log.warning("topic=%s queue=%d offset=%d: gone, not redelivered", *expired[0:3:2], offset)
        elif expired.logged_at is None or record.physical_offset < expired.logged_at:
            yield record


def _original(expired: Expired, offset: int, raw: bytes | None, broker: Broker) -> Record | None:
    try:
        if raw is not None:
            return message.decode(raw)
        return broker.store.record_of(expired.topic, expired.queue_id, offset)
    except (CorruptRecord, ProtocolError) as error:
        log.error("topic=%s queue=%d offset=%d: %s", expired.topic, expired.queue_id, offset, error)
        return None


def _retry_topic(expired: Expired, broker: Broker) -> str:
    """A message that is in a retry topic already goes back there; the offset of a new one starts at 0."""
    topic = expired.topic
    if not names.is_retry(topic):
        name = names.pop_retry_topic_v2 if broker.config.pop_retry_v2 else names.pop_retry_topic
        topic = name(topic, expired.group)
    broker.topics.ensure(topic)
    if broker.offsets.get(expired.group, topic, 0) < 0:
        broker.offsets.set(expired.group, topic, 0, broker.store.min_offset(topic, 0))
    return topic


def _retry(original: Record, topic: str, pop_time: int) -> Record:
    text = _without_receipt(original.properties_text)
    if props.get(text, props.FIRST_POP_TIME) is None:
        text = stamped(text, f"{props.FIRST_POP_TIME}\x01{pop_time}\x02")
    return _copy(original, topic, text)


def _dead_letter(original: Record, group: GroupConfig, broker: Broker) -> Record:
    topic = names.dead_letter_topic(group.group_name)
    broker.topics.ensure(topic)
    properties = original.properties
    properties.pop(props.POP_CK, None)
    origin = names.normal_topic(original.topic, group.group_name)
    stamps = {
        props.RETRY_TOPIC: origin,
        props.ORIGIN_MESSAGE_ID: original.offset_id,
        props.DLQ_ORIGIN_TOPIC: origin,
        props.DLQ_ORIGIN_MESSAGE_ID: original.message_id,
    }
    missing = {name: value for name, value in stamps.items() if name not in properties}
    return _copy(original, topic, stamped(props.render(properties), props.render(missing)))


def _with_reason(copy: Record, failure: str) -> Record:
    if failure:
        copy.properties_text = noted(copy.properties, failure)
    return copy


def _without_receipt(text: str) -> str:
    text = without_check(text)
    if f"{props.POP_CK}\x01" not in text:
        return text if not text or text.endswith("\x02") else text + "\x02"
    kept = props.parse(text)
    kept.pop(props.POP_CK, None)
    return props.render(kept)


def _copy(original: Record, topic: str, text: str) -> Record:
    return Record(
        topic,
        original.body,
        text,
        flag=original.flag,
        sys_flag=original.sys_flag,
        born_timestamp=original.born_timestamp,
        born_host=original.born_host,
        reconsume_times=original.reconsume_times + 1,
        prepared_offset=original.prepared_offset,
    )
