# SPDX-License-Identifier: Apache-2.0
"""What a consumer may not: told loudly but not often, and not asked for twice a second, for only an operator ends it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from aerobee.client.session.refusal import next_step
from aerobee.protocol import names

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.errors import NoPermission

log = logging.getLogger("aerobee.client.consumer")

TOLD_EVERY_MS = 60_000
ASKED_AGAIN_MS = 30_000


class _Standing(msgspec.Struct):
    error: NoPermission
    told: int
    taken: bool = False


class Refusals:
    """Of one consumer, by topic; a refused retry topic is the group's, which is told with the others. Told `now`."""

    def __init__(self, group: str) -> None:
        self._group = group
        self.standing: dict[str, _Standing] = {}  # usually none: then nobody need ask
        self.heard: Callable[[], None] = lambda: None  # called with each, once it can be taken

    def met(self, topic: str, error: NoPermission, now: int) -> int:
        """How many milliseconds to wait before it is asked for again."""
        if names.is_retry(topic):
            return ASKED_AGAIN_MS
        known = self.standing.get(topic)
        told = now if known is None or now - known.told >= TOLD_EVERY_MS else known.told
        self.standing[topic] = _Standing(error, told)
        self.heard()
        if told == now:
            log.error(
                "group=%s may not consume topic=%s: %s; %s; trying on every s=%d",
                self._group, topic, error, next_step(error.remark), ASKED_AGAIN_MS // 1000,
            )  # fmt: skip
        return ASKED_AGAIN_MS

    def over(self, topic: str) -> None:
        """A broker has answered: what was refused is allowed now."""
        if self.standing.pop(topic, None) is not None:
            log.warning("group=%s may consume topic=%s again", self._group, topic)

    @property
    def any(self) -> NoPermission | None:
        """One that has not ended."""
        return next((each.error for each in self.standing.values()), None)

    def take(self) -> NoPermission | None:
        """Each one once: who goes on after it is told again only when it is refused again."""
        for each in self.standing.values():
            if not each.taken:
                each.taken = True
                return each.error
        return None
