# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.background import timers as timers_module
from aerobee.broker.background.timers import Timers
from aerobee.broker.operations.recall import Recall, recall
from aerobee.errors import DiskFull, IllegalOperation, StoreError
from aerobee.protocol.message import Record
from aerobee.protocol.properties import render
from aerobee.protocol.recall_handle import recall_handle
from aerobee.store.timer_wheel import Due

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def timers(bench: Any) -> Iterator[Timers]:
    made = Timers(bench.broker.store, bench.broker.stats, bench.clock)
    yield made
    made.close()


def run(timers: Timers, now: int) -> None:
    """Tick until there is nothing left to do at `now`."""
    for _ in range(10_000):
        if timers.tick(now) > 0:
            return
    raise AssertionError("never idle")


@pytest.mark.parametrize("delay_ms", [1, 700, 1000, 1001, 5000, 5300, 3_600_000])
def test_message_is_never_early_and_at_most_a_second_late(
    bench: Any, clock: Any, timers: Timers, delay_ms: int
) -> None:
    due = clock.now() + delay_ms
    bench.send(queue_id=2, body=b"timed", properties={"TIMER_DELIVER_MS": str(due), "KEYS": "k"})
    run(timers, clock.now())
    clock.advance(delay_ms - 1)
    run(timers, clock.now())
    assert bench.records("orders", 2) == []
    clock.advance(1_001)
    run(timers, clock.now())
    (delivered,) = bench.records("orders", 2)
    assert delivered.body == b"timed"
    assert delivered.store_timestamp >= due
    properties = delivered.properties
    assert (properties["REAL_TOPIC"], properties["KEYS"]) == ("orders", "k")
    assert {"TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_DELIVER_MS"} <= set(properties)
    run(timers, clock.now() + 10_000)
    assert len(bench.records("orders", 2)) == 1


def test_messages_come_in_the_order_of_their_times(bench: Any, clock: Any, timers: Timers) -> None:
    for seconds in (30, 10, 20):
        bench.send(body=b"%d" % seconds, properties={"TIMER_DELAY_SEC": str(seconds)})
    run(timers, clock.now())
    assert timers.pending == 3
    clock.advance(seconds=60)
    run(timers, clock.now())
    assert [record.body for record in bench.records("orders")] == [b"10", b"20", b"30"]
    assert timers.pending == 0


def test_message_due_while_the_broker_was_down_comes_after_the_restart(bench: Any, clock: Any) -> None:
    first = Timers(bench.broker.store, bench.broker.stats, clock)
    bench.send(body=b"soon", properties={"TIMER_DELAY_SEC": "10"})
    run(first, clock.now())
    bench.send(body=b"unread", properties={"TIMER_DELAY_SEC": "20"})  # stored, not yet in the wheel
    first.close()
    bench.restart()
    clock.advance(minutes=5)
    second = Timers(bench.broker.store, bench.broker.stats, clock)
    run(second, clock.now())
    run(second, clock.now() + 2_000)
    assert [record.body for record in bench.records("orders")] == [b"soon", b"unread"]
    second.close()


def test_recalled_message_is_not_delivered_and_others_of_its_second_are(
    bench: Any, clock: Any, timers: Timers
) -> None:
    sent = bench.send(body=b"recalled", properties={"TIMER_DELAY_SEC": "10", "UNIQ_KEY": "A1"})
    bench.send(body=b"kept", properties={"TIMER_DELAY_SEC": "10", "UNIQ_KEY": "B2"})
    run(timers, clock.now())
    handle = recall_handle("orders", "broker-a", sent.timer_out, sent.unique_key)
    recall(Recall("orders", handle), bench.broker)
    run(timers, clock.now())
    clock.advance(seconds=12)
    run(timers, clock.now())
    assert [record.body for record in bench.records("orders")] == [b"kept"]


