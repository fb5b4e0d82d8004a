# SPDX-License-Identifier: Apache-2.0
"""What a message that waits for its time is taken back with: URL-safe base64 of `v1 topic broker time unique-key`."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from aerobee.errors import InvalidHandle
from aerobee.protocol import properties as props

_VERSION = "v1"


class Handle(NamedTuple):
    topic: str
    broker_name: str
    deliver_at: int
    unique_key: str


def recall_handle(topic: str, broker_name: str, timer_out: int, unique_key: str) -> str:
    """The handle of a message in the timer, timed one past `timer_out`: rounding takes a second from whole seconds,
    and the recall must come out in the same slot."""
    text = f"{_VERSION} {topic} {broker_name} {timer_out + 1} {unique_key}"
    return urlsafe_b64encode(text.encode()).decode()


def parse_handle(text: str) -> Handle:
    try:
        raw = urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)).decode()
        version, topic, broker_name, deliver_at, unique_key = raw.split(" ")
        if version != _VERSION:
            raise ValueError(version)
        moment = props.whole_number(deliver_at)
        if moment is None:
            raise ValueError(deliver_at)
        return Handle(topic, broker_name, moment, unique_key)
    except (ValueError, binascii.Error):
        raise InvalidHandle(
            f"recall handle {text[:64]!r} is invalid; use the one in the send result"
        ) from None
