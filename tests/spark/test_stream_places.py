# SPDX-License-Identifier: Apache-2.0
"""A stream's place among thousands of queues: what is asked of which broker, what is planned, and what happens when
topics and brokers go. The cluster is a table in memory: no server, no Spark, no time but the test's."""

from __future__ import annotations

import json
import pickle
from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from aerobee import ManualClock
from aerobee.errors import (
    AerobeeError,
    GroupNotFound,
    NetworkError,
    NoPermission,
    QueryNotFound,
    RequestCodeNotSupported,
    TopicNotFound,
)
from aerobee.protocol import bodies
from aerobee.protocol import command as wire
from aerobee.protocol.headers.consume import HeadsRead, ReadHeads
from aerobee.protocol.headers.offsets import OffsetResult, QueryConsumerOffset, UpdateConsumerOffset
from aerobee.protocol.headers.route import GetRoute
from aerobee.protocol.headers.topics import TopicStatsQuery
from aerobee.spark import options
from aerobee.spark.reading import plan
from aerobee.spark.reading.offsets import OffsetTexts, UnknownOffsets, offsets_of
from aerobee.spark.reading.queue_source import BrokerQueues
from aerobee.spark.reading.quiet import IDLE_MS, MOST_PAUSE_MS, PAUSE_MS
from aerobee.spark.reading.stream_reader import GONE_MS, StreamReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.protocol.command import Command, Header
    from aerobee.spark.cluster import Question

ALL = ReadAllAvailable()


class Broker:
    def __init__(self, name: str, port: int, *, aerobee: bool) -> None:
        self.name, self.address, self.aerobee = name, f"10.0.0.1:{port}", aerobee
        self.queues: dict[str, dict[int, list[int]]] = {}
        self.offsets: dict[tuple[str, int], int] = {}
        self.away = False
        self.readable = 1 << 30  # so many queues of each topic at most
        self.refuses_all = False
        self._log: list[tuple[str, int]] = []
        self._changes = 0

    def put(self, topic: str, queue: int = 0, count: int = 1) -> None:
        self.queues[topic][queue][1] += count
        self._log += [(topic, queue)] * count

    def create(self, topic: str, queues: int = 1) -> None:
        self.queues[topic] = {queue: [0, 0] for queue in range(queues)}
        self._changes += 1

    def delete(self, topic: str) -> None:
        del self.queues[topic]
        self._changes += 1

    def answer(self, header: Header, body: bytes) -> Command:
        if isinstance(header, ReadHeads) and self.aerobee:
            return self._heads(header.since, json.loads(body) if body else None)
        if isinstance(header, TopicStatsQuery):
            return self._stats(header.topic)
        if isinstance(header, QueryConsumerOffset):
            at = self.offsets.get((header.topic, header.queue_id))
            if at is None:
                raise QueryNotFound("never")
            return reply(OffsetResult(offset=at))
        if isinstance(header, UpdateConsumerOffset):
            self.offsets[header.topic, header.queue_id] = header.commit_offset
            return reply()
        raise RequestCodeNotSupported("what?")

    def _heads(self, since: str, names: list[str] | None) -> Command:
        stamp = f"{self._changes}.{len(self._log)}"
        if names is None:
            if self.refuses_all:
                raise NoPermission("not yours")
            changes, _, position = since.partition(".")
            if changes != str(self._changes):
                return reply(HeadsRead(stamp=stamp))
            moved: dict[str, set[int]] = defaultdict(set)
            for topic, queue in self._log[int(position) :]:
                moved[topic].add(queue)
            found = {t: [(q, *self.queues[t][q]) for q in sorted(qs)] for t, qs in moved.items()}
            return reply(HeadsRead(stamp=stamp, since=since), bodies.QueueHeads(topics=found))  # type: ignore[arg-type]
        if since == stamp:
            return reply(HeadsRead(stamp=stamp, since=since))
        there = {t: [(q, *at) for q, at in self.queues[t].items()] for t in names if t in self.queues}
        return reply(HeadsRead(stamp=stamp), bodies.QueueHeads(topics=there))  # type: ignore[arg-type]

    def _stats(self, topic: str) -> Command:
        if topic not in self.queues:
            raise TopicNotFound(topic)
        table = {
            bodies.MessageQueue(self.name, queue, topic): bodies.TopicOffset(min_offset=low, max_offset=high)
            for queue, (low, high) in self.queues[topic].items()
        }
        return reply(None, bodies.TopicStats(offset_table=table))


