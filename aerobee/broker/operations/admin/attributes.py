# SPDX-License-Identifier: Apache-2.0
"""Attributes of topics and groups: which there are, and how an operator changes them.

A change is `+key=value` or `-key`. What is refused, and with which words, is RocketMQ's; tools show the words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.errors import SystemFailure
from aerobee.protocol.names import RESERVE_TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LONG_MAX = 2**63 - 1


class Attribute(NamedTuple):
    values: frozenset[str]  # empty: a whole number from -1 on
    fixed: bool = False  # set when the topic is created, or never

    def verify(self, value: str) -> None:
        if self.values:
            if value not in self.values:
                raise SystemFailure(f"value is not in set: [{', '.join(sorted(self.values))}]")
        elif not value.removeprefix("-").isdecimal():
            raise SystemFailure(f'For input string: "{value}"')
        elif not -1 <= int(value) <= LONG_MAX:
            raise SystemFailure(f"value is not in range(-1, {LONG_MAX})")


MESSAGE_TYPE = "message.type"
MIXED = "MIXED"
# RocketMQ's COMPACTION and BatchCQ are stores of their own, not built here.
OF_TOPICS: dict[str, Attribute] = {
    MESSAGE_TYPE: Attribute(frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", MIXED})),
    "cleanup.policy": Attribute(frozenset({"DELETE"}), fixed=True),
    "queue.type": Attribute(frozenset({"SimpleCQ"}), fixed=True),
    RESERVE_TIME: Attribute(frozenset()),
}
OF_GROUPS: dict[str, Attribute] = {}


def parse(text: str) -> dict[str, str]:
    """`+key=value,-key` as signed keys and their values."""
    changes: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        if equals and not key.startswith("+"):
            raise SystemFailure(f"add/alter attribute format is wrong: {key}; write +key=value")
        if not equals and not key.startswith("-"):
            raise SystemFailure(f"delete attribute format is wrong: {key}; write -key")
        if key in changes:
            raise SystemFailure(f"key duplication: {key}")
        changes[key] = value
    return changes


def changed(
    current: Mapping[str, str] | None, changes: Mapping[str, str], known: Mapping[str, Attribute]
) -> dict[str, str]:
    """The attributes after `changes`; `current` is None for what is being created."""
    before = dict(current or {})
    _check_keys(changes, known)
    result = dict(before)
    for signed, value in changes.items():
        key = signed[1:]
        if signed.startswith("-"):
            if current is None:
                raise SystemFailure(f"only add attribute is supported while creating topic. key: {key}")
            if key not in before:
                raise SystemFailure(f"attempt to delete a nonexistent key: {key}")
            del result[key]
        if current is not None and known[key].fixed:
            raise SystemFailure(f"attempt to update an unchangeable attribute. key: {key}")
        if signed.startswith("+"):
            known[key].verify(value)
            result[key] = value
    return result


def _check_keys(signed: Iterable[str], known: Mapping[str, Attribute]) -> None:
    seen: set[str] = set()
    for change in signed:
        sign, key = change[:1], change[1:]
        if sign not in ("+", "-") or not key or "+" in key or "-" in key:
            raise SystemFailure(f"kv string format wrong. {change!r}: write +key=value or -key")
        if key in seen:
            raise SystemFailure(f"alter duplication key. key: {key}")
        seen.add(key)
        if key not in known:
            there_are = f"there are {', '.join(sorted(known))}" if known else "there are none"
            raise SystemFailure(f"unsupported key: {key}; {there_are}")
