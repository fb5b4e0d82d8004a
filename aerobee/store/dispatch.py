# SPDX-License-Identifier: Apache-2.0
"""What a record brings into queues and index: its tags code and its keys. Append and recovery both ask here,
so a
rebuilt queue is the same as the one that was written at first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.protocol import properties as props
from aerobee.protocol.names import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

TRANSACTION_MASK = 0xC
PREPARED = 0x4
ROLLBACK = 0xC

_MAX_TAGS = 16384


def has_unit(sys_flag: int) -> bool:
    """Prepared and rolled-back records are in the log only."""
    return not sys_flag & 0x4  # prepared 0x4 and rollback 0xC have the bit, none 0x0 and commit 0x8 do not


def tag_unique_keys(text: str) -> tuple[str | None, str | None, str | None]:
    """TAGS, UNIQ_KEY and KEYS of a properties text; `properties.get` three times, but one call on the hot
    path."""
    return _value(text, "TAGS\x01", 5), _value(text, "UNIQ_KEY\x01", 9), _value(text, "KEYS\x01", 5)


def _value(text: str, wanted: str, width: int) -> str | None:
    at = text.find(wanted)
    if at < 0:
        return None
    if at and text[at - 1] != "\x02":  # the end of a longer name, such as MYTAGS
        return props.get(text, wanted[:-1])
    end = text.find("\x02", at)
    return (text[at + width : end] if end >= 0 else text[at + width :]) or None


def index_keys(sys_flag: int, unique: str | None, keys: str | None) -> list[str]:
    """The keys a record is found by; a rolled-back one by none."""
    if sys_flag & TRANSACTION_MASK == ROLLBACK:
        return []
    found = [unique] if unique else []
    if keys:
        found += [word for word in keys.split(" ") if word]
    return found


class TagCodes:
    """Tags codes of queue units. Those of delayed messages are the time they are due, as in RocketMQ."""

    def __init__(self, delays: Sequence[int]) -> None:
        self._delays = delays
        self._known: dict[str | None, int] = {None: 0}

    def __call__(self, topic: str, queue_id: int, tag: str | None, store_time: int) -> int:
        if topic == SCHEDULE_TOPIC and 0 <= queue_id < len(self._delays):
            return store_time + self._delays[queue_id]
        code = self._known.get(tag)
        if code is None:
            if len(self._known) >= _MAX_TAGS:
                self._known = {None: 0}
            code = self._known[tag] = props.tag_code(tag)
        return code