def reply(header: Header | None = None, body: Any = None) -> Command:
    fields = wire.header_fields(header) if header else {}
    told = wire.Command(0, 1, flag=1, ext=fields, body=bodies.encode(body) if body else b"")
    return wire.decode(wire.encode(told)[4:])


class Cluster:
    """Brokers and a name server that always knows which topics each has, and counts what it and they are asked."""

    def __init__(self, *brokers: Broker) -> None:
        self.brokers = {broker.name: broker for broker in brokers}
        self.away = False
        self.asked: Counter[str] = Counter()

    def close(self) -> None:
        """Nothing is open."""

    def topics(self) -> list[str]:
        if self.away:
            raise NetworkError("no name server answers")
        return sorted({topic for broker in self.brokers.values() for topic in broker.queues})

    def masters(self) -> dict[str, str]:
        return {name: broker.address for name, broker in self.brokers.items()}

    def ask_name_server_each(self, headers: Sequence[Header]) -> list[Command | AerobeeError]:
        return [self._route(header) for header in headers]

    def _route(self, header: Header) -> Command | AerobeeError:
        assert isinstance(header, GetRoute)
        self.asked["route"] += 1
        if self.away:
            return NetworkError("no name server answers")
        having = [b for b in self.brokers.values() if header.topic in b.queues]
        if not having:
            return TopicNotFound(f"no route to {header.topic!r}")
        counts = [(b, min(b.readable, len(b.queues[header.topic]))) for b in having]
        return reply(
            None,
            bodies.TopicRoute(
                queue_datas=[
                    bodies.QueueData(broker_name=b.name, read_queue_nums=n, write_queue_nums=n, perm=6)
                    for b, n in counts
                ],
                broker_datas=[
                    bodies.BrokerData(cluster="c", broker_name=b.name, broker_addrs={0: b.address})
                    for b in having
                ],
            ),
        )

    def ask_each(self, questions: Sequence[Question]) -> list[Command | AerobeeError]:
        answers: list[Command | AerobeeError] = []
        by_address = {broker.address: broker for broker in self.brokers.values()}
        for address, header, body in questions:
            self.asked[type(header).__name__] += 1
            broker = by_address.get(address)
            try:
                if broker is None or broker.away:
                    raise NetworkError(f"cannot reach {address}")
                answers.append(broker.answer(header, body))
            except AerobeeError as error:
                answers.append(error)
        return answers


class Stream:
    """A reader at that cluster, its clock, and the place Spark would have it at."""

    def __init__(self, cluster: Cluster, **given: str) -> None:
        fixed = {"namesrv": "10.0.0.9:9876", "startingOffsets": "earliest"}
        if not given.keys() & {"subscribe", "assign"}:
            fixed["subscribePattern"] = "t.*"
        self.options = options.for_stream({**fixed, **given})
        self.cluster, self.clock = cluster, ManualClock()
        self.reader = self.new_reader()
        self.slept: list[float] = []
        self.reader._sleep = self.slept.append
        self.at = self.passed(self.reader.initialOffset())

    def new_reader(self) -> StreamReader:
        """As after a restart."""
        reader: Any = StreamReader(self.options)
        source: Any = BrokerQueues(self.options)
        source._cluster = source._routes._cluster = self.cluster
        reader._source_now, reader._clock = source, self.clock
        found: StreamReader = reader
        return found

    @staticmethod
    def passed(offset: dict[str, Any]) -> dict[str, Any]:
        """Spark keeps text."""
        found: dict[str, Any] = json.loads(json.dumps(offset))
        return found

    def look(self, limit: Any = ALL) -> dict[str, Any]:
        return self.passed(self.reader.latestOffset(self.at, limit))

    def batch(self, limit: Any = ALL) -> list[plan.Range]:
        """One micro-batch: what it reads; nothing when there is none."""
        end = self.look(limit)
        if end == self.at:
            return []
        start, self.at = self.at, end
        return self.parts(start, end)

    def parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[plan.Range]:
        return sorted(part for task in self.reader.partitions(start, end) for part in task.task.parts)  # type: ignore[attr-defined]

    def count(self, limit: Any = ALL) -> int:
        return sum(map(len, self.batch(limit)))


