# SPDX-License-Identifier: Apache-2.0
"""Who did what to which resource from where: one JSON line each, in a file of its owner.

Every change by an operator is written, under the name of the broker. Refusals are, too, up to so many a second of one
address: how many more there were is said by its next line, so that a flood neither fills the disk nor hides what
happened.

A full file becomes FILE.1, and the older ones FILE.2 and so on. Several brokers may write one file, and a program
such as logrotate may move it away: whoever writes looks first whether the file of that name is still the one that is
open.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
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
    """`broker` is whose lines these are: several may share a file. A name server alone has none."""

    def __init__(self, file: Path, full_bytes: int = 64 << 20, kept: int = 10, *, broker: str = "") -> None:
        self._file = file
        self._broker = broker
        self._full_bytes = full_bytes
        self._kept = kept
        self._handle = self._opened()
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
        """Up to so many lines of this broker, of what the end of the file has, and the file before it."""
        # There may be none: moved away, and nothing written since.
        read = _end_of(self._file, _MAX_READ) if self._file.exists() else []
        found = self._ours(read)
        before = self._older(1)
        if len(found) < count and before.exists():
            found = self._ours(_end_of(before, _MAX_READ - sum(map(len, read)) - len(read))) + found
        return found[-count:] if count > 0 else []

    def _ours(self, lines: list[bytes]) -> list[bytes]:
        """Those without a name too: written before there were names, or by a name server alone."""
        return [line for line in lines if _broker_of(line) in ("", self._broker)]

    def _write(self, now: int, facts: dict[str, Any]) -> None:
        whose = {"broker": self._broker} if self._broker else {}
        time = datetime.fromtimestamp(now / 1000, UTC).isoformat(timespec="milliseconds")
        try:
            self._look_at_file()
            os.write(self._handle, msgspec.json.encode({"time": time, **whose, **facts}) + b"\n")
        except OSError as error:  # the request is answered all the same
            log.error("audit line not written: %s", error)

    # -- files -------------------------------------------------------------------------------------------------

    def _look_at_file(self) -> None:
        try:
            is_ours = os.path.samestat(self._file.stat(), os.fstat(self._handle))
        except FileNotFoundError:
            is_ours = False
        if is_ours and os.fstat(self._handle).st_size >= self._full_bytes:
            for number in range(self._kept - 1, 0, -1):
                with suppress(FileNotFoundError):
                    self._older(number).replace(self._older(number + 1))
            self._file.replace(self._older(1))
            is_ours = False
        if not is_ours:
            handle = self._opened()
            os.close(self._handle)
            self._handle = handle

    def _older(self, number: int) -> Path:
        return self._file.with_name(f"{self._file.name}.{number}")

    def _opened(self) -> int:
        return os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        os.close(self._handle)


class _Line(msgspec.Struct):
    broker: str = ""


def _broker_of(line: bytes) -> str | None:
    """None where the line is none: cut off by a full disk."""
    try:
        return msgspec.json.decode(line, type=_Line).broker
    except msgspec.DecodeError:
        return None


def _end_of(path: Path, size_bytes: int) -> list[bytes]:
    """The whole lines among the last bytes."""
    with path.open("rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - max(0, size_bytes))
        file.seek(start)
        lines = file.read(size_bytes).split(b"\n")
    return lines[1 if start else 0 : -1]  # the first may be cut, and the last one ends the file
