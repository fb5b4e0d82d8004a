# SPDX-License-Identifier: Apache-2.0
"""The hash of `topic#key` in RocketMQ's key index, without walking every character in Python each time.

Java's String.hashCode is h = 31 h + c over the characters, so the hash of a + b is hash(a) * 31^len(b) +
hash(b): the topic's part is computed once per topic. Unique keys come in runs whose first 28 of 32 characters
(address, process, start, millisecond) are alike, so that part is remembered too and only the counter at the
end is walked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.protocol.properties import java_hash

if TYPE_CHECKING:
    from collections.abc import Iterable

_MASK = 0xFFFFFFFF
_RUN = 28
_TAIL = 4
_POWER_TAIL: int = 31**_TAIL & _MASK
_POWER_KEY: int = 31 ** (_RUN + _TAIL) & _MASK
_MAX_RUNS = 4096
_MAX_TOPICS = 16384
_MAX_PAIRS = 16384


class KeyHash:
    """Remembers topics and the current runs of unique keys; what it remembers is bounded."""

    def __init__(self) -> None:
        self._topics: dict[str, int] = {}  # hash of `topic#`, moved up by the length of a unique key
        self._runs: dict[str, int] = {}  # hash of a run, moved up by the length of the counter
        self._pairs: dict[str, int] = {}  # hash of two characters

    def __call__(self, topic: str, key: str) -> int:
        return self.all([(topic, key, 0, 0)])[0]

    def all(self, waiting: Iterable[tuple[str, str, int, int]]) -> list[int]:
        """abs(hashCode) of each topic and key as RocketMQ has it: 0 for the one value whose abs overflows."""
        hashes, pairs = [], self._pairs
        last_topic, last_run, start = "", "", 0
        for topic, key, _, _ in waiting:
            if len(key) == 32 and key.isascii():
                run, high, low = key[:28], key[28:30], key[30:]
                if run != last_run or topic != last_topic:
                    last_topic, last_run = topic, run
                    start = (self._topics.get(topic) or self._start_topic(topic)) + (
                        self._runs.get(run) or self._start_run(run)
                    )
                value = (
                    start
                    + 961 * (pairs.get(high) or self._start_pair(high))
                    + (pairs.get(low) or self._start_pair(low))
                ) & 0xFFFFFFFF
            else:
                value = java_hash(f"{topic}#{key}") & 0xFFFFFFFF
            if value >= 0x8000_0000:
                value = 0x1_0000_0000 - value
                if value == 0x8000_0000:
                    value = 0
            hashes.append(value)
        return hashes

    def _start_topic(self, topic: str) -> int:
        if len(self._topics) >= _MAX_TOPICS:
            self._topics.clear()
        value = self._topics[topic] = java_hash(topic + "#") * _POWER_KEY & _MASK
        return value

    def _start_pair(self, pair: str) -> int:
        if len(self._pairs) >= _MAX_PAIRS:
            self._pairs.clear()
        value = self._pairs[pair] = java_hash(pair)
        return value

    def _start_run(self, run: str) -> int:
        if len(self._runs) >= _MAX_RUNS:
            self._runs.clear()
        value = self._runs[run] = java_hash(run) * _POWER_TAIL & _MASK
        return value
