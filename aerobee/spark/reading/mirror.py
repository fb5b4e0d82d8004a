# SPDX-License-Identifier: Apache-2.0
"""A stream's progress told to its consumer group, so that lag tools see it. It never fails the query."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from aerobee.spark.reading import plan
from aerobee.spark.reading.plan import Place
from aerobee.spark.reading.quiet import is_past

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aerobee.errors import AerobeeError
    from aerobee.spark.option_values import Offsets

    Commit = Callable[[Sequence[tuple[Place, int]]], dict[Place, AerobeeError]]

log = logging.getLogger("aerobee.spark")

AGAIN_MS = 1_000


class Mirror:
    def __init__(self, group: str, commit: Commit) -> None:
        self._group = group
        self._commit = commit
        self._told: Offsets = {}
        self._done: dict[str, Any] | None = None  # the last offset of which all was told
        self._failed_at = 0

    def tell(self, start: dict[str, Any], place: Offsets, away: set[str], now: int) -> None:
        """The stream is at `place`, which Spark knows as `start`. Of topics that are `away` nothing is told."""
        if start == self._done or not is_past(self._failed_at, AGAIN_MS, now):
            return
        untold = [
            (Place(topic, broker, int(queue)), offset)
            for topic, broker, queue, offset in plan.flat(plan.moving(self._told, place))
            if topic not in away
        ]
        failed = self._commit(untold)
        for (topic, broker, queue), offset in untold:
            if (topic, broker, queue) not in failed:
                plan.put(self._told, topic, broker, str(queue), offset)
        if failed:
            log.warning("progress of group=%s not mirrored: %s", self._group, next(iter(failed.values())))
            self._failed_at = now
        else:
            self._done = start