def test_a_recall_behind_a_backlog_is_read_before_its_message_is_delivered(
    bench: Any, clock: Any, timers: Timers
) -> None:
    """The broker was busy: more waits to be read than one turn takes, and the recall is the last of it."""
    sent = bench.send(body=b"recalled", properties={"TIMER_DELAY_SEC": "10", "UNIQ_KEY": "A1"})
    run(timers, clock.now())
    clock.advance(seconds=9)
    for _ in range(timers_module.PER_TICK + 10):
        bench.send(properties={"TIMER_DELAY_SEC": "3600"})
    recall(
        Recall("orders", recall_handle("orders", "broker-a", sent.timer_out, sent.unique_key)), bench.broker
    )
    clock.advance(seconds=3)
    run(timers, clock.now())
    assert bench.records("orders") == []
    assert timers.not_added == 0


@pytest.mark.parametrize("delay_ms", [2_000, 2_300, 2_999])
def test_a_recall_is_taken_until_the_second_its_message_comes_in(
    bench: Any, clock: Any, timers: Timers, delay_ms: int
) -> None:
    asked = {"TIMER_DELAY_MS": str(delay_ms), "UNIQ_KEY": "A1"}
    sent = bench.send(body=b"recalled", properties=asked)
    handle = Recall("orders", recall_handle("orders", "broker-a", sent.timer_out, sent.unique_key))
    run(timers, clock.now())
    comes_at = sent.timer_out + 1_000
    clock.advance(comes_at - 1 - clock.wall())
    run(timers, clock.now())
    recall(handle, bench.broker)
    clock.advance(1)
    with pytest.raises(IllegalOperation) as refused:
        recall(handle, bench.broker)
    moment = datetime.fromtimestamp(comes_at / 1000, UTC)
    assert str(refused.value).startswith(
        f"the message came due at {moment:%Y-%m-%d %H:%M:%S} UTC, 0.0 s ago: too late to take it back"
    )
    run(timers, clock.now())
    assert (bench.records("orders"), timers.pending) == ([], 0)


def test_a_recall_of_what_waits_as_long_as_any_may_is_taken_at_once(
    bench: Any, clock: Any, timers: Timers
) -> None:
    longest = bench.broker.store.config.timer_max_delay_ms
    sent = bench.send(properties={"TIMER_DELAY_MS": str(longest), "UNIQ_KEY": "A1"})
    clock.advance(2)
    handle = recall_handle("orders", "broker-a", sent.timer_out, sent.unique_key)
    recall(Recall("orders", handle), bench.broker)
    later = recall_handle("orders", "broker-a", sent.timer_out + 2_000, sent.unique_key)
    with pytest.raises(IllegalOperation, match=r"due in 40 days, later than any can be"):
        recall(Recall("orders", later), bench.broker)
    for moment in (0, 2**63 - 2):
        with pytest.raises(IllegalOperation):
            recall(Recall("orders", recall_handle("orders", "broker-a", moment, "A1")), bench.broker)


def test_message_days_away_is_stored_again_on_its_way_and_delivered_once(
    bench: Any, clock: Any, timers: Timers
) -> None:
    due = clock.now() + 5 * DAY_MS
    bench.send(body=b"far", properties={"TIMER_DELIVER_MS": str(due)})
    run(timers, clock.now())
    while clock.now() < due:
        clock.advance(hours=6)
        if clock.now() < due:
            run(timers, clock.now())
            assert bench.records("orders") == []
    clock.advance(seconds=1)
    run(timers, clock.now())
    (delivered,) = bench.records("orders")
    assert int(delivered.properties["TIMER_ROLL_TIMES"]) >= 2
    assert len(bench.records("rmq_sys_wheel_timer")) == 1 + int(delivered.properties["TIMER_ROLL_TIMES"])


