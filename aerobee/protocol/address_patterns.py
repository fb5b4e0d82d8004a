# SPDX-License-Identifier: Apache-2.0
"""Patterns of addresses as plain_acl.yml writes them.

    *    192.168.1.5    192.168.1.{1,2,30}    192.168.1.*    192.168.10-20.*    1050::5:600:300c:*    a,b;c

After the first `*` or range the rest of an IPv4 pattern is not looked at, as in RocketMQ. Unlike there a list may hold
any patterns, and what could only fail later is refused when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

Address = IPv4Address | IPv6Address
Matches = Callable[[Address], bool]

_EVERYTHING = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_between_items = re.compile(r"[,;](?![^{]*\})").split
_braces = re.compile(r"(.*[.:])\{([^{}]+)\}").fullmatch


class _Part(NamedTuple):
    low: int
    high: int

    @property
    def is_open(self) -> bool:
        return self.low != self.high


def parse_pattern(text: str) -> Matches:
    """ValueError for what is no pattern."""
    items = [_item(each.strip()) for each in _between_items(text) if each.strip()]
    return lambda address: any(matches(address) for matches in items)


def _item(text: str) -> Matches:
    if text in _EVERYTHING:
        return lambda address: True
    braces = _braces(text)
    if braces is not None:
        front, last = braces.groups()
        several = [_single(front + each.strip()) for each in last.split(",")]
        return lambda address: any(matches(address) for matches in several)
    return _single(text)


def _single(text: str) -> Matches:
    try:
        exact = ip_address(text)
    except ValueError:
        return _ipv6(text) if ":" in text else _ipv4(text)
    return lambda address: address == exact


def _ipv4(text: str) -> Matches:
    words = text.split(".")
    if len(words) != 4 or not words[0].isdecimal():
        raise _wrong(text)
    parts = [_part(word, 10, 255, text) for word in words]
    ranges = _up_to_the_first_open(parts)

    def matches(address: Address) -> bool:
        if not isinstance(address, IPv4Address):
            return False
        return all(part.low <= byte <= part.high for part, byte in zip(ranges, address.packed, strict=False))

    return matches


def _up_to_the_first_open(parts: list[_Part]) -> list[_Part]:
    first = next((at for at, part in enumerate(parts) if part.is_open), len(parts) - 1)
    return parts[: first + 1]


def _ipv6(text: str) -> Matches:
    front, double, back = text.partition("::")
    head = [word for word in front.split(":") if word]
    tail = [word for word in back.split(":") if word]
    words = [*head, *["0"] * (8 - len(head) - len(tail) if double else 0), *tail]
    if len(words) != 8 or "*" in words[:-1]:
        raise _wrong(text)
    parts = [_part(word, 16, 0xFFFF, text) for word in words]
    if any(part.is_open for part in parts[:-2]) or (parts[-2].is_open and words[-1] != "*"):
        raise _wrong(text)

    def matches(address: Address) -> bool:
        if not isinstance(address, IPv6Address):
            return False
        given = [int.from_bytes(address.packed[at : at + 2], "big") for at in range(0, 16, 2)]
        return all(part.low <= each <= part.high for part, each in zip(parts, given, strict=True))

    return matches


def _part(word: str, base: int, most: int, whole: str) -> _Part:
    if word == "*":
        return _Part(0, most)
    low, dash, high = word.partition("-")
    try:
        part = _Part(int(low, base), int(high if dash else low, base))
    except ValueError:
        raise _wrong(whole) from None
    if not 0 <= part.low <= part.high <= most:
        raise _wrong(whole)
    return part


def _wrong(text: str) -> ValueError:
    return ValueError(
        f"address pattern {text!r}: write 192.168.1.5, 192.168.1.*, 192.168.1-10.*, 192.168.1.{{1,2}}, or '*'"
    )
