# SPDX-License-Identifier: Apache-2.0
"""From the lease to the revive log to the retry topic, through stops and crashes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aerobee.broker.operations.ack import Ack, ack
from aerobee.broker.operations.reset_offset import Reset, reset_offset
from aerobee.errors import DiskFull
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import GroupConfig
from aerobee.protocol.codes import SysFlag
from aerobee.protocol.message import Record
from aerobee.protocol.receipt import CheckpointRecord, Receipt, decode_checkpoint, encode_revive

RETRY = names.pop_retry_topic("orders", "billing")


@pytest.mark.seed("S000-28", "S000-29")
def test_a_batch_acked_within_three_seconds_never_touches_the_disk(shop):
    shop.send("a", "b", "c")
    shop.ack(*shop.pop())
    shop.wait(5_000)
    assert shop.logged == []
    assert shop.committed() == 3
    assert shop.in_flight == 0


@pytest.mark.seed("S000-17", "S000-28", "S000-30")
def test_a_batch_open_after_three_seconds_is_one_checkpoint_in_the_revive_log(shop):
    shop.send("a", "b", "c")
    first, *_ = shop.pop(invisible_ms=60_000)
    shop.ack(first)
    shop.wait(2_800)
    assert shop.logged == []
    assert shop.committed() == 0, "in memory only: a crash must read it again"
    shop.wait(400)
    assert shop.logged == ["ck"]
    assert shop.committed() == 3, "it is on disk: progress may pass"
    log = shop.broker.pops.leases.log.topic
    record = next(r for q in range(8) for r in shop.records(log, q))
    body = msgspec.json.decode(record.body)
    popped = first.receipt
    assert body == {
        "bm": 0b001, "bn": "broker-a", "c": "billing", "d": [0, 1, 2], "it": 60_000, "n": 3, "pt": popped.pop_time,
        "q": 0, "ro": 0, "rp": "0", "so": 0, "t": "orders",
    }  # fmt: skip
    assert record.unique_key == f"orders@0@0@billing@{popped.pop_time}@broker-a@ck"
    assert record.queue_id == popped.revive_qid


@pytest.mark.seed("S000-29", "S000-30")
def test_acks_of_a_logged_checkpoint_are_logged_too(shop):
    shop.send("a", "b", "c")
    messages = shop.pop(invisible_ms=60_000)
    shop.wait(3_200)
    shop.ack(*messages)
    assert shop.logged == ["ck", "ack", "ack", "ack"]
    shop.wait(60_000)
    assert shop.records(RETRY) == []


@pytest.mark.seed("S000-18", "S000-27", "S000-31", "S000-80")
@pytest.mark.parametrize("invisible_ms", [500, 2_900, 3_000, 10_000, 60_000])
def test_an_unacked_message_comes_back_within_a_second_and_never_early(shop, invisible_ms):
    shop.send("a", "b", "c")
    first, *others = shop.pop(invisible_ms=invisible_ms)
    shop.ack(first)
    shop.wait(invisible_ms - 1, step=1 if invisible_ms < 5_000 else 200)
    assert shop.records(RETRY) == []
    shop.wait(450)
    copies = shop.records(RETRY)
    assert [copy.body for copy in copies] == [b"b", b"c"]
    assert [copy.reconsume_times for copy in copies] == [1, 1]
    popped_at = str(others[0].receipt.pop_time)
    assert [copy.properties[props.FIRST_POP_TIME] for copy in copies] == [popped_at] * 2
    again = shop.pop()
    assert [one.body for one in again] == ["b", "c"]
    assert [one.record.topic for one in again] == ["orders"] * 2
    assert [one.record.properties[props.POP_CK] for one in again] == [one.receipt.text for one in again]


@pytest.mark.seed("S000-80")
def test_what_waits_on_disk_is_read_once_when_it_is_due_and_never_before(shop, monkeypatch):
    shop.send("a", "b")
    shop.pop(invisible_ms=60_000)
    due = shop.clock.now() + 60_000
    shop.wait(3_200)
    assert shop.logged == ["ck"]
    log, record_of, looks = shop.broker.pops.leases.log, shop.broker.store.record_of, []

    def looking(topic, *place):
        if topic == log.topic:
            looks.append(shop.clock.now())
        return record_of(topic, *place)

    monkeypatch.setattr(shop.broker.store, "record_of", looking)
    shop.wait(due - 1 - shop.clock.now())
    assert looks == []
    shop.wait(5_000)
    (looked,) = looks
    assert due <= looked < due + 400


def test_the_copy_keeps_body_tags_keys_birth_and_flags(shop):
    born = b"\x0a\x00\x00\x07\x00\x00\x1f\x90"
    text = props.render({props.TAGS: "paid", props.KEYS: "o-1", "colour": "red"})
    flags: Any = {"flag": 5, "sys_flag": int(SysFlag.COMMIT), "prepared_offset": 99}
    shop.broker.store.append(Record("orders", b"body", text, born_timestamp=77, born_host=born, **flags))
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    (copy,) = shop.records(RETRY)
    kept = (copy.flag, copy.sys_flag, copy.prepared_offset, copy.born_timestamp, copy.born_host)
    assert kept == (5, 8, 99, 77, born)
    assert (copy.body, copy.tags) == (b"body", "paid")
    assert copy.properties.items() >= {"colour": "red", "KEYS": "o-1"}.items()


def test_a_retried_message_goes_back_to_the_same_retry_topic_with_one_more_attempt(shop):
    shop.send("a")
    shop.pop(invisible_ms=500)
    for attempt in (1, 2, 3):
        shop.wait(1_000)
        (again,) = shop.pop(invisible_ms=500)
        assert again.topic == RETRY
        assert again.record.reconsume_times == attempt
    assert names.pop_retry_topic(RETRY, "billing") not in shop.broker.topics.all()


def test_v2_retry_names_by_setting(make_shop):
    shop = make_shop(pop_retry_v2=True)
    shop.send("a")
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    (again,) = shop.pop()
    assert again.topic == "%RETRY%billing+orders"
    assert again.receipt.retry == "2"


@pytest.mark.seed("S000-46")
def test_retries_of_the_other_name_are_still_read_after_the_setting_was_changed(make_shop):
    shop = make_shop(pop_retry_v2=True)
    shop.broker.topics.ensure(RETRY)
    shop.send("old", topic=RETRY)
    shop.send("new", topic="%RETRY%billing+orders")
    shop.broker.topics.ensure("%RETRY%billing+orders")
    assert sorted(one.body for one in shop.pop()) == ["new", "old"]


def test_past_the_groups_limit_a_message_is_a_dead_letter(shop):
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=1))
    shop.send("a", tags="paid")
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    assert len(shop.pop(invisible_ms=500)) == 1
    shop.wait(1_000)
    assert shop.pop() == []
    (dead,) = shop.records(names.dead_letter_topic("billing"))
    assert dead.body == b"a"
    assert dead.properties[props.DLQ_ORIGIN_TOPIC] == "orders"
    assert dead.reconsume_times == 2


def test_a_group_without_retries_has_dead_letters_at_once(shop):
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=0))
    shop.send("a")
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    assert [record.body for record in shop.records(names.dead_letter_topic("billing"))] == [b"a"]
    assert shop.records(RETRY) == []
    counted = shop.broker.stats.counted
    assert (counted.dead["billing", "orders"], counted.retried["billing", "orders"]) == (1, 0)


def test_a_dead_letter_says_where_it_is_from_and_has_no_receipt(shop):
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=0))
    shop.send("a", UNIQ_KEY="AB12", POP_CK="of another time")
    (original,) = shop.records("orders")
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    (dead,) = shop.records(names.dead_letter_topic("billing"))
    assert dead.properties == {
        "UNIQ_KEY": "AB12",
        props.RETRY_TOPIC: "orders",
        props.ORIGIN_MESSAGE_ID: original.offset_id,
        props.DLQ_ORIGIN_TOPIC: "orders",
        props.DLQ_ORIGIN_MESSAGE_ID: "AB12",
    }


def test_the_retry_topic_is_created_with_one_queue_and_offset_0(shop):
    shop.send("a")
    assert shop.broker.topics.get(RETRY) is None
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    topic = shop.broker.topics.get(RETRY)
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    assert shop.committed(topic=RETRY) == 0


# -- stops and crashes -------------------------------------------------------------------------------------


def test_after_a_clean_stop_leases_stand_and_nothing_is_delivered_early(shop):
    shop.send("a", "b")
    first, second = shop.pop(invisible_ms=20_000)
    shop.ack(first)
    shop.restart()
    assert shop.in_flight == 1
    assert shop.pop() == []
    shop.ack(second)
    shop.wait(30_000)
    assert shop.pop() == []


def test_after_a_crash_what_was_in_memory_only_is_delivered_again(shop):
    shop.send("a", "b")
    shop.pop(invisible_ms=20_000)
    shop.crash()
    assert [one.body for one in shop.pop()] == ["a", "b"]


@pytest.mark.seed("S000-27")
def test_after_a_crash_logged_leases_stand_though_the_offset_was_not_saved(shop):
    shop.send("a", "b")
    first, second = shop.pop(invisible_ms=20_000)
    shop.wait(3_200)
    shop.ack(first)
    shop.send("c")
    shop.crash()
    assert [one.body for one in shop.pop()] == ["c"], "a is acked, b leased, though the saved offset is 0"
    shop.wait(17_400)
    assert [one.body for one in shop.pop()] == ["b"]
    assert second.body == "b"


@pytest.mark.seed("S000-31")
def test_a_crash_after_the_redelivery_does_not_redeliver_twice(shop):
    shop.send("a")
    shop.pop(invisible_ms=5_000)
    shop.wait(5_400)
    assert len(shop.records(RETRY)) == 1
    shop.crash()
    shop.wait(10_000)
    assert len(shop.records(RETRY)) == 1
    assert [one.record.reconsume_times for one in shop.pop()] == [1]


def test_a_crash_after_the_redelivery_of_a_short_lease_does_not_read_the_original_again(shop):
    shop.send("a")
    shop.pop(invisible_ms=500)
    shop.wait(1_000)
    shop.crash()
    assert [(one.body, one.record.reconsume_times) for one in shop.pop()] == [("a", 1)]
    assert shop.pop() == []


def test_a_short_lease_that_came_back_stays_in_the_log_while_one_before_it_is_open(shop):
    """The group's offset waits for the first message: a start reads from there, and must know of the second."""
    shop.send("a", "b")
    shop.pop(invisible_ms=60_000, max_messages=1)
    shop.pop(invisible_ms=500, max_messages=1)
    shop.wait(2_800)
    assert len(shop.records(RETRY)) == 1
    assert shop.committed() == 0
    shop.broker.offsets.save()
    shop.crash()
    assert sorted((one.body, one.record.reconsume_times) for one in shop.pop()) == [("a", 0), ("b", 1)]


