# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from aerobee.broker.state.counted import Counted, RequestTimes
from aerobee.broker.state.stats import Stats
from aerobee.protocol import names

MS = 1_000_000


def test_requests_are_told_apart_by_time_and_answer() -> None:
    times = RequestTimes()
    times.add_run(310, 200_000, 1)
    times.add_run(310, 4 * MS, 1)
    times.add_run(310, MS, 1)
    times.add_run(310, 500_000, 16)
    times.add_run(310, 2 * MS, 2)
    times.add(310, 0, 100, held=False)
    times.add(310, 1, 100, held=False)
    times.add(11, 0, 5_000 * MS, held=True)
    found = dict(times)
    assert found.keys() == {(310, 0, False), (310, 1, False), (11, 0, True)}
    assert found[310, 0, False].counts == [19, 2, 1, 0, 0, 0, 0, 0, 0, 0]
    assert found[310, 0, False].sum == 200_000 + 4 * MS + MS + 16 * 500_000 + 4 * MS + 100
    assert found[11, 0, True].counts[-1] == 1


def test_the_broker_s_own_copies_are_no_messages_of_producers() -> None:
    stats = Stats(0)
    stats.sent("orders", 2, 300)
    stats.moved("orders", 1, 150)
    stats.waits("orders", names.SCHEDULE_TOPIC, 200)
    came = stats.counted.came["orders"]
    assert (came.moved_count, came.moved_bytes) == (1, 150)
    assert came.delayed.counts[0] == 1
    assert stats.put_count == 4, "but all of them were stored"
    assert stats.counted.came[names.SCHEDULE_TOPIC].moved_count == 1


def test_large_messages_are_counted_by_the_mean_of_those_sent_together() -> None:
    counted = Counted()
    counted.large("t", 2, 2_048)
    assert "t" not in counted.came, "1 KiB each is not large"
    counted.large("t", 2, 2_050)
    counted.large_run("t", (1, 0, 0, 0, 0, 3))
    assert counted.came["t"].large == [3, 0, 0, 0, 0, 3]


def test_what_was_counted_of_a_deleted_group_is_forgotten() -> None:
    counted = Counted()
    counted.dead["g", "t"] += 1
    counted.dead["h", "t"] += 1
    counted.revived["g", "t", 0] += 1
    counted.retried["g", "t"] += 1
    counted.remove_group("g")
    assert list(counted.dead) == [("h", "t")]
    assert not counted.revived and not counted.retried
