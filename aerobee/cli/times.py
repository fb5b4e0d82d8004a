# SPDX-License-Identifier: Apache-2.0
"""Times as people and RocketMQ's tools write them: of this machine's time zone unless they name one, as in tables."""

from __future__ import annotations

import re

from aerobee.protocol.durations import UNITS_MS, relative, written

EXAMPLES = (
    "'2026-08-01 12:30' (this machine's time zone; '2026-08-01 12:30+00:00' is UTC), '-10m' (ten minutes ago), '+30s', "
    "'now', or epoch milliseconds"
)

_duration = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?").fullmatch
# 100 billion seconds are the year 5138, as many milliseconds are 1973: what is smaller was meant in seconds.
SECONDS_BELOW = 100_000_000_000
LAST_MS = 253_402_300_799_000  # the end of the year 9999


def parse_time(text: str, now: int) -> int:
    """Epoch milliseconds. ValueError shows how to write it."""
    text = text.strip()
    if (meant := relative(text, now)) is not None:
        return meant
    if text.isascii() and text.isdigit() and len(text) != 14:
        number_given = int(text)
        value = number_given * 1000 if number_given < SECONDS_BELOW else number_given
        if value <= LAST_MS:
            return value
    if (meant := written(text)) is None:
        raise ValueError(f"{text!r} is no time; write it as {EXAMPLES}")
    return meant


def parse_start(text: str, now: int) -> str | int:
    """Where to begin: 'first', 'last', or a time."""
    if text in ("first", "last"):
        return text
    try:
        return parse_time(text, now)
    except ValueError:
        raise ValueError(f"{text!r} is no place to begin; give 'first', 'last', or {EXAMPLES}") from None


def parse_duration(text: str) -> int:
    """Milliseconds of `500ms`, `10s`, `5m`, `2h`, `7d`; a bare number is seconds."""
    found = _duration(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no length of time; write it as '500ms', '10s', '5m', '2h' or '7d'")
    return round(float(found[1]) * UNITS_MS[found[2] or "s"])
