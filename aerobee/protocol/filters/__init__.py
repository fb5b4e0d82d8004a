# SPDX-License-Identifier: Apache-2.0
"""Filters: what a subscription lets through, by tag or by SQL92 expression."""

from __future__ import annotations

from aerobee.errors import SubscriptionParseFailed
from aerobee.protocol.filters.sql_eval import compile_sql
from aerobee.protocol.filters.tags import ACCEPT_ALL, SQL92, TAG, Accept, accept_tags

__all__ = ["ACCEPT_ALL", "SQL92", "TAG", "Accept", "compile_filter"]


def compile_filter(kind: str | None, expression: str | None) -> Accept:
    """Raises SubscriptionParseFailed for an unknown kind or an expression that does not parse."""
    if not kind or kind == TAG:
        return accept_tags(expression)
    if kind == SQL92:
        return Accept(properties=compile_sql(expression or ""))
    raise SubscriptionParseFailed(f"expression type {kind!r} is neither TAG nor SQL92")