@pytest.fixture(params=["aerobee", "apache"])
def a(request: pytest.FixtureRequest) -> Broker:
    return Broker("a", 1, aerobee=request.param == "aerobee")


@pytest.fixture
def b(a: Broker) -> Broker:
    return Broker("b", 2, aerobee=a.aerobee)


@pytest.fixture
def ours() -> Broker:
    return Broker("a", 1, aerobee=True)


def wide(broker: Broker, topics: int = 120, queues: int = 4) -> None:
    for i in range(topics):
        broker.create(f"t{i:04d}", queues)


# -- what is asked --------------------------------------------------------------------------------------------


def test_one_small_request_tells_what_moved_among_all_queues(ours: Broker) -> None:
    wide(ours)
    stream = Stream(cluster := Cluster(ours))
    stream.batch()  # empty topics have a place now
    cluster.asked.clear()
    assert stream.count() == 0
    ours.put("t0007", 2, 5)
    ours.put("t0100", 0, 1)
    assert stream.batch() == [plan.Range("t0007", "a", 2, 0, 5), plan.Range("t0100", "a", 0, 0, 1)]
    assert cluster.asked == {"ReadHeads": 2}  # a look each; what was planned asked for nothing more


def test_a_few_topics_are_named_for_others_may_be_busy(ours: Broker) -> None:
    wide(ours, 3)
    ours.create("busy")
    stream = Stream(cluster := Cluster(ours))
    stream.batch()
    ours.refuses_all = True
    ours.put("busy")
    cluster.asked.clear()
    assert stream.count() == 0
    ours.put("t0001")
    assert stream.batch() == [plan.Range("t0001", "a", 0, 0, 1)]
    assert cluster.asked == {"ReadHeads": 2}


def test_a_broker_that_tells_only_of_topics_by_name_is_asked_so(ours: Broker) -> None:
    wide(ours)
    ours.refuses_all = True
    stream = Stream(cluster := Cluster(ours))
    stream.batch()
    for n in range(3):
        ours.put("t0003", n)
        assert stream.batch() == [plan.Range("t0003", "a", n, 0, 1)]
    cluster.asked.clear()
    assert stream.count() == 0
    assert cluster.asked == {"ReadHeads": 2}  # a hundred names each


def test_another_broker_is_asked_topic_by_topic_and_the_same_answer_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = Broker("a", 1, aerobee=False)
    wide(other)
    stream = Stream(cluster := Cluster(other))
    stream.batch()
    cluster.asked.clear()
    read: list[type] = []
    decode = bodies.decode
    monkeypatch.setattr(bodies, "decode", lambda body, kind: read.append(kind) or decode(body, kind))
    other.put("t0003", 1)
    assert stream.batch() == [plan.Range("t0003", "a", 1, 0, 1)]
    assert cluster.asked == {"TopicStatsQuery": 120}
    assert read == [bodies.TopicStats]


