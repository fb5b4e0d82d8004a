# SPDX-License-Identifier: Apache-2.0
"""Of the busiest requests, the names that decide about them: who was let through once is let through again, until a
user, a policy or an account changes. Refusals are not remembered, and nothing that depends on more than names is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.codes import RequestCode as Code

if TYPE_CHECKING:
    from collections.abc import Callable

    Names = tuple[str, ...]
    Deciding = Callable[[Any], Names | None]

MAX_REMEMBERED = 10_000  # a scan of names, or of very long ones, must not grow it for ever
_MAX_NAME = 255


def _sent(header: Any) -> Names | None:
    """Not of a message that takes back another, nor of traces, which depend on what topics there are."""
    topic: str = header.topic
    if len(topic) > _MAX_NAME or topic.startswith(names.SYSTEM_PREFIX):
        return None
    return None if props.TIMER_DEL_UNIQKEY in (header.properties or "") else (topic,)


def _read(header: Any) -> Names | None:
    """Not of retry topics, which depend on what groups there are."""
    topic, group = header.topic, header.consumer_group
    if len(topic) > _MAX_NAME or len(group) > _MAX_NAME or names.is_retry(topic):
        return None
    return (topic, group)


DECIDING: dict[int, Deciding] = {
    Code.SEND_MESSAGE: _sent,
    Code.SEND_MESSAGE_V2: _sent,
    Code.SEND_BATCH_MESSAGE: _sent,
    Code.PULL_MESSAGE: _read,
    Code.LITE_PULL_MESSAGE: _read,
    Code.POP_MESSAGE: _read,
    Code.ACK_MESSAGE: _read,
    Code.CHANGE_MESSAGE_INVISIBLETIME: _read,
}
