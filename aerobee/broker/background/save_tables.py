# SPDX-License-Identifier: Apache-2.0
"""Writes tables that nobody waits for to their files: commits of consumers, what was made on use, what failed before."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.broker.background.runner import Interval, milliseconds
from aerobee.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.store.saved_table import SavedTable

log = logging.getLogger("aerobee.background")


def save_every(interval: Interval, *tables: SavedTable) -> Callable[[int], Awaitable[int]]:
    """One that fails does not keep the others from it."""

    async def tick(now: int) -> int:
        for table in tables:
            try:
                await table.saved()
            except StoreError as error:
                log.error("not saved table=%s, it is tried again: %s", type(table).__name__, error)
        return milliseconds(interval)

    return tick
