# SPDX-License-Identifier: Apache-2.0
"""Timed messages when something is odd: recalls of older brokers, a log shorter than the wheel, counts to be doubted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.background.timers import Timers
from aerobee.broker.operations.recall import Recall, recall
from aerobee.protocol.message import Record
from aerobee.protocol.properties import render
from aerobee.protocol.recall_handle import recall_handle
from aerobee.store.results import Found, ReadStatus
from aerobee.store.timer_log import PLAIN
from aerobee.store.timer_wheel import Due

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMER = "rmq_sys_wheel_timer"


@pytest.fixture
def timers(bench: Any) -> Iterator[Timers]:
    made = Timers(bench.broker.store, bench.broker.stats, bench.clock)
    yield made
    made.close()


def run(timers: Timers, clock: Any, seconds: float = 0) -> None:
    clock.advance(int(seconds * 1000))
    while timers.tick(clock.now()) == 0:
        pass


def bodies(bench: Any) -> list[bytes]:
    return [record.body for record in bench.records("orders")]


@pytest.mark.parametrize("names_it", ["A1", "orders+A1"], ids=["by an older broker", "by a newer one"])
def test_a_recall_is_understood_however_it_names_its_message(
    bench: Any, clock: Any, timers: Timers, names_it: str
) -> None:
    bench.send(body=b"recalled", properties={"TIMER_DELAY_SEC": "10", "UNIQ_KEY": "A1"})
    bench.send(body=b"kept", properties={"TIMER_DELAY_SEC": "10", "UNIQ_KEY": "B2"})
    (first, _) = bench.records(TIMER)
    words = {name: first.properties[name] for name in ("TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID")}
    text = render({**words, "TIMER_DEL_UNIQKEY": names_it, "UNIQ_KEY": "A1"})
    bench.broker.store.append(Record(TIMER, b"0", text, 0))
    run(timers, clock)
    run(timers, clock, 12)
    assert bodies(bench) == [b"kept"]


def test_a_recall_is_of_one_message_though_another_has_the_same_key(
    bench: Any, clock: Any, timers: Timers
) -> None:
    """A producer that sends the same again, to come later."""
    sent = bench.send(body=b"first", properties={"TIMER_DELAY_SEC": "10", "UNIQ_KEY": "A1"})
    bench.send(body=b"second", properties={"TIMER_DELAY_SEC": "20", "UNIQ_KEY": "A1"})
    handle = recall_handle("orders", "broker-a", sent.timer_out, "A1")
    recall(Recall("orders", handle), bench.broker)
    run(timers, clock)
    run(timers, clock, 30)
    assert bodies(bench) == [b"second"]


def test_a_wheel_that_outlived_its_log_passes_over_nothing_new(bench: Any, clock: Any) -> None:
    first = Timers(bench.broker.store, bench.broker.stats, clock)
    first._wheel.queue_offset = 10
    first.close()
    again = Timers(bench.broker.store, bench.broker.stats, clock)
    assert again.queue_offset == 0
    bench.send(body=b"new", properties={"TIMER_DELAY_SEC": "1"})
    run(again, clock)
    run(again, clock, 3)
    assert bodies(bench) == [b"new"]
    again.close()


def test_what_cannot_be_read_is_passed(bench: Any, clock: Any, timers: Timers) -> None:
    for _ in range(3):
        bench.send(properties={"TIMER_DELAY_SEC": "1"})
    store = bench.broker.store
    damaged = Found(ReadStatus.NO_MATCHED_MESSAGE, 3, 0, 3, [], [], 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "read", lambda *args: damaged)
        timers.tick(clock.now())
    assert (timers.queue_offset, timers.not_added) == (3, 0)


@pytest.mark.parametrize("has_copy", [False, True])
def test_a_count_of_before_a_stop_is_believed_only_with_the_copy(
    bench: Any, clock: Any, timers: Timers, has_copy: bool
) -> None:
    bench.send(body=b"x", properties={"TIMER_DELAY_SEC": "1", "UNIQ_KEY": "A1"})
    (waiting,) = bench.records(TIMER)
    due = Due(waiting.physical_offset, waiting.size, 1_000, PLAIN, has_copy)
    timers._deliver_one(due, clock.now())
    timers._deliver_one(due._replace(counted=True), clock.now())
    assert bodies(bench) == [b"x"]


def test_what_waits_is_told_by_how_soon_it_comes(
    clock: Any, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = clock.wall() // 1000
    slots = [(second, 1), (second + 4, 2), (second + 5, 3), (second + 59, 4), (second + 60, 5)]
    monkeypatch.setattr(timers._wheel, "slots", lambda: iter(slots))
    found = list(timers.within(clock.now(), (5, 60)))
    assert found == [(5, 1), (5, 2), (60, 3), (60, 4), (0, 5)]


def test_each_topics_count_says_when_it_was_last_another(bench: Any, clock: Any, timers: Timers) -> None:
    began = clock.wall()
    for topic, seconds in (("orders", 4), ("orders", 30), ("bills", 60)):
        clock.advance(1_000)
        bench.send(topic, properties={"TIMER_DELAY_SEC": str(seconds)})
        run(timers, clock)
    assert timers.by_topic() == {"orders": 2, "bills": 1, "": 0}
    assert timers.changed_at("orders") == began + 2_000
    assert timers.changed_at("bills") == began + 3_000
    run(timers, clock, 5)
    assert timers.by_topic() == {"orders": 1, "bills": 1, "": 0}
    assert (timers.changed_at("orders"), timers.changed_at("bills")) == (began + 8_000, began + 3_000)
    assert timers.changed_at("unknown") == began
    run(timers, clock, 60)
    assert (timers.by_topic(), timers.pending) == ({"": 0}, 0)
    assert timers.changed_at("orders") == began, "nothing of it waits: as of those nobody counted"


def test_what_was_added_before_the_disk_refused_is_not_added_again(
    bench: Any, clock: Any, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        bench.send(body=b"%d" % number, properties={"TIMER_DELAY_SEC": "5"})
    add, added = timers._wheel.add, []

    def nearly_full(*args: Any) -> None:
        added.append(args)
        if len(added) == 4:
            raise OSError("no space")
        add(*args)

    with monkeypatch.context() as patch:
        patch.setattr(timers._wheel, "add", nearly_full)
        with pytest.raises(OSError, match="no space"):
            timers.tick(clock.now())
    run(timers, clock)
    assert timers.pending == 4
    run(timers, clock, 7)
    assert bodies(bench) == [b"0", b"1", b"2", b"3"]


def test_what_waited_at_the_start_is_not_counted_off_from_what_came_since(bench: Any, clock: Any) -> None:
    before = Timers(bench.broker.store, bench.broker.stats, clock)
    bench.send(body=b"old", properties={"TIMER_DELAY_SEC": "5"})
    run(before, clock)
    before.close()
    since = Timers(bench.broker.store, bench.broker.stats, clock)
    bench.send(body=b"new", properties={"TIMER_DELAY_SEC": "60"})
    run(since, clock)
    assert since.by_topic() == {"orders": 1, "": 1}
    run(since, clock, 7)
    assert bodies(bench) == [b"old"]
    assert since.by_topic() == {"orders": 1, "": 0}
    since.close()


def test_a_recall_is_no_message_that_waits(bench: Any, clock: Any, timers: Timers) -> None:
    sent = bench.send(properties={"TIMER_DELAY_SEC": "10", "UNIQ_KEY": "A1"})
    recall(Recall("orders", recall_handle("orders", "broker-a", sent.timer_out, "A1")), bench.broker)
    run(timers, clock)
    assert timers.by_topic()["orders"] == 1
    run(timers, clock, 15)
    assert (timers.by_topic()["orders"], timers.pending) == (0, 0)


@pytest.mark.parametrize(
    "words",
    [
        {"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_OUT_MS": "soon"},
        {"REAL_TOPIC": "orders", "REAL_QID": "0"},
        {"REAL_TOPIC": "orders", "TIMER_OUT_MS": "5000"},
        {"REAL_QID": "0", "TIMER_OUT_MS": "5000"},
    ],
)
def test_what_names_no_time_or_no_place_is_stepped_over(
    bench: Any, clock: Any, timers: Timers, words: dict[str, str]
) -> None:
    bench.broker.store.append(Record(TIMER, b"odd", render(words), 0))
    run(timers, clock)
    run(timers, clock, 3)
    assert (bodies(bench), timers.pending, timers.queue_offset) == ([], 0, 1)
    assert bench.broker.stats.skipped.count == 1


def test_what_is_put_back_for_the_rest_of_its_time_is_counted_once(
    bench: Any, clock: Any, timers: Timers
) -> None:
    bench.send(properties={"TIMER_DELAY_SEC": "60"})
    run(timers, clock)
    clock.set_wall(clock.wall() + 3_600_000)
    run(timers, clock, 2)
    assert len(bench.records("rmq_sys_wheel_timer")) == 2
    assert timers.by_topic() == {"orders": 1, "": 0}
    run(timers, clock, 62)
    assert (timers.by_topic(), bodies(bench)) == ({"": 0}, [b"x"])


@pytest.mark.parametrize("jump", [-3_600_000, 0, 3_600_000])
def test_a_delivered_message_is_stamped_with_the_time_of_day_it_left_the_timer(
    bench: Any, clock: Any, timers: Timers, jump: int
) -> None:
    bench.send(properties={"TIMER_DELAY_SEC": "5"})
    run(timers, clock)
    clock.set_wall(clock.wall() + jump)
    run(timers, clock, 2)
    run(timers, clock, 5)
    (record,) = bench.records("orders")
    assert record.properties["TIMER_DEQUEUE_MS"] == str(clock.wall())
