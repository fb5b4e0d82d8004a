# SPDX-License-Identifier: Apache-2.0
"""Move the moment at which a popped message becomes visible again: later to go on, sooner to give up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.operations.ack import check_queue, released
from aerobee.errors import NoMessage, StoreError, SystemFailure
from aerobee.protocol.failure_text import one_line
from aerobee.protocol.receipt import ORDERLY_QUEUE, Receipt

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker


class Change(msgspec.Struct, frozen=True):
    group: str
    topic: str  # the real one
    queue_id: int
    offset: int
    receipt: Receipt
    invisible_ms: int  # 0 = redeliver as soon as may be
    failure: str = ""  # why, in the consumer's words


class Changed(msgspec.Struct, frozen=True):
    """The new receipt: these values, and the message's own offset as its start (9583)."""

    pop_time: int = 0
    invisible_ms: int = 0
    revive_queue: int = 0


def change_invisible(request: Change, broker: Broker) -> Changed:
    check_queue(request.topic, request.queue_id, broker)
    low = broker.store.kept_from(request.topic, request.queue_id)
    high = broker.store.max_offset(request.topic, request.queue_id)
    if not low <= request.offset < high:
        raise NoMessage(
            f"topic '{request.topic}' queue {request.queue_id} holds offsets {low} to {high - 1}, not {request.offset}"
        )
    if request.receipt.is_orderly:
        return _change_ordered(request, broker)
    now = broker.clock.now()
    place = (request.topic, request.group, request.queue_id)
    invisible_ms, failure = max(0, request.invisible_ms), one_line(request.failure)
    try:
        pop_time = broker.pops.leases.change(
            place, request.receipt, request.offset, invisible_ms, now, failure
        )
    except StoreError as error:
        raise SystemFailure(
            f"the new invisible time cannot be recorded, the old one stands: {error}"
        ) from None
    return Changed(pop_time, request.invisible_ms, request.receipt.revive_qid)


def _change_ordered(request: Change, broker: Broker) -> Changed:
    """Its message is read again where it stands: there is no copy that could say the reason."""
    place = (request.topic, request.group, request.queue_id)
    if request.offset < broker.offsets.get(request.group, request.topic, request.queue_id):
        return Changed()
    now, pop_time = broker.clock.wall(), request.receipt.pop_time
    visible_at = now + request.invisible_ms
    broker.pops.orders.set_visible(place, request.offset, pop_time, visible_at)
    released(place, now, broker)
    return Changed(pop_time, visible_at - pop_time, ORDERLY_QUEUE)