@pytest.mark.seed("S000-30", "S000-31")
async def test_a_start_reads_the_log_as_it_was_written_whichever_queue_it_is_in(shop):
    """A reset stands in all queues, and ends the leases of before it; the one after it is in another queue."""
    shop.send("a", "b")
    for _ in range(6):
        shop.pop(queue_id=1)
    (before, _) = shop.pop(queue_id=0, invisible_ms=60_000)
    shop.wait(3_200)
    await reset_offset(Reset("billing", "orders", offset=0, queue_id=0), shop.broker)
    (after, _) = shop.pop(queue_id=0, invisible_ms=20_000)
    assert (before.receipt.revive_qid, after.receipt.revive_qid) == (7, 0)
    shop.wait(3_200)
    shop.ack(after)
    shop.crash()
    assert shop.in_flight == 1
    assert shop.pop() == []
    shop.wait(70_000)
    assert [record.body for record in shop.records(RETRY)] == [b"b"]


@pytest.mark.seed("S000-31")
def test_a_second_crash_does_not_bring_back_what_was_acked_before_the_first(shop):
    """The log must be kept for as long as the group's saved offset is behind what it speaks for."""
    shop.send("gap")
    shop.pop(invisible_ms=600_000)  # in memory only when the broker dies: read again from offset 0
    shop.clock.advance(2_900)
    shop.send("a", "b")
    first, _second = shop.pop(invisible_ms=20_000)
    leases = shop.broker.pops.leases
    for checkpoint in list(leases.in_flight.lanes["orders", "billing", 0].young.values()):
        if checkpoint.start == 1:
            leases.journal(checkpoint, shop.clock.now())
    shop.ack(first)
    shop.crash()
    assert shop.committed() < 1, "the first message is not covered by the log"
    shop.wait(30_000)  # the second message is redelivered, all of the checkpoint is done with
    shop.broker.offsets.save()
    shop.crash()
    assert sorted((one.body, one.record.reconsume_times) for one in shop.pop()) == [("b", 1), ("gap", 0)]


