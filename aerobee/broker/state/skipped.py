# SPDX-License-Identifier: Apache-2.0
"""Records that a background job cannot handle: stepped over, counted, and logged once with their place.

A job reads what clients, older versions and other brokers have written. If it stopped at a record that it cannot handle,
nothing after it would ever be done, restarts included. What is not the record's fault is raised on, and tried again:
the disk's refusals above all, for stepping over a sound message would lose it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.errors import CorruptRecord, StoreError

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("aerobee.background")


class Skipped:
    def __init__(self) -> None:
        self.count = 0

    def over(self, job: str, **place: object) -> _Over:
        """`with skipped.over(...):` around the work on one record. A failure of the record's own ends there."""
        return _Over(self, job, place)

    def add(self, job: str, place: dict[str, object], why: str) -> None:
        self.count += 1
        where = " ".join(f"{name}={value}" for name, value in place.items())
        log.error("job=%s %s: stepped over: %s", job, where, why)


class _Over:
    __slots__ = ("_job", "_place", "_skipped")

    def __init__(self, skipped: Skipped, job: str, place: dict[str, object]) -> None:
        self._skipped = skipped
        self._job = job
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> bool:
        if error is None or not is_of_the_record(error):
            return False
        self._skipped.add(self._job, self._place, repr(error)[:300])
        log.debug("job=%s", self._job, exc_info=error)
        return True


def is_of_the_record(error: BaseException) -> bool:
    """Whether the same record would fail the same way again, and another would not."""
    if isinstance(error, (StoreError, OSError, MemoryError)):
        return isinstance(error, CorruptRecord)
    return isinstance(error, Exception)
