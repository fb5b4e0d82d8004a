# SPDX-License-Identifier: Apache-2.0
"""Take back a message that waits for its delivery time.

The send result of such a message carries a handle (`protocol/recall_handle.py`). Recalling stores a second message
due in the same second that names the first by TIMER_DEL_UNIQKEY; the timer meets both in one slot and delivers neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker import checks
from aerobee.broker.operations.hosts import hosts_of
from aerobee.broker.operations.send import PlainOrigin, Sent, send
from aerobee.errors import IllegalOperation, NoPermission, TopicNotFound
from aerobee.protocol import properties as props
from aerobee.protocol.message import Record
from aerobee.protocol.recall_handle import Handle, parse_handle

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.state.routes import Host

RECALL_TAG = "_RECALL_TAG_"


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
        props.TIMER_DELIVER_MS: str(handle.deliver_at),
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
    left_ms = handle.deliver_at - broker.clock.wall()
    if left_ms <= 0 or left_ms >= broker.store.config.timer_max_delay_ms:
        raise IllegalOperation(
            f"the message was due at {handle.deliver_at}, {-left_ms} ms ago; it is too late to recall"
            if left_ms <= 0
            else f"the message is due at {handle.deliver_at}, in {left_ms} ms; that is later than any can be"
        )
    return handle
