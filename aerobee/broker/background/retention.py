# SPDX-License-Identifier: Apache-2.0
"""The store's own work: flushing, checkpoints, deleting what is too old, watching the disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.broker.background.runner import Tick
    from aerobee.store.message_store import MessageStore


def keep_store(store: MessageStore) -> Tick:
    def tick(now: int) -> int:
        return store.tick(now)

    return tick
