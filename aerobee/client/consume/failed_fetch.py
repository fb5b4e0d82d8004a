# SPDX-License-Identifier: Apache-2.0
"""A pull or pop that brought no messages but an error, or another place: what is said of it, and how long the queue is
then left alone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.client.session.outages import level
from aerobee.errors import AerobeeError, FlowControl, NoPermission
from aerobee.protocol import names

if TYPE_CHECKING:
    from aerobee.client.consume.membership import Membership
    from aerobee.protocol.bodies import MessageQueue

log = logging.getLogger("aerobee.client.fetch")


def wait_after(error: AerobeeError, member: Membership, queue: MessageQueue, usual_ms: int) -> int:
    """In milliseconds. A retry topic fails with the topic it belongs to, or is not there yet: no line for it."""
    if isinstance(error, FlowControl):
        return member.options.broker_flow_control_ms
    if isinstance(error, NoPermission):
        return member.refusals.met(queue.topic, error, member.clock.now())
    if not names.is_retry(queue.topic):
        log.log(level(error), "fetch failed group=%s queue=%s: %s", member.group, queue, error)
    return usual_ms


def is_reset(asked: int, there: tuple[int, int]) -> bool:
    """Whether a reader that is sent elsewhere was moved by an operator: the offset it asked for is there."""
    return there[0] <= asked <= there[1]


def tell_moved(queue: MessageQueue, asked: int, there: tuple[int, int], following: int) -> None:
    """The broker sends the reader elsewhere: its offset is not there; or it is, and an operator has reset the group."""
    lowest, highest = there
    if is_reset(asked, there):
        log.info("reset: queue=%s goes on at offset=%d, it was at offset=%d", queue, following, asked)
    else:
        log.warning(
            "offset=%d of queue=%s is outside min=%d max=%d, next=%d",
            asked, queue, lowest, highest, following,
        )  # fmt: skip
