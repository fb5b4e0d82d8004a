# SPDX-License-Identifier: Apache-2.0
"""A message just stored, as the filters of held pulls and held pops see it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aerobee.protocol.filters import Accept
    from aerobee.protocol.message import Record

log = logging.getLogger("aerobee.parked")


class Arrival:
    """Its properties are parsed at most once, however many filters look at them."""

    __slots__ = ("_properties", "_record", "_tags_code")

    def __init__(self, record: Record, tags_code: int) -> None:
        self._record = record
        self._tags_code = tags_code
        self._properties: dict[str, str] | None = None

    def passes(self, accept: Accept | None) -> bool:
        if accept is None:
            return True
        if accept.codes is not None and self._tags_code not in accept.codes:
            return False
        if accept.properties is None:
            return True
        if self._properties is None:
            self._properties = self._record.properties
        try:
            return accept.properties(self._properties)
        except Exception:  # a filter that fails on this message does not match it, and must not stop the send
            log.exception("filter failed")
            return False
