# SPDX-License-Identifier: Apache-2.0
"""Whatever is written in the topics that background jobs read: no job stops at it, and what is sound is delivered."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.broker.background.jobs import Background
from aerobee.broker.background.schedule import Schedule
from aerobee.broker.background.timers import Timers
from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations.admin.cluster import runtime_info
from aerobee.broker.operations.pop import Pop, pop
from aerobee.broker.state.skipped import Skipped, is_of_the_record
from aerobee.errors import CorruptRecord, DiskFull, MessageIllegal, ProtocolError, StoreError
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.message import MAX_PROPERTIES, RECORD_CHECK_SIZE, Record

if TYPE_CHECKING:
    from aerobee.broker.background.runner import Job

REVIVE = names.revive_topic("DefaultCluster")
Broker = Callable[[], AbstractContextManager[Any]]
NO_NUMBERS = ["²", "9" * 5000, "1e3", "-", "", "0x1", "1_0", "٣", "9223372036854775808"]
NO_QUEUES = [*NO_NUMBERS, "99999999999", "-1", "2147483648"]


def until_idle(tick: Callable[[int], Any], now: int) -> None:
    for _ in range(1000):
        if tick(now) > 0:
            return
    raise AssertionError("never idle")


class Jobs:
    """The real jobs of a broker, driven by hand."""

    NAMES = ("schedule", "timers", "revive", "transactions")

    def __init__(self, bench: Any) -> None:
        self.bench = bench
        self._background = Background(bench.broker)
        found: list[Job] = self._background.jobs()
        self._jobs = [job for job in found if job.name in self.NAMES]
        assert len(self._jobs) == len(self.NAMES)

    def run(self, ms: int) -> None:
        """A failing tick would be tried again a second later, for ever: here it fails the test."""
        for _ in range(max(1, ms // 1000)):
            self.bench.clock.advance(min(ms, 1000))
            for job in self._jobs:
                until_idle(job.tick, self.bench.clock.now())

    def close(self) -> None:
        self._background.save()


def plant(bench: Any, topic: str, text: str, body: bytes = b"bad", queue_id: int = 0) -> None:
    """Past all checks of a send: as another broker or an older version may have written it."""
    bench.broker.store.append(Record(topic, body, text, queue_id))


def properties(**values: str) -> str:
    return props.render(values)


# -- single records ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number"),
    [("TIMER_OUT_MS", number) for number in NO_NUMBERS] + [("REAL_QID", number) for number in NO_QUEUES],
)
def test_a_timed_message_that_names_no_number_stops_no_other(broker: Broker, name: str, number: str) -> None:
    with broker() as bench:
        jobs = Jobs(bench)
        sound = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_OUT_MS": str(bench.clock.now())}
        plant(bench, names.TIMER_TOPIC, properties(**{**sound, name: number}))
        plant(bench, names.SCHEDULE_TOPIC, properties(REAL_TOPIC="orders", REAL_QID=number))
        bench.send(body=b"timed", properties={"TIMER_DELAY_MS": "2000"})
        bench.send(body=b"level 1", properties={"DELAY": "1"})
        jobs.run(4_000)
        assert sorted(record.body for record in bench.records("orders")) == [b"level 1", b"timed"]
        assert bench.broker.stats.skipped.count >= 1
        jobs.close()


def test_it_is_logged_once_with_its_place_and_counted(bench: Any, clock: Any, caplog: Any) -> None:
    timers = Timers(bench.broker.store, bench.broker.stats, clock)
    bench.send(properties={"TIMER_DELAY_MS": "1000"})
    plant(bench, names.TIMER_TOPIC, properties(REAL_TOPIC="orders", REAL_QID="²", TIMER_OUT_MS="1"))
    for _ in range(50):
        clock.advance(1000)
        timers.tick(clock.now())
    timers.close()
    lines = [record.getMessage() for record in caplog.records if "stepped over" in record.getMessage()]
    assert len(lines) == 1
    assert "job=timers queue_offset=1" in lines[0]
    assert runtime_info(bench.broker)["recordsSteppedOver"] == "1"


def test_the_disks_refusals_skip_nothing(bench: Any, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    skipped = bench.broker.stats.skipped
    schedule, timers = (
        Schedule(bench.broker.store, bench.broker.stats),
        Timers(bench.broker.store, bench.broker.stats, clock),
    )
    bench.send(body=b"timed", properties={"TIMER_DELAY_MS": "1500"})
    bench.send(body=b"level 1", properties={"DELAY": "1"})
    timers.tick(clock.now())
    clock.advance(5_000)
    for failure in (DiskFull("full"), StoreError("broken"), OSError(errno.EIO, "I/O error"), MemoryError()):

        def refuse(record: Record, failure: Exception = failure) -> None:
            raise failure

        with monkeypatch.context() as refusing:
            refusing.setattr(bench.broker.store, "append", refuse)
            for tick in (schedule.tick, timers.tick):
                with pytest.raises(type(failure)):
                    until_idle(tick, clock.now())
    for tick in (schedule.tick, timers.tick):
        until_idle(tick, clock.now())
    timers.close()
    assert sorted(record.body for record in bench.records("orders")) == [b"level 1", b"timed"]
    assert skipped.count == 0


@pytest.mark.parametrize(
    "error", [MessageIllegal("too long"), ProtocolError("bad"), CorruptRecord("torn"), KeyError("x")]
)
def test_what_is_the_records_own_fault(error: Exception) -> None:
    skipped = Skipped()
    with skipped.over("timers", offset=7):
        raise error
    assert skipped.count == 1


def test_being_stopped_is_not_the_records_fault() -> None:
    assert not is_of_the_record(KeyboardInterrupt())


class TestPropertiesAsLongAsTheyCanBe:
    """The broker adds stamps when it stores a message again; that must not be what stops it."""

    def test_a_delayed_message_is_refused_when_it_leaves_no_room_for_them(self, bench: Any) -> None:
        for special in ({"TIMER_DELAY_MS": "1000"}, {"DELAY": "1"}, {"TRAN_MSG": "true"}):
            with pytest.raises(MessageIllegal, match="properties of"):
                bench.send(properties={**special, "KEYS": "k", "x": "y" * 32_600})

    def test_a_delayed_message_that_was_taken_is_delivered(self, broker: Broker) -> None:
        with broker() as bench:
            jobs, sent = Jobs(bench), 0
            for length in range(32_200, 32_767):
                try:
                    bench.send(body=b"x", properties={"TIMER_DELAY_MS": "1000", "x": "y" * length})
                    sent += 1
                except MessageIllegal:
                    break
            jobs.run(3_000)
            assert sent > 0
            assert len(bench.records("orders")) == sent
            assert bench.broker.stats.skipped.count == 0
            jobs.close()

    def test_a_popped_message_comes_back(self, broker: Broker) -> None:
        with broker() as bench:
            jobs = Jobs(bench)
            bench.send(body=b"x", properties={"UNIQ_KEY": "k"})
            stamps = len(bench.records("orders")[0].properties_text) - RECORD_CHECK_SIZE
            longest = MAX_PROPERTIES - RECORD_CHECK_SIZE - stamps - len("x\x01\x02")
            bench.send(body=b"longest", properties={"UNIQ_KEY": "k", "x": "y" * longest})
            with pytest.raises(MessageIllegal):
                bench.send(body=b"longest", properties={"UNIQ_KEY": "k", "x": "y" * (longest + 1)})
            pop(
                Pop("billing", "orders", Start.MIN, 0, invisible_ms=2_000, born_time=bench.clock.now()),
                bench.broker,
            )
            jobs.run(6_000)
            retry = bench.records(names.pop_retry_topic("orders", "billing"))
            assert [record.body for record in retry] == [b"x", b"longest"]
            jobs.close()

    def test_a_half_message_of_another_broker_is_left_to_its_producer(self, broker: Broker) -> None:
        with broker() as bench:
            jobs = Jobs(bench)
            text = properties(REAL_TOPIC="orders", REAL_QID="0", PGROUP="shop", x="y" * 32_600)
            plant(bench, names.HALF_TOPIC, text)
            jobs.run(120_000)
            assert len(bench.broker.transactions) == 1
            jobs.close()


# -- anything ----------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        "orders",
        "..",
        "../../x",
        "a/b",
        "%RETRY%g+t",
        REVIVE,
        names.TIMER_TOPIC,
        names.HALF_TOPIC,
        "x" * 300,
        "²",
        "9" * 5000,
        "99999999999",
        "-1",
        "0",
        "1",
        "18",
        "9" * 15,
        "9" * 18,
        "true",
    ]
)
TEXT = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\x01\x02"), min_size=1, max_size=40
)
VALUE = WORDS | TEXT | st.integers(-(2**70), 2**70).map(str)
READ_BY_JOBS = [
    "REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_ROLL_TIMES", "UNIQ_KEY", "DELAY", "TAGS",
    "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "CHECK_IMMUNITY_TIME_IN_SECONDS", "PGROUP", "KEYS",
    "1ST_POP_TIME", "POP_CK", "__CRC32#", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "INNER_NUM",
]  # fmt: skip
SOUND = {"REAL_TOPIC": "orders", "REAL_QID": "0", "TIMER_OUT_MS": "1000", "PGROUP": "shop", "UNIQ_KEY": "k"}
PROPERTIES = st.dictionaries(st.sampled_from(READ_BY_JOBS), VALUE, max_size=6).map(
    lambda odd: {**SOUND, **odd}
)
NUMBER = st.integers(-(2**70), 2**70) | st.sampled_from([0, 1, 31, 2**31, 2**42, 2**63])
ENTRY = st.fixed_dictionaries(
    {"t": st.just("orders") | VALUE, "c": st.just("billing") | VALUE},
    optional={
        "q": NUMBER | st.just(0), "so": NUMBER | st.just(0), "pt": NUMBER, "it": NUMBER, "n": NUMBER, "bm": NUMBER,
        "d": st.lists(NUMBER | st.integers(0, 40), max_size=40), "ao": NUMBER, "bn": TEXT,
        "aol": st.lists(NUMBER | st.integers(0, 40), max_size=40),
    },
)  # fmt: skip


BODY = (
    st.binary(min_size=1, max_size=60)
    | ENTRY.map(lambda entry: json.dumps(entry).encode())
    | st.lists(NUMBER, min_size=1).map(lambda numbers: ",".join(map(str, numbers)).encode())
)
PLACE = st.sampled_from(
    [
        (names.TIMER_TOPIC, 0),
        (names.SCHEDULE_TOPIC, 0),
        (names.SCHEDULE_TOPIC, 17),
        (names.HALF_TOPIC, 0),
        (names.OP_TOPIC, 0),
        (REVIVE, 0),
        (REVIVE, 3),
    ]
)
TAG = st.sampled_from(["ck", "ack", "bAck", "drop", "d", ""])
PLANTED = st.lists(st.tuples(PLACE, PROPERTIES, TAG, BODY), min_size=1, max_size=12)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(PLANTED, st.booleans())
def test_no_job_stops_at_anything(broker: Broker, planted: list[Any], restarted: bool) -> None:
    with broker() as bench:
        bench.broker.topics.ensure("orders", 4)
        jobs = Jobs(bench)
        for (topic, queue_id), found, tag, body in planted:
            text = props.render({**found, "TAGS": tag} if tag else found)
            try:
                plant(bench, topic, text, body, queue_id)
            except MessageIllegal:  # too long for any store
                continue
        if restarted:
            jobs.close()
            bench.restart()
            jobs = Jobs(bench)
        before = {(q, r.body) for q in range(4) for r in bench.records("orders", q)}
        assert (1, b"timed") not in before
        bench.send(queue_id=1, body=b"timed", properties={"TIMER_DELAY_MS": "2000"})
        bench.send(queue_id=1, body=b"level 1", properties={"DELAY": "1"})
        bench.send(queue_id=2, body=b"popped")
        pop(
            Pop("shipping", "orders", Start.MIN, 2, invisible_ms=2_000, born_time=bench.clock.now()),
            bench.broker,
        )
        jobs.run(5_000)
        good = {record.body for record in bench.records("orders", 1)}
        assert {b"timed", b"level 1"} <= good
        retried = bench.records(names.pop_retry_topic("orders", "shipping"))
        assert b"popped" in {record.body for record in retried}
        allowed = {"orders", *bench.broker.topics.all()} | {
            t for t in bench.broker.store.topics() if names.may_deliver(t)
        }
        assert set(bench.broker.store.topics()) <= allowed
        jobs.close()


@settings(max_examples=200, deadline=None)
@given(VALUE)
def test_a_whole_number_is_one_that_a_long_can_hold(text: str) -> None:
    number = props.whole_number(text, -(2**63), 2**63 - 1)
    assert number is None or (-(2**63) <= number < 2**63 and int(text) == number)
