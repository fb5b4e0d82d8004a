# SPDX-License-Identifier: Apache-2.0
"""Where a group's messages are: the counts of several brokers added up, and worked out where only offsets are told."""

from __future__ import annotations

from typing import Any

from aerobee.client.admin.figures import from_stats, merge
from aerobee.protocol.bodies import MessageQueue, QueueProgress
from aerobee.protocol.bodies.figures import GroupLag, QueueLag

NOW = 1_700_000_000_000


def part(number: int, **more: Any) -> GroupLag:
    queue = QueueLag(topic="T", broker_name=f"b{number}", queue_id=0)
    return GroupLag(group="g", modes={f"t{number}": "POP"}, queues=[queue], **more)


def test_counts_of_several_brokers_are_added_and_the_oldest_age_is_taken() -> None:
    first = part(1, online=True, ready=1, in_flight=2, retrying=3, delayed=4, dead=5, oldest_ms=900)
    second = part(2, ready=10, in_flight=20, retrying=30, delayed=40, dead=50, oldest_ms=800)
    whole = merge([first, second])
    assert (whole.ready, whole.in_flight, whole.retrying, whole.delayed, whole.dead) == (11, 22, 33, 44, 55)
    assert (whole.oldest_ms, whole.online, whole.lag) == (900, True, 110)
    assert whole.modes == {"t1": "POP", "t2": "POP"}
    assert [queue.broker_name for queue in whole.queues] == ["b1", "b2"]
    assert (whole.exact, whole.delayed_is_exact) == (True, True)


def test_one_broker_that_only_estimates_makes_the_whole_an_estimate() -> None:
    whole = merge([part(1), part(2, exact=False, delayed_is_exact=False, conflicts={"T": {"a": ["x"]}})])
    assert (whole.exact, whole.delayed_is_exact, whole.online) == (False, False, False)
    assert whole.conflicts == {"T": {"a": ["x"]}}
    assert merge([part(1), part(2, online=True)]).online
    assert merge([only := part(1)]) is only


def progress(broker: int, consumer: int, pulled: int, at: int = NOW - 5_000) -> QueueProgress:
    return QueueProgress(
        broker_offset=broker, consumer_offset=consumer, pull_offset=pulled, last_timestamp=at
    )


def test_from_offsets_what_was_pulled_is_in_flight_and_the_rest_is_ready() -> None:
    found = from_stats(
        "g",
        {
            MessageQueue("b", 1, "T"): progress(30, 10, 14),
            MessageQueue("a", 0, "T"): progress(7, 7, 7, at=NOW - 90_000),
            MessageQueue("a", 0, "%RETRY%g"): progress(5, 2, 0, at=NOW - 70_000),
        },
        NOW,
        online=True,
        dead=6,
    )
    assert (found.ready, found.in_flight, found.retrying, found.dead) == (16, 4, 3, 6)
    assert (found.online, found.exact, found.oldest_ms) == (True, False, 70_000), "nothing of 'a' is left"
    assert [(q.topic, q.broker_name, q.queue_id, q.max_offset, q.committed, q.position) for q in found.queues] == [
        ("%RETRY%g", "a", 0, 5, 2, 2),
        ("T", "a", 0, 7, 7, 7),
        ("T", "b", 1, 30, 10, 14),
    ]  # fmt: skip
    assert [q.oldest_ready_ms for q in found.queues] == [70_000, 0, 5_000]


def test_nonsense_of_a_broker_is_not_counted_below_zero() -> None:
    queue = MessageQueue("a", 0, "T")
    ahead = from_stats("g", {queue: progress(5, 3, 9)}, NOW, online=True, dead=0)
    assert (ahead.ready, ahead.in_flight) == (0, 6)
    later = from_stats("g", {queue: progress(5, 3, 3, at=NOW + 1)}, NOW, online=False, dead=0)
    assert later.oldest_ms == 0
    unknown = from_stats("g", {queue: progress(5, 3, 3, at=0)}, NOW, online=False, dead=0)
    assert unknown.oldest_ms == 0, "no time is told, not the beginning of all times"


def test_of_a_group_without_members_nothing_is_in_flight_whatever_was_pulled() -> None:
    """Apache's broker moves the pull offset for the held pull of a consumer that has gone."""
    found = from_stats("g", {MessageQueue("a", 0, "T"): progress(5, 3, 5)}, NOW, online=False, dead=0)
    assert (found.ready, found.in_flight, found.queues[0].position) == (2, 0, 3)
