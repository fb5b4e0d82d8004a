# SPDX-License-Identifier: Apache-2.0
"""How figures are written: on pages, in sentences, in the terminal. A dash is what is not known, or none."""

from __future__ import annotations

from datetime import datetime

from aerobee.protocol.durations import in_words


def number(value: float | None) -> str:
    """12,345; a dash where it is not known."""
    return "–" if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """A second."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def size(count: float | None) -> str:
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def time_of_day(timestamp_ms: int) -> str:
    """`17:46:05`, by the clock of this machine: for what happened within a day."""
    return datetime.fromtimestamp(timestamp_ms / 1000).strftime("%H:%M:%S")


def age(ms: int | None) -> str:
    """How long ago, or for how long."""
    return in_words(ms or 0) or "–"
