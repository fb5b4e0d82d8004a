# SPDX-License-Identifier: Apache-2.0
"""What a request only points at: the message at a place of the log, and whether a name is a group's or
a topic's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from aerobee.protocol import names
from aerobee.protocol import properties as props

if TYPE_CHECKING:
    from aerobee.broker.state.groups import Groups
    from aerobee.broker.state.topics import Topics
    from aerobee.store.message_store import MessageStore

# Messages wait here for their time or their producer's word; the topic they wait for is in their properties.
_WAITING = frozenset({names.HALF_TOPIC, names.CHECK_MAX_TOPIC, names.SCHEDULE_TOPIC, names.TIMER_TOPIC})


class LookUp(Protocol):
    """What a request only points at."""

    def topic_at(self, physical_offset: int) -> str | None:
        """The topic of the message at a place of the log, or that it waits for; None when there is none."""

    def is_group(self, name: str) -> bool: ...
    def is_topic(self, name: str) -> bool: ...


class Nothing:
    """Where there are no messages: a name server."""

    def topic_at(self, physical_offset: int) -> str | None:
        return None

    def is_group(self, name: str) -> bool:
        return False

    def is_topic(self, name: str) -> bool:
        return False


class Pointed:
    def __init__(self, store: MessageStore, groups: Groups, topics: Topics) -> None:
        self._store = store
        self._groups = groups
        self._topics = topics

    def topic_at(self, physical_offset: int) -> str | None:
        record = self._store.record_at(physical_offset) if physical_offset >= 0 else None
        if record is None:
            return None
        if record.topic in _WAITING:
            return props.get(record.properties_text, props.REAL_TOPIC) or record.topic
        return record.topic

    def is_group(self, name: str) -> bool:
        return self._groups.get(name) is not None

    def is_topic(self, name: str) -> bool:
        return self._topics.get(name) is not None
