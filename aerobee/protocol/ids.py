# SPDX-License-Identifier: Apache-2.0
"""Unique keys, the message ids that producers make.

Hex of: address 4 or 16 | pid 2 | salt 4 | milliseconds since the local start of the month 4 | counter 2
"""

from __future__ import annotations

import os
import threading
from datetime import datetime
from typing import Protocol

_DAY = 86_400_000
_MASK = (1 << 48) - 1
_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_forked)


class _Clock(Protocol):
    def wall(self) -> int: ...


class UniqueIds:
    """Never the same text twice in a process, whatever the clock does, from whichever thread.

    Time and counter are one number that only grows. Where Java has a class loader's hash stands a salt:
    random, drawn anew in a forked child, where all else may repeat, and changed each month, when the time
    starts again.
    """

    def __init__(self, address: bytes, pid: int, clock: _Clock) -> None:
        self._address = address
        self._clock = clock
        self._forks = _forks
        self._start(pid)

    def _start(self, pid: int) -> None:
        self._lock = threading.Lock()  # the one a fork copied may be held by a thread that is not there
        self._head = self._address + (pid & 0xFFFF).to_bytes(2, "big")
        self._salt = int.from_bytes(os.urandom(4), "big")
        self._begin_month(self._clock.wall())

    def _begin_month(self, now: int) -> None:
        self._month = month_start(now)
        self._next_month = month_start(self._month + 32 * _DAY)
        self._salt = (self._salt + 1) & 0xFFFFFFFF
        self._prefix = (self._head + self._salt.to_bytes(4, "big")).hex().upper()
        self._last = -1

    def next(self, now: int | None = None) -> str:
        """`now` for a caller that has asked the same clock already."""
        if self._forks != _forks:
            self._forks = _forks
            self._start(os.getpid())
        if now is None:
            now = self._clock.wall()
        with self._lock:
            if now >= self._next_month:
                self._begin_month(now)
            at = (now - self._month) << 16
            self._last = last = at if at > self._last else self._last + 1
            return "%s%012X" % (self._prefix, last & _MASK)  # noqa: UP031 - twice as fast as its f-string

    def many(self, count: int) -> list[str]:
        """As many at once: the numbers after the last one given out, which no other call will use."""
        self.next()  # a new month or a fork is seen to
        with self._lock:
            first = self._last + 1
            self._last += count
            prefix = self._prefix
        return [f"{prefix}{number & _MASK:012X}" for number in range(first, first + count)]


def month_start(now: int) -> int:
    """Midnight of the first day of the month, local time, as Java's clients and tools count."""
    first = datetime.fromtimestamp(now / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(first.timestamp() * 1000)


def time_of(unique_key: str, now: int) -> int:
    """When a unique key was made, taken to be less than a month ago; ValueError when it is none."""
    raw = bytes.fromhex(unique_key)
    if len(raw) not in (16, 28):
        raise ValueError(f"unique key {unique_key!r} has {len(unique_key)} characters, not 32 or 56")
    span = int.from_bytes(raw[-6:-2], "big")
    start = month_start(now)
    return start + span if start + span <= now else month_start(start - _DAY) + span