def test_after_a_crash_the_offset_passes_what_the_log_covers(shop):
    shop.send("a", "b")
    shop.pop(invisible_ms=20_000)
    shop.broker.offsets.save()
    shop.wait(3_200)
    shop.crash()
    assert shop.committed() == 2


@pytest.mark.seed("S000-31")
def test_the_revive_offset_moves_on_so_that_a_restart_reads_little(shop):
    for number in range(600):
        shop.send(str(number))
    while messages := shop.pop(invisible_ms=4_000):
        shop.ack(*messages[:-1])
    shop.wait(10_000)
    log = shop.broker.pops.leases.log
    assert log.behind == 0, "everything before is done with"
    shop.restart()
    assert shop.in_flight == 0


def test_a_message_cleaned_away_is_not_redelivered_and_does_not_block(shop, monkeypatch):
    shop.send("a", "b")
    shop.pop(invisible_ms=4_000)
    shop.clean_away(monkeypatch, 0)
    shop.wait(5_000)
    assert [record.body for record in shop.records(RETRY)] == [b"b"]
    assert shop.in_flight == 0


# -- the disk ------------------------------------------------------------------------------------------------


def _full(*_args):
    raise DiskFull("no space")


def test_with_a_full_disk_popping_goes_on_in_memory_and_recovers(shop, monkeypatch):
    shop.send("a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(shop.broker.store, "append", _full)
        patch.setattr(shop.broker.store, "append_batch", _full)
        first, _second = shop.pop(invisible_ms=5_000)
        shop.wait(4_000)
        shop.ack(first)
        assert shop.committed() == 0, "not logged, so not passed"
        shop.wait(4_000)
        assert shop.in_flight == 1
    shop.wait(12_000)
    assert [record.body for record in shop.records(RETRY)] == [b"b"]
    assert shop.committed() == 2


def test_a_change_that_cannot_be_written_leaves_the_old_lease(shop, monkeypatch):
    from aerobee.errors import SystemFailure

    shop.send("a")
    (one,) = shop.pop(invisible_ms=10_000)
    shop.wait(3_200)
    with monkeypatch.context() as patch:
        patch.setattr(shop.broker.store, "append", _full)
        with pytest.raises(SystemFailure, match="the old one stands"):
            shop.change(one, 60_000)
    shop.wait(7_200)
    assert len(shop.records(RETRY)) == 1


# -- the clock ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-3_600_000, 3_600_000])
def test_a_lease_that_crosses_a_restart_is_read_by_the_wall_clock(shop, jump):
    shop.send("a")
    shop.pop(invisible_ms=10_000)
    shop.clock.set_wall(shop.clock.wall() + jump)
    shop.restart()
    shop.wait(9_000)
    assert len(shop.records(RETRY)) == (jump > 0)
    shop.wait(max(0, -jump) + 2_000, step=10_000)
    assert len(shop.records(RETRY)) == 1


@pytest.mark.parametrize(("back_ms", "later_ms"), [(0, 1), (1, 2), (999, 1_000), (1_000, 0), (60_000, 0)])
def test_a_new_receipt_is_of_now_or_a_moment_after_the_old_one(shop, back_ms, later_ms):
    """It must differ from the old one; a pop time far ahead is one of before the clock was set back."""
    shop.send("a")
    (one,) = shop.pop(invisible_ms=20_000)
    shop.clock.set_wall(shop.clock.wall() - back_ms)
    assert shop.change(one, 30_000).receipt.pop_time == shop.clock.wall() + later_ms


def test_the_log_is_stamped_by_the_wall_clock_also_when_that_was_set(shop):
    """A RocketMQ broker that goes on with it has no other."""
    shop.send("a")
    shop.clock.set_wall(shop.clock.wall() + 3_600_000)
    messages = shop.pop(invisible_ms=20_000)
    shop.wait(3_200)
    logged_at = shop.clock.wall()
    shop.wait(1_000)
    shop.ack(*messages)
    log = shop.broker.pops.leases.log.topic
    born = {
        record.tags: record.born_timestamp for queue_id in range(8) for record in shop.records(log, queue_id)
    }
    assert logged_at - 200 <= born["ck"] <= logged_at
    assert born["ack"] == shop.clock.wall()


# -- a RocketMQ broker wrote this store ------------------------------------------------------------------------


def _java(shop, tag: str, body: bytes, deliver_at: int) -> None:
    """As its timer delivers it."""
    text = props.render(
        {props.TAGS: tag, props.TIMER_DELIVER_MS: str(deliver_at), props.TIMER_OUT_MS: str(deliver_at)}
    )
    shop.broker.store.append(Record(shop.broker.pops.leases.log.topic, body, text, queue_id=3))


def _java_checkpoint(shop, pop_time: int, *, count: int = 2) -> bytes:
    return encode_revive(
        CheckpointRecord(
            topic="orders",
            group="billing",
            queue_id=0,
            start_offset=0,
            pop_time=pop_time,
            invisible_time=20_000,
            count=count,
            diffs=list(range(count)),
            broker_name="broker-a",
        )
    )


def test_checkpoints_delivered_by_rocketmqs_timer_are_honoured_with_their_acks(shop):
    shop.send("a", "b")
    start = shop.clock.now()
    shop.broker.offsets.set("billing", "orders", 0, 2)
    shop.wait(19_000)
    _java(shop, "ck", _java_checkpoint(shop, start), start + 19_000)
    shop.wait(1_400)  # its ack comes up to some seconds later
    ack = {"ao": 0, "so": 0, "c": "billing", "t": "orders", "q": 0, "pt": start, "bn": "broker-a"}
    _java(shop, "ack", msgspec.json.encode(ack), start + 20_000)
    shop.wait(4_000)
    assert [record.body for record in shop.records(RETRY)] == [b"b"]


def test_a_checkpoint_of_the_timer_is_read_though_one_of_ours_came_right_behind_it(shop):
    shop.send("a", "b")
    shop.send("ours", queue_id=1)
    shop.broker.offsets.set("billing", "orders", 0, 2)
    assert [shop.pop(queue_id=2), shop.pop(queue_id=2)] == [[], []]
    (ours,) = shop.pop(queue_id=1, invisible_ms=60_000)
    assert ours.receipt.revive_qid == 3, "the third request, the third queue"
    start = shop.clock.now()
    _java(shop, "ck", _java_checkpoint(shop, start), start)
    shop.broker.pops.leases.journal_all(None, start)
    shop.wait(25_000)
    assert [record.body for record in shop.records(RETRY)] == [b"a", b"b"]


def test_an_ack_made_here_counts_for_a_checkpoint_that_rocketmqs_timer_still_holds(shop):
    shop.send("a", "b")
    start = shop.clock.now()
    shop.wait(1_000)
    shop.restart()
    shop.broker.offsets.set("billing", "orders", 0, 2)
    ack(Ack("billing", "orders", 0, 1, Receipt(0, start, 20_000, 3, "0", "broker-a", 0, 1)), shop.broker)
    _java(shop, "ck", _java_checkpoint(shop, start), start + 19_000)
    shop.wait(25_000)
    assert [record.body for record in shop.records(RETRY)] == [b"a"]


def test_an_ack_counts_for_it_also_when_the_clock_was_set_back_meanwhile(shop):
    """By the clock that stamped the receipt its time is not over."""
    shop.send("a", "b")
    start = shop.clock.wall()
    shop.broker.offsets.set("billing", "orders", 0, 2)
    shop.clock.advance(60_000)
    shop.restart()
    shop.clock.set_wall(start + 10_000)
    for offset in (0, 1):
        acked = Receipt(0, start, 20_000, 3, "0", "broker-a", 0, offset)
        ack(Ack("billing", "orders", 0, offset, acked), shop.broker)
    _java(shop, "ck", _java_checkpoint(shop, start), start + 19_000)
    shop.wait(30_000)
    assert shop.records(RETRY) == []


def test_a_checkpoint_of_messages_that_are_gone_is_done_with_at_its_time(shop):
    shop.broker.offsets.set("billing", "orders", 0, 2)
    counted, start = shop.broker.stats.counted.revived, shop.clock.now()
    _java(shop, "ck", _java_checkpoint(shop, start), start)
    log = shop.broker.pops.leases.log
    shop.wait(19_000)
    assert (log.behind, counted.total()) == (1, 0)
    shop.wait(3_000)
    assert (log.behind, counted["billing", "orders", 3]) == (0, 1)
    assert shop.records(RETRY) == []


def test_what_is_written_can_be_read_by_rocketmq(shop):
    """Its reader takes ck, ack and bAck with its own members; the time up to which it saw all is TIMER_OUT_MS."""
    shop.send(*map(str, range(32)))
    messages = shop.pop(invisible_ms=60_000)
    shop.ack(messages[31])
    shop.wait(3_200)
    log = shop.broker.pops.leases.log.topic
    record = next(r for q in range(8) for r in shop.records(log, q))
    body = decode_checkpoint(record.body)
    assert body.bitmap == -(1 << 31), "a signed 32-bit integer"
    assert body.count == 32
    assert record.properties[props.TIMER_OUT_MS] == str(body.revive_time - 1000)


def test_a_broken_log_entry_is_left_out(shop, caplog):
    _java(shop, "ck", b"{not json", 0)
    _java(shop, "wrong", b"{}", 0)
    shop.wait(200)
    assert "queue=3 offset=0: stepped over" in caplog.text
    assert shop.broker.stats.skipped.count == 1
    shop.wait(5_000)
    assert shop.broker.pops.leases.log.behind == 0


@pytest.mark.parametrize("hidden_ms", [1_000, 20_000])
def test_why_a_consumer_hid_a_message_stands_in_its_copy_and_in_the_dead_letter(shop, hidden_ms):
    """A short lease never leaves memory, a long one is in the revive log."""
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=1))
    shop.send("a")
    (first,) = shop.pop(invisible_ms=60_000)
    shop.change(first, hidden_ms, "KeyError:\x01 'card'\nand more")
    shop.wait(hidden_ms + 1_000)
    (copy,) = shop.records(RETRY)
    assert copy.properties[props.LAST_ERROR] == "KeyError: 'card' and more"
    shop.pop(invisible_ms=1_000)
    shop.wait(2_000)
    (dead,) = shop.records("%DLQ%billing")
    assert dead.properties[props.LAST_ERROR] == "KeyError: 'card' and more", "the last that is known"
    assert dead.reconsume_times == 2


