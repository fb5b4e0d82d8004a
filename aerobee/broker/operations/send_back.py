# SPDX-License-Identifier: Apache-2.0
"""A consumer failed on a message and returns it: to the group's retry topic after a delay, in the end to its dead
letters. Every return stores a new copy; the old ones stay until the log is cleaned."""

from __future__ import annotations

from random import randrange
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker import checks
from aerobee.broker.delivery.destination import to_schedule
from aerobee.broker.delivery.keeping import unkept
from aerobee.errors import NoPermission, SystemFailure
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.codes import Perm
from aerobee.protocol.failure_text import noted
from aerobee.protocol.message import Record

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.delivery.keeping import Unkept

FIRST_RETRY_LEVEL = 3


class SendBackRequest(msgspec.Struct, frozen=True):
    group: str
    physical_offset: int
    delay_level: int = 0  # < 0 straight to the dead letters, 0 the broker decides, > 0 this level
    max_reconsume_times: int | None = None  # None = the group's
    failure: str = ""  # why, in the consumer's words


def send_back(request: SendBackRequest, broker: Broker) -> Unkept | None:
    """Store the copy, unless the group keeps no retries; returns what the answer waits for."""
    group = broker.groups.require(request.group)
    checks.broker_writable(broker.config)
    if group.retry_queue_nums <= 0:
        return None
    topic = broker.topics.ensure(names.retry_topic(request.group), group.retry_queue_nums)
    if not topic.perm & Perm.WRITE:
        raise NoPermission(f"topic '{topic.topic_name}' may not be written (perm {topic.perm})")
    original = broker.store.record_at(request.physical_offset)
    if original is None:
        raise SystemFailure(f"no message at commit-log offset {request.physical_offset}; it may have expired")
    limit = group.retry_max_times if request.max_reconsume_times is None else request.max_reconsume_times
    copy, properties = _copy(original)
    goes_to = topic.topic_name
    if original.reconsume_times >= limit or request.delay_level < 0:
        copy.topic = goes_to = broker.topics.ensure(names.dead_letter_topic(request.group)).topic_name
        copy.queue_id = 0
        properties[props.DELAY] = "0"
    else:
        level = request.delay_level or FIRST_RETRY_LEVEL + original.reconsume_times
        copy.topic = goes_to
        copy.queue_id = randrange(topic.write_queue_nums or 1)
        to_schedule(copy, properties, min(level, len(broker.store.delays)))
    copy.properties_text = noted(properties, request.failure)
    broker.store.append(copy)
    broker.stats.moved(copy.topic, 1, copy.size)
    broker.stats.sent_back(request.group, original.topic)
    if names.is_dead_letter(goes_to):
        origin = names.normal_topic(properties[props.RETRY_TOPIC], request.group)
        # Anybody may write the property: a topic that is none is told by an empty name.
        broker.stats.counted.dead[request.group, origin if broker.topics.get(origin) else ""] += 1
    return unkept(goes_to, copy.physical_offset + copy.size, broker)


def _copy(original: Record) -> tuple[Record, dict[str, str]]:
    """Same body, flags, birth and properties; one more attempt."""
    properties = original.properties
    properties.setdefault(props.RETRY_TOPIC, original.topic)
    properties.setdefault(props.ORIGIN_MESSAGE_ID, original.offset_id)
    properties[props.WAIT] = "false"
    copy = Record(
        original.topic,
        original.body,
        flag=original.flag,
        sys_flag=original.sys_flag,
        born_timestamp=original.born_timestamp,
        born_host=original.born_host,
        reconsume_times=original.reconsume_times + 1,
    )
    return copy, properties