def test_full_disk_loses_no_delivery(
    bench: Any, clock: Any, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        bench.send(body=b"%d" % number, properties={"TIMER_DELAY_SEC": "1"})
    run(timers, clock.now())
    clock.advance(seconds=5)

    def full(record: Any) -> None:
        raise DiskFull("95 % used")

    with monkeypatch.context() as patch:
        patch.setattr(bench.broker.store, "append", full)
        with pytest.raises(DiskFull):
            run(timers, clock.now())
    run(timers, clock.now())
    assert [record.body for record in bench.records("orders")] == [b"0", b"1", b"2"]


def test_many_messages_are_added_and_delivered_in_turns(
    bench: Any, clock: Any, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers_module, "PER_TICK", 4)
    for _ in range(10):
        bench.send(properties={"TIMER_DELAY_SEC": "1"})
    run(timers, clock.now())
    clock.advance(seconds=3)
    assert timers.tick(clock.now()) == 0
    assert len(bench.records("orders")) == 4
    run(timers, clock.now())
    assert len(bench.records("orders")) == 10


def test_message_without_a_time_is_left_out(bench: Any, clock: Any, timers: Timers) -> None:
    bench.broker.store.append(Record("rmq_sys_wheel_timer", b"odd", "TIMER_OUT_MS\x01soon\x02"))
    bench.send(body=b"fine", properties={"TIMER_DELAY_SEC": "1"})
    run(timers, clock.now())
    clock.advance(seconds=3)
    run(timers, clock.now())
    assert [record.body for record in bench.records("orders")] == [b"fine"]


async def test_wheel_is_synced_after_the_log_with_what_it_delivered(
    bench: Any, clock: Any, timers: Timers, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.send(properties={"TIMER_DELAY_SEC": "1"})
    run(timers, clock.now())
    clock.advance(seconds=3)
    run(timers, clock.now())
    assert len(bench.records("orders")) == 1
    check = bench.broker.store.root / "config" / "timercheck"
    before = check.read_bytes()

    async def full(end: int) -> None:
        raise StoreError(f"no sync up to {end}")

    monkeypatch.setattr(bench.broker.store, "on_disk", full)
    with pytest.raises(StoreError):
        await timers.flush(clock.now())
    assert check.read_bytes() == before
    monkeypatch.undo()
    await timers.flush(clock.now())
    assert bench.broker.store._flush.synced == bench.broker.store.log_max
    assert check.read_bytes() != before


async def test_wheel_is_synced_off_the_loop(bench: Any, clock: Any, timers: Timers) -> None:
    bench.send(properties={"TIMER_DELAY_SEC": "1"})
    run(timers, clock.now())
    assert await timers.flush(clock.now()) == 1_000
    assert (bench.broker.store.root / "config" / "timercheck").exists()


def stored(bench: Any, topic: str, key: str, real: str | None = None) -> int:
    properties = {"UNIQ_KEY": key} if key else {}
    if real is not None:
        properties["REAL_TOPIC"] = real
    record = Record(topic, b"x", render(properties))
    bench.broker.store.append(record)
    return record.physical_offset


@pytest.mark.parametrize(
    ("copies", "there"),
    [
        ([], False),
        ([("orders", "A1")], True),
        ([("rmq_sys_wheel_timer", "A1")], True),  # put off
        ([("bills", "A1")], False),
        ([("orders", "B2")], False),
        ([("orders", "B2"), ("orders", "A1")], True),
    ],
)
def test_what_counts_as_delivered_before_a_stop_is_believed_if_the_log_has_a_copy_behind_it(
    bench: Any, timers: Timers, copies: list[tuple[str, str]], there: bool
) -> None:
    stored(bench, "orders", "A1")  # one before it is another message: its producer sent it twice
    waiting = stored(bench, "rmq_sys_wheel_timer", "A1", "orders")
    for topic, key in copies:
        stored(bench, topic, key)
    assert timers._has_copy(Due(waiting, 1, 1_000, 0, True)) is there


def test_what_has_no_key_or_is_gone_cannot_be_found_and_counts_as_not_delivered(
    bench: Any, timers: Timers
) -> None:
    waiting = stored(bench, "rmq_sys_wheel_timer", "", "orders")
    stored(bench, "orders", "")
    assert timers._has_copy(Due(waiting, 1, 1_000, 0, True)) is False
    assert timers._has_copy(Due(1 << 40, 1, 1_000, 0, True)) is False
