# SPDX-License-Identifier: Apache-2.0
"""Who has done what is done: every group, or the one that was asked for."""

from __future__ import annotations

from aerobee.spark.pipelines.totals import told

COUNTS = {"messages": 3, "done": 1, "open": 1, "dead": 1, "lost": 0}


def test_one_group_is_named_and_several_are_every_group() -> None:
    assert told(COUNTS, [{"group": "billing"}]) == "3 messages: 1 done by billing, 1 open, 1 dead, 0 lost"
    assert "1 done by every group" in told(COUNTS, [{"group": "billing"}, {"group": "audit"}])
