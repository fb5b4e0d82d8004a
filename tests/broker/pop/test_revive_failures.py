# SPDX-License-Identifier: Apache-2.0
"""The revive job when something goes wrong half way: nothing that was taken up is forgotten, nothing comes twice."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from aerobee.broker.background import revive
from aerobee.broker.background.revive import Revive
from aerobee.broker.delivery.reading import waiting
from aerobee.broker.delivery.redelivery import Expired, redeliver
from aerobee.broker.operations.pop import pop
from aerobee.broker.pop.revive_log import GROUP, pack
from aerobee.broker.state.stats import TOPIC_PUT
from aerobee.errors import DiskFull, MessageIllegal
from aerobee.protocol import message, names
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import GroupConfig, TopicConfig
from aerobee.protocol.message import Record
from aerobee.protocol.receipt import AckRecord, decode_ack
from aerobee.store.results import ReadLimit

RETRY = names.pop_retry_topic("orders", "billing")


def fail_at(monkeypatch: pytest.MonkeyPatch, shop: Any, method: str, number: int) -> None:
    """The given call of the method fails, in a way that is no message's fault."""
    real, calls = getattr(shop.revive, method), []

    def failing(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == number:
            raise MemoryError
        return real(*args)

    monkeypatch.setattr(shop.revive, method, failing)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize(
    ("method", "invisible_ms"), [("_attend_one", 2_000), ("_attend_one", 60_000), ("_expire_one", 10_000)]
)
def test_what_a_failure_left_over_is_taken_up_again_soon(
    shop: Any, monkeypatch: pytest.MonkeyPatch, method: str, invisible_ms: int, number: int
) -> None:
    """Young leases that are due, young ones to be logged, logged ones that are due: three of each, one fails."""
    shop.send(*"abc")
    for _ in range(3):
        shop.pop(max_messages=1, invisible_ms=invisible_ms)
    if method == "_expire_one":
        shop.wait(5_000)
        assert shop.logged == ["ck", "ck", "ck"]
    with monkeypatch.context() as patch:
        fail_at(patch, shop, method, number)
        shop.clock.advance(seconds=10)
        with pytest.raises(MemoryError):
            shop.tick()
    shop.clock.advance(revive.AFTER_ERROR_MS - 1)
    shop.tick()
    soon = len(shop.records(RETRY)) if invisible_ms < 60_000 else shop.logged.count("ck")
    assert soon == number - 1
    shop.clock.advance(1)
    shop.tick()
    done = [record.body for record in shop.records(RETRY)] if invisible_ms < 60_000 else shop.logged
    assert len(done) == len({*done}) == 3 or done == ["ck"] * 3


def test_a_second_of_redeliveries_is_one_line_a_group(shop: Any, caplog: pytest.LogCaptureFixture) -> None:
    shop.send(*"abc")
    shop.pop(max_messages=2, invisible_ms=1_000)
    shop.pop(max_messages=1, invisible_ms=1_000)
    shop.wait(1_200, step=1_200)
    told = [r.getMessage() for r in caplog.records if "not acked in time" in r.getMessage()]
    assert told == ["group=billing topic=orders messages=3: not acked in time, redelivering"]
    shop.wait(400)
    assert caplog.text.count("not acked in time") == 1


@pytest.mark.parametrize("invisible_ms", [1_000, 10_000])
def test_what_was_given_back_with_a_reason_is_no_warning(
    shop: Any, caplog: pytest.LogCaptureFixture, invisible_ms: int
) -> None:
    caplog.set_level("INFO", logger="aerobee.revive")
    shop.send(*"abcd")
    given_back, extended, *_ = shop.pop(invisible_ms=invisible_ms)
    shop.change(given_back, invisible_ms, "no stock")
    shop.change(extended, invisible_ms)
    shop.wait(invisible_ms + 2_000)
    told = {(r.levelname, r.getMessage()) for r in caplog.records if r.name == "aerobee.revive"}
    assert ("INFO", "group=billing topic=orders messages=1: given back by its consumer, redelivering") in told
    late = [message for level, message in told if level == "WARNING"]
    assert sum(int(message.split("messages=")[1].split(":")[0]) for message in late) == 3
    shop.wait(1_000)
    assert caplog.text.count("given back by its consumer") == 1


@pytest.mark.parametrize("invisible_ms", [1_000, 10_000])
@pytest.mark.parametrize("failure", ["", "KeyError: 'card'"])
def test_a_copy_says_why_it_came_back_where_its_consumer_said(
    shop: Any, failure: str, invisible_ms: int
) -> None:
    """From memory and from the log."""
    shop.send("a")
    (one,) = shop.pop(invisible_ms=60_000)
    changed = shop.change(one, invisible_ms, failure)
    shop.wait(12_000)
    (copy,) = shop.records(RETRY)
    told = {props.LAST_ERROR: failure} if failure else {}
    assert copy.properties == {props.FIRST_POP_TIME: str(changed.receipt.pop_time), **told}


def test_the_end_leaves_no_lease_in_memory_only(shop: Any) -> None:
    shop.send(*"ab")
    shop.pop(max_messages=1, invisible_ms=60_000)
    assert shop.logged == []
    shop.revive.close()
    assert shop.logged == ["ck"]


def test_now_and_then_is_as_often_as_it_says_and_a_clock_set_back_starts_anew(shop: Any) -> None:
    job: Any = Revive(shop.broker)
    assert [job._is_time("x", 100, now) for now in (1_000, 1_099, 1_100, 1_150, 1_199, 1_200)] == [
        False,
        False,
        True,
        False,
        False,
        True,
    ]
    assert job._is_time("y", 100, 1_200) is False, "each has its own"
    assert job._is_time("x", 100, 1_199) is True
    assert job._is_time("x", 100, 1_298) is False
    assert job._is_time("x", 100, 1_299) is True


@pytest.mark.parametrize("queue_id", [-1, 2])
async def test_a_held_pop_is_woken_by_a_reset_that_came_another_way(shop: Any, queue_id: int) -> None:
    """The offsets were set by hand, so nobody told those who wait. The queue is one that is only read any more."""
    shop.broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=4, write_queue_nums=1))
    shop.send(*"ab", queue_id=2)
    shop.ack(*shop.pop())
    held = shop.hold(queue_id=queue_id)
    for _ in range(5):
        await asyncio.sleep(0)
    shop.broker.offsets.set_reset("billing", "orders", 2, 0)
    shop.tick()
    shop.clock.advance(revive.COMMIT_MS)
    shop.tick()
    assert [one.body for one in await held] == ["a", "b"]


