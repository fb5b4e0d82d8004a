# SPDX-License-Identifier: Apache-2.0
"""Take back a message that waits for its delivery time.

The send result of such a message carries a handle (`protocol/recall_handle.py`). Recalling stores a second message
due in the same second that names the first by TIMER_DEL_UNIQKEY; the timer meets both in one slot and delivers neither.

The slot's messages come when its second is over, so that none is early. Until then a recall is taken: the timer reads
all that has arrived before it delivers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker import checks
from aerobee.broker.operations.hosts import hosts_of
from aerobee.broker.operations.send import PlainOrigin, Sent, send
from aerobee.errors import IllegalOperation, NoPermission, TopicNotFound
from aerobee.protocol import properties as props
from aerobee.protocol.delay import timer_out
from aerobee.protocol.message import Record
from aerobee.protocol.recall_handle import Handle, parse_handle
from aerobee.store.timer_wheel import TICK_MS

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.state.routes import Host

RECALL_TAG = "_RECALL_TAG_"
DAY_MS = 24 * 3600 * 1000


class Recall(NamedTuple):
    topic: str
    handle: str
    producer_group: str = ""
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"


def recall(request: Recall, broker: Broker) -> tuple[str, Sent]:
    """Store the recall; returns the unique key of the message taken back, and where the recall was stored."""
    now, handle = broker.clock.wall(), _checked_handle(request, broker)
    properties = {
        props.TAGS: RECALL_TAG,
        props.TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.unique_key}",
        props.UNIQ_KEY: handle.unique_key,
        props.TIMER_DELIVER_MS: str(_in_its_slot(handle, now)),
        props.BORN_TIMESTAMP: str(now),
        props.PGROUP: request.producer_group,
    }
    record = Record(
        topic=handle.topic,
        body=b"0",
        properties_text=props.render({name: value for name, value in properties.items() if value}),
        queue_id=0,
        born_timestamp=now,
        born_host=request.born_host,
    )
    return handle.unique_key, send(record, PlainOrigin(producer_group=request.producer_group), broker)


async def kept_elsewhere(request: Recall, broker: Broker) -> Host | None:
    """The broker that keeps the message; None when it is this one, or none that can be asked.

    RocketMQ 5 clients recall at the address they were given, whichever broker took the message.
    """
    name = parse_handle(request.handle).broker_name
    if name == broker.config.name:
        return None
    hosts = await hosts_of(request.topic, broker)
    return next((host for host in hosts if host.broker_name == name and host.address), None)


def _checked_handle(request: Recall, broker: Broker) -> Handle:
    config = broker.config
    if not config.recall:
        raise NoPermission("recall is turned off on this broker (recallMessageEnable)")
    checks.broker_writable(config)
    if broker.topics.get(request.topic) is None:
        raise TopicNotFound(f"topic '{request.topic}' does not exist; nothing to recall")
    handle = parse_handle(request.handle)
    if handle.topic != request.topic:
        raise IllegalOperation(f"the handle is of topic '{handle.topic}', not '{request.topic}'")
    if handle.broker_name != config.name:
        raise IllegalOperation(f"the handle is of broker '{handle.broker_name}', not '{config.name}'")
    now, comes_at = broker.clock.wall(), _comes_at(handle)
    if comes_at <= now:
        moment = datetime.fromtimestamp(comes_at / 1000, UTC)
        ago_s = (now - comes_at) / 1000
        raise IllegalOperation(
            f"the message came due at {moment:%Y-%m-%d %H:%M:%S} UTC, {ago_s:.1f} s ago: too late to take it back"
        )
    if handle.deliver_at - now >= broker.store.config.timer_max_delay_ms:
        raise IllegalOperation(
            f"the handle is of a message due in {(comes_at - now) // DAY_MS} days, later than any can be"
        )
    return handle


def _comes_at(handle: Handle) -> int:
    """When the timer delivers it."""
    return timer_out(handle.deliver_at) + TICK_MS


def _in_its_slot(handle: Handle, now: int) -> int:
    """A time ahead of us in the slot of the message: its beginning, or its end when it has begun."""
    return handle.deliver_at if handle.deliver_at > now + TICK_MS else _comes_at(handle)
