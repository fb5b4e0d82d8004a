# SPDX-License-Identifier: Apache-2.0
"""The benchmark's counters, and its lines as RocketMQ's programs print them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from aerobee.cli import connect, output
from aerobee.cli.mqadmin.common import when

if TYPE_CHECKING:
    from aerobee.clock import Clock

SNAP_MS = 1_000
SNAPS = 10  # a line is about the last ten seconds


class Figures(Protocol):
    def snap(self, now: int) -> None: ...
    def line(self, now: int) -> str: ...


async def report_forever(figures: Figures, interval_ms: int, clock: Clock = connect.clock) -> None:
    """A snapshot every second, a line every interval."""
    printed = clock.now()
    figures.snap(printed)
    while True:
        await clock.sleep(min(SNAP_MS, interval_ms))
        now = clock.now()
        figures.snap(now)
        if now - printed >= interval_ms - 50:
            printed = now
            output.line(figures.line(now))


class Snaps:
    """Counters at moments: a rate is what changed between the first and the last one kept."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, tuple[int, ...]]] = deque(maxlen=SNAPS)
        self.first: tuple[int, tuple[int, ...]] | None = None

    def keep(self, now: int, counters: tuple[int, ...]) -> None:
        self._kept.append((now, counters))
        self.first = self.first or (now, counters)

    def recent(self) -> tuple[int, list[int]]:
        """Milliseconds, and what each counter grew by in them."""
        return self._between(self._kept[0], self._kept[-1])

    def whole(self) -> tuple[int, list[int]]:
        assert self.first is not None
        return self._between(self.first, self._kept[-1])

    @staticmethod
    def _between(
        first: tuple[int, tuple[int, ...]], last: tuple[int, tuple[int, ...]]
    ) -> tuple[int, list[int]]:
        grown = [end - begin for begin, end in zip(first[1], last[1], strict=True)]
        return max(1, last[0] - first[0]), grown


def average(total: int, count: int) -> float:
    return total / count if count else 0.0


class SendFigures:
    group = "benchmark_producer"

    def __init__(self) -> None:
        self.success = self.send_failed = self.response_failed = 0
        self._time_ms = self._max_ms = 0
        self._snaps = Snaps()

    def sent(self, took_ms: int) -> None:
        self.success += 1
        self._time_ms += took_ms
        self._max_ms = max(self._max_ms, took_ms)

    def snap(self, now: int) -> None:
        self._snaps.keep(now, (self.success, self._time_ms))

    def line(self, now: int) -> str:
        took_ms, (count, time_ms) = self._snaps.recent()
        return f"Current Time: {when(now)} | {self._figures(took_ms, count, time_ms)}"

    def complete(self) -> str:
        total = self.success + self.send_failed + self.response_failed
        took_ms, (count, time_ms) = self._snaps.whole()
        return f"[Complete] Send Total: {total} | {self._figures(took_ms, count, time_ms)}"

    def _figures(self, took_ms: int, count: int, time_ms: int) -> str:
        return (
            f"Send TPS: {count * 1000 // took_ms} | Max RT(ms): {self._max_ms} | "
            f"Average RT(ms): {average(time_ms, count):7.3f} | Send Failed: {self.send_failed} | "
            f"Response Failed: {self.response_failed}"
        )

    def row(self) -> dict[str, Any]:
        took_ms, (count, time_ms) = self._snaps.whole()
        return {
            "sent": self.success,
            "sendFailed": self.send_failed,
            "responseFailed": self.response_failed,
            "tookMs": took_ms,
            "tps": count * 1000 // took_ms,
            "averageMs": round(average(time_ms, count), 3),
            "maxMs": self._max_ms,
        }


class BatchFigures:
    group = "benchmark_batch_producer"

    def __init__(self) -> None:
        self.requests = self.messages = self.requests_failed = self.messages_failed = 0
        self._time_ms = self._max_ms = 0
        self._snaps = Snaps()

    def sent(self, messages: int, took_ms: int) -> None:
        self.requests += 1
        self.messages += messages
        self._time_ms += took_ms
        self._max_ms = max(self._max_ms, took_ms)

    def failed(self, messages: int) -> None:
        self.requests_failed += 1
        self.messages_failed += messages

    def snap(self, now: int) -> None:
        self._snaps.keep(now, (self.requests, self.messages, self._time_ms))

    def line(self, now: int) -> str:
        return f"Current Time: {when(now)} | {self._figures(*self._snaps.recent())}"

    def complete(self) -> str:
        total = self.messages + self.messages_failed
        return f"[Complete] Send Total: {total} | {self._figures(*self._snaps.whole())}"

    def _figures(self, took_ms: int, grown: list[int]) -> str:
        requests, messages, time_ms = grown
        return (
            f"Send TPS: {requests * 1000 // took_ms} | Send MPS: {messages * 1000 // took_ms} | "
            f"Max RT(ms): {self._max_ms} | Average RT(ms): {average(time_ms, requests):7.3f} | "
            f"Average Message RT(ms): {average(time_ms, messages):7.3f} | "
            f"Send Failed: {self.requests_failed} | Send Message Failed: {self.messages_failed}"
        )

    def row(self) -> dict[str, Any]:
        took_ms, (requests, messages, time_ms) = self._snaps.whole()
        return {
            "sent": self.messages,
            "requests": self.requests,
            "failed": self.messages_failed,
            "tookMs": took_ms,
            "tps": requests * 1000 // took_ms,
            "mps": messages * 1000 // took_ms,
            "averageMs": round(average(time_ms, requests), 3),
            "maxMs": self._max_ms,
        }


class ConsumeFigures:
    """B2C: from born to consumed. S2C: from stored to consumed."""

    def __init__(self) -> None:
        self.count = self.fail_count = 0
        self._born_ms = self._stored_ms = 0
        self._max_born_ms = self._max_stored_ms = 0
        self._snaps = Snaps()

    def received(self, since_born_ms: int, since_stored_ms: int) -> None:
        self.count += 1
        self._born_ms += since_born_ms
        self._stored_ms += since_stored_ms
        self._max_born_ms = max(self._max_born_ms, since_born_ms)
        self._max_stored_ms = max(self._max_stored_ms, since_stored_ms)

    def snap(self, now: int) -> None:
        self._snaps.keep(now, (self.count, self._born_ms, self._stored_ms, self.fail_count))

    def line(self, now: int) -> str:
        text = f"Current Time: {when(now)} | {self._figures(*self._snaps.recent())}"
        self._max_born_ms = self._max_stored_ms = 0  # each line has its own, as RocketMQ's
        return text

    def complete(self) -> str:
        return f"[Complete] Consume Total: {self.count} | {self._figures(*self._snaps.whole())}"

    def _figures(self, took_ms: int, grown: list[int]) -> str:
        count, born_ms, stored_ms, failed = grown
        return (
            f"Consume TPS: {count * 1000 // took_ms} | AVG(B2C) RT(ms): {average(born_ms, count):7.3f} | "
            f"AVG(S2C) RT(ms): {average(stored_ms, count):7.3f} | MAX(B2C) RT(ms): {self._max_born_ms} | "
            f"MAX(S2C) RT(ms): {self._max_stored_ms} | Consume Fail: {failed}"
        )

    def row(self) -> dict[str, Any]:
        took_ms, (count, born_ms, stored_ms, failed) = self._snaps.whole()
        return {
            "consumed": self.count,
            "failed": failed,
            "tookMs": took_ms,
            "tps": count * 1000 // took_ms,
            "averageBornToConsumedMs": round(average(born_ms, count), 3),
            "averageStoredToConsumedMs": round(average(stored_ms, count), 3),
        }
