# SPDX-License-Identifier: Apache-2.0
"""What a record brings into queues and index: its tags code and its keys. Append and recovery both ask here,
so a
rebuilt queue is the same as the one that was written at first."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from aerobee.protocol import properties as props
from aerobee.protocol.message import stored_at
from aerobee.protocol.names import SCHEDULE_TOPIC
from aerobee.store.record_parts import text_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

TRANSACTION_MASK = 0xC
PREPARED = 0x4
ROLLBACK = 0xC

Names = tuple[str | None, str | None, str | None]  # tag, unique key, keys

_MAX_TAGS = 16384
_HEAD = struct.Struct(">12xi4xq8xi")  # queue id, queue offset, sys flag


def has_unit(sys_flag: int) -> bool:
    """Prepared and rolled-back records are in the log only."""
    return not sys_flag & 0x4  # prepared 0x4 and rollback 0xC have the bit, none 0x0 and commit 0x8 do not


def tag_unique_keys(text: str) -> Names:
    """TAGS, UNIQ_KEY and KEYS of a properties text: `properties.get` three times, in one call for the hot path."""
    tag = unique = keys = None
    before, found, rest = text.partition("TAGS\x01")
    if found:
        # Else it is the end of a longer name, such as MYTAGS.
        tag = rest.partition("\x02")[0] if not before or before[-1] == "\x02" else props.get(text, "TAGS")
    before, found, rest = text.partition("UNIQ_KEY\x01")
    if found:
        unique = (
            rest.partition("\x02")[0] if not before or before[-1] == "\x02" else props.get(text, "UNIQ_KEY")
        )
    if "KEYS\x01" in text:
        before, _, rest = text.partition("KEYS\x01")
        keys = rest.partition("\x02")[0] if not before or before[-1] == "\x02" else props.get(text, "KEYS")
    return tag or None, unique, keys


class _LastLook:
    """`tag_unique_keys` of a text that its maker looks at first and who stores it right after."""

    __slots__ = ("_found", "_text")

    def __init__(self) -> None:
        self._text = ""
        self._found: Names = (None, None, None)

    def at(self, text: str) -> Names:
        if text is not self._text:  # the very same text: to hash a long one would take longer than a look
            self._text, self._found = text, tag_unique_keys(text)
        return self._found


looked_at = _LastLook().at


def index_keys(sys_flag: int, unique: str | None, keys: str | None) -> list[str]:
    """The keys a record is found by; a rolled-back one by none."""
    if sys_flag & TRANSACTION_MASK == ROLLBACK:
        return []
    found = [unique] if unique else []
    if keys:
        found += [word for word in keys.split(" ") if word]
    return found


class QueueUnit(NamedTuple):
    """Whose message a record is, and the code its unit has."""

    topic: str
    queue_id: int
    offset: int
    code: int


def unit_of(raw: bytes, codes: TagCodes) -> QueueUnit | None:
    """The unit of a whole record; None when it has none, or a topic that is no text."""
    queue_id, offset, sys_flag = _HEAD.unpack_from(raw)
    if not has_unit(sys_flag):
        return None
    try:
        topic, text = text_parts(raw)
    except (UnicodeDecodeError, struct.error, IndexError):
        return None
    return QueueUnit(
        topic, queue_id, offset, codes(topic, queue_id, tag_unique_keys(text)[0], stored_at(raw))
    )


class TagCodes:
    """Tags codes of queue units. Those of delayed messages are the time they are due, as in RocketMQ."""

    def __init__(self, delays: Sequence[int]) -> None:
        self._delays = delays
        self._known: dict[str | None, int] = {None: 0}

    def __call__(self, topic: str, queue_id: int, tag: str | None, store_time: int) -> int:
        if topic == SCHEDULE_TOPIC and 0 <= queue_id < len(self._delays):
            return store_time + self._delays[queue_id]
        code = self._known.get(tag)
        return self._learn(tag) if code is None else code

    def _learn(self, tag: str | None) -> int:
        if len(self._known) >= _MAX_TAGS:
            self._known = {None: 0}
        code = self._known[tag] = props.tag_code(tag)
        return code
