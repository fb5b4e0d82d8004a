# SPDX-License-Identifier: Apache-2.0
"""A store read in bulk by those who decode records themselves (Spark): queue units and bytes of the log, nothing looked
at, so that a message costs the broker no more than its sending."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker import checks

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker

MOST_BYTES = 15 * 1024 * 1024  # within a frame of 16
MOST_UNITS = 50_000
MOST_SAMPLES = 1_024  # each is looked up by itself


def units_of(
    topic: str, queue_id: int, offset: int, count: int, step: int, broker: Broker
) -> tuple[int, bytes]:
    """The units of [offset, offset + count) that there are, or every `step`th, and the offset of the first: it is a
    later one where some were deleted since they were asked about."""
    checks.broker_readable(broker.config)
    checks.readable_queue(broker.topics, topic, queue_id)
    step = max(1, step)
    end = offset + min(count, MOST_UNITS if step == 1 else MOST_SAMPLES * step)
    first = max(offset, broker.store.min_offset(topic, queue_id))
    return first, broker.store.units(topic, queue_id, first, end - first, step)


def log_from(position: int, size: int, broker: Broker) -> memoryview | bytes:
    """Bytes of the log, a view of it where possible: what is written once never changes, and a file that is deleted
    meanwhile stays readable through the view."""
    checks.broker_readable(broker.config)
    return broker.store.log_from(position, min(size, MOST_BYTES))
