# SPDX-License-Identifier: Apache-2.0
"""Samples become rates and curves; what is kept is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee import Message, Producer
from aerobee.client.admin import GroupLag, QueueLag
from aerobee.clock import ManualClock
from aerobee.console.cluster_view import ClusterView
from aerobee.console.history import MAX_GROUPS, BrokerSeen, GroupSeen, History, Sample, group_seen
from aerobee.console.pages.curves import POINTS, thinned
from aerobee.console.sampler import UNREAD_LOOKS, Sampler, broker_seen, pause_after
from aerobee.errors import NoRoute

if TYPE_CHECKING:
    from aerobee import Admin, Server


def sample(at: int, put: int = 0, got: int = 0, done: int = 0, groups: int = 1) -> Sample:
    brokers = [BrokerSeen("a", "127.0.0.1:1", put=put, got=got)]
    named = [f"g{n}" for n in range(groups)]
    return Sample(at, brokers, {g: GroupSeen(g, True, n, 0, 0, 0, 0, done) for n, g in enumerate(named)})


def test_rates_are_differences_over_time_and_a_restart_is_left_out() -> None:
    history = History()
    for at, put, got in ((0, 100, 10), (2_000, 300, 30), (4_000, 5, 0), (6_000, 25, 10)):
        history.add(sample(at, put, got))
    assert [(rate.came, rate.went) for rate in history.rates()] == [(100, 10), (10, 5)]


def test_a_group_s_rate_is_that_of_the_last_minute() -> None:
    history = History()
    for minute, done in enumerate((0, 60_000, 60_600)):
        history.add(sample(minute * 60_000, done=done))
    assert history.done_rate("g0") == 10
    assert history.done_rate("nobody") is None


def test_curves_are_kept_of_the_groups_with_most_to_do_only() -> None:
    history = History()
    history.add(sample(0, groups=MAX_GROUPS + 5))
    assert len(history.groups) == MAX_GROUPS
    assert "g0" not in history.groups and f"g{MAX_GROUPS + 4}" in history.groups
    history.add(sample(1))
    assert list(history.groups) == ["g0"]


def test_what_is_done_counts_messages_of_all_queues_behind_the_group() -> None:
    queues = [
        QueueLag(topic="t", broker_name="a", queue_id=n, max_offset=100, ready=30, in_flight=5)
        for n in range(2)
    ]
    assert group_seen(GroupLag(group="g", queues=queues, delayed=2, retrying=3)).done == 130
    assert group_seen(GroupLag(group="g", delayed=2, retrying=3)).retrying == 5


def test_a_broker_of_apache_is_read_by_the_same_names() -> None:
    seen = broker_seen("b", "10.0.0.1:10911", {"brokerVersionDesc": "V5_3_3", "commitLogDiskRatio": "0.5"})
    assert (seen.version, seen.disk, seen.late_ms) == ("RocketMQ V5_3_3", 0.5, None)


@pytest.mark.parametrize(("took", "pause"), [(0, 5_000), (100, 5_000), (500, 15_000), (60_000, 30_000)])
def test_a_cluster_that_takes_long_is_looked_at_more_rarely(took: int, pause: int) -> None:
    assert pause_after(took) == pause


@pytest.mark.parametrize("count", [0, 1, POINTS, POINTS + 1, 10 * POINTS + 3])
def test_a_curve_is_thinned_to_what_one_sees_and_keeps_its_end(count: int) -> None:
    found = thinned(list(range(count)))
    assert len(found) <= POINTS
    assert found[-1:] == list(range(count))[-1:]


async def test_many_visitors_cost_one_question_a_second(admin: Admin) -> None:
    clock = ManualClock()
    view, asked = ClusterView(admin, clock), []

    async def ask() -> int:
        asked.append(1)
        return len(asked)

    assert [await view.once("key", ask) for _ in range(3)] == [1, 1, 1]
    clock.advance(1_000)
    assert await view.once("key", ask) == 2
    view.forget()
    assert await view.once("key", ask) == 3
    await view.stop()


async def test_a_failure_is_not_kept(admin: Admin) -> None:
    view, tries = ClusterView(admin, ManualClock()), []

    async def ask() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise NoRoute("not yet")
        return "there"

    with pytest.raises(NoRoute):
        await view.once("key", ask)
    assert await view.once("key", ask) == "there"
    await view.stop()


async def test_topics_without_a_reader_are_counted_a_few_at_a_time(server: Server, admin: Admin) -> None:
    names = [f"t-{n:02d}" for n in range(UNREAD_LOOKS + 3)]
    async with Producer(server.namesrv, group="shop") as producer:
        for name in names:
            await admin.create_topic(name, queues=1)
            await producer.send(Message(name, b"x"))
    view = ClusterView(admin, ManualClock())
    sampler = Sampler(view, ManualClock())
    await sampler.look()
    assert list(sampler.history.latest.unread) == names[:UNREAD_LOOKS]
    await sampler.look()
    assert sampler.history.latest.unread == dict.fromkeys(names, 1)
    await view.stop()
