# SPDX-License-Identifier: Apache-2.0
"""What every JSON body is built of: the base, message queues, versions, key-value tables, lists of names.

Members are declared in Java's order, by name, because that is the order in which they are written.
"""

from __future__ import annotations

from enum import StrEnum
from typing import dataclass_transform

import msgspec
from msgspec import field


@dataclass_transform(kw_only_default=True, field_specifiers=(msgspec.field,))
class Body(msgspec.Struct, rename="camel", kw_only=True):
    """A JSON object of the protocol; every member has a default, as peers leave out what they like."""


class MessageQueue(msgspec.Struct, rename="camel", frozen=True):
    """One queue of one broker. Sorts by topic, broker, queue, the order every allocation starts from."""

    broker_name: str = ""
    queue_id: int = 0
    topic: str = ""

    def __lt__(self, other: MessageQueue) -> bool:
        return self.order < other.order

    @property
    def order(self) -> tuple[str, str, int]:
        return self.topic, self.broker_name, self.queue_id

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"


class DataVersion(msgspec.Struct, rename="camel", frozen=True):
    """Told apart by all three; `next` is what a change makes of it."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def next(self, now: int) -> DataVersion:
        return DataVersion(self.counter + 1, self.state_version, now)


class MessageModel(StrEnum):
    """In Java's order: C++ clients send the ordinal."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeType(StrEnum):
    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class ConsumeFromWhere(StrEnum):
    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class Mode(StrEnum):
    """How a client is told to fetch from a queue."""

    PULL = "PULL"
    POP = "POP"


class KVTable(Body):
    """Broker runtime info, a namespace of the name server's settings."""

    table: dict[str, str] = field(default_factory=dict)


class KVConfig(Body):
    """The name server's `kvConfig.json`."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict)


class TopicList(Body):
    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list)


class GroupList(Body):
    group_list: list[str] = field(default_factory=list)


class ConsumerIds(Body):
    consumer_id_list: list[str] = field(default_factory=list)


class LockBatch(Body):
    """Lock or unlock these queues for a client of an orderly group."""

    client_id: str = ""
    consumer_group: str = ""
    mq_set: list[MessageQueue] = field(default_factory=list)
    only_this_broker: bool = False


class LockedQueues(Body):
    lock_ok_mq_set: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")
