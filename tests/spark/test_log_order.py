# SPDX-License-Identifier: Apache-2.0
"""Queue units of many ranges merged by their place in the log, some at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.spark.options import for_batch
from aerobee.spark.reading import store_scan
from aerobee.spark.reading.plan import DataLoss, Range
from aerobee.spark.reading.store_scan import UNIT, in_log_order

if TYPE_CHECKING:
    import numpy.typing as npt

OPTIONS = for_batch({"storePath": "unused", "subscribe": "t"})


class Units:
    """Queue units in memory; `log` gives the queue of every record in the log, each 100 bytes, tag 0 or 1 in turn."""

    def __init__(self, log: list[int], queue: int) -> None:
        positions = [at * 100 for at, owner in enumerate(log) if owner == queue]
        self.all = np.array([(at, 100, at // 100 % 2) for at in positions], UNIT)
        self.asked: list[int] = []

    def units(self, start: int, end: int) -> npt.NDArray[Any]:
        self.asked.append(end - start)
        return self.all[start:end]


def merged(
    log: list[int], count: int, ahead: int, codes: frozenset[int] | None = None
) -> tuple[list[list[int]], list[Units]]:
    queues = [Units(log, queue) for queue in range(count)]
    parts = [Range("t", "b", queue, 0, len(units.all)) for queue, units in enumerate(queues)]
    before, store_scan.UNITS_AHEAD = store_scan.UNITS_AHEAD, ahead
    try:
        return [group.position.tolist() for group in in_log_order(queues, parts, codes, OPTIONS)], queues
    finally:
        store_scan.UNITS_AHEAD = before


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.integers(0, n - 1), max_size=60)),
    st.integers(1, 200),
    st.sampled_from([None, frozenset({0}), frozenset({0, 1}), frozenset({7})]),
)
def test_every_record_once_in_the_order_of_the_log(
    log: list[int], repeats: int, codes: frozenset[int] | None
) -> None:
    log = log * repeats  # runs of one queue and turns of all
    groups, _ = merged(log, 4, ahead=4_000, codes=codes)
    expected = [at * 100 for at in range(len(log)) if codes is None or at % 2 in codes]
    assert [position for group in groups for position in group] == expected
    assert all(groups)


def test_queues_that_run_side_by_side_make_no_crumbs() -> None:
    """Each of them was asked for more only when it had run out, and then gave a row or two by itself."""
    groups, queues = merged([0, 1, 2, 3] * 10_000, 4, ahead=4_000)
    assert all(len(group) >= 1_000 for group in groups[:-1])
    assert len(groups) <= 45
    assert max(max(units.asked) for units in queues) == 1_000


def test_a_queue_that_is_shorter_than_planned_is_data_loss() -> None:
    short = Units([0] * 50, 0)
    with pytest.raises(DataLoss, match=r"10 messages of t/0 0\.\.60"):
        list(in_log_order([short], [Range("t", "b", 0, 0, 60)], None, OPTIONS))
