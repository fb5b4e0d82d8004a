# SPDX-License-Identifier: Apache-2.0
"""How many messages make so many bytes: `maxBytesPerTrigger` by the sizes messages really have.

Store files tell the size of every message (queue units hold it). A broker is asked for a few messages at the start, the
middle and the end of each range; the range is narrowed until what it holds by those samples fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from aerobee.errors import AerobeeError
from aerobee.spark.cluster import Cluster
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
_CLOSE = 0.8  # a batch this near its limit is not measured again
_ROUNDS = 8
_UNKNOWN = 512.0  # of a queue that cannot be asked now: a small message with its properties


class Sizes(Protocol):
    def average(self, part: Range) -> float:
        """Bytes a message of the range takes in the store."""


def rows_within(budget: int, begin: Offsets, end: Offsets, sizes: Sizes) -> int:
    """How many messages after `begin`, shared among the queues as `plan.clip` does, make `budget` bytes; at least 1.

    Guess by the average, look, guess again between what fitted and what did not.
    """
    rows = total = plan.backlog(begin, end)
    fits, too_many = 0, total + 1
    for _ in range(_ROUNDS):
        parts = _parts(begin, plan.clip(begin, end, rows))
        size = sum(len(part) * sizes.average(part) for part in parts)
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

    def average(self, part: Range) -> float:
        from aerobee.spark.reading.store_scan import Queue, real_units

        queue = Queue(self._root / "consumequeue" / part.topic / str(part.queue))
        sizes = real_units(queue.units(part.start, part.end))["size"]
        return float(np.mean(sizes)) if len(sizes) else 0.0


class BrokerSizes:
    """By sample: three small pulls a range. A broker that does not answer is not the end of the query."""

    def __init__(self, options: Read, address: Callable[[str], str]) -> None:
        # Whatever the filter lets through, the bytes read are those of all messages.
        self._options = msgspec.structs.replace(options, tags="*", sql="")
        self._address = address
        self._cluster = Cluster(self._options)

    def average(self, part: Range) -> float:
        places = sorted({part.start, (part.start + part.end) // 2, max(part.start, part.end - SAMPLED)})
        found = [size for at in places for size in self._sample(part, at)]
        return float(np.mean(found)) if found else _UNKNOWN

    def _sample(self, part: Range, at: int) -> list[int]:
        try:
            link = self._cluster.link(self._address(part.broker))
            asked = tasks.request(part, at, self._options)
            asked = msgspec.structs.replace(
                asked, max_msg_nums=SAMPLED, max_msg_bytes=SAMPLE_BYTES, as_stored=None
            )
            body = link.call(asked).body
        except (AerobeeError, KeyError):
            return []
        return np.diff(np.append(columns.positions_of(body), len(body))).tolist() if body else []
