# SPDX-License-Identifier: Apache-2.0
"""Transactions: invisible until committed, committed once, whatever crashes in between."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.broker.background.transaction_check import TransactionCheck
from aerobee.broker.broker import Broker, assemble
from aerobee.broker.operations.check_transaction import check_transactions, resume_check
from aerobee.broker.operations.end_transaction import Ended, EndTransaction, catch_up, end_transaction
from aerobee.broker.operations.send import PlainOrigin, Sent, send
from aerobee.broker.state.half_messages import HalfMessages, Outcome
from aerobee.clock import ManualClock
from aerobee.errors import DiskFull, IllegalOperation, SystemFailure
from aerobee.protocol import message, names
from aerobee.protocol import properties as props
from aerobee.protocol.codes import RequestCode, SysFlag
from aerobee.protocol.headers.transaction import CheckTransaction
from aerobee.protocol.message import Record
from aerobee.settings import BrokerConfig, StoreConfig

if TYPE_CHECKING:
    import asyncio

    from aerobee.protocol.command import Command

COMMIT, ROLLBACK, UNKNOWN = Outcome.COMMIT, Outcome.ROLLBACK, Outcome.UNKNOWN


class FakeLink:
    """A producer's connection that only notes what it is asked."""

    remote_text = "10.0.0.9:50001"

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {"language": "JAVA", "version": 479}
        self.sent: list[Command] = []
        self.is_open = True

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def start_call(self, command: Command) -> asyncio.Future[Command]:
        raise NotImplementedError

    async def call(self, command: Command, timeout_ms: int = 3000) -> Command:
        raise NotImplementedError

    def close(self) -> None:
        self.is_open = False

    def checks(self) -> list[CheckTransaction]:
        return [
            c.fields(CheckTransaction) for c in self.sent if c.code == RequestCode.CHECK_TRANSACTION_STATE
        ]


def half(bench: Any, body: bytes = b"paid", **properties: str) -> Sent:
    named = {"TRAN_MSG": "true", "PGROUP": "shop", **properties}
    now = bench.clock.now()
    return bench.send("orders", body, properties=named, sys_flag=4, producer_group="shop", born_timestamp=now)


def end(bench: Any, sent: Sent | CheckTransaction, outcome: Outcome, group: str = "shop", **more: Any) -> Any:
    if isinstance(sent, CheckTransaction):
        place = (sent.tran_state_table_offset, sent.commit_log_offset)
        more.setdefault("from_check", True)
    else:
        place = (sent.queue_offset, sent.physical_offset)
    return end_transaction(EndTransaction(group, *place, outcome, **more), bench.broker)


def online(bench: Any) -> FakeLink:
    link = FakeLink()
    bench.broker.clients.register_producer(link, "10.0.0.9@1", "shop", bench.clock.now())
    return link


def test_a_half_message_waits_in_the_half_topic(bench: Any) -> None:
    sent = half(bench, UNIQ_KEY="AB12")
    (stored,) = bench.records(names.HALF_TOPIC)
    assert bench.records("orders") == []
    assert stored.sys_flag & SysFlag.TRANSACTION_MASK == 0
    expected = {"REAL_TOPIC": "orders", "REAL_QID": "0", "__transactionId__": "AB12", "PGROUP": "shop"}
    assert expected.items() <= stored.properties.items()
    assert sent.queue_offset == stored.queue_offset == 0


def test_a_commit_appends_to_the_real_topic_and_an_op_record(bench: Any) -> None:
    half(bench, b"other")
    sent = half(bench, b"paid", UNIQ_KEY="AB12")
    bench.clock.advance(1000)
    ended = end(bench, sent, COMMIT)
    (committed,) = bench.records("orders")
    assert committed.body == b"paid"
    assert committed.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.COMMIT
    assert committed.prepared_offset == sent.physical_offset
    assert committed.unique_key == "AB12"
    assert {"TRAN_MSG", "REAL_TOPIC", "REAL_QID", "PGROUP"} <= committed.properties.keys()
    (op,) = bench.records(names.OP_TOPIC)
    assert (op.body, op.tags) == (b"1,", "d")
    assert ended.end == op.physical_offset + op.size


