# SPDX-License-Identifier: Apache-2.0
"""Which topics and queues a read is about, and each question about one of them asked at its own broker. No Spark."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import (
    AerobeeError,
    GroupNotFound,
    NetworkError,
    NoPermission,
    NoRoute,
    QueryNotFound,
    TopicNotFound,
)
from aerobee.protocol.command import Command, header_fields
from aerobee.protocol.headers.consume import ReadUnits
from aerobee.protocol.headers.offsets import (
    OffsetResult,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from aerobee.spark import options
from aerobee.spark.reading import queue_source
from aerobee.spark.reading.plan import Look, Place, Range
from aerobee.spark.reading.queue_source import BrokerQueues, bounds_of, chosen_topics, is_named
from aerobee.testing import TestServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.spark.cluster import Question

TOPICS = ["b-orders", "a-orders", "orders", "%RETRY%g", "%RETRY%g_a-orders", "%DLQ%g", "%RETRY%other",
          "SCHEDULE_TOPIC_XXXX", "rmq_sys_orders", "%RETRY%g_b-orders"]  # fmt: skip


class Known:
    """Topics by name, and a look that was prepared."""

    def __init__(self, look: Look | None = None) -> None:
        self.found = look
        self.looked: list[list[str]] = []

    def topics(self) -> list[str]:
        return list(TOPICS)

    def existing(self, topics: list[str]) -> list[str]:
        return [topic for topic in topics if topic in TOPICS]

    def look(self, topics: list[str]) -> Look:
        self.looked.append(topics)
        assert self.found is not None
        return self.found


def read(**given: str) -> options.Read:
    return options.for_batch({"namesrv": "h:1", **given})


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"subscribe": "orders,a-orders"}, ["a-orders", "orders"]),
        ({"subscribe": "orders,orders"}, ["orders"]),
        ({"assign": '{"orders": {"b": [0]}, "a-orders": {"b": [1]}}'}, ["a-orders", "orders"]),
        ({"subscribePattern": ".*orders"}, ["a-orders", "b-orders", "orders"]),
        ({"subscribePattern": "orders"}, ["orders"]),  # the whole name
        ({"subscribePattern": "a-"}, []),
        ({"subscribePattern": ".*"}, ["a-orders", "b-orders", "orders"]),
        ({"subscribePattern": ".*orders.*", "group": "g"}, ["a-orders", "b-orders", "orders"]),
        ({"subscribe": "%RETRY%g"}, ["%RETRY%g"]),  # by its very name anything may be read
        (
            {"subscribe": "orders", "group": "g", "includeRetries": "true"},
            ["%RETRY%g", "orders"],
        ),
        (
            {"subscribe": "a-orders", "group": "g", "includeRetries": "true"},
            ["%RETRY%g", "%RETRY%g_a-orders", "a-orders"],
        ),
        (
            {"subscribePattern": "[ab]-orders", "group": "g", "includeRetries": "true"},
            ["%RETRY%g", "%RETRY%g_a-orders", "%RETRY%g_b-orders", "a-orders", "b-orders"],
        ),
        ({"subscribe": "orders", "group": "new", "includeRetries": "true"}, ["orders"]),
    ],
)
def test_topics_are_those_that_were_named_or_fit_the_pattern(
    given: dict[str, str], chosen: list[str]
) -> None:
    assert chosen_topics(read(**given), Known()) == chosen  # type: ignore[arg-type]


def test_a_consumer_of_named_topics_needs_no_list_of_all() -> None:
    with TestServer.secured() as server:
        for topic in ("orders", "%RETRY%g"):
            server.create_topic(topic, queues=1)
        server.add_user("consumer", "secret-of-it", {"Topic:orders": "Sub", "Group:g": "Sub"})
        given = {"group": "g", "includeRetries": "true", "accessKey": "consumer", "secretKey": "secret-of-it"}
        asked = options.for_batch({"namesrv": server.namesrv, "subscribe": "orders", **given})
        with closing(BrokerQueues(asked)) as source:
            assert chosen_topics(asked, source) == ["%RETRY%g", "orders"]
            with pytest.raises(NoPermission):
                source.topics()


def test_a_topic_is_named_when_it_is_subscribed_or_assigned() -> None:
    assert is_named(read(subscribe="t"), "t")
    assert not is_named(read(subscribe="t"), "u")
    assert is_named(read(assign='{"t": {"b": [0]}}'), "t")
    assert not is_named(read(assign='{"t": {"b": [0]}}'), "u")
    assert not is_named(read(subscribePattern="t"), "t")


BOUNDS: Any = {"t": {"b": {"0": (0, 5)}}}


def look(failed: dict[str, AerobeeError] | None = None, away: dict[str, AerobeeError] | None = None) -> Known:
    return Known(Look(BOUNDS, failed or {}, away or {}, frozenset({"b"})))


@pytest.mark.parametrize("missing", [TopicNotFound("u"), NoRoute("u")])
def test_a_topic_that_is_missing_stops_a_read_that_named_it(missing: AerobeeError) -> None:
    source = look({"u": missing})
    with pytest.raises(type(missing)):
        bounds_of(read(subscribe="t,u"), source, ["t", "u"])  # type: ignore[arg-type]
    assert source.looked == [["t", "u"]]
    for goes_on in (read(subscribePattern=".*"), read(subscribe="t,u", failOnDataLoss="false")):
        assert bounds_of(goes_on, source, ["t", "u"]) == BOUNDS  # type: ignore[arg-type]


def test_a_misspelt_topic_is_answered_with_the_nearest_one() -> None:
    source = look({"ordres": NoRoute("no route to topic 'ordres'")})
    source.topics = lambda: ["orders", "letters"]  # type: ignore[method-assign]
    with pytest.raises(NoRoute, match=r"no route to topic 'ordres'; did you mean 'orders'\?"):
        bounds_of(read(subscribe="ordres"), source, ["ordres"])  # type: ignore[arg-type]

    def refused() -> list[str]:
        raise NoPermission("no")

    source.topics = refused  # type: ignore[method-assign]
    with pytest.raises(NoRoute, match=r"no route to topic 'ordres'$"):
        bounds_of(read(subscribe="ordres"), source, ["ordres"])  # type: ignore[arg-type]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_broker_that_does_not_answer_stops_every_read(fails: str) -> None:
    told = read(subscribePattern=".*", failOnDataLoss=fails)
    with pytest.raises(NetworkError, match="gone"):
        bounds_of(told, look(away={"c": NetworkError("gone")}), ["t"])  # type: ignore[arg-type]
    with pytest.raises(NetworkError, match="gone"):
        bounds_of(told, look({"u": NetworkError("gone")}), ["t"])  # type: ignore[arg-type]


# -- questions to brokers ---------------------------------------------------------------------------------------


class Brokers:
    """Answers by what `answer` says; notes who was asked what."""

    def __init__(self, **addresses: str) -> None:
        self.addresses = addresses
        self.looked_for = 0
        self.closed = 0
        self.asked: list[tuple[str, Any]] = []
        self.answer: Any = lambda header: OffsetResult(offset=header.queue_id)

    def masters(self) -> dict[str, str]:
        self.looked_for += 1
        return self.addresses

    def topics(self) -> list[str]:
        return ["of the cluster"]

    def close(self) -> None:
        self.closed += 1

    def ask_each(self, questions: Sequence[Question]) -> list[Command | AerobeeError]:
        self.asked += [(each.address, each.header) for each in questions]
        found = [self.answer(each.header) for each in questions]
        return [
            told if isinstance(told, AerobeeError)
            else Command(0, body=told) if isinstance(told, bytes)
            else Command(0, ext=header_fields(told))
            for told in found
        ]  # fmt: skip


def queues(cluster: Any, **given: str) -> BrokerQueues:
    found = BrokerQueues(read(subscribe="t", group="g", **given))
    found._cluster.close()
    found._cluster = found._routes._cluster = cluster
    return found


PLACES = [Place("t", "a", 3), Place("u", "b", 4), Place("t", "a", 5)]


def test_a_broker_without_any_of_the_topics_is_looked_for_once_and_unknown_ones_each_time() -> None:
    cluster = Brokers(a="a:1", b="b:2")
    source = queues(cluster)
    assert [source.address(broker) for broker in "abab"] == ["a:1", "b:2", "a:1", "b:2"]
    assert cluster.looked_for == 1
    for _ in range(2):
        with pytest.raises(NoRoute, match="the name server h:1 knows no broker 'c'"):
            source.address("c")
    assert cluster.looked_for == 3
    cluster.addresses = {"c": "c:3"}
    assert source.address("c") == "c:3"
    assert source.topics() == ["of the cluster"]


def test_connections_end_with_the_source() -> None:
    cluster = Brokers()
    source = queues(cluster)
    source.close()
    assert cluster.closed == 1
    source.__del__()
    assert cluster.closed == 2


def test_each_time_is_asked_at_the_broker_of_its_queue() -> None:
    cluster = Brokers(a="a:1", b="b:2")
    assert queues(cluster).offsets_at(PLACES, [10, 20, 30]) == [3, 4, 5]
    assert cluster.asked == [
        ("a:1", SearchOffset(topic="t", queue_id=3, timestamp=10)),
        ("b:2", SearchOffset(topic="u", queue_id=4, timestamp=20)),
        ("a:1", SearchOffset(topic="t", queue_id=5, timestamp=30)),
    ]
    cluster.answer = lambda _: QueryNotFound("no")
    with pytest.raises(QueryNotFound):
        queues(cluster).offsets_at(PLACES, [1, 2, 3])


def test_a_group_that_never_read_a_queue_has_no_offset_there() -> None:
    cluster = Brokers(a="a:1", b="b:2")
    cluster.answer = lambda header: QueryNotFound("never") if header.topic == "u" else OffsetResult(offset=0)
    assert queues(cluster).group_offsets(PLACES) == [0, None, 0]
    assert cluster.asked[1] == (
        "b:2",
        QueryConsumerOffset(consumer_group="g", topic="u", queue_id=4, set_zero_if_not_found=False),
    )
    cluster.answer = lambda _: GroupNotFound("g")
    with pytest.raises(GroupNotFound):
        queues(cluster).group_offsets(PLACES)


def test_what_could_not_be_told_to_a_group_is_named_by_its_queue() -> None:
    cluster = Brokers(a="a:1")
    cluster.answer = lambda header: GroupNotFound("g") if header.queue_id == 5 else OffsetResult(offset=0)
    source = queues(cluster)
    failed = source.commit_each([(place, at) for place, at in zip(PLACES, (7, 8, 9), strict=True)])
    assert {place: type(error) for place, error in failed.items()} == {
        PLACES[1]: NoRoute,  # nobody knows its broker
        PLACES[2]: GroupNotFound,
    }
    assert cluster.asked == [
        ("a:1", UpdateConsumerOffset(consumer_group="g", topic="t", queue_id=3, commit_offset=7)),
        ("a:1", UpdateConsumerOffset(consumer_group="g", topic="t", queue_id=5, commit_offset=9)),
    ]
    cluster.asked.clear()
    source.commit("t", "a", 3, 12)
    assert cluster.asked[0][1].commit_offset == 12
    with pytest.raises(GroupNotFound):
        source.commit("t", "a", 5, 1)


def test_units_of_ranges_are_asked_for_by_their_steps_and_an_error_is_an_answer() -> None:
    cluster = Brokers(a="a:1", b="b:2")
    cluster.answer = lambda header: b"units" if header.topic == "t" else TopicNotFound("u")
    found = queues(cluster).units_of([Range("t", "a", 3, 10, 30), Range("u", "b", 4, 5, 6)], [7, 1])
    assert found[0] == b"units"
    assert isinstance(found[1], TopicNotFound)
    assert cluster.asked == [
        ("a:1", ReadUnits(topic="t", queue_id=3, offset=10, count=20, step=7)),
        ("b:2", ReadUnits(topic="u", queue_id=4, offset=5, count=1, step=1)),
    ]


def test_of_assigned_queues_those_are_kept_that_are_there_and_the_others_named() -> None:
    found = {"a": {"0": (0, 1), "1": (0, 2)}, "b": {"0": (0, 3)}}
    wanted = {"a": [1, 7], "b": [0], "c": [0]}
    assert queue_source._only(found, wanted) == {"a": {"1": (0, 2)}, "b": {"0": (0, 3)}}  # type: ignore[arg-type]
    assert queue_source._missing_queues(found, wanted) == [("a", 7), ("c", 0)]  # type: ignore[arg-type]


def test_store_files_are_read_where_a_path_is_given_and_brokers_asked_elsewhere(tmp_path: Any) -> None:
    (tmp_path / "commitlog").mkdir()
    told = options.for_batch({"storePath": str(tmp_path), "assign": '{"t": {"store": [1]}}'})
    source = queue_source.source_for(told)
    assert type(source).__name__ == "StoreQueues"
    assert source._assign == told.assign  # type: ignore[attr-defined]
    brokers = queue_source.source_for(read(subscribe="t"))
    assert isinstance(brokers, BrokerQueues)
    assert brokers._cluster._tries == 4, "the first time, and three more"
