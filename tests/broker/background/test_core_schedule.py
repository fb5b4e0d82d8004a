# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aerobee.broker.background import schedule as schedule_module
from aerobee.broker.background.schedule import Schedule
from aerobee.broker.background.timers import Timers
from aerobee.errors import DiskFull
from aerobee.protocol import message, names
from aerobee.protocol import properties as props
from aerobee.store.consume_queue import UNIT


@pytest.mark.seed("S004-31", "S004-33")
@pytest.mark.parametrize("level", range(1, 19))
def test_message_of_each_level_is_never_early_and_at_most_a_look_late(
    bench: Any, clock: Any, level: int
) -> None:
    schedule = Schedule(bench.broker.store, bench.broker.stats)
    delay_ms = bench.broker.store.delays[level - 1]
    bench.send(queue_id=2, body=b"later", properties={"DELAY": str(level)})
    clock.advance(delay_ms - 1)
    assert schedule.tick(clock.now()) == 100
    assert bench.records("orders", 2) == []
    clock.advance(1)
    schedule.tick(clock.now())
    (delivered,) = bench.records("orders", 2)
    assert delivered.body == b"later"
    assert delivered.properties["DELAY"] == str(level)  # stays in the text, and delays nothing again
    schedule.tick(clock.now())
    assert len(bench.records("orders", 2)) == 1


def test_delivery_goes_on_where_it_stopped_and_what_fell_due_meanwhile_comes_at_once(
    bench: Any, clock: Any
) -> None:
    schedule = Schedule(bench.broker.store, bench.broker.stats)
    for number in range(3):
        bench.send(body=b"%d" % number, properties={"DELAY": "1"})
    clock.advance(1000)
    schedule.tick(clock.now())
    bench.send(body=b"3", properties={"DELAY": "2"})
    schedule.save()
    bench.restart()
    clock.advance(seconds=60)
    again = Schedule(bench.broker.store, bench.broker.stats)
    again.tick(clock.now())
    assert [record.body for record in bench.records("orders")] == [b"0", b"1", b"2", b"3"]


