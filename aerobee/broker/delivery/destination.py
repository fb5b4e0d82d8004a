# SPDX-License-Identifier: Apache-2.0
"""Where a message goes first: most to their own queue, some by way of a system topic.

A delayed message waits in SCHEDULE_TOPIC_XXXX (one queue per delay level) or, for any other time, in
rmq_sys_wheel_timer; a half message waits in the half topic for its producer's decision. The real topic and queue
travel with it as properties, and stay in the properties text when it is delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.errors import MessageIllegal
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.codes import SysFlag
from aerobee.protocol.delay import timer_out

if TYPE_CHECKING:
    from aerobee.protocol.message import Record

Properties = dict[str, str]

MAX_INT = (1 << 31) - 1

_TIMER_REQUESTS = (props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS, props.TIMER_DELIVER_MS)


# Properties of half messages that only the broker writes.
_CHECK_STAMPS = (props.TRANSACTION_CHECK_TIMES, props.TRAN_PREPARED_QUEUE_OFFSET)


class Target(NamedTuple):
    topic: str
    queue_id: int


def target_of(text: str) -> Target | None:
    """Where a message that waits in the log goes next; None when it names no place that one may go to.

    The log is believed no more than a request: what is in it may be of another broker, or of a client of one.
    """
    topic = props.get(text, props.REAL_TOPIC)
    queue_id = props.whole_number(props.get(text, props.REAL_QID), 0, names.MAX_QUEUES - 1)
    if topic is None or queue_id is None or not names.may_deliver(topic):
        return None
    return Target(topic, queue_id)


def route_delay(record: Record, properties: Properties, now: int, levels: int, max_delay_ms: int) -> None:
    """Send a delayed message the long way round; any other is left as it is. Changes both arguments."""
    level = delay_level(properties)
    if level > 0:
        for name in _TIMER_REQUESTS:
            properties.pop(name, None)
        to_schedule(record, properties, min(level, levels))
    elif props.TIMER_OUT_MS not in properties and any(name in properties for name in _TIMER_REQUESTS):
        _to_timer(record, properties, now, max_delay_ms)


def delay_level(properties: Properties) -> int:
    return props.whole_number(properties.get(props.DELAY), -1, MAX_INT) or 0


def to_schedule(record: Record, properties: Properties, level: int) -> None:
    """Into the queue of the delay level."""
    properties[props.DELAY] = str(level)
    _remember_target(record, properties)
    record.topic = names.SCHEDULE_TOPIC
    record.queue_id = level - 1


def to_half(record: Record, properties: Properties) -> None:
    """Into the half topic. Its transaction bits are cleared there, so that it gets an offset to be found by."""
    for name in _CHECK_STAMPS:
        properties.pop(name, None)
    properties[props.TRANSACTION_ID] = properties[props.UNIQ_KEY]
    _remember_target(record, properties)
    record.topic = names.HALF_TOPIC
    record.queue_id = 0
    record.sys_flag &= ~int(SysFlag.TRANSACTION_MASK)


def _to_timer(record: Record, properties: Properties, now: int, max_delay_ms: int) -> None:
    target = _target_time(properties, now)
    if target <= now:
        if props.TIMER_DEL_UNIQKEY in properties:
            raise MessageIllegal(f"recall of a message due at {target}, which has passed")
        return  # due already: an ordinary message
    if target - now > max_delay_ms:
        raise MessageIllegal(f"delivery in {target - now} ms; at most {max_delay_ms} ms ahead are allowed")
    properties[props.TIMER_OUT_MS] = str(timer_out(target))
    _remember_target(record, properties)
    record.topic = names.TIMER_TOPIC
    record.queue_id = 0


def _target_time(properties: Properties, now: int) -> int:
    for name in _TIMER_REQUESTS:
        text = properties.get(name)
        if text is None:
            continue
        value = props.whole_number(text, -props.MAX_LONG)
        if value is None:
            raise MessageIllegal(f"property {name}={text[:64]!r} is not a number of time units")
        if name == props.TIMER_DELIVER_MS:
            return value
        return now + value * (1000 if name == props.TIMER_DELAY_SEC else 1)
    return now


def _remember_target(record: Record, properties: Properties) -> None:
    properties[props.REAL_TOPIC] = record.topic
    properties[props.REAL_QID] = str(record.queue_id)
