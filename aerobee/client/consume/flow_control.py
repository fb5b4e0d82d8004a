# SPDX-License-Identifier: Apache-2.0
"""When a consumer must not fetch more of a queue: too many messages, too many bytes, or too wide a span."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from aerobee.client.consume.inbox import Inbox
    from aerobee.client.options import QueueOptions

MIB = 1024 * 1024
WARN_EVERY = 1000


class Full(StrEnum):
    """Why fetching waits."""

    COUNT = "messages"
    SIZE = "MiB"
    SPAN = "span"


class FlowLimits(msgspec.Struct, frozen=True):
    messages: int
    mebibytes: int
    span: int | None  # None for ordered consumers, which never have gaps

    @classmethod
    def of(cls, options: QueueOptions, *, owned_queues: int = 1, span: int | None) -> FlowLimits:
        """The limits of one queue; a limit per topic is spread over the queues owned of it."""
        messages, mebibytes = options.queue_messages, options.queue_mebibytes
        if options.topic_messages > 0:
            messages = max(1, options.topic_messages // max(1, owned_queues))
        if options.topic_mebibytes > 0:
            mebibytes = max(1, options.topic_mebibytes // max(1, owned_queues))
        return cls(messages, mebibytes, span)


def full(inbox: Inbox, limits: FlowLimits) -> Full | None:
    if inbox.count > limits.messages:
        return Full.COUNT
    if inbox.size_bytes // MIB > limits.mebibytes:
        return Full.SIZE
    if limits.span is not None and inbox.span > limits.span:
        return Full.SPAN
    return None


class Warnings:
    """Every 1000th hit is worth a line, the first one too; count and size share a counter, span has its own."""

    def __init__(self) -> None:
        self._hits = {"amount": 0, "span": 0}

    def hit(self, reason: Full) -> bool:
        kind = "span" if reason is Full.SPAN else "amount"
        self._hits[kind] += 1
        return self._hits[kind] % WARN_EVERY == 1
