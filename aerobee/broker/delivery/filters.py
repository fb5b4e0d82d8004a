# SPDX-License-Identifier: Apache-2.0
"""From a subscription's expression to the test a read applies."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from aerobee.errors import SubscriptionParseFailed, SystemFailure
from aerobee.protocol.filters import Accept, compile_filter

if TYPE_CHECKING:
    from aerobee.settings import BrokerConfig


def accept_for(kind: str | None, expression: str | None, config: BrokerConfig) -> Accept | None:
    """The filter of an expression, None = every message. Raises SubscriptionParseFailed for a bad one."""
    if not expression or expression == "*":
        return None
    if kind and kind != "TAG" and not config.property_filter:
        raise SystemFailure(f"the broker does not support filters of type '{kind}' (enablePropertyFilter)")
    return _compiled(kind or "TAG", expression)


@lru_cache(maxsize=4096)  # every pull brings its expression; compiling one takes far longer than a read
def _compiled(kind: str, expression: str) -> Accept | None:
    try:
        accept = compile_filter(kind, expression)
    except ValueError as error:
        raise SubscriptionParseFailed(str(error)) from None
    return None if accept.codes is None and accept.properties is None else accept
