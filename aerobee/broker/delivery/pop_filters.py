# SPDX-License-Identifier: Apache-2.0
"""The filter a pop brings. Unlike a pull's, an SQL one works whatever `property_filter` says, as in RocketMQ."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from aerobee.errors import SubscriptionParseFailed
from aerobee.protocol.filters import compile_filter

if TYPE_CHECKING:
    from aerobee.protocol.filters import Accept


def accept_for_pop(kind: str | None, expression: str | None) -> Accept | None:
    """None = every message. Raises SubscriptionParseFailed."""
    if not expression or expression == "*":
        return None
    return _compiled(kind or "TAG", expression)


@lru_cache(maxsize=4096)  # held requests of the same expression share one filter, and so one line
def _compiled(kind: str, expression: str) -> Accept | None:
    try:
        accept = compile_filter(kind, expression)
    except ValueError as error:
        raise SubscriptionParseFailed(str(error)) from None
    return None if accept.codes is None and accept.properties is None else accept
