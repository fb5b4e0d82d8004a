# SPDX-License-Identifier: Apache-2.0
"""What a RocketMQ 5 consumer receives: a pop whose messages each come with their receipt and number of attempts.

Two kinds of message that a pop finds are not handed on: those whose tag only looked right (the store compares
hashes), which are done, and those past the group's attempts, which are dead letters.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.operations.ack import Ack, ack
from aerobee.broker.operations.pop import Pop, Popped, pop
from aerobee.broker.operations.send_back import SendBackRequest, send_back
from aerobee.errors import AerobeeError, FlowControl, NoMessage
from aerobee.protocol import message as records
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.filters.tags import TAG, parse_tags
from aerobee.protocol.receipt import Receipt, parse_info

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.broker import Broker
    from aerobee.broker.delivery.keeping import Unkept
    from aerobee.protocol.bodies import GroupConfig
    from aerobee.protocol.message import Record

log = logging.getLogger("aerobee.pop")

TO_DEAD_LETTERS = -1  # as a delay level


class Delivery(msgspec.Struct):
    record: Record
    receipt: Receipt
    attempt: int


async def receive(request: Pop, broker: Broker) -> list[Delivery]:
    """The messages, none when there were none in time. Raises FlowControl when too many wait already."""
    popped = pop(request, broker)
    if not isinstance(popped, Popped):
        popped = await popped
    if popped.code == ResponseCode.POLLING_FULL:
        raise FlowControl(f"too many requests wait for messages of group '{request.group}'; try again later")
    return [each for each in _deliveries(popped, request, broker) if _wanted(each, request, broker)]


def dead_letter(group: str, topic: str, receipt: Receipt, broker: Broker) -> Unkept | None:
    """The consumer gives up on a message. Its ack may fail: the copy among the dead letters is what counts, and what
    its answer waits for is returned."""
    if receipt.commit_log_offset < 0:
        raise NoMessage(f"receipt handle {receipt.text!r} names no place in the commit log")
    unkept = send_back(SendBackRequest(group, receipt.commit_log_offset, TO_DEAD_LETTERS, 0), broker)
    try:
        _ack(group, topic, receipt, broker)
    except AerobeeError as error:
        log.info("group=%s topic=%s offset=%d is dead; its ack said: %s", group, topic, receipt.offset, error)
    return unkept


def max_attempts(config: GroupConfig) -> int:
    """Deliveries before the dead letters; a negative limit means none (apache/rocketmq#7842)."""
    return config.retry_max_times + 1 if config.retry_max_times >= 0 else 2**31 - 1


def _deliveries(popped: Popped, request: Pop, broker: Broker) -> Iterator[Delivery]:
    """Receipts follow from what was taken where; in an ordered group so do the attempts."""
    places = [(taken, offset) for taken in popped.taken for offset in taken.offsets]
    counts = parse_info(";".join(popped.order_counts)) if popped.order_counts else {}
    for raw, (taken, offset) in zip(popped.messages, places, strict=True):
        record = records.decode(raw)
        receipt = Receipt(
            taken.start_offset,
            popped.pop_time,
            popped.invisible_ms,
            popped.revive_queue,
            taken.retry,
            broker.config.name,
            taken.queue_id,
            offset,
            record.physical_offset,
        )
        before = record.reconsume_times
        if request.ordered:
            before = int(counts.get((taken.retry, f"qo{taken.queue_id}%{offset}"), "0"))
        yield Delivery(record, receipt, 1 + before)


def _wanted(delivery: Delivery, request: Pop, broker: Broker) -> bool:
    record, receipt = delivery.record, delivery.receipt
    tags = parse_tags(request.expression) if request.expression_type == TAG else frozenset()
    if tags and record.tags not in tags:
        _ack(request.group, request.topic, receipt, broker)
        return False
    if request.ordered or record.reconsume_times < max_attempts(broker.groups.require(request.group)):
        return True
    dead_letter(request.group, request.topic, receipt, broker)
    return False


def _ack(group: str, topic: str, receipt: Receipt, broker: Broker) -> None:
    real = receipt.real_topic(topic, group)
    ack(Ack(group, real, receipt.queue_id, receipt.offset, receipt), broker)
