# SPDX-License-Identifier: Apache-2.0
"""Tag expressions: `A || B`, by hash on the broker's side, by text on the client's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.errors import SubscriptionParseFailed
from aerobee.protocol.filters.sql_lexer import MAX_LENGTH
from aerobee.protocol.properties import java_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TAG = "TAG"
SQL92 = "SQL92"
ALL = "*"


class Accept(msgspec.Struct, frozen=True):
    """What a read lets through: by tag hash, then by properties; None lets everything through."""

    codes: frozenset[int] | None = None
    properties: Callable[[Mapping[str, str]], bool] | None = None


ACCEPT_ALL = Accept()


class Subscription(msgspec.Struct, frozen=True):
    """One topic of a consumer. No tags and no codes: every message."""

    topic: str
    expression: str = ALL
    kind: str = TAG
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()
    version: int = 0

    def accepts_tag(self, tag: str | None) -> bool:
        """The exact check after the broker's hash check, for two tags may share a hash."""
        return not self.tags or tag in self.tags


def parse_tags(expression: str | None) -> frozenset[str]:
    """The tags of an expression; empty when it means all."""
    if not expression or expression == ALL:
        return frozenset()
    if len(expression) > MAX_LENGTH:
        raise SubscriptionParseFailed(f"the filter has {len(expression)} characters, limit {MAX_LENGTH}")
    return frozenset(tag for part in expression.split("||") if (tag := part.strip()))


def subscribe(topic: str, expression: str | None, version: int, kind: str | None = TAG) -> Subscription:
    """The subscription for an expression of either kind; only tags are parsed here."""
    if kind and kind != TAG:
        return Subscription(topic, expression or "", kind, version=version)
    tags = parse_tags(expression)
    if not tags:
        return Subscription(topic, ALL, version=version)
    return Subscription(topic, expression or ALL, TAG, tags, frozenset(map(java_hash, tags)), version)


def accept_tags(expression: str | None) -> Accept:
    """An expression of blanks and bars only names no tag and means all, as an empty one does."""
    tags = parse_tags(expression)
    return Accept(frozenset(map(java_hash, tags))) if tags else ACCEPT_ALL
