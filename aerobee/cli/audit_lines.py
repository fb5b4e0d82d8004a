# SPDX-License-Identifier: Apache-2.0
"""Which lines of an audit log are wanted, and each of them once."""

from __future__ import annotations

import fnmatch
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 100_000  # lines that are asked for where not all are wanted; a broker reads the last megabyte


class Wanted(msgspec.Struct, frozen=True):
    """`since` in epoch milliseconds. A user who only said to be one (`shop?`) is meant, too."""

    user: str | None = None
    request: str | None = None
    result: str | None = None
    since: int = 0

    def has(self, line: Mapping[str, Any]) -> bool:
        return (
            self.user in (None, str(line.get("user", "")).removesuffix("?"))
            and (self.request is None or fnmatch.fnmatch(str(line.get("request", "")), self.request))
            and self.result in (None, line.get("result"))
            and (not self.since or _at_ms(line) >= self.since)
        )

    def newest(self, lines: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
        return [line for line in lines if self.has(line)][-count:]


def local_time(line: Mapping[str, Any]) -> str:
    """As the other tables have times."""
    return output.local_time(_at_ms(line))


def _at_ms(line: Mapping[str, Any]) -> int:
    return round(datetime.fromisoformat(line["time"]).timestamp() * 1000)


class Once:
    """Brokers that share a file tell each its own lines, and all of them those without a broker's name."""

    def __init__(self) -> None:
        self._nameless: set[bytes] = set()

    def of(self, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those that no broker before has told."""
        texts = [b"" if line.get("broker") else msgspec.json.encode(line) for line in lines]
        fresh = [line for line, text in zip(lines, texts, strict=True) if text not in self._nameless]
        self._nameless.update(filter(None, texts))
        return fresh
