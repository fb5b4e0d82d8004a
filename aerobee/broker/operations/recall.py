# SPDX-License-Identifier: Apache-2.0
"""Take back a message that waits for its delivery time.

The send result of such a message carries a handle: URL-safe base64 of `v1 topic broker time unique-key`.
Recalling stores a second message due in the same second that names the first by TIMER_DEL_UNIQKEY; the timer
meets both in one slot and delivers neither.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker import checks
from aerobee.broker.operations.hosts import hosts_of
from aerobee.broker.operations.send import PlainOrigin, Sent, send
from aerobee.errors import IllegalOperation, NoPermission, TopicNotFound
from aerobee.protocol import properties as props
from aerobee.protocol.message import Record

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.state.routes import Host

RECALL_TAG = "_RECALL_TAG_"
_VERSION = "v1"


class Handle(NamedTuple):
    topic: str
    broker_name: str
    deliver_at: int
    unique_key: str


def recall_handle(topic: str, broker_name: str, timer_out: int, unique_key: str) -> str:
    """The handle of a message in the timer, timed one past `timer_out`: rounding takes a second from whole seconds,
    and the recall must come out in the same slot."""
    text = f"{_VERSION} {topic} {broker_name} {timer_out + 1} {unique_key}"
    return urlsafe_b64encode(text.encode()).decode()


def parse_handle(text: str) -> Handle:
    try:
        raw = urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)).decode()
        version, topic, broker_name, deliver_at, unique_key = raw.split(" ")
        if version != _VERSION:
            raise ValueError(version)
        moment = props.whole_number(deliver_at)
        if moment is None:
            raise ValueError(deliver_at)
        return Handle(topic, broker_name, moment, unique_key)
    except (ValueError, binascii.Error):
        raise IllegalOperation(
            f"recall handle {text[:64]!r} is invalid; use the one in the send result"
        ) from None


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
            f"the message was due at {handle.deliver_at}; it is too late (or far too early) to recall"
        )
    return handle
