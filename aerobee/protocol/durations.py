# SPDX-License-Identifier: Apache-2.0
"""Times and lengths of time as people write them, and as we write them for people: one way in the terminal, on pages
and for Spark."""

from __future__ import annotations

import re
from datetime import datetime

UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
FORMATS = ("%Y%m%d%H%M%S", "%Y-%m-%d#%H:%M:%S:%f", "%Y-%m-%d#%H:%M:%S")  # of RocketMQ's tools
_TWO_UNITS = (("d", "h"), ("h", "m"), ("m", "s"))

_relative = re.compile(r"([+-])(\d+(?:\.\d+)?)(ms|s|m|h|d)").fullmatch


def relative(text: str, now: int) -> int | None:
    """Epoch milliseconds of `-10m` (ten minutes ago), `+30s`, `now`; None for what is written in another way."""
    if text == "now":
        return now
    found = _relative(text)
    if found is None:
        return None
    step = round(float(found[2]) * UNITS_MS[found[3]])
    return max(0, now + step if found[1] == "+" else now - step)


def written(text: str) -> int | None:
    """Epoch milliseconds of a date, of this machine's time zone unless it names one; None for what is none."""
    for form in (None, *FORMATS):
        try:
            found = datetime.fromisoformat(text) if form is None else datetime.strptime(text, form)
            return max(0, round(found.timestamp() * 1000))
        except (ValueError, OverflowError, OSError):
            continue
    return None


def in_words(ms: int) -> str:
    """`350 ms`, `12.5 s`, `3 m 20 s`, `2 h 5 m`, `4 d 1 h`; empty for none."""
    if ms <= 0:
        return ""
    if ms < UNITS_MS["s"]:
        return f"{ms} ms"
    for large, small in _TWO_UNITS:
        if ms >= UNITS_MS[large]:
            return f"{ms // UNITS_MS[large]} {large} {ms % UNITS_MS[large] // UNITS_MS[small]} {small}"
    return f"{ms // 100 / 10:.1f} s"  # cut off, as the others are: a minute is no sixty seconds