def test_a_tick_that_had_all_it_may_take_asks_for_the_next_at_once(shop: Any) -> None:
    assert shop.revive.tick(shop.clock.now()) == 200
    shop.send(*(str(i) for i in range(revive.ATTENDED_PER_TICK)))
    for _ in range(revive.ATTENDED_PER_TICK):
        pop(shop.request(max_messages=1, invisible_ms=1_000), shop.broker)
    shop.clock.advance(seconds=2)
    assert shop.revive.tick(shop.clock.now()) == 0
    shop.tick()
    assert len(shop.records(RETRY)) == revive.ATTENDED_PER_TICK


@pytest.mark.parametrize(
    ("waits_for", "reset", "woken"),
    [(-1, 0, True), (-1, 3, True), (0, 0, True), (0, 2, False), (2, 2, True), (2, 0, False)],
)
async def test_a_reset_wakes_those_who_wait_for_its_queue(
    shop: Any, waits_for: int, reset: int, woken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = shop.hold(queue_id=waits_for)
    for _ in range(5):
        await asyncio.sleep(0)
    shop.broker.offsets.set_reset("billing", "orders", reset, 0)
    seen: list[Any] = []
    monkeypatch.setattr(shop.broker.pops.parked, "wake", lambda *place: seen.append(place))
    shop.revive._wake_reset()
    assert seen == ([("orders", "billing", waits_for)] if woken else [])
    held.cancel()


@pytest.mark.seed("S000-51")
@pytest.mark.parametrize(("count", "woken"), [(2, False), (3, True)])
def test_who_leaves_something_wakes_one_who_waits_and_who_takes_all_does_not(
    shop: Any, count: int, woken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.send(*"abc"[:count])
    seen: list[Any] = []
    monkeypatch.setattr(shop.broker.pops.parked, "wake", lambda *place: seen.append(place))
    shop.popped(max_messages=2, queue_id=0)
    shop.popped(max_messages=2, queue_id=1)  # nothing there
    assert seen == ([("orders", "billing", 0)] if woken else [])


@pytest.mark.parametrize("invisible_ms", [2_000, 8_000], ids=["in memory", "in the log"])
def test_a_lease_that_cannot_be_handled_is_stepped_over_for_good(
    shop: Any, monkeypatch: pytest.MonkeyPatch, invisible_ms: int
) -> None:
    def broken(expired: Any, broker: Any) -> int:
        raise ValueError("nobody can read it")

    shop.send("a")
    shop.pop(invisible_ms=invisible_ms)
    with monkeypatch.context() as patch:
        patch.setattr(revive, "redeliver", broken)
        shop.wait(9_000)
    assert shop.broker.stats.skipped.count == 1
    shop.wait(60_000, step=1_000)
    assert (shop.broker.stats.skipped.count, shop.records(RETRY)) == (1, [])
    assert shop.broker.pops.leases.log.behind == 0 if invisible_ms > 3_000 else shop.in_flight == 0


def test_a_lease_whose_place_in_the_log_is_gone_is_told_of_once(
    shop: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no record that could not be handled: there is none."""
    shop.send("a")
    shop.pop(invisible_ms=8_000)
    shop.wait(4_000)
    log, store = shop.broker.pops.leases.log, shop.broker.store
    record_of = store.record_of
    with monkeypatch.context() as patch:
        patch.setattr(
            store, "record_of", lambda topic, *at: record_of(topic, *at) if topic != log.topic else None
        )
        shop.wait(10_000)
    told = [record.message for record in caplog.records if "not redelivered" in record.message]
    assert len(told) == 1
    assert (shop.broker.stats.skipped.count, shop.records(RETRY), log.behind) == (0, [], 0)


@pytest.mark.seed("S000-18")
def test_a_lease_comes_back_in_the_moment_it_ends(shop: Any) -> None:
    shop.send("a")
    shop.pop(invisible_ms=2_000)
    shop.clock.advance(1_999)
    shop.tick()
    assert shop.records(RETRY) == []
    shop.clock.advance(1)
    shop.tick()
    assert [record.body for record in shop.records(RETRY)] == [b"a"]


@pytest.mark.seed("S000-30")
def test_the_end_of_a_logged_lease_is_written_where_its_beginning_is(shop: Any) -> None:
    """RocketMQ reads each queue of the log by itself."""
    shop.send(*"abcdef")
    for _ in "abcdef":
        shop.pop(max_messages=1, invisible_ms=8_000)
    shop.wait(9_000)
    topic = shop.broker.pops.leases.log.topic
    tags = [[record.tags for record in shop.records(topic, queue_id)] for queue_id in range(8)]
    assert sorted(tags) == [[]] * 2 + [["ck", "ack"]] * 6


def test_the_end_says_how_far_the_log_is_done_with(shop: Any) -> None:
    shop.send("a")
    shop.pop(invisible_ms=8_000)
    shop.wait(7_900, step=100)
    log = shop.broker.pops.leases.log
    behind = log.behind
    shop.clock.advance(100)
    shop.tick()
    assert len(shop.records(RETRY)) == 1
    assert log.behind > behind, "its end is written, and nobody was told yet"
    shop.revive.close()
    assert log.behind == 0


def test_a_message_that_is_younger_than_its_lease_is_another(shop: Any) -> None:
    """Its topic was deleted and made again since."""
    shop.send("a")
    (record,) = shop.records("orders")
    for logged_at, copies in ((record.physical_offset, 0), (record.physical_offset + 1, 1), (None, 1)):
        expired = Expired("orders", "billing", 0, shop.clock.wall(), [0], logged_at)
        assert redeliver(expired, shop.broker) == copies, logged_at


def test_a_lease_stays_in_the_log_until_its_group_is_past_it(shop: Any) -> None:
    """Else a crash would deliver again what has come back already."""
    shop.send(*"ab")
    shop.pop(invisible_ms=8_000)
    shop.wait(4_000)
    lane, log = shop.broker.pops.leases.in_flight.lane("orders", "billing", 0), shop.broker.pops.leases.log
    shop.broker.offsets.set("billing", "orders", 0, 1)
    lane.skip.add(1)  # as after a start that found a gap before it
    shop.wait(10_000)
    assert len(shop.records(RETRY)) == 2
    assert log.behind > 0
    shop.broker.offsets.set("billing", "orders", 0, 2)
    lane.skip.clear()
    shop.wait(3_000)
    assert log.behind == 0
    assert len(shop.records(RETRY)) == 2


def test_a_batch_is_not_a_day_old_because_the_clock_was_set(shop: Any) -> None:
    shop.send("a")
    (one,) = shop.pop(ordered=True, queue_id=0, invisible_ms=600_000)
    shop.clock.set_wall(shop.clock.wall() + 30 * 24 * 3_600_000)
    shop.wait(150_000, step=30_000)
    assert shop.pop(ordered=True, queue_id=0) == [], "it is out for ten minutes"
    shop.ack(one)
    assert shop.committed() == 1


def test_batches_that_nobody_asks_for_go_by_the_clock_they_are_stamped_with(shop: Any) -> None:
    shop.clock.set_wall(shop.clock.wall() + 30 * 24 * 3_600_000)
    shop.send("a")
    shop.pop(ordered=True, queue_id=0)
    shop.clock.advance(hours=23)
    shop.wait(150_000, step=30_000)
    assert shop.broker.pops.orders.keys() == [("orders", "billing", 0)]
    shop.clock.advance(hours=1)
    shop.wait(150_000, step=30_000)
    assert shop.broker.pops.orders.keys() == []


def test_of_messages_that_do_not_fit_together_each_that_can_comes_back_and_is_counted(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.send(*"abc")
    shop.pop(max_messages=3, invisible_ms=2_000)
    store, append = shop.broker.store, shop.broker.store.append

    def one(record: Any) -> None:
        if record.body == b"b":
            raise MessageIllegal("too large")
        append(record)

    def together(records: list[Any]) -> None:
        raise MessageIllegal("too large together")

    before = shop.broker.stats.put_count
    with monkeypatch.context() as patch:
        patch.setattr(store, "append_batch", together)
        patch.setattr(store, "append", one)
        shop.wait(4_000)
    copies = shop.records(RETRY)
    assert [record.body for record in copies] == [b"a", b"c"]
    assert shop.broker.stats.skipped.count == 1
    meter = dict(shop.broker.stats.meters(TOPIC_PUT))[RETRY]
    assert (meter.count, meter.size_bytes) == (2, sum(record.size for record in copies))
    assert shop.broker.stats.put_count == before + 2


def test_a_queue_in_which_nothing_is_leased_takes_no_memory(shop: Any) -> None:
    lanes = shop.broker.pops.leases.in_flight.lanes
    shop.send("a")
    shop.send("b", queue_id=1)
    shop.ack(*shop.pop(queue_id=0))
    shop.pop(queue_id=1, invisible_ms=600_000)
    shop.wait(2 * revive.SWEEP_MS, step=1_000)
    assert list(lanes) == [("orders", "billing", 1)]


def test_a_tick_that_logged_or_redelivered_all_it_may_asks_for_the_next_at_once(shop: Any) -> None:
    """Else a broker would log a few hundred leases a second, and no more."""
    shop.send(*(str(i) for i in range(revive.ATTENDED_PER_TICK)))
    for _ in range(revive.ATTENDED_PER_TICK):
        pop(shop.request(max_messages=1, invisible_ms=60_000), shop.broker)
    shop.clock.advance(seconds=10)
    assert shop.revive.tick(shop.clock.now()) == 0
    assert len(shop.logged) == revive.ATTENDED_PER_TICK
    assert shop.revive.tick(shop.clock.now()) == 200
    shop.clock.advance(seconds=51)
    for number in range(1, revive.ATTENDED_PER_TICK // revive.REDELIVERED_PER_TICK + 1):
        assert shop.revive.tick(shop.clock.now()) == 0
        assert len(shop.records(RETRY)) == number * revive.REDELIVERED_PER_TICK
    assert shop.revive.tick(shop.clock.now()) == 200


def test_a_tick_that_read_all_it_may_of_the_log_asks_for_the_next_at_once(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What RocketMQ's timer delivers comes in heaps."""
    monkeypatch.setattr(revive, "READ_PER_TICK", 2)
    log = shop.broker.pops.leases.log
    shop.tick()
    for number in range(5):
        shop.broker.store.append(Record(log.topic, b"%d" % number, "TAGS\x01other\x02", number % 2))
    assert [shop.revive.tick(shop.clock.now()) for _ in range(4)] == [0, 0, 200, 200]


class Refusing:
    """The revive log takes nothing while this lasts; how often it was asked to."""

    def __init__(self, shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        monkeypatch.setattr(shop.broker.pops.leases.log, "write_checkpoint", self._write)

    def _write(self, *_args: Any) -> int:
        self.asked += 1
        raise DiskFull("no space")


def bodies(shop: Any) -> list[bytes]:
    return [record.body for record in shop.records(RETRY)]


def test_a_message_logged_with_its_batch_in_the_moment_it_is_due_comes_back_once(shop: Any) -> None:
    shop.send(*"ab")
    _, longer = shop.pop(invisible_ms=1_000)
    shop.clock.advance(500)
    shop.change(longer, 2_000)
    shop.clock.advance(2_500)
    for _ in range(3):
        shop.tick()
        shop.clock.advance(1_000)
    assert sorted(bodies(shop)) == [b"a", b"b"]


def test_a_lease_put_off_twice_is_attended_to_once(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its batch, and for itself."""
    shop.send(*"ab")
    _, sooner = shop.pop(invisible_ms=10_000)
    shop.clock.advance(1_000)
    shop.change(sooner, 8_000)
    with monkeypatch.context() as patch:
        Refusing(shop, patch)
        shop.wait(11_000)
    shop.wait(25_000)
    assert sorted(bodies(shop)) == [b"a", b"b"]
    assert shop.broker.stats.skipped.count == 0


def test_a_batch_does_not_come_back_before_what_was_split_off_it_is_in_the_log(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says of that message that it has no more to do with it: after a crash nobody would have."""
    shop.send(*"ab")
    _, longer = shop.pop(invisible_ms=1_000)
    shop.change(longer, 60_000)
    with monkeypatch.context() as patch:
        refusing = Refusing(shop, patch)
        shop.wait(2_000)
        assert (refusing.asked > 0, bodies(shop)) == (True, [])
    shop.wait(revive.AFTER_ERROR_MS + 1_000)
    assert bodies(shop) == [b"a"]
    shop.crash()
    assert [one.body for one in shop.pop(invisible_ms=600_000)] == ["a"], "both originals are spoken for"
    shop.wait(60_000)
    assert bodies(shop) == [b"a", b"b"]


def test_a_disk_that_refused_is_asked_to_make_room_once_a_second(
    make_shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = make_shop(pop_checkpoint_cap=2)
    shop.send(*"abcdef")
    for _ in range(2):
        assert shop.pop(max_messages=1)
    refusing = Refusing(shop, monkeypatch)
    assert shop.pop(max_messages=1) == []
    asked = refusing.asked
    assert asked > 0
    for _ in range(3):
        assert shop.pop(max_messages=1) == []
    assert refusing.asked == asked
    shop.clock.advance(1_000)
    assert shop.pop(max_messages=1) == []
    assert refusing.asked > asked


def test_a_lease_whose_place_in_the_log_is_gone_keeps_nothing_in_it(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.send("a")
    shop.pop(invisible_ms=8_000)
    shop.wait(4_000)
    log = shop.broker.pops.leases.log
    assert log.behind == 1
    monkeypatch.setattr(log, "checkpoint_at", lambda position: None)
    shop.wait(10_000)
    assert log.behind == 0


def test_what_comes_back_from_the_log_says_where_it_stands_there(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message behind that place is another one, of a topic made anew."""
    expired: list[Expired] = []

    def noted(one: Expired, broker: Any) -> int:
        expired.append(one)
        return redeliver(one, broker)

    monkeypatch.setattr(revive, "redeliver", noted)
    shop.send(*"ab")
    shop.pop(max_messages=1, invisible_ms=1_000)
    shop.pop(max_messages=1, invisible_ms=8_000)
    shop.wait(10_000)
    topic = shop.broker.pops.leases.log.topic
    (logged,) = [
        r for q in range(8) for r in shop.records(topic, q) if b'"so":1' in r.body and r.tags == "ck"
    ]
    assert [one.logged_at for one in expired] == [None, logged.physical_offset]


def test_a_lease_made_longer_in_the_log_outlives_the_end_of_the_old_one(shop: Any) -> None:
    shop.send("a")
    (one,) = shop.pop(invisible_ms=10_000)
    shop.wait(4_000)
    shop.change(one, 60_000)
    shop.wait(15_000)
    assert shop.committed() == 1
    shop.broker.offsets.save()
    shop.crash()
    shop.wait(60_000)
    assert bodies(shop) == [b"a"]


@pytest.mark.seed("S000-31")
def test_the_log_is_done_with_up_to_the_first_that_is_not(shop: Any) -> None:
    log = shop.broker.pops.leases.log
    log._read[0] = 700
    for offset in (10, 20, 300):
        log.pending(pack(0, offset))
    behind = []
    for offset in (20, 300, 10):
        log.done(pack(0, offset))
        log.commit()
        behind.append(shop.broker.offsets.get(GROUP, log.topic, 0))
    assert behind == [-1, -1, 699]
    log._read[0] = 800
    log.pending(pack(0, 700))
    log.pending(pack(0, 790))
    log.done(pack(0, 700))
    log.commit()
    assert shop.broker.offsets.get(GROUP, log.topic, 0) == 767, "by blocks of 256"


def test_what_a_dead_letter_was_told_of_its_origin_before_stays(shop: Any) -> None:
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=0))
    shop.send("a", UNIQ_KEY="AB12", **{props.RETRY_TOPIC: "elsewhere", props.DLQ_ORIGIN_TOPIC: "there"})
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    (dead,) = shop.records(names.dead_letter_topic("billing"))
    assert dead.properties[props.RETRY_TOPIC] == "elsewhere"
    assert dead.properties[props.DLQ_ORIGIN_TOPIC] == "there"
    for name in (props.RETRY_TOPIC, props.DLQ_ORIGIN_TOPIC, props.DLQ_ORIGIN_MESSAGE_ID):
        assert dead.properties_text.count(f"{name}\x01") == 1, name


def test_a_reset_on_a_full_disk_reads_again_from_there(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.send(*"abc")
    shop.pop()
    shop.clock.advance(1)
    Refusing(shop, monkeypatch)
    shop.broker.pops.reset("orders", "billing", 0, 1)
    assert [one.body for one in shop.pop()] == ["b", "c"]


def test_a_lease_made_anew_by_a_clock_that_was_set_back_takes_no_others_place(shop: Any) -> None:
    shop.send(*"ab")
    first, second = shop.pop(invisible_ms=60_000)
    shop.clock.advance(2_000)
    later = shop.change(first, 60_000)
    shop.clock.set_wall(shop.clock.wall() - 2_000)
    latest = shop.change(later, 60_000)
    assert latest.receipt.pop_time == first.receipt.pop_time + 1
    shop.ack(second, latest)
    assert (shop.in_flight, shop.committed()) == (0, 2)


@pytest.mark.seed("S000-30")
@pytest.mark.parametrize("acked", [1, 2])
def test_an_ack_says_in_the_log_when_its_lease_would_have_ended(shop: Any, acked: int) -> None:
    """By it RocketMQ's reader knows up to when it has seen everything."""
    shop.send(*"abc")
    messages = shop.pop(invisible_ms=60_000)
    shop.wait(4_000)
    receipt = messages[0].receipt
    shop.broker.pops.leases.ack(("orders", "billing", 0), receipt, (1 << acked) - 1, shop.clock.now())
    topic = shop.broker.pops.leases.log.topic
    (ack,) = [r for q in range(8) for r in shop.records(topic, q) if r.tags != "ck"]
    assert ack.properties[props.TIMER_OUT_MS] == str(receipt.pop_time + 60_000)
    assert decode_ack(ack.body).broker_name == shop.broker.config.name


def test_dead_letters_are_counted_for_the_topic_they_were_sent_to(shop: Any) -> None:
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=1))
    shop.send("a")
    for _ in range(2):
        assert shop.pop(invisible_ms=1_000)
        shop.wait(2_000)
    counted = shop.broker.stats.counted
    assert (counted.dead, counted.retried) == ({("billing", "orders"): 1}, {("billing", "orders"): 1})


def test_an_ack_moves_no_group_back_that_was_moved_on(shop: Any) -> None:
    shop.send(*"abc")
    one, *_ = shop.pop(max_messages=1)
    shop.broker.offsets.set("billing", "orders", 0, 3)
    shop.ack(one)
    assert shop.committed() == 3


def test_a_lease_that_came_back_from_memory_leaves_nothing_to_be_read_in_the_log(shop: Any) -> None:
    shop.send("a")
    shop.pop(invisible_ms=1_000)
    shop.wait(2_000)
    log = shop.broker.pops.leases.log
    assert shop.logged == ["ck"]
    shop.wait(3_000)
    assert log.behind == 0


def test_a_handle_from_before_there_were_fewer_queues_is_written_to_one_there_is(shop: Any) -> None:
    log = shop.broker.pops.leases.log
    log.write_ack(11, AckRecord(topic="orders", group="billing", queue_id=0), shop.clock.now(), 0)
    assert [len(shop.records(log.topic, queue_id)) for queue_id in range(12)] == [0] * 3 + [1] + [0] * 8


def test_what_waits_begins_where_the_group_was_moved_on_to(shop: Any) -> None:
    shop.send(*"abcde")
    shop.pop(max_messages=1)
    assert waiting("orders", "billing", [0], shop.broker) == 4
    shop.broker.offsets.set("billing", "orders", 0, 3)
    assert waiting("orders", "billing", [0], shop.broker) == 2


@pytest.mark.parametrize("invisible_ms", [1_000, 8_000])
def test_what_comes_back_has_one_record_check_which_is_of_itself(shop: Any, invisible_ms: int) -> None:
    shop.send("a", tags="t")
    for _ in range(2):
        shop.pop(invisible_ms=invisible_ms)
        shop.wait(10_000)
    for raw in shop.broker.store.read(RETRY, 0, 0, ReadLimit(2, 10_000)).messages:
        message.verify(raw)
        assert bytes(raw).count(props.RECORD_CRC.encode()) == 1


def test_at_the_end_each_lease_is_written_once(shop: Any) -> None:
    """Also one split off a batch, which goes before it."""
    shop.send(*"ab")
    _, longer = shop.pop(invisible_ms=10_000)
    shop.change(longer, 60_000)
    shop.broker.pops.leases.journal_all(None, shop.clock.now())
    assert shop.logged == ["ck", "ck"]
    assert shop.broker.pops.leases.in_flight.young == 0


@pytest.mark.parametrize("invisible_ms", [1_000, 60_000])
@pytest.mark.parametrize("retries", [16, 0])
def test_what_comes_back_takes_no_check_along_when_none_are_written_any_more(
    shop: Any, invisible_ms: int, retries: int
) -> None:
    """Nor does a dead letter: it would count as damaged."""
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=retries))
    shop.send("a", tags="t")
    shop.pop(invisible_ms=invisible_ms)
    shop._store = msgspec.structs.replace(shop._store, record_check=False)
    shop.restart()
    shop.wait(invisible_ms + 2_000)
    topic = RETRY if retries else names.dead_letter_topic("billing")
    (raw,) = shop.broker.store.read(topic, 0, 0, ReadLimit(2, 10_000)).messages
    message.verify(raw)
    assert props.RECORD_CRC.encode() not in bytes(raw)


@pytest.mark.parametrize("logged", [False, True])
def test_a_time_changed_for_what_is_acked_leases_nothing(shop: Any, logged: bool) -> None:
    shop.send("a")
    (one,) = shop.pop(invisible_ms=60_000)
    if logged:
        shop.wait(4_000)
    shop.ack(one)
    shop.change(one, 1_000)
    assert shop.in_flight == 0
    shop.wait(70_000)
    assert shop.records(RETRY) == []


def test_a_retry_topic_is_read_on_where_its_group_is(shop: Any) -> None:
    for body in "ab":
        shop.send(body)
        assert [one.body for one in shop.pop(max_messages=1, invisible_ms=1_000)] == [body]
        shop.wait(2_000)
        (retry,) = shop.pop()
        assert retry.topic == RETRY
        shop.ack(retry)
    assert (shop.committed(topic=RETRY), shop.pop()) == (2, [])


def test_a_queue_that_a_restart_has_not_passed_yet_is_not_forgotten(shop: Any) -> None:
    """What the log spoke for is not read again when the group's offset comes to it."""
    lanes = shop.broker.pops.leases.in_flight
    lanes.lane("orders", "billing", 0).skip.add(1)
    lanes.sweep()
    assert list(lanes.lanes) == [("orders", "billing", 0)]


def test_a_group_that_is_ahead_of_a_queue_takes_nothing_off_what_waits_in_others(shop: Any) -> None:
    shop.send("a")
    shop.send(*"bcd", queue_id=1)
    shop.broker.offsets.set("billing", "orders", 0, 10)
    assert waiting("orders", "billing", [0, 1], shop.broker) == 3


@pytest.mark.parametrize("jump", [-3_600_000, 3_600_000])
@pytest.mark.parametrize("logged", [False, True])
def test_a_time_changed_since_the_clock_was_set_is_as_long_as_it_says(
    shop: Any, jump: int, logged: bool
) -> None:
    shop.clock.set_wall(shop.clock.wall() + jump)
    shop.send("a")
    (one,) = shop.pop(invisible_ms=60_000)
    if logged:
        shop.wait(4_000)
    shop.change(one, 2_000)
    shop.clock.advance(1_999)
    shop.tick()
    assert bodies(shop) == []
    shop.clock.advance(201)
    shop.tick()
    assert bodies(shop) == [b"a"]


def test_the_logs_offset_never_goes_back_and_is_written_only_when_it_moved(shop: Any) -> None:
    """It is told by blocks, and may stand within one."""
    log, offsets = shop.broker.pops.leases.log, shop.broker.offsets
    offsets.set(GROUP, log.topic, 0, 300)
    log._read[0] = 320
    log.pending(pack(0, 310))
    offsets.save()
    log.commit()
    assert (offsets.get(GROUP, log.topic, 0), offsets.unsaved) == (300, {})
    log.done(pack(0, 310))
    log.commit()
    assert offsets.get(GROUP, log.topic, 0) == 319


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_broken_in_the_log_is_counted_among_what_was_stepped_over(shop: Any, restarted: bool) -> None:
    topic = shop.broker.pops.leases.log.topic
    shop.broker.store.append(Record(topic, b"{", "TAGS\x01ck\x02", 0))
    if restarted:
        shop.restart()
    else:
        shop.tick()
    assert shop.broker.stats.skipped.count == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_a_lease_of_before_a_reset_does_not_end_the_one_made_in_the_same_moment(
    shop: Any, restarted: bool
) -> None:
    shop.send("a")
    shop.pop(invisible_ms=5_000)
    shop.broker.pops.reset("orders", "billing", 0, 0)
    assert shop.pop(invisible_ms=60_000), "under the same key"
    if restarted:
        shop.restart()
    shop.wait(10_000)
    assert bodies(shop) == []
    shop.wait(51_000)
    assert bodies(shop) == [b"a"]


@pytest.mark.parametrize(("topic", "group"), [("gone", "billing"), ("orders", "gone")])
def test_nothing_is_made_for_a_topic_or_a_group_that_is_gone(shop: Any, topic: str, group: str) -> None:
    shop.send("a")
    before = set(shop.broker.topics.all())
    assert redeliver(Expired(topic, group, 0, shop.clock.wall(), [0]), shop.broker) == 0
    assert set(shop.broker.topics.all()) == before
