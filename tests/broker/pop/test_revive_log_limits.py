# SPDX-License-Identifier: Apache-2.0
"""What the revive log believes of a checkpoint: what a pop may just have taken, and what no pop can have."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.pop import leases, revive_log
from aerobee.broker.pop.in_flight import MAX_TIME
from aerobee.errors import DiskFull
from aerobee.protocol.receipt import MAX_BITS, CheckpointRecord


def checkpoint(**fields: Any) -> CheckpointRecord:
    told: dict[str, Any] = {
        "group": "billing",
        "topic": "orders",
        "diffs": [0, 1, 5],
        "count": 3,
        "pop_time": 1_000,
        "invisible_time": 60_000,
        "start_offset": 10,
    }
    return CheckpointRecord(**told | fields)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pop_time": 0},
        {"invisible_time": 0},
        {"pop_time": MAX_TIME},
        {"invisible_time": MAX_TIME},
        {"start_offset": 0},
        {"diffs": [3]},  # what came before it did not match
        {"diffs": [0, MAX_BITS - 1]},
        {"diffs": [], "count": 1},
        {"topic": "%RETRY%billing_orders"},
    ],
)
def test_a_checkpoint_that_a_pop_may_have_written_is_believed(fields: dict[str, Any]) -> None:
    revive_log._check_checkpoint(checkpoint(**fields))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"group": "a b"}, "group"),
        ({"group": ""}, "group"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "cannot be popped"),
        ({"topic": "a b"}, "cannot be popped"),
        ({"pop_time": -1}, "no such time"),
        ({"invisible_time": -1}, "no such time"),
        ({"pop_time": MAX_TIME + 1}, "no such time"),
        ({"invisible_time": MAX_TIME + 1}, "no such time"),
        ({"start_offset": -1}, "offsets from -1"),
        ({"diffs": [], "count": 0}, "offsets from 10"),
        ({"diffs": [-1, 0]}, "offsets from 10"),
        ({"diffs": [0, MAX_BITS]}, "offsets from 10"),
        ({"diffs": [0, 1, 1]}, "offsets from 10"),
        ({"diffs": [0, 2, 1]}, "offsets from 10"),
    ],
)
def test_one_that_none_can_have_written_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        revive_log._check_checkpoint(checkpoint(**fields))


def test_a_disk_that_refuses_is_asked_again_a_second_later_and_not_before(
    shop: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shop.send("a", "b", "c")
    for _ in range(3):
        shop.pop(max_messages=1, invisible_ms=60_000)
    tried: list[int] = []

    def full(*_args: Any) -> None:
        tried.append(shop.clock.now())
        raise DiskFull("no space")

    with monkeypatch.context() as patch:
        patch.setattr(shop.broker.store, "append", full)
        shop.wait(3_000, step=3_000)
        first = len(tried)
        assert first >= 1
        shop.wait(leases.REFUSED_MS - 1, step=leases.REFUSED_MS - 1)
        assert len(tried) == first
        shop.wait(1)
        assert len(tried) > first
        assert leases.REFUSED_MS == 1_000
    assert caplog.text.count("the revive log refuses them") == 2
    shop.wait(1_000)
    assert shop.logged == ["ck", "ck", "ck"]