def test_a_queue_that_is_no_more_to_be_read_keeps_its_place_unread() -> None:
    other = Broker("a", 1, aerobee=False)
    wide(other, 1, 2)
    stream = Stream(Cluster(other))
    stream.batch()
    other.readable = 1
    stream.clock.advance(5_000)
    assert stream.count() == 0
    other.put("t0000", 1)
    assert stream.count() == 0
    other.readable = 2
    stream.clock.advance(5_000)
    assert stream.batch() == [plan.Range("t0000", "a", 1, 0, 1)]


def test_while_nothing_moves_nothing_is_computed(a: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    wide(a)
    stream = Stream(Cluster(a))
    stream.batch()
    assert stream.count() == 0
    told = stream.reader.reportLatestOffset()
    monkeypatch.delattr(plan, "unlike")
    monkeypatch.delattr(plan, "edge")
    assert stream.look() == stream.at
    assert stream.reader.reportLatestOffset() is told


def test_two_kinds_of_brokers_in_one_cluster() -> None:
    one, other = Broker("a", 1, aerobee=True), Broker("b", 2, aerobee=False)
    for broker in (one, other):
        wide(broker, 3, 2)
        broker.put("t0001", 1, 7)
    stream = Stream(Cluster(one, other))
    assert stream.batch() == [plan.Range("t0001", "a", 1, 0, 7), plan.Range("t0001", "b", 1, 0, 7)]
    other.put("t0002", 0, 2)
    assert stream.batch() == [plan.Range("t0002", "b", 0, 0, 2)]


def test_routes_of_thousands_are_asked_for_again_by_the_hundred(ours: Broker) -> None:
    wide(ours, 250, 1)
    stream = Stream(cluster := Cluster(ours))
    stream.batch()
    newer = Broker("b", 2, aerobee=True)
    cluster.brokers["b"] = newer
    newer.create("t0249")
    newer.put("t0249")
    asked, found = [], []
    for _ in range(3):
        cluster.asked.clear()
        stream.clock.advance(5_000)
        found += stream.batch()
        asked.append(cluster.asked["route"])
    assert asked == [100, 100, 50]
    assert found == [plan.Range("t0249", "b", 0, 0, 1)]


def test_an_idle_stream_pauses_and_a_busy_one_does_not(ours: Broker) -> None:
    wide(ours, 1, 1)
    stream = Stream(Cluster(ours))
    stream.batch()
    assert stream.count() == 0
    stream.clock.advance(IDLE_MS - 1)
    assert stream.count() == 0
    assert stream.slept == []
    stream.clock.advance(1)
    assert stream.count() == 0
    assert stream.slept == [PAUSE_MS / 1000]
    stream.reader._quiet.looks_ms = deque([50, 10, 90])  # then looks are a twentieth of the time
    assert stream.count() == 0
    assert stream.slept[1:] == [0.19]
    stream.reader._quiet.looks_ms = deque([10_000])
    assert stream.count() == 0
    assert stream.slept[2:] == [MOST_PAUSE_MS / 1000]
    ours.put("t0000")
    assert stream.count() == 1
    stream.slept.clear()
    ours.put("t0000")
    assert stream.count() == 1
    assert stream.slept == []


def test_the_pause_is_by_what_looks_really_take(ours: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    wide(ours, 1, 1)
    stream = Stream(cluster := Cluster(ours))
    stream.batch()
    ask = cluster.ask_each

    def slow(questions: Sequence[Question]) -> list[Command | AerobeeError]:
        stream.clock.advance(10)
        return ask(questions)

    monkeypatch.setattr(cluster, "ask_each", slow)
    for _ in range(16):  # the quick ones before are forgotten
        assert stream.count() == 0
    stream.clock.advance(IDLE_MS)
    assert stream.count() == 0
    assert stream.slept[-1:] == [0.19]


# -- limits and targets over few of many ----------------------------------------------------------------------


def test_limits_are_shared_among_what_moved(ours: Broker) -> None:
    wide(ours, 50, 2)
    stream = Stream(Cluster(ours))
    stream.batch()
    ours.put("t0001", 0, 90)
    ours.put("t0002", 1, 10)
    assert [len(part) for part in stream.batch(ReadMaxRows(50))] == [45, 5]
    assert [len(part) for part in stream.batch(ReadMaxRows(50))] == [45, 5]
    assert stream.batch(ReadMaxRows(50)) == []


def test_available_now_reads_what_was_there_and_no_more(a: Broker) -> None:
    wide(a, 40, 1)
    a.put("t0005", 0, 10)
    stream = Stream(Cluster(a))
    stream.reader.prepareForTriggerAvailableNow()
    a.put("t0005", 0, 5)
    a.put("t0006", 0, 5)
    a.create("t9999")
    a.put("t9999")
    assert [len(part) for part in stream.batch(ReadMaxRows(6))] == [6]
    assert [len(part) for part in stream.batch(ReadMaxRows(6))] == [4]
    assert stream.batch() == []


# -- offsets --------------------------------------------------------------------------------------------------


def test_many_queues_take_little_room_and_few_are_readable(ours: Broker) -> None:
    wide(ours, 2)
    assert Stream(Cluster(ours)).at == {
        "init": True,
        "o": {name: {"a": {"0": 0, "1": 0, "2": 0, "3": 0}} for name in ("t0000", "t0001")},
        "v": 1,
    }
    wide(ours, 500)
    stream = Stream(Cluster(ours))
    ours.put("t0123", 1, 40)
    end = stream.look()
    plain = {"o": offsets_of(end), "v": 1}
    assert end["v"] == 2
    assert len(json.dumps(end)) * 4 < len(json.dumps(plain))
    assert offsets_of(json.dumps(end))["t0123"] == {"a": {"0": 0, "1": 40, "2": 0, "3": 0}}


def test_a_checkpoint_of_the_first_version_goes_on(ours: Broker) -> None:
    wide(ours, 500)
    stream = Stream(Cluster(ours))
    ours.put("t0123", 1, 40)
    ours.put("t0200", 0, 3)
    places = {f"t{i:04d}": {"a": {str(q): 0 for q in range(4)}} for i in range(500)}
    places["t0123"]["a"]["1"] = 25
    stream.at, stream.reader = {"o": places, "v": 1}, stream.new_reader()
    assert stream.batch() == [plan.Range("t0123", "a", 1, 25, 40), plan.Range("t0200", "a", 0, 0, 3)]
    assert stream.at["v"] == 2
    stream.reader = stream.new_reader()
    ours.put("t0200", 0, 1)
    assert stream.batch() == [plan.Range("t0200", "a", 0, 3, 4)]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"v": 3, "o": {}}, "version 3.*reads 1 and 2.*another checkpoint"),
        ({"orders": {"0": 12}}, "not those of a rocketmq stream"),
        ({"v": 2, "z": "AAAA"}, "cannot be read"),
        ({"v": 2, "z": "!"}, "cannot be read"),
        ({"v": 2}, "version 2"),
        ([1], "not those of a rocketmq stream"),
    ],
)
def test_offsets_that_are_not_ours_or_too_new_say_so(ours: Broker, told: Any, said: str) -> None:
    wide(ours, 1)
    with pytest.raises(UnknownOffsets, match=said):
        Stream(Cluster(ours)).reader.latestOffset(told, ALL)