@pytest.mark.parametrize("begin_anew", ["restart", "crash"])
def test_why_a_consumer_hid_a_message_is_known_after_a_stop(shop, begin_anew):
    shop.send("a")
    (first,) = shop.pop(invisible_ms=60_000)
    shop.change(first, 20_000, "KeyError: 'card'")
    shop.wait(4_000)
    getattr(shop, begin_anew)()
    shop.wait(17_000)
    (copy,) = shop.records(RETRY)
    assert copy.properties[props.LAST_ERROR] == "KeyError: 'card'"


def test_the_newest_reason_counts_and_is_bounded(shop):
    shop.broker.groups.put(GroupConfig(group_name="billing", retry_max_times=1))
    shop.send("a")
    (first,) = shop.pop()
    shop.change(first, 500, "ValueError: first")
    shop.wait(1_500)
    (again,) = shop.pop()
    shop.change(again, 500, "long " * 100_000)
    shop.wait(1_500)
    (dead,) = shop.records("%DLQ%billing")
    assert dead.properties[props.LAST_ERROR].startswith("long long")
    assert len(dead.properties[props.LAST_ERROR]) == 1_000


def test_an_ack_of_rocketmqs_timer_that_comes_before_its_checkpoint_counts(shop):
    shop.send("a", "b")
    start = shop.clock.now()
    shop.broker.offsets.set("billing", "orders", 0, 2)
    ack = {"ao": 0, "so": 0, "c": "billing", "t": "orders", "q": 0, "pt": start, "bn": "broker-a"}
    _java(shop, "ack", msgspec.json.encode(ack), start + 20_000)
    shop.wait(1_000)
    _java(shop, "ck", _java_checkpoint(shop, start), start + 19_000)
    shop.wait(25_000)
    assert [record.body for record in shop.records(RETRY)] == [b"b"]
