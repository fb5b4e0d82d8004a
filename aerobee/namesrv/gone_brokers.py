# SPDX-License-Identifier: Apache-2.0
"""Brokers that went without a goodbye: killed, cut off, or silent. Told `now`; owns no clock.

Routes forget a broker at once, so that clients turn to the others. Whoever runs it would then see fewer queues and no
word of it: here it stays known until it is back, says goodbye, or a day has passed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aerobee.protocol.headers.route import RegisterBroker, UnregisterBroker

log = logging.getLogger("aerobee.namesrv")

KEPT_MS = 24 * 3_600_000
MAX_GONE = 1_000  # beyond that the one gone longest is forgotten


class Who(NamedTuple):
    """A broker that returns may have another address."""

    cluster: str
    name: str
    broker_id: int


class Gone(NamedTuple):
    address: str
    since: int
    why: str


class GoneBrokers:
    def __init__(self) -> None:
        self._gone: dict[Who, Gone] = {}

    def went(self, who: Who, gone: Gone) -> None:
        log.warning(
            "gone without a goodbye broker=%s id=%d address=%s: %s",
            who.name, who.broker_id, gone.address, gone.why,
        )  # fmt: skip
        self._gone.pop(who, None)
        self._gone[who] = gone
        while len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]

    def registered(self, request: RegisterBroker, now: int) -> None:
        gone = self._gone.pop(_who(request), None)
        if gone is None:
            log.info(
                "registered broker=%s id=%d address=%s",
                request.broker_name, request.broker_id, request.broker_addr,
            )  # fmt: skip
        else:
            log.info(
                "is back broker=%s id=%d address=%s away_ms=%d",
                request.broker_name, request.broker_id, request.broker_addr, now - gone.since,
            )  # fmt: skip

    def said_goodbye(self, request: UnregisterBroker) -> None:
        self._gone.pop(_who(request), None)

    def known(self, now: int) -> dict[Who, Gone]:
        """The one gone longest first."""
        lately = {who: gone for who, gone in self._gone.items() if gone.since + KEPT_MS > now}
        self._gone = dict(sorted(lately.items(), key=lambda each: each[1].since))
        return self._gone


def _who(request: RegisterBroker | UnregisterBroker) -> Who:
    return Who(request.cluster_name, request.broker_name, request.broker_id)