def test_offsets_come_back_as_they_were_and_equal_ones_are_equal_text() -> None:
    places = {f"t{i:03d}": {"a": {str(q): i * 1000 + q for q in range(12)}} for i in range(100)}
    texts = OffsetTexts()
    for told in (texts.initial(places), texts.reached(places), texts.reached(places, started=places)):
        assert OffsetTexts().read(told) == places
        assert [*told] == sorted(told)
    first = texts.reached(places, started={"t": {"a": {"0": 7}}})
    assert OffsetTexts().start_of(texts.initial(places), first) == {"t": {"a": {"0": 7}}}
    assert OffsetTexts().start_of(first, first) == places
    again = OffsetTexts().reached(json.loads(json.dumps(places)))
    assert json.dumps(again) == json.dumps(texts.reached(places))


# -- a crash before the first batch was done ------------------------------------------------------------------


@pytest.mark.parametrize("topics", [1, 500], ids=["readable", "deflated"])
def test_batch_0_is_replayed_from_where_it_started_whatever_latest_means_by_now(
    ours: Broker, topics: int
) -> None:
    wide(ours, topics)
    ours.put("t0000", 0, 10)
    stream = Stream(Cluster(ours), startingOffsets="latest")
    ours.put("t0000", 0, 5)
    start, end = stream.at, stream.look()
    assert stream.parts(start, end) == [plan.Range("t0000", "a", 0, 10, 15)]
    ours.put("t0000", 0, 100)
    after = stream.new_reader()
    again = stream.passed(after.initialOffset())
    assert offsets_of(again)["t0000"]["a"]["0"] == 115
    stream.reader = after
    assert stream.parts(again, end) == [plan.Range("t0000", "a", 0, 10, 15)]
    stream.at = end
    assert stream.batch() == [plan.Range("t0000", "a", 0, 15, 115)]


