# SPDX-License-Identifier: Apache-2.0
"""How long to wait before a message is tried again, and when to give up. Pure tables and rules."""

from __future__ import annotations

import msgspec

MAX_RECONSUME = 16

# Delay of the n-th failed attempt of a POP consumer, seconds (index = attempts so far).
POP_DELAYS_S = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
SUSPEND_MIN_MS, SUSPEND_MAX_MS = 10, 30_000


def retry_level(reconsume_times: int) -> int:
    """The delay level of a message sent to the retry topic by hand: the first retry waits 10 s (level 3)."""
    return 3 + reconsume_times


def effective_max(max_reconsume: int) -> int:
    """-1 means 16 for concurrent and POP consumers."""
    return MAX_RECONSUME if max_reconsume < 0 else max_reconsume


def suspend_ms(asked_ms: int, default_ms: int) -> int:
    """How long an ordered queue rests after a failure, kept within 10 ms and 30 s."""
    return max(SUSPEND_MIN_MS, min(SUSPEND_MAX_MS, default_ms if asked_ms < 0 else asked_ms))


class GiveUp(msgspec.Struct, frozen=True):
    """The message is acked although it failed: it has been tried for long enough."""


class Hide(msgspec.Struct, frozen=True):
    """The message stays invisible for `ms`, then comes again."""

    ms: int


def pop_failure(reconsume_times: int, delay_level: int, age_ms: int, max_reconsume: int) -> Hide | GiveUp:
    """What a POP consumer does with a message that failed.

    Past the limit RocketMQ gives up only when the message is older than twice the longest delay; younger ones wait
    for the first delay longer than their age. (Java fails on ages under 10 s there; the shortest delay is meant.)
    """
    if reconsume_times >= effective_max(max_reconsume):
        if age_ms > 2 * POP_DELAYS_S[-1] * 1000:
            return GiveUp()
        return Hide(next((s for s in POP_DELAYS_S if s * 1000 > age_ms), POP_DELAYS_S[-1]) * 1000)
    step = delay_level if delay_level > 0 else reconsume_times
    return Hide(POP_DELAYS_S[min(step, len(POP_DELAYS_S) - 1)] * 1000)
