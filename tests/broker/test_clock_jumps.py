# SPDX-License-Identifier: Apache-2.0
"""The machine's clock is set while things wait: whatever waits goes on as if nothing had happened."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.broker.background.revive import Revive
from aerobee.broker.background.schedule import Schedule
from aerobee.broker.background.timers import Timers
from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations.ack import Ack, ack
from aerobee.broker.operations.check_transaction import check_transactions
from aerobee.broker.operations.pop import Pop, Popped, pop
from aerobee.broker.operations.recall import Recall, recall
from aerobee.protocol import names
from aerobee.protocol.recall_handle import recall_handle
from aerobee.protocol.receipt import Receipt
from aerobee.store.results import Boundary

HOUR = 3_600_000


class Producer:
    """Online; what it is asked does not matter here."""

    remote_text, is_open = "10.0.0.9:50001", True
    attributes: dict[str, Any] = {"language": "JAVA", "version": 479}  # noqa: RUF012

    def send(self, command: object) -> None: ...


JUMPS = pytest.mark.parametrize("jump", [-2 * HOUR - 137, 2 * HOUR + 137, -24 * HOUR, 24 * HOUR, 400, -400])


class Run:
    """A broker with its background jobs, driven by hand."""

    def __init__(self, bench: Any) -> None:
        self.bench, self.clock = bench, bench.clock
        self._start()

    def _start(self) -> None:
        self.broker = self.bench.broker
        self.broker.topics.ensure("orders", 1)
        self.broker.groups.require("billing")
        self.revive, self.schedule = Revive(self.broker), Schedule(self.broker.store, self.broker.stats)
        self.timers = Timers(self.broker.store, self.broker.stats, self.clock)

    def restart(self) -> None:
        self.revive.close()
        self.schedule.save()
        self.timers.close()
        self.bench.restart()
        self._start()

    def set_clock(self, jump: int) -> None:
        self.clock.set_wall(self.clock.wall() + jump)

    def wait(self, ms: int) -> None:
        end = self.clock.now() + ms
        while True:
            for job in (self.revive, self.schedule, self.timers):
                while job.tick(self.clock.now()) == 0:
                    pass
            check_transactions(self.clock.now(), self.broker)
            if self.clock.now() >= end:
                return
            self.clock.advance(min(100, end - self.clock.now()))

    def bodies(self, topic: str = "orders") -> list[bytes]:
        return [record.body for record in self.bench.records(topic)]

    def pop(self, **more: Any) -> Popped:
        request = Pop("billing", "orders", Start.MIN, born_time=self.clock.wall(), **more)
        popped = pop(request, self.broker)
        assert isinstance(popped, Popped)
        return popped


@pytest.fixture
def run(bench: Any) -> Any:
    made = Run(bench)
    yield made
    made.timers.close()


@JUMPS
def test_a_lease_ends_when_it_was_to(run: Run, jump: int) -> None:
    run.bench.send(body=b"a")
    assert len(run.pop(invisible_ms=3_000).messages) == 1
    run.wait(1_000)
    run.set_clock(jump)
    run.wait(1_900)
    assert run.pop().messages == []
    run.wait(400)
    assert len(run.pop().messages) == 1


@JUMPS
def test_a_lease_in_the_log_and_one_made_after_the_jump_end_when_they_were_to(run: Run, jump: int) -> None:
    run.bench.send(body=b"a")
    run.pop(invisible_ms=8_000)
    run.wait(4_000)
    run.set_clock(jump)
    run.bench.send(body=b"b")
    run.pop(invisible_ms=8_000)
    retry = names.pop_retry_topic("orders", "billing")
    run.wait(3_900)
    assert run.bodies(retry) == []
    run.wait(400)
    assert run.bodies(retry) == [b"a"]
    run.wait(3_600)
    assert run.bodies(retry) == [b"a"]
    run.wait(500)
    assert run.bodies(retry) == [b"a", b"b"]


@JUMPS
def test_a_receipt_of_before_the_jump_still_acks(run: Run, jump: int) -> None:
    run.bench.send(body=b"a")
    popped = run.pop(invisible_ms=60_000)
    run.set_clock(jump)
    receipt = Receipt(0, popped.pop_time, 60_000, popped.revive_queue, "0", "broker-a", 0, 0)
    ack(Ack("billing", "orders", 0, 0, receipt), run.broker)
    run.clock.advance(60_000)
    run.wait(1_000)
    assert run.bodies(names.pop_retry_topic("orders", "billing")) == []
    assert run.broker.offsets.get("billing", "orders", 0) == 1


@JUMPS
def test_an_ordered_queue_is_free_when_it_was_to_be(run: Run, jump: int) -> None:
    run.bench.send(body=b"a")
    run.pop(ordered=True, queue_id=0, invisible_ms=3_000)
    run.wait(1_000)
    run.set_clock(jump)
    run.wait(1_900)
    assert run.pop(ordered=True, queue_id=0).messages == []
    run.wait(200)
    assert len(run.pop(ordered=True, queue_id=0).messages) == 1


@JUMPS
def test_delay_levels_take_their_time(run: Run, jump: int) -> None:
    run.bench.send(body=b"before", properties={"DELAY": "2"})
    run.wait(3_000)
    run.set_clock(jump)
    run.bench.send(body=b"after", properties={"DELAY": "2"})
    run.wait(1_800)
    assert run.bodies() == []
    run.wait(400)
    assert run.bodies() == [b"before"]
    run.wait(2_700)
    assert run.bodies() == [b"before"]
    run.wait(400)
    assert run.bodies() == [b"before", b"after"]


@JUMPS
@pytest.mark.parametrize("asked", [{"TIMER_DELAY_MS": "4000"}, {"TIMER_DELAY_SEC": "4"}])
def test_a_timer_set_as_a_delay_takes_its_time(run: Run, jump: int, asked: dict[str, str]) -> None:
    run.bench.send(body=b"before", properties=asked)
    run.wait(1_000)
    run.set_clock(jump)
    run.bench.send(body=b"after", properties=asked)
    run.wait(2_900)
    assert run.bodies() == []
    run.wait(2_200)
    assert b"before" in run.bodies()
    run.wait(1_200)
    assert sorted(run.bodies()) == [b"after", b"before"]
    run.wait(6_000)
    assert len(run.bodies()) == 2


@pytest.mark.parametrize("jump", [-2 * HOUR - 137, -24 * HOUR])
def test_a_timer_set_to_a_time_is_not_late_for_a_clock_set_back(run: Run, jump: int) -> None:
    run.bench.send(body=b"a", properties={"TIMER_DELIVER_MS": str(run.clock.wall() + 4_000)})
    run.wait(1_000)
    run.set_clock(jump)
    run.wait(2_900)
    assert run.bodies() == []
    run.wait(2_200)
    assert run.bodies() == [b"a"]
    run.set_clock(-jump)
    run.wait(5_000)
    assert run.bodies() == [b"a"]


def test_a_timer_set_to_a_time_comes_at_that_time_of_a_corrected_clock(run: Run) -> None:
    """Two hours slow, then put right: noon is when the clock says noon."""
    noon = run.clock.wall() + 3 * HOUR
    run.bench.send(body=b"noon", properties={"TIMER_DELIVER_MS": str(noon)})
    run.wait(1_000)
    run.set_clock(2 * HOUR)
    run.clock.advance(noon - run.clock.wall() - 200)
    run.wait(100)
    assert run.bodies() == []
    run.wait(1_200)
    assert run.bodies() == [b"noon"]


@JUMPS
def test_a_timer_set_to_a_time_after_the_jump_is_by_the_new_clock(run: Run, jump: int) -> None:
    run.set_clock(jump)
    run.wait(100)
    run.bench.send(body=b"a", properties={"TIMER_DELIVER_MS": str(run.clock.wall() + 4_000)})
    run.wait(3_900)
    assert run.bodies() == []
    run.wait(1_300)
    assert run.bodies() == [b"a"]


@JUMPS
def test_after_a_restart_times_are_read_by_the_wall_clock(run: Run, jump: int) -> None:
    begin = run.clock.wall()
    run.bench.send(body=b"old", properties={"TIMER_DELIVER_MS": str(begin + 4 * HOUR)})
    run.wait(100)
    run.set_clock(jump)
    new = run.clock.wall() + 60_000
    run.bench.send(body=b"new", properties={"TIMER_DELIVER_MS": str(new)})
    run.wait(100)
    run.restart()
    run.clock.advance(new - run.clock.wall() - 200)
    run.wait(100)
    was_due = begin + 4 * HOUR < run.clock.wall()
    assert run.bodies() == [b"old"] * was_due
    run.wait(1_300)
    assert run.bodies() == [b"old"] * was_due + [b"new"]
    if not was_due:
        run.clock.advance(begin + 4 * HOUR - run.clock.wall() - 200)
        run.wait(100)
        assert run.bodies() == [b"new"]
        run.wait(1_300)
        assert run.bodies() == [b"new", b"old"]


def test_a_clock_corrected_while_the_broker_was_down_makes_no_timer_early(run: Run) -> None:
    begin = run.clock.wall()
    run.bench.send(body=b"a", properties={"TIMER_DELIVER_MS": str(begin + 3 * HOUR)})
    run.wait(100)
    run.set_clock(-2 * HOUR)
    run.wait(2_000)
    run.restart()
    run.set_clock(2 * HOUR)
    run.clock.advance(begin + 3 * HOUR - run.clock.wall() - 200)
    run.wait(100)
    assert run.bodies() == []
    run.wait(1_300)
    assert run.bodies() == [b"a"]


@pytest.mark.parametrize(("waits", "lag"), [(True, 2 * HOUR), (False, 0)])
def test_a_wheel_is_ahead_of_a_clock_that_was_set_back_as_long_as_anything_waits_in_it(
    run: Run, waits: bool, lag: int
) -> None:
    run.bench.send(body=b"a", properties={"TIMER_DELAY_MS": "4000"})
    run.wait(100)
    run.set_clock(-2 * HOUR)
    run.wait(100 if waits else 6_000)
    assert run.timers._wheel.lag == 2 * HOUR
    run.restart()
    assert run.timers._wheel.lag == lag
    run.wait(100)
    assert run.timers.late_seconds(run.clock.now()) == 0
    assert run.timers.pending == waits


@pytest.mark.parametrize("jump", [-2 * HOUR, HOUR])
def test_a_recall_finds_a_message_of_before_the_jump(run: Run, jump: int) -> None:
    due = run.clock.wall() + 3 * HOUR
    sent = run.bench.send(body=b"a", properties={"TIMER_DELIVER_MS": str(due)})
    run.wait(100)
    run.set_clock(jump)
    handle = recall_handle("orders", "broker-a", sent.timer_out, sent.unique_key)
    recall(Recall("orders", handle), run.broker)
    run.clock.advance(4 * HOUR)
    run.wait(2_000)
    assert run.bodies() == []


def test_a_recall_finds_a_message_that_was_put_back_since(run: Run) -> None:
    """It was early by a clock that was set on; where it waits now is told by its newest copy."""
    sent = run.bench.send(body=b"a", properties={"TIMER_DELAY_SEC": "10800"})
    run.wait(100)
    run.set_clock(4 * HOUR)
    run.wait(100)
    assert len(run.bench.records("rmq_sys_wheel_timer")) == 2
    run.set_clock(-2 * HOUR)
    run.wait(100)
    handle = recall_handle("orders", "broker-a", sent.timer_out, sent.unique_key)
    recall(Recall("orders", handle), run.broker)
    run.clock.advance(4 * HOUR)
    run.wait(2_000)
    assert run.bodies() == []


def test_a_delay_is_not_shorter_for_a_clock_that_was_set_on_and_back_again(run: Run) -> None:
    run.bench.send(body=b"a", properties={"TIMER_DELAY_SEC": "36000"})
    run.wait(100)
    for jump in (4 * HOUR, -HOUR):
        run.set_clock(jump)
        run.wait(100)
    run.clock.advance(10 * HOUR - 1_000)
    run.wait(100)
    assert run.bodies() == []
    run.wait(4_000)
    assert run.bodies() == [b"a"]


@JUMPS
async def test_held_requests_are_answered_when_they_were_to_be(run: Run, jump: int) -> None:
    run.bench.send()
    held_pull = run.bench.hold(offset=1, hold_ms=5_000)
    request = Pop("billing", "orders", Start.MIN, born_time=run.clock.wall(), poll_ms=5_000, queue_id=0)
    run.broker.offsets.set("billing", "orders", 0, 1)
    later: Any = pop(request, run.broker)
    held_pop = asyncio.get_running_loop().create_task(later)
    await asyncio.sleep(0)
    run.set_clock(jump)
    run.clock.advance(4_900)
    await asyncio.sleep(0)
    assert not held_pull.done()
    assert not held_pop.done()
    run.clock.advance(200)
    assert (await held_pull).messages == []
    assert (await held_pop).messages == []


@pytest.mark.parametrize("its_clock_too", [False, True])
@JUMPS
def test_a_client_is_served_whether_its_clock_was_set_too_or_not(
    run: Run, jump: int, its_clock_too: bool
) -> None:
    run.bench.send()
    run.set_clock(jump)
    born = run.clock.wall() if its_clock_too else run.clock.now()
    popped: Any = pop(Pop("billing", "orders", Start.MIN, born_time=born, poll_ms=1_000), run.broker)
    assert len(popped.messages) == 1


@JUMPS
def test_a_half_message_is_asked_about_when_it_was_to_be(run: Run, jump: int) -> None:
    run.broker.clients.register_producer(Producer(), "10.0.0.9@1", "p", run.clock.now())
    run.bench.send(properties={"TRAN_MSG": "true", "PGROUP": "p"})
    run.wait(1_000)
    run.set_clock(jump)
    run.bench.send(properties={"TRAN_MSG": "true", "PGROUP": "p"})
    half = names.HALF_TOPIC
    run.wait(4_800)
    assert len(run.bodies(half)) == 2, "nothing asked yet"
    run.wait(300)
    assert len(run.bodies(half)) == 3
    run.wait(1_100)
    assert len(run.bodies(half)) == 4


def test_store_times_never_go_back_and_searches_by_time_lose_nothing(run: Run) -> None:
    noon = run.clock.wall()
    for number, jump in enumerate((0, 0, -2 * HOUR, 0, 2 * HOUR, 0)):
        run.set_clock(jump)
        run.clock.advance(60_000)
        run.bench.send(body=b"%d" % number)
    times = [record.store_timestamp - noon for record in run.bench.records("orders")]
    assert times == [60_000, 120_000, 120_000, 120_000, 300_000, 360_000]
    found = run.broker.store.offset_by_time("orders", 0, noon + 120_000, Boundary.LOWER)
    assert found == 1, "all that was stored since, the clock set back or not"


def test_a_clock_that_was_wrong_by_days_is_not_waited_for(run: Run) -> None:
    run.bench.send()
    right = run.clock.wall() - 30 * 24 * HOUR
    run.clock.set_wall(right)
    run.bench.send()
    assert run.bench.records("orders")[1].store_timestamp == right
