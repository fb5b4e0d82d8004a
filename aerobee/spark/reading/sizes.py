# SPDX-License-Identifier: Apache-2.0
"""How many messages make so many bytes: `maxBytesPerTrigger` by the sizes messages really have.

Store files tell the size of every message (queue units hold it). A broker is asked for a few messages at the start, the
middle and the end of each range, of many ranges the largest; they are narrowed until what they hold by that fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from aerobee.errors import AerobeeError
from aerobee.spark.cluster import Cluster, Question
from aerobee.spark.decoding import columns
from aerobee.spark.reading import plan, tasks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.spark.option_values import Offsets
    from aerobee.spark.options import Read
    from aerobee.spark.reading.plan import Range

SAMPLED = 8  # messages at each place
SAMPLE_BYTES = 64 * 1024
MOST_ASKED = 64  # ranges; what is measured there stands for the others
_CLOSE = 0.8  # a batch this near its limit is not measured again
_ROUNDS = 8
_UNKNOWN = 512.0  # of a queue that cannot be asked now: a small message with its properties


class Sizes(Protocol):
    def total(self, parts: list[Range]) -> float:
        """Bytes that the ranges take in the store."""


def rows_within(budget: int, begin: Offsets, end: Offsets, sizes: Sizes) -> int:
    """How many messages after `begin`, shared among the queues as `plan.clip` does, make `budget` bytes; at least 1.

    Guess by the average, look, guess again between what fitted and what did not.
    """
    rows = total = plan.backlog(begin, end)
    fits, too_many = 0, total + 1
    for _ in range(_ROUNDS):
        parts = _parts(begin, plan.clip(begin, end, rows))
        size = sizes.total(parts)
        if size > budget:
            too_many = rows
        else:
            fits = rows
        if fits == total or fits + 1 >= too_many or _CLOSE * budget <= size <= budget:
            break
        guess = int(rows * budget / size) if size else total
        rows = guess if fits < guess < too_many else (fits + too_many) // 2
    return max(1, fits)


def _parts(begin: Offsets, end: Offsets) -> list[Range]:
    found = []
    for topic, broker, queue, stop in plan.flat(end):
        start = plan.get(begin, topic, broker, queue, 0)
        if start < stop:
            found.append(plan.Range(topic, broker, int(queue), start, stop))
    return found


class StoreSizes:
    """Exact: the queue's units are read."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def total(self, parts: list[Range]) -> float:
        return float(sum(map(self._size, parts)))

    def _size(self, part: Range) -> int:
        from aerobee.spark.reading.store_scan import Queue, real_units

        queue = Queue(self._root / "consumequeue" / part.topic / str(part.queue))
        return int(real_units(queue.units(part.start, part.end))["size"].sum(dtype=np.int64))


class BrokerSizes:
    """By sample: three small pulls a range. A broker that does not answer is not the end of the query."""

    def __init__(self, options: Read, address: Callable[[str], str]) -> None:
        # Whatever the filter lets through, the bytes read are those of all messages.
        self._options = msgspec.structs.replace(options, tags="*", sql="")
        self._address = address
        self._cluster = Cluster(self._options)

    def total(self, parts: list[Range]) -> float:
        asked = sorted(parts, key=len, reverse=True)[:MOST_ASKED]
        averages = self._averages(asked)
        size = sum(len(part) * average for part, average in zip(asked, averages, strict=True))
        rows = sum(map(len, asked))
        return size * sum(map(len, parts)) / rows if rows else 0.0

    def _averages(self, parts: list[Range]) -> list[float]:
        """Of each range by its samples, which are all asked for together."""
        found: dict[Range, list[int]] = {part: [] for part in parts}
        asked: list[tuple[Range, Question]] = []
        for part in parts:
            try:
                address = self._address(part.broker)
            except AerobeeError:
                continue
            for at in sorted({part.start, (part.start + part.end) // 2, max(part.start, part.end - SAMPLED)}):
                header = msgspec.structs.replace(
                    tasks.request(part, at, self._options),
                    max_msg_nums=SAMPLED,
                    max_msg_bytes=SAMPLE_BYTES,
                    as_stored=None,
                )
                asked.append((part, Question(address, header)))
        answers = self._cluster.ask_each([question for _, question in asked])
        for (part, _), answer in zip(asked, answers, strict=True):
            if not isinstance(answer, AerobeeError) and answer.body:
                found[part] += np.diff(
                    np.append(columns.positions_of(answer.body), len(answer.body))
                ).tolist()
        return [float(np.mean(sizes)) if sizes else _UNKNOWN for sizes in found.values()]