def test_a_rollback_appends_only_the_op_record(bench: Any) -> None:
    end(bench, half(bench), ROLLBACK)
    assert bench.records("orders") == []
    assert [op.body for op in bench.records(names.OP_TOPIC)] == [b"0,"]


def test_what_ended_is_counted_for_its_topic_once_and_how_long_it_took(bench: Any) -> None:
    sent = [half(bench) for _ in range(5)]
    bench.clock.advance(3_000)
    for each, outcome in zip(sent, (COMMIT, COMMIT, ROLLBACK, UNKNOWN, COMMIT), strict=True):
        end(bench, each, outcome)
    end(bench, sent[0], COMMIT)
    counted = bench.broker.stats.counted
    assert (counted.committed, counted.rolled_back) == ({"orders": 3}, {"orders": 1})
    ((topic, took),) = counted.finish_s
    assert (topic, took.counts[0], took.sum) == ("orders", 3, 9)


def test_unknown_changes_nothing(bench: Any) -> None:
    end(bench, half(bench), UNKNOWN)
    assert len(bench.broker.transactions) == 1
    assert bench.records(names.OP_TOPIC) == []


def test_the_same_word_twice_commits_once(bench: Any) -> None:
    sent = half(bench)
    end(bench, sent, COMMIT)
    end(bench, sent, COMMIT)
    assert len(bench.records("orders")) == 1
    with pytest.raises(SystemFailure, match="COMMIT already"):
        end(bench, sent, ROLLBACK)


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_the_same_word_after_a_restart_which_forgot_the_outcome_is_harmless(
    bench: Any, outcome: Outcome
) -> None:
    sent = half(bench, UNIQ_KEY="AB12")
    assert end(bench, sent, outcome).end == bench.broker.store.log_max
    bench.restart()
    before = bench.broker.store.log_max
    assert end(bench, sent, outcome) == Ended()
    assert bench.broker.transactions.outcome(0) is None, "nobody remembers how it ended"
    assert bench.broker.store.log_max == before


def test_a_delayed_transactional_message_is_delayed_from_its_commit(bench: Any) -> None:
    end(bench, half(bench, DELAY="2"), COMMIT)
    assert bench.records("orders") == []
    assert len(bench.records(names.SCHEDULE_TOPIC, 1)) == 1


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"producer_group": "other"}, "of producer group 'shop'"),
        ({"half_offset": 7}, "has queue offset 0, not 7"),
        ({"physical_offset": 12345}, "no half message"),
    ],
)
def test_a_word_that_does_not_fit_the_message_is_refused(
    bench: Any, change: dict[str, Any], remark: str
) -> None:
    sent = half(bench)
    fields = {
        "producer_group": "shop",
        "half_offset": sent.queue_offset,
        "physical_offset": sent.physical_offset,
        "outcome": COMMIT,
    }
    with pytest.raises(SystemFailure, match=remark):
        end_transaction(EndTransaction(**{**fields, **change}), bench.broker)
    assert bench.records("orders") == []


