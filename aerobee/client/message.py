# SPDX-License-Identifier: Apache-2.0
"""The messages users send and receive."""

from __future__ import annotations

from collections.abc import Sequence  # noqa: TC003 - help() and dataclass-like tools look fields up at run time
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import MessageQueue as MessageQueue  # for users, from here
from aerobee.protocol.failure_text import MAX_LENGTH, failure_text, one_line
from aerobee.protocol.message import MAX_BODY, Record, host_text

if TYPE_CHECKING:
    from aerobee.net.connection import Waiting

MAX_DELAY_LEVEL = 18
_FORBIDDEN = ("\x01", "\x02")

check_topic = lru_cache(maxsize=4096)(names.check_topic)


class Message(msgspec.Struct, gc=False):
    """A message to send. Wrong values are refused here, before anything reaches the network.

    >>> Message("orders", b"{}", tags="paid", keys=["o-1"], sharding_key="user-7")

    `delay_level` (1 to 18), `delay_ms` and `deliver_at` (a datetime or epoch milliseconds) exclude each other.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: dict[str, str] | None = None
    delay_level: int = 0
    deliver_at: datetime | int | None = None
    delay_ms: int | None = None
    sharding_key: str | None = None
    flag: int = 0
    message_id: str | None = None  # filled in by the producer when empty

    def __post_init__(self) -> None:
        check_topic(self.topic)
        body = self.body
        if type(body) is not bytes:
            if not isinstance(body, (bytes, bytearray, memoryview)):
                raise TypeError(
                    f"the body of a message to {self.topic!r} is {type(body).__name__}, not bytes"
                    + (": text.encode() makes them" if isinstance(body, str) else "")
                )
            self.body = bytes(body)
        if not body:
            raise ValueError(f"the body of a message to {self.topic!r} is empty; brokers refuse that")
        if len(body) > MAX_BODY:
            raise ValueError(
                f"the body of a message to {self.topic!r} has {len(body)} bytes, limit {MAX_BODY}"
            )
        if self.tags is not None or self.keys or self.properties or self.sharding_key is not None:
            self._check_properties()
        if self.delay_level or self.deliver_at is not None or self.delay_ms is not None:
            self._check_delay()

    def _check_properties(self) -> None:
        _check_text("tags", self.tags)
        _check_text("sharding_key", self.sharding_key)
        if isinstance(self.keys, str):
            raise TypeError(f"keys is the text {self.keys!r}; give a list: keys=[{self.keys!r}]")
        for key in self.keys:
            _check_text("keys", key)
            if not key or any(c.isspace() for c in key):
                raise ValueError(f"key {key!r} is empty or holds white space, which separates keys")
        for name, value in (self.properties or {}).items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError(f"property {name!r} = {value!r}: names and values are text")
            if name in props.RESERVED:
                raise ValueError(f"property {name!r} is reserved by RocketMQ; choose another name")
            if not name.strip() or not value.strip():
                raise ValueError(f"property {name!r} = {value!r}: neither may be blank")
            _check_text("property name", name)
            _check_text(f"property {name!r}", value)

    def _check_delay(self) -> None:
        if (self.delay_level != 0) + (self.deliver_at is not None) + (self.delay_ms is not None) > 1:
            raise ValueError("give one of delay_level, deliver_at and delay_ms, not several")
        if not 0 <= self.delay_level <= MAX_DELAY_LEVEL:
            raise ValueError(f"delay_level is {self.delay_level}; levels are 1 to {MAX_DELAY_LEVEL}")
        if self.delay_ms is not None and self.delay_ms < 0:
            raise ValueError(f"delay_ms is {self.delay_ms}; it cannot be negative")
        if isinstance(self.deliver_at, datetime):
            self.deliver_at = round(self.deliver_at.timestamp() * 1000)
        if self.deliver_at is not None and (type(self.deliver_at) is not int or self.deliver_at <= 0):
            raise ValueError(f"deliver_at is {self.deliver_at!r}; give a datetime or epoch milliseconds")


def _check_text(what: str, value: str | None) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise TypeError(f"{what} is {type(value).__name__} {value!r}, not text")
    if any(sign in value for sign in _FORBIDDEN):
        raise ValueError(f"{what} {value!r} holds 0x01 or 0x02, which separate properties on the wire")


class Origin(msgspec.Struct, frozen=True, gc=False):
    """What the messages of one answer share."""

    broker_name: str
    min_offset: int = -1
    max_offset: int = -1


_NOWHERE = Origin("")


class Leased(Protocol):
    """What a popped message is answered by; `consume/popped.py` has it."""

    receipt: str

    def expired(self, now: int) -> bool: ...
    async def ack(self) -> None: ...
    def ack_soon(self, waiting: Waiting) -> bool: ...
    async def hide(self, invisible_ms: int, failure: str = "") -> None: ...


_BODY_SHOWN = 200  # bytes, in a message's repr


class ReceivedMessage(Record, gc=False):
    """A message as a consumer sees it: the record's fields, the body already decompressed.

    `topic` is the topic it was sent to, also when it comes from a retry topic. Messages of a `SimpleConsumer` are
    answered one by one: `await message.ack()`, `.nack(delay_ms)`, `.extend(invisible_ms)`.
    """

    origin: Origin = _NOWHERE
    consume_started: int = 0
    lease: Leased | None = None
    retry_topic: str = ""  # where its queue and offset are, when it comes from a retry topic

    def __repr__(self) -> str:
        """What somebody looking for his message wants to see; the broker's own properties are in `properties`."""
        own = {name: value for name, value in self.properties.items() if name not in props.RESERVED}
        told = {"keys": self.keys, "tags": self.tags, "properties": own}
        size = len(self.body)
        body = f"{self.body[:_BODY_SHOWN]!r}" + (f"... {size} bytes" if size > _BODY_SHOWN else "")
        parts = [f"body={body}", *(f"{name}={value!r}" for name, value in told.items() if value)]
        where = f"attempt={self.attempt} of {self.queue}@{self.queue_offset}"
        return f"<message {self.message_id} {' '.join(parts)} {where}>"

    @property
    def broker_name(self) -> str:
        return self.origin.broker_name

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.origin.broker_name, self.queue_id, self.topic)

    @property
    def max_offset(self) -> int:
        """The queue's next offset to be written, when this message was fetched."""
        return self.origin.max_offset

    @property
    def keys(self) -> list[str]:
        return (self.property(props.KEYS) or "").split()

    @property
    def sharding_key(self) -> str | None:
        return self.property(props.SHARDING_KEY)

    @property
    def attempt(self) -> int:
        """1 at the first delivery."""
        return self.reconsume_times + 1

    @property
    def born_at(self) -> datetime:
        return datetime.fromtimestamp(self.born_timestamp / 1000, UTC)

    @property
    def stored_at(self) -> datetime:
        return datetime.fromtimestamp(self.store_timestamp / 1000, UTC)

    @property
    def born_address(self) -> str:
        return host_text(self.born_host)

    @property
    def receipt(self) -> str | None:
        """The POP handle; None for a message that was pulled."""
        return self.lease.receipt if self.lease else self.property(props.POP_CK)

    def property(self, name: str) -> str | None:
        return props.get(self.properties_text, name)

    def call_it(self, topic: str) -> None:
        """The topic it was sent to, in place of the one it was fetched from."""
        self.retry_topic, self.topic = self.topic, topic

    async def ack(self) -> None:
        """Done: never deliver it to this group again."""
        await self._leased().ack()

    async def nack(self, delay_ms: int = 0, reason: BaseException | str = "") -> None:
        """Failed: deliver it again after `delay_ms`, which is a try more. The reason stands beside it when it ends as a
        dead letter."""
        told = one_line(reason) if isinstance(reason, str) else failure_text(reason, MAX_LENGTH)
        await self._leased().hide(delay_ms, told)

    async def extend(self, invisible_ms: int) -> None:
        """Still working: keep it from others for `invisible_ms` from now."""
        await self._leased().hide(invisible_ms)

    def _leased(self) -> Leased:
        if self.lease is None:
            raise TypeError(
                f"message {self.message_id} was not received by a SimpleConsumer; a push consumer acks by returning"
            )
        return self.lease


class SendStatus(StrEnum):
    """What became of a message the broker has accepted."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"


STATUS_BY_CODE = {
    0: SendStatus.OK,
    10: SendStatus.FLUSH_DISK_TIMEOUT,
    11: SendStatus.SLAVE_NOT_AVAILABLE,
    12: SendStatus.FLUSH_SLAVE_TIMEOUT,
}


class SendResult(msgspec.Struct, gc=False):
    """Where a message was stored. `message_id` is the producer's id, `offset_id` the broker's."""

    status: SendStatus
    message_id: str
    offset_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None

    def __repr__(self) -> str:
        return f"<sent {self.message_id} to {self.queue}@{self.queue_offset}>"


def as_dict(message: ReceivedMessage) -> dict[str, Any]:
    """Plain values for logs, JSON lines and tables."""
    return {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "tags": message.tags,
        "keys": message.keys,
        "attempt": message.attempt,
        "born": message.born_timestamp,
        "stored": message.store_timestamp,
        "properties": message.properties,
        "body": message.body,
    }
