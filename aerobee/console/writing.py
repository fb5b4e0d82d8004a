# SPDX-License-Identifier: Apache-2.0
"""How figures are written: on pages, in sentences, in the terminal. A dash is what is not known, or none."""

from __future__ import annotations


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


def age(ms: int | None) -> str:
    """`350 ms`, `12 s`, `3 m 20 s`, `2 h 5 m`, `4 d 1 h`; a dash for none."""
    if not ms or ms <= 0:
        return "–"
    if ms < 1_000:
        return f"{ms} ms"
    seconds = ms // 1000
    for unit, name, below, below_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if seconds >= unit:
            return f"{seconds // unit} {name} {seconds % unit // below} {below_name}"
    return f"{seconds} s"