def test_past_its_immunity_time_only_answers_to_checks_count(bench: Any) -> None:
    sent = half(bench, CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    in_time = half(bench, CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    bench.clock.advance(10_000)
    end(bench, in_time, COMMIT)
    bench.clock.advance(1)
    with pytest.raises(IllegalOperation):
        end(bench, sent, COMMIT)
    end(bench, sent, COMMIT, from_check=True)
    assert len(bench.records("orders")) == 2


# -- checks ----------------------------------------------------------------------------------------------------


def test_checks_come_after_6_s_and_then_every_30(bench: Any) -> None:
    link, check, start = online(bench), TransactionCheck(bench.broker), bench.clock.now()
    half(bench, UNIQ_KEY="AB12")
    times = []
    for second in range(100):
        bench.clock.jump(start + second * 1000)
        if check.tick(bench.clock.now()) == 0:
            times.append(second)
    assert times == [6, 36, 66, 96]
    asked = link.checks()
    assert [c.tran_state_table_offset for c in asked] == [1, 2, 3, 4]
    assert {c.transaction_id for c in asked} == {"AB12"}
    shown = message.decode(link.sent[0].body)
    assert (shown.topic, shown.queue_id, shown.body) == ("orders", 0, b"paid")
    assert shown.properties[props.TRANSACTION_CHECK_TIMES] == "1"
    assert link.sent[0].is_one_way or link.sent[0].flag == 0  # the link makes it one-way


def test_an_immunity_time_of_its_own_delays_the_first_check(bench: Any) -> None:
    link = online(bench)
    half(bench, CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    for seconds, asked in ((6, 0), (53.9, 0), (0.1, 1)):
        bench.clock.advance(seconds=seconds)
        check_transactions(bench.clock.now(), bench.broker)
        assert len(link.checks()) == asked


def test_an_answer_to_a_check_ends_all_copies(bench: Any) -> None:
    link = online(bench)
    first = half(bench)
    for _ in range(3):
        bench.clock.advance(30_000)
        check_transactions(bench.clock.now(), bench.broker)
    end(bench, link.checks()[-1], COMMIT)
    end(bench, first, COMMIT)  # the producer's first word, late
    end(bench, link.checks()[0], COMMIT)
    assert len(bench.records("orders")) == 1
    assert [op.body for op in bench.records(names.OP_TOPIC)] == [b"0,1,2,3,"]


def test_after_15_checks_it_is_given_up_and_can_be_brought_back(bench: Any) -> None:
    link = online(bench)
    half(bench)
    for _ in range(16):
        bench.clock.advance(30_000)
        check_transactions(bench.clock.now(), bench.broker)
    assert len(link.checks()) == 15
    (dead,) = bench.records(names.CHECK_MAX_TOPIC)
    assert dead.body == b"paid"
    assert len(bench.broker.transactions) == 0
    resume_check(dead.offset_id, bench.broker)
    bench.clock.advance(30_000)
    check_transactions(bench.clock.now(), bench.broker)
    assert len(link.checks()) == 16
    end(bench, link.checks()[-1], COMMIT)
    assert len(bench.records("orders")) == 1


def test_what_is_brought_back_starts_anew_with_all_its_checks_before_it(bench: Any) -> None:
    properties = {
        "UNIQ_KEY": "k",
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
        "TRANSACTION_CHECK_TIMES": "15",
        "TRAN_PREPARED_QUEUE_OFFSET": "7",
    }
    given_up = Record(names.CHECK_MAX_TOPIC, b"body", props.render(properties), 3)
    bench.broker.store.append(given_up)
    resume_check(given_up.offset_id, bench.broker)
    (back,) = bench.records(names.HALF_TOPIC)
    assert (back.body, back.queue_id) == (b"body", 0)
    assert back.properties == {
        "UNIQ_KEY": "k",
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
        "TRANSACTION_CHECK_TIMES": "0",
    }


def test_bringing_back_wants_the_id_of_a_half_message(bench: Any) -> None:
    sent = bench.send()
    for wrong in ("zz", message.offset_message_id(b"\x7f\0\0\1\0\0\0\0", sent.physical_offset)):
        with pytest.raises(SystemFailure):
            resume_check(wrong, bench.broker)


class TestWithoutAProducerOnline:
    def check_for(self, bench: Any, times: int) -> None:
        for _ in range(times):
            bench.clock.advance(60_000)
            check_transactions(bench.clock.now(), bench.broker)

    def test_a_transaction_waits_and_nothing_is_written(self, bench: Any) -> None:
        half(bench)
        before = bench.broker.store.log_max
        self.check_for(bench, 40)
        assert bench.records(names.CHECK_MAX_TOPIC) == []
        assert bench.broker.store.log_max == before

    def test_it_is_asked_as_often_as_any_once_one_is_back_restarts_between_or_not(self, bench: Any) -> None:
        half(bench)
        self.check_for(bench, 40)
        bench.restart()
        self.check_for(bench, 40)
        link = online(bench)
        self.check_for(bench, 40)
        assert len(link.checks()) == bench.broker.config.transaction_check_max
        assert len(bench.records(names.CHECK_MAX_TOPIC)) == 1

    def test_checks_before_it_left_still_count(self, bench: Any) -> None:
        half(bench)
        link = online(bench)
        self.check_for(bench, 5)
        link.close()
        asked = len(link.checks())
        self.check_for(bench, 40)
        assert bench.records(names.CHECK_MAX_TOPIC) == []
        bench.restart()
        again = online(bench)
        self.check_for(bench, 40)
        assert asked + len(again.checks()) == bench.broker.config.transaction_check_max

    def test_it_can_be_committed_after_all(self, bench: Any) -> None:
        sent = half(bench)
        self.check_for(bench, 40)
        end(bench, sent, COMMIT)
        assert [record.body for record in bench.records("orders")] == [b"paid"]

    def test_it_outlives_retention(self, bench: Any) -> None:
        half(bench)
        hours = int(bench.broker.store.config.retention_hours)
        for _ in range(3):
            bench.clock.advance(hours * 3_600_000 * 3 // 4)
            check_transactions(bench.clock.now(), bench.broker)
            newest = bench.records(names.HALF_TOPIC)[-1]
            assert newest.store_timestamp == bench.clock.now()
        assert newest.properties[props.TRANSACTION_CHECK_TIMES] == "0"


def test_checks_that_the_disk_refused_are_made_later(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        half(bench)
    link = online(bench)
    bench.clock.advance(60_000)
    with monkeypatch.context() as refusing:
        refusing.setattr(bench.broker.store, "append", refuse)
        with pytest.raises(DiskFull):
            check_transactions(bench.clock.now(), bench.broker)
    bench.clock.advance(bench.broker.config.transaction_check_ms - 1)
    assert check_transactions(bench.clock.now(), bench.broker) == 0, (
        "as long after as any check after the last"
    )
    bench.clock.advance(1)
    check_transactions(bench.clock.now(), bench.broker)
    assert len(link.checks()) == 3
    assert bench.broker.stats.skipped.count == 0


def refuse(record: Record) -> None:
    raise DiskFull("no space")


def test_one_that_cannot_be_given_up_for_want_of_space_stays_open(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it can be brought back from it must be before it has ended."""
    online(bench)
    first = half(bench)
    for _ in range(15):
        bench.clock.advance(30_000)
        check_transactions(bench.clock.now(), bench.broker)
    append = bench.broker.store.append

    def full(record: Record) -> Any:
        return refuse(record) if record.topic == names.CHECK_MAX_TOPIC else append(record)

    bench.clock.advance(30_000)
    with monkeypatch.context() as patch:
        patch.setattr(bench.broker.store, "append", full)
        with pytest.raises(DiskFull):
            check_transactions(bench.clock.now(), bench.broker)
    assert bench.records(names.OP_TOPIC) == []
    end(bench, first, COMMIT)
    assert len(bench.records("orders")) == 1


def test_progress_is_kept_as_offsets_of_the_transaction_group(bench: Any) -> None:
    sent = [half(bench) for _ in range(5)]
    for one in sent[:3]:
        end(bench, one, COMMIT)
    check_transactions(bench.clock.now(), bench.broker)
    offsets = bench.broker.offsets
    assert offsets.get(names.TRANSACTION_GROUP, names.HALF_TOPIC, 0) == 3
    assert offsets.get(names.TRANSACTION_GROUP, names.OP_TOPIC, 0) == 3
    bench.restart()
    catch_up(bench.broker)
    assert [h.origin for h in bench.broker.transactions.open()] == [3, 4]


def test_a_message_gone_from_the_store_is_forgotten(bench: Any) -> None:
    half(bench)
    catch_up(bench.broker)
    bench.broker.transactions.open()[0].physical_offset = 10**9
    bench.clock.advance(6000)
    check_transactions(bench.clock.now(), bench.broker)
    assert len(bench.broker.transactions) == 0


def test_a_commit_whose_op_record_found_no_room_is_not_made_again(bench: Any) -> None:
    sent = half(bench)
    store, real = bench.broker.store, bench.broker.store.append

    def append(record: Record) -> None:
        if record.topic == names.OP_TOPIC:
            raise DiskFull("no space")
        real(record)

    store.append = append
    with pytest.raises(DiskFull):
        end(bench, sent, COMMIT)
    store.append = real
    end(bench, sent, COMMIT)
    bench.restart()
    end(bench, sent, COMMIT)
    assert len(bench.records("orders")) == 1


def test_op_bodies_of_old_brokers_are_understood(bench: Any) -> None:
    half(bench)
    half(bench)
    bench.broker.store.append(Record(names.OP_TOPIC, b"1", "TAGS\x01d\x02"))
    bench.restart()
    catch_up(bench.broker)
    assert [h.origin for h in bench.broker.transactions.open()] == [0]


# -- memory ----------------------------------------------------------------------------------------------------


def test_more_open_transactions_than_memory_takes_stay_on_disk(bench: Any) -> None:
    broker = bench.broker
    object.__setattr__(broker, "transactions", HalfMessages(capacity=10))
    sent = [half(bench, f"{i}".encode()) for i in range(30)]
    catch_up(broker)
    assert len(broker.transactions) == 10
    for one in reversed(sent):
        end(bench, one, COMMIT)
        end(bench, one, COMMIT)
    assert sorted(int(r.body) for r in bench.records("orders")) == list(range(30))
    check_transactions(bench.clock.now(), broker)
    assert len(broker.transactions) == 0
    assert broker.transactions.half_progress == 30


def test_one_old_transaction_does_not_hold_back_progress_for_ever(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aerobee.broker.operations.check_transaction.MAX_OPS_KEPT", 100)
    first = half(bench, CHECK_IMMUNITY_TIME_IN_SECONDS="86400")
    for _ in range(300):
        end(bench, half(bench), COMMIT)
    check_transactions(bench.clock.now(), bench.broker)
    check_transactions(bench.clock.now(), bench.broker)
    assert bench.broker.transactions.half_progress == 301
    assert bench.broker.transactions.op_progress >= 256
    bench.restart()
    end(bench, first, COMMIT)
    assert len(bench.records("orders")) == 301


# -- histories -------------------------------------------------------------------------------------------------

STORE = StoreConfig(
    commit_log_segment_bytes=1 << 18, consume_queue_units=200, index_slots=100, index_entries=2000
)
CONFIG = BrokerConfig(transaction_check_max=3)


class Crash(Exception):
    pass


class World:
    """A broker that can die at any append; what a dead one left on disk is what the next one opens."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.directory = Path(tempfile.mkdtemp(prefix="transactions-"))
        self._old: list[tuple[Broker, Path]] = []
        self.state: list[str] = []  # open, committed, rolled back
        self.places: list[list[Any]] = []  # what the producer knows of each: the send result, then checks
        self._open()

    def _open(self) -> None:
        self.broker = assemble(CONFIG, STORE, self.directory, self.clock)
        self.link = FakeLink()
        self.broker.clients.register_producer(self.link, "c", "shop", self.clock.now())

    def send(self) -> None:
        number = len(self.state)
        text = f"TRAN_MSG\x01true\x02PGROUP\x01shop\x02UNIQ_KEY\x01{number:032X}\x02"
        record = Record("orders", b"%d" % number, text, 0, sys_flag=4, born_timestamp=self.clock.now())
        self.places.append([send(record, PlainOrigin("shop"), self.broker)])
        self.state.append("open")

    def end(self, number: int, place: int, outcome: Outcome) -> None:
        known = self.places[number]
        try:
            end(self, known[place % len(known)], outcome)
        except (SystemFailure, IllegalOperation):
            return  # it was too late, or the other way round
        if self.state[number] == "open" and outcome is not UNKNOWN:
            self.state[number] = "committed" if outcome is COMMIT else "rolled back"

    def _die_after(self, appends: int) -> None:
        real = self.broker.store.append

        def append(record: Record) -> None:
            nonlocal appends
            if appends == 0:
                raise Crash
            appends -= 1
            real(record)

        self.broker.store.append = append  # type: ignore[method-assign]

    def end_and_crash(self, number: int, appends: int) -> None:
        """Commit, and die before the first or the second of its appends."""
        self._die_after(appends)
        try:
            end(self, self.places[number][0], COMMIT)
        except Crash:
            # Not by the count: the start after the last crash may have had an append of its own to catch up with.
            if self.state[number] == "open" and number in self.delivered():
                self.state[number] = "committed"
        except (SystemFailure, IllegalOperation):
            pass
        self.crash()

    def check_and_crash(self, appends: int) -> None:
        self._die_after(appends)
        with suppress(Crash):
            self.check(30)
        self.crash()

    def check(self, seconds: int) -> None:
        self.clock.advance(seconds=seconds)
        check_transactions(self.clock.now(), self.broker)
        for command in self.link.sent:
            number = int(message.decode(command.body).body)
            self.places[number].append(command.fields(CheckTransaction))
        self.link.sent.clear()

    def save(self) -> None:
        self.broker.offsets.save()

    def crash(self) -> None:
        """What is in the files now is all that stays."""
        copy = Path(tempfile.mkdtemp(prefix="transactions-"))
        shutil.rmtree(copy)
        shutil.copytree(self.directory, copy)
        self._old.append((self.broker, self.directory))
        self.directory = copy
        self._open()

    def restart(self) -> None:
        self.broker.offsets.save()
        self.broker.store.close()
        self._open()

    def delivered(self) -> list[int]:
        store = self.broker.store
        found = [store.record_of("orders", 0, at) for at in range(store.max_offset("orders", 0))]
        return sorted(int(record.body) for record in found if record is not None)

    def close(self) -> None:
        for broker, directory in [*self._old, (self.broker, self.directory)]:
            broker.store.close()
            shutil.rmtree(directory, ignore_errors=True)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("send")),
        st.tuples(st.just("send")),
        st.tuples(st.just("end"), st.integers(0, 9), st.integers(0, 3), st.sampled_from(list(Outcome))),
        st.tuples(st.just("end"), st.integers(0, 9), st.integers(0, 3), st.sampled_from(list(Outcome))),
        st.tuples(st.just("check"), st.sampled_from([1, 6, 30, 120])),
        st.tuples(st.just("save")),
        st.tuples(st.just("crash")),
        st.tuples(st.just("restart")),
        st.tuples(st.just("end_and_crash"), st.integers(0, 9), st.integers(0, 1)),
        st.tuples(st.just("check_and_crash"), st.integers(0, 3)),
    ),
    max_size=25,
)


def test_a_commit_of_what_was_given_up_before_a_crash_is_no_success() -> None:
    """The start after a crash knows that it has ended, not how: saying "committed" would lose the message silently."""
    world = World()
    try:
        world.send()
        world.check(6)
        world.check(30)
        world.check_and_crash(1)  # between the copy for those given up and the word that it has ended
        world.check_and_crash(2)
        with pytest.raises(SystemFailure, match="no message of it: rolled back, given up"):
            end(world, world.places[0][0], COMMIT)
        assert world.delivered() == []
    finally:
        world.close()


def test_a_commit_cut_short_of_the_first_message_of_all_is_found_after_a_check() -> None:
    """It lies at 0 in the log, where its committed copy points; the open copy is the one that was checked."""
    world = World()
    try:
        world.send()
        world.check(6)
        world.end_and_crash(0, 1)
        world.end_and_crash(0, 1)
        assert world.delivered() == [0]
    finally:
        world.close()


def test_a_commit_repeated_after_a_crash_is_one() -> None:
    world = World()
    try:
        world.send()
        world.end(0, 0, COMMIT)
        world.check(30)
        world.save()
        world.crash()
        end(world, world.places[0][0], COMMIT)
        assert world.delivered() == [0]
    finally:
        world.close()


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(ACTIONS)
def test_no_history_loses_doubles_or_shows_a_message_early(actions: list[tuple[Any, ...]]) -> None:
    world = World()
    try:
        for name, *arguments in actions:
            if name in ("end", "end_and_crash"):
                if not world.state:
                    continue
                arguments[0] %= len(world.state)
            getattr(world, name)(*arguments)
            committed = [n for n, state in enumerate(world.state) if state == "committed"]
            assert world.delivered() == committed
        # Whatever is still open has not been lost: it is asked about, or in the topic of those given up.
        before = world.delivered()
        for _ in range(6):
            world.check(30)
        left = {n for n, state in enumerate(world.state) if state == "open"}
        store = world.broker.store
        given_up = [
            store.record_of(names.CHECK_MAX_TOPIC, 0, at)
            for at in range(store.max_offset(names.CHECK_MAX_TOPIC, 0))
        ]
        assert {int(record.body) for record in given_up if record} >= left
        assert world.delivered() == before
    finally:
        world.close()


def test_a_producer_cannot_pass_anothers_transaction_off_as_committed(bench: Any) -> None:
    half(bench, UNIQ_KEY="AA")
    half(bench, UNIQ_KEY="AB")
    bench.send("orders", b"forged", properties={"UNIQ_KEY": "AB"}, sys_flag=int(SysFlag.COMMIT))
    bench.restart()
    catch_up(bench.broker)
    assert len(bench.broker.transactions) == 2


def test_how_long_a_transaction_took_counts_from_the_birth_of_its_message(bench: Any) -> None:
    named = {"TRAN_MSG": "true", "PGROUP": "shop"}
    born = bench.clock.now() - 4_000
    sent = bench.send("orders", properties=named, sys_flag=4, producer_group="shop", born_timestamp=born)
    bench.clock.advance(1_000)
    end(bench, sent, COMMIT)
    ((topic, took),) = bench.broker.stats.counted.finish_s
    assert (topic, took.sum) == ("orders", 5.0)


def test_a_half_message_of_no_group_is_ended_by_nobody(bench: Any) -> None:
    sent = bench.send("orders", properties={"TRAN_MSG": "true"}, sys_flag=4)
    for group in ("shop", ""):
        with pytest.raises(SystemFailure, match="the half message is of producer group"):
            end(bench, sent, COMMIT, group)
    assert bench.records("orders") == []


def test_an_ordinary_message_cannot_be_committed(bench: Any) -> None:
    """Whatever its producer wrote into it."""
    looks = {"PGROUP": "shop", "REAL_TOPIC": "orders", "REAL_QID": "0"}
    sent = bench.send("orders", properties=looks)
    with pytest.raises(SystemFailure, match=f"no half message at commit-log offset {sent.physical_offset}"):
        end(bench, sent, COMMIT)
    assert len(bench.records("orders")) == 1


def test_a_committed_message_is_as_its_producer_sent_it(bench: Any) -> None:
    said = {
        "flag": 7,
        "reconsume_times": 2,
        "born_host": b"\x0a\0\0\x07\0\0\x30\x39",
        "born_timestamp": 123_456,
    }
    sent = bench.send(
        "orders", b"paid", 3, properties={"TRAN_MSG": "true", "PGROUP": "shop"}, sys_flag=5, **said
    )
    end(bench, sent, COMMIT)
    (committed,) = bench.records("orders", 3)
    assert {name: getattr(committed, name) for name in said} == said
    assert committed.sys_flag == 1 | SysFlag.COMMIT


def test_a_message_whose_topic_was_deleted_meanwhile_is_not_committed(bench: Any) -> None:
    sent = half(bench)
    bench.broker.topics.delete("orders")
    with pytest.raises(SystemFailure, match="topic 'orders' of the half message was deleted"):
        end(bench, sent, COMMIT)
    assert bench.records("orders") == []
    assert len(bench.broker.transactions) == 1, "it may still be rolled back"
    end(bench, sent, ROLLBACK)
    assert len(bench.broker.transactions) == 0


def test_after_a_restart_one_that_was_asked_about_waits_for_its_next_check(bench: Any) -> None:
    online(bench)
    half(bench)
    bench.clock.advance(6_000)
    check_transactions(bench.clock.now(), bench.broker)
    bench.restart()
    link = online(bench)
    for seconds, asked in ((6, 0), (23.9, 0), (0.1, 1)):
        bench.clock.advance(seconds=seconds)
        check_transactions(bench.clock.now(), bench.broker)
        assert len(link.checks()) == asked


def test_questions_are_spread_over_the_producers_of_a_group(bench: Any) -> None:
    links = [FakeLink(), FakeLink()]
    for number, link in enumerate(links):
        bench.broker.clients.register_producer(link, f"client-{number}", "shop", bench.clock.now())
    for _ in range(4):
        half(bench)
    bench.clock.advance(6_000)
    check_transactions(bench.clock.now(), bench.broker)
    assert [len(link.checks()) for link in links] == [2, 2]
