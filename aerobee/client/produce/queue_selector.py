# SPDX-License-Identifier: Apache-2.0
"""Which queue a message goes to: in turn, by its sharding key, or away from brokers in trouble. Pure, told now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.protocol.routing import place_of_key

if TYPE_CHECKING:
    from aerobee.client.message import Message
    from aerobee.protocol.bodies import MessageQueue

# A user's own choice: (queues, message, argument) -> queue.
Selector = Callable[["Sequence[MessageQueue]", "Message", Any], "MessageQueue"]


def by_sharding_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """Same key, same queue, while the number of queues stays."""
    return queues[place_of_key(key, len(queues))]


def by_selector(
    queues: Sequence[MessageQueue], message: Message, selector: Selector, argument: Any
) -> MessageQueue:
    chosen = selector(queues, message, argument)
    if chosen not in queues:
        raise ValueError(f"the selector chose {chosen!r}, which is no queue of topic {message.topic!r}")
    return chosen


class InTurn:
    """Round robin. A retry avoids the broker that just failed, if there is another."""

    def __init__(self, start: int = 0) -> None:
        self._next = start

    def choose(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        self._next += 1
        if avoid:
            for _ in range(len(queues)):
                if queues[self._next % len(queues)].broker_name != avoid:
                    break
                self._next += 1
        return queues[self._next % len(queues)]


# Measured latency (ms) -> how long a broker is kept away from (ms); RocketMQ's present table.
PENALTIES = ((15_000, 30_000), (5_000, 10_000), (3_000, 6_000), (1_800, 5_000), (550, 2_000), (0, 0))
FAILED_LATENCY_MS = 10_000


class _Fault(msgspec.Struct):
    latency_ms: int
    until: int
    reachable: bool


class Faults:
    """Remembers which brokers were slow or failed, and for how long to keep away (latency fault tolerance)."""

    def __init__(self) -> None:
        self._faults: dict[str, _Fault] = {}

    def answered(self, broker_name: str, latency_ms: int, now: int) -> None:
        self._note(broker_name, latency_ms, now, reachable=True)

    def failed(self, broker_name: str, now: int) -> None:
        self._note(broker_name, FAILED_LATENCY_MS, now, reachable=False)

    def _note(self, broker_name: str, latency_ms: int, now: int, *, reachable: bool) -> None:
        away = next(away for latency, away in PENALTIES if latency_ms >= latency)
        if away or broker_name in self._faults:
            self._faults[broker_name] = _Fault(latency_ms, now + away, reachable)

    def available(self, broker_name: str, now: int) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or now >= fault.until

    def reachable(self, broker_name: str) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or fault.reachable

    def allowed(self, queues: Sequence[MessageQueue], now: int) -> Sequence[MessageQueue]:
        """Queues of available brokers, else of reachable ones, else all."""
        if not self._faults:
            return queues
        available = [queue for queue in queues if self.available(queue.broker_name, now)]
        return available or [queue for queue in queues if self.reachable(queue.broker_name)] or queues