# -- a group --------------------------------------------------------------------------------------------------


def test_a_stream_starts_where_its_group_was_and_tells_how_far_it_came(a: Broker) -> None:
    wide(a, 2, 2)
    a.put("t0000", 0, 10)
    a.put("t0001", 1, 10)
    a.offsets = {("t0000", 0): 4}
    stream = Stream(Cluster(a), startingOffsets="group", group="g")
    assert stream.batch() == [plan.Range("t0000", "a", 0, 4, 10), plan.Range("t0001", "a", 1, 0, 10)]
    assert a.offsets == {("t0000", 0): 4}  # the batch may be replayed yet
    stream.batch()
    assert a.offsets == {("t0000", 0): 10, ("t0000", 1): 0, ("t0001", 0): 0, ("t0001", 1): 10}


def test_progress_that_cannot_be_told_is_told_later_and_fails_nothing(
    ours: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide(ours, 1, 1)
    stream = Stream(cluster := Cluster(ours), group="g")
    ours.put("t0000", 0, 3)
    assert stream.count() == 3
    answer = ours.answer

    def refused(header: Header, body: bytes) -> Command:
        if isinstance(header, UpdateConsumerOffset):
            raise GroupNotFound("g")
        return answer(header, body)

    monkeypatch.setattr(ours, "answer", refused)
    assert stream.count() == 0
    monkeypatch.setattr(ours, "answer", answer)
    cluster.asked.clear()
    assert stream.count() == 0
    assert cluster.asked["UpdateConsumerOffset"] == 0
    stream.clock.advance(1_000)
    assert stream.count() == 0
    assert ours.offsets == {("t0000", 0): 3}
    assert stream.count() == 0
    assert cluster.asked["UpdateConsumerOffset"] == 1


def test_progress_is_told_to_the_brokers_that_are_there(a: Broker, b: Broker) -> None:
    a.create("t-of-a")
    b.create("t-of-b")
    stream = Stream(cluster := Cluster(a, b), group="g")
    for broker in (a, b):
        broker.put(f"t-of-{broker.name}")
    assert stream.count() == 2
    del cluster.brokers["b"]
    stream.reader, stream.at = stream.new_reader(), stream.at  # knows b by its offsets only
    assert stream.count() == 0
    assert (a.offsets, b.offsets) == ({("t-of-a", 0): 1}, {})
    cluster.brokers["b"] = b
    stream.clock.advance(1_000)
    assert stream.count() == 0
    assert b.offsets == {("t-of-b", 0): 1}


def test_a_task_is_sent_the_options_and_nothing_the_driver_saw(ours: Broker) -> None:
    wide(ours, 500)
    stream = Stream(Cluster(ours))
    stream.batch()
    sent = pickle.dumps(stream.reader)
    assert len(sent) < 2_000
    assert pickle.loads(sent)._options == stream.options


# -- brokers that are away ------------------------------------------------------------------------------------


@pytest.mark.parametrize("fails", ["true", "false"])
def test_what_was_planned_of_a_broker_that_is_merely_away_is_not_given_up(a: Broker, fails: str) -> None:
    wide(a, 2, 1)
    a.put("t0000", 0, 5)
    stream = Stream(Cluster(a), failOnDataLoss=fails)
    start, end = stream.at, stream.look()
    a.away = True
    stream.reader = stream.new_reader()  # a replay: nothing was seen yet
    stream.reader._topics = frozenset({"t0000", "t0001"})
    with pytest.raises(NetworkError, match="cannot reach"):
        stream.parts(start, end)
    a.away = False
    assert stream.parts(start, end) == [plan.Range("t0000", "a", 0, 0, 5)]


def test_one_broker_away_keeps_its_place_and_stops_no_other(a: Broker, b: Broker) -> None:
    for broker in (a, b):
        wide(broker, 2, 1)
        broker.put("t0000", 0, 5)
    b.create("t-only-of-b")
    stream = Stream(cluster := Cluster(a, b))
    assert stream.count() == 10
    b.put("t0000", 0, 1)
    b.away = True
    a.put("t0000", 0, 2)
    assert stream.batch() == [plan.Range("t0000", "a", 0, 5, 7)]
    cluster.asked.clear()
    stream.batch()
    assert cluster.asked["route"] == 1  # b may have moved
    stream.clock.advance(10 * GONE_MS)
    a.put("t0001", 0, 2)
    assert stream.batch() == [plan.Range("t0001", "a", 0, 0, 2)]
    assert offsets_of(stream.at)["t0000"] == {"a": {"0": 7}, "b": {"0": 5}}
    b.away = False
    assert stream.batch() == [plan.Range("t0000", "b", 0, 5, 6)]


def test_a_stream_does_not_start_while_a_broker_is_away(a: Broker, b: Broker) -> None:
    """Its queues would be new later, and read from their beginning where "latest" was asked for."""
    for broker in (a, b):
        wide(broker, 1, 1)
    b.away = True
    with pytest.raises(NetworkError):
        Stream(Cluster(a, b), startingOffsets="latest", failOnDataLoss="false")


def test_a_name_server_that_is_away_stops_no_stream_that_runs(a: Broker) -> None:
    wide(a, 2, 1)
    stream = Stream(cluster := Cluster(a))
    stream.batch()
    cluster.away = True
    stream.clock.advance(60_000)
    a.put("t0001")
    assert stream.batch() == [plan.Range("t0001", "a", 0, 0, 1)]
    with pytest.raises(NetworkError):
        Stream(cluster)


def test_a_broker_that_moved_is_found(a: Broker) -> None:
    wide(a, 2, 1)
    stream = Stream(Cluster(a))
    stream.batch()
    a.address = "10.0.0.7:7"
    a.put("t0001")
    assert stream.batch() == [plan.Range("t0001", "a", 0, 0, 1)]


# -- topics that go -------------------------------------------------------------------------------------------


def deleted_long_ago(broker: Broker, topic: str, stream: Stream) -> None:
    broker.delete(topic)
    stream.batch()
    stream.batch()
    stream.clock.advance(GONE_MS)


def test_a_deleted_topic_is_carried_for_a_minute_and_then_forgotten(a: Broker) -> None:
    wide(a, 60, 1)
    a.put("t0005", 0, 9)
    stream = Stream(cluster := Cluster(a))
    stream.batch()
    a.delete("t0005")
    stream.clock.advance(5_000)
    stream.batch()  # not seen
    stream.batch()  # not there, says its broker
    a.put("t0001")
    stream.clock.advance(GONE_MS - 1)
    assert stream.count() == 1
    assert offsets_of(stream.at)["t0005"] == {"a": {"0": 9}}
    a.put("t0001")
    stream.clock.advance(1)
    assert stream.count() == 1
    assert "t0005" not in offsets_of(stream.at)
    stream.batch()
    stream.clock.advance(5_000)
    stream.batch()
    cluster.asked.clear()
    stream.batch()
    assert cluster.asked == ({"ReadHeads": 1} if a.aerobee else {"TopicStatsQuery": 59})
    a.create("t0005")
    a.put("t0005", 0, 2)
    stream.clock.advance(5_000)
    assert stream.batch() == [plan.Range("t0005", "a", 0, 0, 2)]


def test_a_topic_that_is_gone_makes_no_batch_by_itself(a: Broker) -> None:
    wide(a, 2, 1)
    stream = Stream(Cluster(a))
    stream.batch()
    deleted_long_ago(a, "t0001", stream)
    assert stream.batch() == []
    assert "t0001" in offsets_of(stream.at)


def test_a_topic_of_a_broker_that_left_is_carried_on(a: Broker, b: Broker) -> None:
    """Its broker may come back with it; to forget the place would be to read everything again."""
    wide(a, 2, 1)
    b.create("t-of-b")
    b.put("t-of-b", 0, 5)
    stream = Stream(cluster := Cluster(a, b))
    assert stream.count() == 5
    del cluster.brokers["b"]
    for _ in range(3):
        stream.clock.advance(GONE_MS)
        a.put("t0000")
        assert stream.count() == 1
    assert offsets_of(stream.at)["t-of-b"] == {"b": {"0": 5}}
    cluster.brokers["b"] = b
    b.put("t-of-b", 0, 1)
    stream.clock.advance(5_000)
    assert stream.batch() == [plan.Range("t-of-b", "b", 0, 5, 6)]


def test_a_topic_made_again_within_the_minute_is_another_unless_loss_is_allowed(a: Broker) -> None:
    wide(a, 2, 1)
    a.put("t0000", 0, 9)
    strict, loose = Stream(Cluster(a)), Stream(Cluster(a), failOnDataLoss="false")
    for stream in (strict, loose):
        assert stream.count() == 9
    a.delete("t0000")
    for stream in (strict, loose):
        assert stream.count() == 0
    a.create("t0000")
    a.put("t0000", 0, 3)
    for stream in (strict, loose):
        stream.clock.advance(5_000)
    with pytest.raises(plan.DataLoss, match="t0000/a/0: the stream is at offset 9, but the queue ends at 3"):
        strict.batch()
    assert loose.batch() == [plan.Range("t0000", "a", 0, 0, 3)]


def test_assigned_queues_that_are_not_there_are_named(a: Broker) -> None:
    wide(a, 1, 2)
    a.put("t0000", 0, 1)
    a.put("t0000", 1, 1)
    assert Stream(Cluster(a), assign='{"t0000": {"a": [1]}}').batch() == [plan.Range("t0000", "a", 1, 0, 1)]
    with pytest.raises(TopicNotFound, match="option 'assign': t0000/a has no queue 2"):
        Stream(Cluster(a), assign='{"t0000": {"a": [1, 2]}}')
    loose = Stream(Cluster(a), assign='{"t0000": {"a": [1, 2]}}', failOnDataLoss="false")
    assert loose.batch() == [plan.Range("t0000", "a", 1, 0, 1)]


def test_a_named_topic_that_was_never_there_is_an_error_and_later_one_is_waited_for(a: Broker) -> None:
    wide(a, 1, 1)
    with pytest.raises(TopicNotFound, match="t7"):
        Stream(Cluster(a), subscribe="t0000,t7")
    stream = Stream(Cluster(a), subscribe="t0000,t7", failOnDataLoss="false")
    assert stream.count() == 0
    a.create("t7")
    a.put("t7")
    assert stream.count() == 1
