# SPDX-License-Identifier: Apache-2.0
"""What is seldom asked of a broker, and then has to be right: counts after a reset, files by hand, unused topics."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from aerobee.broker.background.runner import Job, run
from aerobee.broker.background.topic_retention import TopicRetention
from aerobee.broker.background.topic_routes import RemoteRoutes
from aerobee.broker.delivery import reading
from aerobee.broker.operations.admin.access import newest_audit
from aerobee.broker.operations.admin.cluster import timer_counts
from aerobee.broker.operations.admin.topics import clean_unused_topics
from aerobee.broker.operations.end_transaction import _committed_before
from aerobee.broker.operations.pop import _learn
from aerobee.broker.pop.leases import Leases
from aerobee.broker.pop.orders import Orders
from aerobee.clock import ManualClock
from aerobee.errors import SystemFailure
from aerobee.protocol.bodies import TopicConfig
from aerobee.protocol.message import Record


def test_what_waits_is_counted_behind_what_is_leased_unless_the_group_was_moved(bench: Any) -> None:
    for _ in range(5):
        bench.send()
    broker = bench.broker
    assert reading.waiting("orders", "g", [0, 1], broker) == 5
    broker.offsets.set("g", "orders", 0, 1)
    assert reading.waiting("orders", "g", [0], broker) == 4
    lane = broker.pops.leases.in_flight.lane("orders", "g", 0)
    lane.line.append(SimpleNamespace(next_offset=3))
    assert reading.waiting("orders", "g", [0], broker) == 2, "two are in somebody's hands"
    broker.offsets.set_reset("g", "orders", 0, 0)
    assert reading.waiting("orders", "g", [0], broker) > 2, "what is leased is not what it will read on from"
    lane.line.clear()


def test_messages_of_topics_that_are_no_more_are_cleaned_and_the_brokers_own_are_kept(bench: Any) -> None:
    broker = bench.broker
    bench.send()
    own = {"rmq_sys_wheel_timer", "rmq_sys_of_a_newer_broker"}  # one of them without settings
    for topic in ("gone", *own):
        broker.store.append(Record(topic, b"x", "", 0))
    clean_unused_topics(broker)
    left = set(broker.store.topics())
    assert {"orders"} | own <= left
    assert "gone" not in left


def test_a_file_of_ordered_batches_is_read_but_for_names_that_are_none(clock: ManualClock) -> None:
    orders = Orders()
    one = {"0": {"popTime": 5, "i": 60, "o": [7, 1]}}
    table = {"t@g": one, "@g": one, "t@": one, "t": one, "u@h": {"1": {"popTime": 5, "i": 60, "o": []}}}
    orders.load(msgspec.json.encode({"table": table}))
    assert orders.keys() == [("t", "g", 0)]


@pytest.mark.parametrize(("read", "write"), [(1, 3), (3, 1)])
def test_hours_of_a_topic_hold_for_every_queue_it_has(
    bench: Any, clock: ManualClock, read: int, write: int
) -> None:
    broker = bench.broker
    config = TopicConfig(
        topic_name="t", read_queue_nums=read, write_queue_nums=write, attributes={"reserve.time": "2"}
    )
    served: list[tuple[str, int, int]] = []
    store: Any = SimpleNamespace(serve_since=lambda *told: served.append(told))
    job = TopicRetention(broker.topics, store, clock)
    broker.topics.put(config)
    since = clock.wall() - 2 * 3_600_000
    assert served == [("t", queue, since) for queue in range(3)]
    served.clear()
    job._limit(config, 5_000)
    assert served == [("t", queue, 1) for queue in range(3)], "before the first hours there is no time"
    served.clear()
    broker.topics.put(msgspec.structs.replace(config, attributes={}))
    assert served == [("t", queue, 0) for queue in range(3)], "all that it has"


def test_a_broker_without_an_audit_log_says_so() -> None:
    without: Any = SimpleNamespace(audit=None)
    with pytest.raises(SystemFailure, match="keeps no audit log: name one by `audit_log`"):
        newest_audit(5, without)
    kept: Any = SimpleNamespace(audit=SimpleNamespace(newest=lambda count: [b"a", b"b"][:count]))
    assert newest_audit(2, kept) == b"a\nb"

    def unreadable(count: int) -> None:
        raise OSError(2, "No such file")

    broken: Any = SimpleNamespace(audit=SimpleNamespace(newest=unreadable))
    with pytest.raises(SystemFailure, match="the audit log cannot be read: No such file"):
        newest_audit(2, broken)


def test_timers_are_counted_with_the_newest_change(bench: Any) -> None:
    counted = bench.broker.stats.counted
    times = {"a": 50, "b": 90, "": 70}
    counted.timers = SimpleNamespace(
        by_topic=lambda: {"a": 2, "b": 1, "none": 0}, changed_at=lambda topic: times.get(topic, 0)
    )
    found = timer_counts(bench.broker)
    assert {topic: (each.count, each.timestamp) for topic, each in found.timing_count.items()} == {
        "a": (2, 50),
        "b": (1, 90),
    }
    assert found.data_version.timestamp == 90
    counted.timers = SimpleNamespace(by_topic=dict, changed_at=lambda topic: 5)
    assert timer_counts(bench.broker).data_version.timestamp == 0


def test_a_topic_that_is_not_there_is_known_to_be_so_for_a_while() -> None:
    clock = ManualClock()
    routes: Any = RemoteRoutes.__new__(RemoteRoutes)
    routes._clock, routes._wanted = clock, {}
    routes._known = {"t": ("hosts",), "both": ("hosts",)}
    routes._absent = {"gone": clock.now() + 5, "both": clock.now() + 5}
    assert [routes.known(topic) for topic in ("t", "both", "gone", "never")] == [
        ("hosts",),
        ("hosts",),
        (),
        None,
    ]
    clock.advance(5)
    assert routes.known("gone") is None, "it has to be asked for again"
    assert routes._wanted["gone"] == clock.now()


async def test_a_busy_job_lets_others_have_their_turn() -> None:
    clock, story = ManualClock(start=0), list[str]()

    def busy(now: int) -> int:
        story.append("busy")
        return 0 if len(story) < 6 else 1_000

    def other(now: int) -> int:
        story.append("other")
        return 0 if len(story) < 6 else 1_000

    task = asyncio.ensure_future(run((Job("busy", busy), Job("other", other)), clock))
    for _ in range(20):
        await asyncio.sleep(0)
    assert story[:4] == ["busy", "other", "busy", "other"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_half_message_without_a_topic_or_an_id_was_committed_nowhere() -> None:
    asked: list[Any] = []
    broker: Any = SimpleNamespace(store=SimpleNamespace(find_by_key=lambda *told: asked.append(told) or []))
    for text in ("", "REAL_TOPIC\x01orders\x02", "UNIQ_KEY\x01ID\x02"):
        assert _committed_before(Record("half", b"x", text), broker) is False
    assert asked == []
    whole = Record("half", b"x", "REAL_TOPIC\x01orders\x02UNIQ_KEY\x01ID\x02", born_timestamp=50)
    assert _committed_before(whole, broker) is False
    assert asked == [("orders", "ID", 64, 49, 2**63 - 1)]


def test_a_finished_checkpoint_is_kept_while_the_groups_offset_has_not_passed_it() -> None:
    offsets = SimpleNamespace(get=lambda group, topic, queue_id: 5)
    leases: Any = Leases.__new__(Leases)
    leases._offsets = offsets
    logged: Any = SimpleNamespace(offsets=[3, 5])
    passed: Any = SimpleNamespace(offsets=[3, 4])

    def lane(line: list[int], skip: set[int]) -> Any:
        return SimpleNamespace(line=line, skip=skip, group="g", topic="t", queue_id=0)

    assert leases.keeps(lane([1], set()), logged)
    assert leases.keeps(lane([], {1}), logged), "acked out of turn is reason enough"
    assert not leases.keeps(lane([], set()), logged)
    assert not leases.keeps(lane([1], {1}), passed)
    assert not leases.keeps(None, logged)


def test_who_pops_without_a_filter_is_remembered_as_wanting_everything(bench: Any) -> None:
    learned: list[Any] = []
    broker: Any = SimpleNamespace(
        clients=SimpleNamespace(learn=lambda *told: learned.append(told)), clock=bench.clock
    )
    for expression in ("", None, "A"):
        _learn(SimpleNamespace(group="g", topic="t", expression_type="TAG", expression=expression), broker)  # type: ignore[arg-type]
    assert [told[3] for told in learned] == ["*", "*", "A"]
    assert learned[0] == ("g", "t", "TAG", "*", bench.clock.now())
