# SPDX-License-Identifier: Apache-2.0
"""Delay levels: `1s 5s 10s ...` and the arithmetic of levels."""

from __future__ import annotations

from aerobee.protocol.durations import UNITS_MS

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_UNITS = {unit: ms for unit, ms in UNITS_MS.items() if unit != "ms"}


def parse_levels(text: str) -> tuple[int, ...]:
    """The delays in milliseconds; level n is the n-th, counted from 1. ValueError names the bad part."""
    delays = []
    for part in text.split():
        unit = _UNITS.get(part[-1])
        if unit is None or not part[:-1].isascii() or not part[:-1].isdigit():
            raise ValueError(f"delay level {part!r}: write a number and one of s m h d, such as 10s")
        delays.append(int(part[:-1]) * unit)
    if not delays:
        raise ValueError(f"no delay levels in {text!r}: write for example {DEFAULT_LEVELS!r}")
    return tuple(delays)


def clamp_level(level: int, delays: tuple[int, ...]) -> int:
    """Levels above the last mean the last, as in RocketMQ."""
    return min(level, len(delays))


def timer_out(target: int) -> int:
    """When the timer wheel delivers a message due at `target`: whole seconds, an exact second one earlier."""
    return target - 1000 if target % 1000 == 0 else target - target % 1000
