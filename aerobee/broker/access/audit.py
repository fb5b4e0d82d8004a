# SPDX-License-Identifier: Apache-2.0
"""Who did what to which resource from where: one JSON line each, in a file of its owner.

Every change by an operator is written. Refusals are, too, up to so many a second of one address: how many more there
were is said by its next line, so that a flood neither fills the disk nor hides what happened.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("aerobee.access")

REFUSALS_A_SECOND = 10  # of one address
_MAX_ADDRESSES = 1_000
_MAX_READ = 1 << 20  # bytes, of the newest lines


class Audit:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._refused: dict[str, tuple[int, int]] = {}  # address -> the second, how many refusals in it

    def changed(self, now: int, facts: dict[str, Any]) -> None:
        self._write(now, facts)

    def refused(self, now: int, source: str, facts: dict[str, Any]) -> None:
        second, before = now // 1000, self._refused.get(source, (0, 0))
        if len(self._refused) >= _MAX_ADDRESSES and source not in self._refused:
            self._refused.clear()
        count = before[1] + 1 if before[0] == second else 1
        self._refused[source] = (second, count)
        if count > REFUSALS_A_SECOND:
            return
        unsaid = before[1] - REFUSALS_A_SECOND if count == 1 else 0
        self._write(now, {**facts, "unsaid": unsaid} if unsaid > 0 else facts)

    def newest(self, count: int) -> list[bytes]:
        """Up to so many lines, of what the end of the file has."""
        with self._file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - _MAX_READ)
            file.seek(start)
            lines = file.read(_MAX_READ).split(b"\n")
        whole = lines[1 if start else 0 : -1]  # the first may be cut, and the last one ends the file
        return whole[-count:] if count > 0 else []

    def _write(self, now: int, facts: dict[str, Any]) -> None:
        time = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds")
        try:
            os.write(self._handle, msgspec.json.encode({"time": time, **facts}) + b"\n")
        except OSError as error:  # the request is answered all the same
            log.error("audit line not written: %s", error)

    def close(self) -> None:
        os.close(self._handle)