def test_what_was_delivered_before_the_disk_refused_is_not_delivered_again(
    bench: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, append = Schedule(bench.broker.store, bench.broker.stats), bench.broker.store.append
    for number in range(3):
        bench.send(body=b"%d" % number, properties={"DELAY": "1"})

    def nearly_full(record: Any) -> Any:
        if record.body == b"2":
            raise DiskFull("no space")
        return append(record)

    clock.advance(1000)
    with monkeypatch.context() as patch:
        patch.setattr(bench.broker.store, "append", nearly_full)
        with pytest.raises(DiskFull):
            schedule.tick(clock.now())
    schedule.tick(clock.now())
    assert [record.body for record in bench.records("orders")] == [b"0", b"1", b"2"]


def test_a_hole_that_power_loss_left_in_a_level_delivers_nothing(bench: Any, clock: Any) -> None:
    """Its units are fillers with the place of the message after the hole, which must not come early, nor thrice."""
    schedule = Schedule(bench.broker.store, bench.broker.stats)
    bench.send(properties={"DELAY": "1"})
    queues = bench.broker.store._queues
    queue, unit = queues.obtain(names.SCHEDULE_TOPIC, 0), bench.broker.store.unit(names.SCHEDULE_TOPIC, 0, 0)
    clock.advance(1000)
    schedule.tick(clock.now())
    assert len(bench.records("orders")) == 1
    later = unit._replace(tags_code=clock.now() + 1000)
    queues.put(queue, 3, UNIT.pack(*later))
    schedule.tick(clock.now())
    assert len(bench.records("orders")) == 1
    clock.advance(1000)
    schedule.tick(clock.now())
    assert len(bench.records("orders")) == 2


@pytest.mark.seed("S004-3")
def test_progress_is_kept_in_delay_offset_json(bench: Any, clock: Any) -> None:
    schedule = Schedule(bench.broker.store, bench.broker.stats)
    assert not schedule.unsaved
    bench.send(properties={"DELAY": "1"})
    clock.advance(1000)
    schedule.tick(clock.now())
    schedule.save()
    assert (
        b'"offsetTable":{1:1,2:0,' in (bench.broker.store.root / "config" / "delayOffset.json").read_bytes()
    )
    assert not schedule.unsaved


def test_offsets_outside_the_queue_are_moved_into_it(bench: Any) -> None:
    file = bench.broker.store.root / "config" / "delayOffset.json"
    file.write_text('{"offsetTable":{1:500,2:-3,77:1}}')
    schedule = Schedule(bench.broker.store, bench.broker.stats)
    assert (schedule.offsets[1], schedule.offsets[2]) == (0, 0)
    assert 77 not in schedule.offsets


def test_message_gone_from_the_log_is_skipped(
    bench: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = Schedule(bench.broker.store, bench.broker.stats)
    bench.send(body=b"gone", properties={"DELAY": "1"})
    bench.send(body=b"there", properties={"DELAY": "1"})
    store, lost = bench.broker.store, bench.records("SCHEDULE_TOPIC_XXXX", 0)[0].physical_offset
    read = store.record_at
    monkeypatch.setattr(store, "record_at", lambda at: None if at == lost else read(at))
    clock.advance(1000)
    schedule.tick(clock.now())
    monkeypatch.undo()
    assert [record.body for record in bench.records("orders")] == [b"there"]


def test_clock_set_back_delays_no_message_longer_than_its_level(bench: Any, clock: Any) -> None:
    schedule = Schedule(bench.broker.store, bench.broker.stats)
    bench.send(properties={"DELAY": "3"})
    clock.jump(clock.now() - 3_600_000)
    schedule.tick(clock.now())
    assert len(bench.records("orders")) == 1


def test_full_disk_loses_no_delivery(bench: Any, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Schedule(bench.broker.store, bench.broker.stats)
    bench.send(properties={"DELAY": "1"})
    clock.advance(1000)

    def full(record: Any) -> None:
        raise DiskFull("95 % used")

    with monkeypatch.context() as patch:
        patch.setattr(bench.broker.store, "append", full)
        with pytest.raises(DiskFull):
            schedule.tick(clock.now())
    schedule.tick(clock.now())
    assert len(bench.records("orders")) == 1


def test_many_due_messages_are_delivered_in_turns(
    bench: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_module, "PER_TICK", 4)
    schedule = Schedule(bench.broker.store, bench.broker.stats)
    for _ in range(9):
        bench.send(properties={"DELAY": "1"})
    clock.advance(1000)
    waits = [schedule.tick(clock.now()) for _ in range(3)]
    assert waits == [0, 0, 100]
    assert len(bench.records("orders")) == 9


def test_progress_is_that_of_the_levels_there_are_and_goes_on_counting_its_versions(
    bench: Any, clock: Any
) -> None:
    assert list(Schedule(bench.broker.store, bench.broker.stats).offsets.items()) == [
        (level, 0) for level in range(1, 19)
    ]
    for times in (1, 2):
        schedule = Schedule(bench.broker.store, bench.broker.stats)
        bench.send(properties={"DELAY": "1"})
        clock.advance(1000)
        schedule.tick(clock.now())
        schedule.save()
        stored = schedule_module._decode(
            (bench.broker.store.root / "config" / "delayOffset.json").read_bytes()
        )
        assert stored.data_version.counter == times
        assert stored.offset_table == {1: times, **dict.fromkeys(range(2, 19), 0)}


def test_a_level_that_is_done_asks_for_no_turn_at_once_and_one_with_more_does(
    bench: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_module, "PER_TICK", 2)
    schedule = Schedule(bench.broker.store, bench.broker.stats)
    for level in ("1", "2"):
        for _ in range(2):
            bench.send(properties={"DELAY": level})
    bench.send(properties={"DELAY": "1"})
    clock.advance(seconds=10)
    assert [schedule.tick(clock.now()), schedule.offsets[1], schedule.offsets[2]] == [0, 2, 2]
    assert [schedule.tick(clock.now()), schedule.offsets[1], schedule.offsets[2]] == [100, 3, 2]


@pytest.mark.parametrize("asked", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "900"}])
def test_a_copy_has_one_record_check_which_is_of_itself(
    bench: Any, clock: Any, asked: dict[str, str]
) -> None:
    broker = bench.broker
    bench.send(body=b"later", properties={**asked, "KEYS": "k"})
    schedule, timers = Schedule(broker.store, broker.stats), Timers(broker.store, broker.stats, clock)
    for _ in range(40):
        schedule.tick(clock.now())
        timers.tick(clock.now())
        clock.advance(100)
    timers.close()
    (raw,) = bench.pull().messages
    message.verify(raw)
    assert bytes(raw).count(props.RECORD_CRC.encode()) == 1


@pytest.mark.parametrize("asked", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "900"}])
def test_a_copy_takes_no_check_along_when_none_are_written_any_more(
    bench: Any, clock: Any, asked: dict[str, str]
) -> None:
    """One of the waiting record does not hold for its copy, which would count as damaged."""
    bench.send(body=b"later", properties={**asked, "KEYS": "k"})
    bench._store = msgspec.structs.replace(bench._store, record_check=False)
    bench.restart()
    broker = bench.broker
    schedule, timers = Schedule(broker.store, broker.stats), Timers(broker.store, broker.stats, clock)
    for _ in range(40):
        schedule.tick(clock.now())
        timers.tick(clock.now())
        clock.advance(100)
    timers.close()
    (raw,) = bench.pull().messages
    message.verify(raw)
    assert props.RECORD_CRC.encode() not in bytes(raw)
