# SPDX-License-Identifier: Apache-2.0
"""What the admin client makes of the answers of name servers and of several brokers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from aerobee.client.admin.progress import ResetStep
from aerobee.errors import (
    ConsumerNotOnline,
    GroupNotFound,
    NoPermission,
    NoRoute,
    PartlyDone,
    RequestCodeNotSupported,
    TopicNotFound,
)
from aerobee.protocol import bodies
from aerobee.protocol.bodies import MessageModel, MessageQueue
from aerobee.protocol.bodies.figures import GroupLag
from aerobee.protocol.command import header_fields
from aerobee.protocol.headers.cluster import GetBrokerConfig
from aerobee.protocol.headers.consume import GetRequestModes, SetRequestMode
from aerobee.protocol.headers.groups import (
    AllGroupConfigs,
    AllProducers,
    ConsumerConnections,
    ConsumeStatsQuery,
    CreateGroup,
    DeleteGroup,
    GroupFigures,
)
from aerobee.protocol.headers.offsets import (
    CloneGroupOffset,
    SearchOffset,
)
from aerobee.protocol.headers.topics import (
    CreateTopic,
    DeleteTopic,
    GetTopicConfig,
    TopicGroups,
    TopicStatsQuery,
)
from tests.client.admin_parts import CLUSTER, NOBODY, PATIENCE_MS, Parts


@pytest.fixture
def parts(session: Any) -> Parts:
    session.know("T", brokers=("a", "b"), queues=2)
    return Parts(session)


# -- who is asked ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "found"),
    [(None, {"a": "a:1", "b": "b:1"}), ("east", {"a": "a:1"}), ("west", {"b": "b:1"})],
)
async def test_masters_are_those_of_a_cluster_or_of_all_that_have_one(
    parts: Parts, cluster: str | None, found: dict[str, str]
) -> None:
    assert await parts.asking.masters(cluster) == found


@pytest.mark.parametrize(
    ("cluster", "info", "why"),
    [
        ("north", CLUSTER, "cluster 'north' is unknown to the name servers; there are: east, empty, west$"),
        ("north", NOBODY, "there are: none$"),
        ("empty", CLUSTER, "know no broker"),
        (None, NOBODY, "the name servers 127.0.0.1:9876 know no broker"),
    ],
)
async def test_without_a_master_it_is_said_why(
    parts: Parts, cluster: str | None, info: Any, why: str
) -> None:
    parts.table["GetClusterInfo"] = info
    with pytest.raises(NoRoute, match=why):
        await parts.asking.masters(cluster)


async def test_a_topics_masters_are_those_of_its_route(parts: Parts) -> None:
    assert await parts.asking.masters_of("T") == {"a": "a:1", "b": "b:1"}
    assert parts.session.refreshed == ["T"]


# -- topics ----------------------------------------------------------------------------------------------------


async def test_users_topics_are_what_is_nobodys_else(parts: Parts) -> None:
    own = ["orders", "zebra", "a", "b", "east", "west", "%RETRY%g", "%DLQ%g", "TBW102", "west_REPLY_TOPIC"]
    parts.table["AllTopics"] = bodies.TopicList(topic_list=[*own, "orders"])
    assert await parts.topics.topics() == sorted(own)
    assert await parts.topics.user_topics() == ["orders", "zebra"]


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ({}, {"readQueueNums": "8", "writeQueueNums": "8", "perm": "6", "attributes": ""}),
        (
            {"queues": 1, "perm": 4, "attributes": {"message.type": "FIFO", "x": "1"}},
            {
                "readQueueNums": "1",
                "writeQueueNums": "1",
                "perm": "4",
                "attributes": "+message.type=FIFO,+x=1",
            },
        ),
        ({"queues": 16_384}, {"readQueueNums": "16384", "writeQueueNums": "16384"}),
    ],
)
async def test_a_topic_is_made_on_every_master_as_asked_for(
    parts: Parts, more: dict[str, Any], fields: dict[str, str]
) -> None:
    parts.answer(CreateTopic, None, None)
    await parts.topics.create_topic("orders", **more)
    assert parts.asked() == [("a:1", PATIENCE_MS), ("b:1", PATIENCE_MS)]
    sent = header_fields(parts.session.headers(CreateTopic)[0])
    assert sent.items() >= {"topic": "orders", "topicSysFlag": "0", "order": "false", **fields}.items()


async def test_a_topic_may_be_made_on_some_masters_only(parts: Parts) -> None:
    parts.answer(CreateTopic, None)
    await parts.topics.create_topic("orders", brokers=["b", "unknown"])
    assert parts.asked() == [("b:1", PATIENCE_MS)]


@pytest.mark.parametrize(
    ("told", "template", "queues"),
    [
        (b"defaultTopicQueueNums=4\n", ("a", "b"), 4),
        (NoPermission("not for you"), ("a", "b"), 3),
        (b"somethingElse=4\n", ("elsewhere",), 8),
        (NoPermission("not for you"), (), 8),
    ],
    ids=["by its settings", "by the template", "a template of others", "nobody tells"],
)
async def test_how_many_queues_a_topic_has_when_nobody_says(
    parts: Parts, told: Any, template: tuple[str, ...], queues: int
) -> None:
    parts.session.answers[GetBrokerConfig] = [told if isinstance(told, Exception) else (0, None, told)]
    if template:
        parts.session.know("TBW102", brokers=template, queues=3)
    assert await parts.brokers.default_queues() == queues


async def test_brokers_that_are_missed_are_told_by_a_name_server_that_knows_them(parts: Parts) -> None:
    away = bodies.GoneBroker(broker_name="b", broker_addr="b:1", since=7)
    parts.table["GetGoneBrokers"] = bodies.GoneBrokers(gone_brokers=[away])
    assert await parts.asking.gone_brokers() == [away]
    parts.table["GetGoneBrokers"] = RequestCodeNotSupported("code 20007")
    assert await parts.asking.gone_brokers() == []


@pytest.mark.parametrize("queues", [0, 16_385])
async def test_a_topic_has_some_queues_and_not_too_many(parts: Parts, queues: int) -> None:
    with pytest.raises(ValueError, match=f"queues is {queues}; a topic has 1 to 16384"):
        await parts.topics.create_topic("orders", queues=queues)
    with pytest.raises(ValueError, match="no spaces"):
        await parts.topics.create_topic("no spaces")


async def test_a_deleted_topic_is_gone_from_brokers_name_servers_and_our_routes(parts: Parts) -> None:
    parts.answer(DeleteTopic, None)
    await parts.topics.delete_topic("T", cluster="west")
    assert parts.asked() == [("b:1", PATIENCE_MS)]
    assert [each.topic for each in parts.session.headers(DeleteTopic)] == ["T"]
    assert header_fields(parts.told_name_server[-1])["topic"] == "T"
    assert parts.session.routes.get("T") is None


@pytest.mark.seed("S000-7")
async def test_a_change_that_some_brokers_refuse_says_where_it_was_made(parts: Parts) -> None:
    for change, kind, said in (
        (parts.topics.create_topic("T"), CreateTopic, "made topic 'T'"),
        (parts.topics.delete_topic("T"), DeleteTopic, "deleted topic 'T'"),
        (parts.groups.create_group("g"), CreateGroup, "made group 'g'"),
        (parts.groups.delete_group("g"), DeleteGroup, "deleted group 'g'"),
        (parts.groups.set_consume_mode("T", "g", "POP"), SetRequestMode, "set 'g' on 'T' to POP"),
    ):
        parts.answer(kind, None, NoPermission("no"))
        with pytest.raises(PartlyDone) as partly:
            await change
        assert str(partly.value) == f"{said} on a, but not on b: no (code 16 NoPermission)"
        assert (partly.value.done, list(partly.value.failures)) == (("a",), ["b"])


async def test_a_change_that_every_broker_refuses_is_refused_as_by_one(parts: Parts) -> None:
    parts.answer(DeleteTopic, NoPermission("no"), NoPermission("nor here"))
    with pytest.raises(NoPermission, match="no "):
        await parts.topics.delete_topic("T")


async def test_a_topic_that_only_the_name_server_keeps_is_deleted_on_the_brokers(parts: Parts) -> None:
    parts.answer(DeleteTopic, None, None)
    parts.table["DeleteTopicRoute"] = NoPermission("check signature failed.")
    with pytest.raises(
        PartlyDone, match=r"deleted topic 'T' on a, b, but not on the name server: check sign"
    ):
        await parts.topics.delete_topic("T")


async def test_what_brokers_say_of_a_topic_is_put_together(parts: Parts) -> None:
    config = bodies.TopicConfig(topic_name="T")
    parts.answer(GetTopicConfig, config, config)
    assert await parts.topics.topic_config("T") == {"a": config, "b": config}
    tables = [
        bodies.TopicStats(
            offset_table={
                MessageQueue(name, queue_id, "T"): bodies.TopicOffset(min_offset=queue_id, max_offset=9)
                for queue_id in (1, 0)
            }
        )
        for name in "ba"
    ]
    parts.answer(TopicStatsQuery, *tables)
    found = await parts.topics.topic_stats("T")
    assert [(queue.broker_name, queue.queue_id) for queue in found] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1)
    ]  # fmt: skip
    assert [each.min_offset for each in found.values()] == [0, 1, 0, 1]
    lists = (bodies.GroupList(group_list=["z", "g"]), bodies.GroupList(group_list=["a", "g"]))
    parts.answer(TopicGroups, *lists)
    assert await parts.topics.groups_of("T") == ["a", "g", "z"]
    assert {each for _, each in parts.asked()} == {PATIENCE_MS}
    assert await parts.topics.topic_exists("T")
    assert not await parts.topics.topic_exists("nowhere")


# -- groups ----------------------------------------------------------------------------------------------------


async def test_groups_and_producers_of_all_brokers_are_sorted_and_each_is_there_once(parts: Parts) -> None:
    tables = [
        bodies.GroupConfigs(
            subscription_group_table={name: bodies.GroupConfig(group_name=name) for name in names}
        )
        for names in (("z", "g"), ("a", "g"))
    ]
    parts.answer(AllGroupConfigs, *tables)
    assert list(await parts.groups.groups()) == ["a", "g", "z"]

    def table(**groups: list[str]) -> bodies.ProducerTable:
        made = {
            group: [bodies.ProducerInfo(client_id=name) for name in clients]
            for group, clients in groups.items()
        }
        return bodies.ProducerTable(data=made)

    parts.answer(AllProducers, table(shop=["x", "y"], late=["w"]), table(shop=["y", "z"]))
    producers = await parts.groups.all_producers()
    assert {group: [each.client_id for each in infos] for group, infos in producers.items()} == {
        "late": ["w"],
        "shop": ["x", "y", "z"],
    }
    assert list(producers) == ["late", "shop"]

    def modes(**groups: str) -> bodies.RequestModes:
        made = {name: bodies.RequestMode(topic=topic, consumer_group=name) for name, topic in groups.items()}
        return bodies.RequestModes(
            message_request_mode_map={
                topic: {name: each for name, each in made.items() if each.topic == topic}
                for topic in groups.values()
            }
        )

    parts.answer(GetRequestModes, modes(g="T", here="T"), modes(g="T", there="T", too="U"))
    found = await parts.groups.consume_modes()
    assert {topic: sorted(groups) for topic, groups in found.items()} == {
        "T": ["g", "here", "there"],
        "U": ["too"],
    }, "a mode may be set in one cluster alone"
    assert {each for _, each in parts.asked()} == {PATIENCE_MS}


# -- progress --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stands_at", "to", "more", "goes_to", "again", "skipped"),
    [
        (30, "first", {}, 10, 20, 0),
        (30, "last", {}, 50, 0, 20),
        (30, 1_700_000_000_000, {}, 33, 0, 3),
        (30, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), {}, 33, 0, 3),
        (30, "last", {"offset": 29}, 29, 1, 0),
        (30, "first", {"offset": 0}, 0, 30, 0),
        (30, "first", {"offset": 30}, 30, 0, 0),
        (4, "last", {}, 50, 0, 40),  # what is gone cannot be skipped any more
        (None, "last", {}, 50, 0, 0),
        (None, "first", {}, 10, 0, 0),
    ],
)
async def test_a_planned_reset_says_what_comes_again_and_what_is_skipped(
    parts: Parts,
    stands_at: int | None,
    to: Any,
    more: dict[str, int],
    goes_to: int,
    again: int,
    skipped: int,
) -> None:
    parts.offsets(10, 50, stands_at=stands_at, at_time=33)
    found = await parts.progress.plan_reset("g", "T", to, **more)
    queues = [MessageQueue(name, queue_id, "T") for name in "ab" for queue_id in (0, 1)]
    assert found == [ResetStep(queue, stands_at, goes_to, again, skipped) for queue in queues]
    searched = {each.timestamp for each in parts.session.headers(SearchOffset)}
    assert searched == ({1_700_000_000_000} if goes_to == 33 else set())
    one = await parts.progress.plan_reset("g", "T", to, queue_id=1, **more)
    assert [step.queue for step in one] == [queues[1], queues[3]]
    assert parts.session.refreshed == ["T", "T"], "queues that came since are among them"


async def test_offsets_are_cloned_on_every_master_of_the_topic(parts: Parts) -> None:
    parts.answer(CloneGroupOffset, None, None)
    await parts.progress.clone_offsets("from", "to", "T")
    assert parts.asked() == [("a:1", PATIENCE_MS), ("b:1", PATIENCE_MS)]
    assert header_fields(parts.session.headers(CloneGroupOffset)[0]) == {
        "srcGroup": "from", "destGroup": "to", "topic": "T", "offline": "false"
    }  # fmt: skip


async def test_lag_is_that_of_all_brokers_together_and_may_be_of_one_topic(parts: Parts) -> None:
    parts.answer(GroupFigures, GroupLag(group="g", ready=3), GroupLag(group="g", ready=4))
    assert (await parts.progress.lag("g", "T")).ready == 7
    assert [(each.consumer_group, each.topic) for each in parts.session.headers(GroupFigures)] == [
        ("g", "T")
    ] * 2
    assert parts.asked() == [("a:1", PATIENCE_MS), ("b:1", PATIENCE_MS)]


async def test_a_group_that_one_broker_does_not_know_is_told_of_by_the_others(parts: Parts) -> None:
    parts.answer(GroupFigures, GroupNotFound("no"), GroupLag(group="g", ready=4))
    assert (await parts.progress.lag("g")).ready == 4
    parts.answer(GroupFigures, GroupNotFound("no"), GroupNotFound("none"))
    with pytest.raises(GroupNotFound, match="none"):
        await parts.progress.lag("g")


@pytest.mark.parametrize(("letters", "dead"), [((2, 9), 7), (None, 0), (TopicNotFound("none"), 0)])
async def test_lag_of_brokers_that_tell_no_figures_is_counted_from_their_tables(
    parts: Parts, letters: Any, dead: int
) -> None:
    queue = MessageQueue("a", 0, "T")
    progress = bodies.QueueProgress(broker_offset=10, consumer_offset=4, pull_offset=4, last_timestamp=0)
    parts.session.answers[GroupFigures] = lambda *_: RequestCodeNotSupported("what?")
    stats = (bodies.ConsumeStats(offset_table={queue: progress}), bodies.ConsumeStats(offset_table={}))
    parts.answer(ConsumeStatsQuery, *stats)
    parts.answer(ConsumerConnections, ConsumerNotOnline("no"), ConsumerNotOnline("no"))
    if letters is not None:
        parts.session.know("%DLQ%g", queues=1)
        kept = letters
        if isinstance(letters, tuple):
            first, following = letters
            offsets = bodies.TopicOffset(min_offset=first, max_offset=following)
            kept = bodies.TopicStats(offset_table={MessageQueue("a", 0, "%DLQ%g"): offsets})
        parts.answer(TopicStatsQuery, kept)
    lag = await parts.progress.lag("g")
    assert (lag.ready, lag.dead, lag.online) == (6, dead, False)


@pytest.mark.parametrize(("model", "ready"), [(MessageModel.CLUSTERING, 7), (MessageModel.BROADCASTING, 0)])
async def test_what_a_connected_group_has_told_nothing_of_is_all_before_it(
    parts: Parts, model: MessageModel, ready: int
) -> None:
    """Brokers that tell no figures leave queues without offsets out. Those of broadcasting are told to nobody."""
    parts.session.answers[GroupFigures] = lambda *_: RequestCodeNotSupported("what?")
    retry = bodies.QueueProgress(broker_offset=0, consumer_offset=0, pull_offset=0, last_timestamp=0)
    told = bodies.ConsumeStats(offset_table={MessageQueue("a", 0, "%RETRY%g"): retry})
    parts.answer(ConsumeStatsQuery, told, bodies.ConsumeStats(offset_table={}))
    topics = {name: bodies.SubscriptionData(topic=name) for name in ("T", "%RETRY%g", "nowhere")}
    member = bodies.ConsumerConnection(message_model=model, subscription_table=topics)
    parts.answer(ConsumerConnections, member, ConsumerNotOnline("no"))
    offsets = bodies.TopicOffset(min_offset=2, max_offset=9)
    stats = bodies.TopicStats(offset_table={MessageQueue("a", 0, "T"): offsets})
    of_retry = bodies.TopicStats(offset_table={MessageQueue("a", 0, "%RETRY%g"): bodies.TopicOffset()})
    parts.session.know("T", queues=1)
    parts.session.know("%RETRY%g", queues=1)
    parts.answer(TopicStatsQuery, stats, of_retry)
    lag = await parts.progress.lag("g")
    assert (lag.ready, lag.online) == (ready, True)
    assert len(lag.queues) == (2 if ready else 1)
