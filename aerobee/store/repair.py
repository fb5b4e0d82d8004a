# SPDX-License-Identifier: Apache-2.0
"""Making again what a check found damaged and the log can tell: queues, index, checkpoint.

The store is opened as a broker would, which takes its lock and cuts a torn end; nothing is deleted for its age
or for want of space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.store.check import segment_bytes_of
from aerobee.store.check_queues import units_of
from aerobee.store.message_store import Disk, MessageStore

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.clock import Clock
    from aerobee.settings import StoreConfig
    from aerobee.store.check import StoreReport

_A_CENTURY = 876_000
_ROOMY = Disk(0, 1 << 60)


def repair(root: Path, config: StoreConfig, clock: Clock, report: StoreReport) -> None:
    """Raises StoreInUse when a broker has the store."""
    as_it_is = msgspec.structs.replace(
        config,
        retention_hours=_A_CENTURY,
        retention_bytes=0,
        commit_log_segment_bytes=segment_bytes_of(root, config.commit_log_segment_bytes),
        consume_queue_units=units_of(root / "consumequeue", config.consume_queue_units),
    )
    store = MessageStore.open(root, as_it_is, clock, disk=lambda: _ROOMY)
    try:
        store.rebuild_queues([(each.topic, each.queue, each.first_offset) for each in report.queues.damaged])
        if not report.index.is_sound:
            store.rebuild_index()
    finally:
        store.close()
