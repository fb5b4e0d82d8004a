# SPDX-License-Identifier: Apache-2.0
"""Look at what a pop would return, without taking it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.delivery.reading import ordinary_limit, peek_position
from aerobee.broker.operations.pop import MAX_MESSAGES, check_reader, queues_of
from aerobee.broker.pop.pops import retry_topics

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker


class Peek(msgspec.Struct, frozen=True):
    group: str
    topic: str
    queue_id: int = -1
    max_messages: int = MAX_MESSAGES


class Peeked(msgspec.Struct):
    messages: list[bytes] = []
    rest: int = 0


def peek(request: Peek, broker: Broker) -> Peeked:
    check_reader(request.group, request.topic, request.queue_id, broker)
    drawn = broker.pops.draw()
    own = [(request.topic, request.queue_id)]
    retries = [(name, -1) for name in retry_topics(request.topic, request.group)]
    peeked = Peeked(messages=[])
    for name, wanted in retries + own if drawn % 5 == 0 else own + retries:
        for queue_id in queues_of(name, wanted, drawn, broker):
            _look(request, name, queue_id, peeked, broker)
    return peeked


def _look(request: Peek, topic: str, queue_id: int, peeked: Peeked, broker: Broker) -> None:
    offset = peek_position(topic, request.group, queue_id, broker)
    room = min(request.max_messages, MAX_MESSAGES) - len(peeked.messages)
    if room <= 0:
        peeked.rest += max(0, broker.store.max_offset(topic, queue_id) - offset)
        return
    found = broker.store.read(topic, queue_id, offset, ordinary_limit(room, broker.config))
    peeked.messages += found.messages
    peeked.rest += max(0, found.max_offset - found.next_offset)
