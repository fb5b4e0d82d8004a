# SPDX-License-Identifier: Apache-2.0
"""A connection may be gone before we have read that it is: who writes to it then finds out by the lost answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aerobee.errors import ConnectionLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")


async def once_more_if_lost(ask: Callable[[], Awaitable[T]]) -> T:
    """For what may be asked twice. The second time goes over a new connection; a server that is away refuses it, which
    is raised at once."""
    try:
        return await ask()
    except ConnectionLost:
        return await ask()
