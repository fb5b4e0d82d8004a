# SPDX-License-Identifier: Apache-2.0
"""What the admin client asks: who is asked, with which fields, and how long it waits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.admin.asking import Asking
from aerobee.client.admin.brokers import Brokers
from aerobee.client.admin.groups import Groups
from aerobee.client.admin.progress import Progress
from aerobee.client.admin.topics import Topics
from aerobee.errors import ConsumerNotOnline, GroupNotFound, SystemFailure
from aerobee.protocol import bodies
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.command import header_fields
from aerobee.protocol.headers.consume import ConsumeDirectly, SetRequestMode
from aerobee.protocol.headers.groups import (
    ConsumerConnections,
    CreateGroup,
    DeleteGroup,
    GetGroupConfig,
    GroupTopics,
    ProducerConnections,
    RunningInfo,
)
from aerobee.protocol.headers.offsets import ResetOffset, UpdateConsumerOffset

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = MessageQueue("a", 3, "T")
PATIENCE_MS = 6_000
RELAYED_MS = 12_000  # the broker asks a client, which may take as long again


class Masters(Asking):
    """Two brokers whose addresses are known."""

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        return {"b": "b:1", "a": "a:1"} if cluster is None else {"a": "a:1"}


@pytest.fixture
def groups(session: Any) -> Groups:
    return Groups(Masters(session))


def answers(session: Any, kind: type, *bodies_or_errors: Any) -> None:
    session.answers[kind] = [
        found
        if isinstance(found, BaseException)
        else (0, None, b"" if found is None else bodies.encode(found))
        for found in bodies_or_errors
    ]


def connected(*clients: str) -> list[bodies.Connection]:
    return [bodies.Connection(client_id=name, client_addr=f"{name}:1") for name in clients]


@pytest.mark.parametrize(
    ("kind", "ask", "result", "fields"),
    [
        (
            RunningInfo,
            lambda groups: groups.running_info("g", "me"),
            bodies.ConsumerRunningInfo(),
            {"consumerGroup": "g", "clientId": "me", "jstackEnable": "false"},
        ),
        (
            ConsumeDirectly,
            lambda groups: groups.consume_directly("g", "me", "ID", "T"),
            bodies.ConsumeDirectlyResult(),
            {"consumerGroup": "g", "clientId": "me", "msgId": "ID", "topic": "T"},
        ),
    ],
)
async def test_what_a_client_is_asked_through_its_broker_may_take_twice_as_long(
    groups: Groups,
    session: Any,
    kind: type,
    ask: Callable[[Groups], Any],
    result: Any,
    fields: dict[str, str],
) -> None:
    answers(session, kind, result)
    assert await ask(groups) == result
    ((address, header, timeout_ms),) = session.asked
    assert (address, header_fields(header), timeout_ms) == ("b:1", fields, RELAYED_MS)


async def test_a_client_is_asked_through_a_broker_that_it_is_connected_to(
    groups: Groups, session: Any
) -> None:
    """Clients connect to the brokers of their topics only: the first that is known may have never heard of it."""
    answers(session, RunningInfo, SystemFailure("not online"), bodies.ConsumerRunningInfo(jstack="here"))
    assert (await groups.running_info("g", "me")).jstack == "here"
    answers(
        session, ConsumeDirectly, SystemFailure("not online"), bodies.ConsumeDirectlyResult(remark="done")
    )
    assert (await groups.consume_directly("g", "me", "ID", "T")).remark == "done"
    assert [address for address, *_ in session.asked] == ["b:1", "a:1"] * 2
    answers(session, RunningInfo, SystemFailure("not online at b"), SystemFailure("not online at a"))
    with pytest.raises(SystemFailure, match="not online at a"):
        await groups.running_info("g", "me")


async def test_a_group_is_made_and_deleted_everywhere_or_in_one_cluster(groups: Groups, session: Any) -> None:
    answers(session, CreateGroup, None, None, None)
    await groups.create_group("g", retry_max_times=3)
    assert sorted((address, timeout_ms) for address, _, timeout_ms in session.asked) == [
        ("a:1", PATIENCE_MS),
        ("b:1", PATIENCE_MS),
    ]
    sent = bodies.decode(session.bodies[0], bodies.GroupConfig)
    assert sent == bodies.GroupConfig(group_name="g", retry_max_times=3)
    await groups.create_group("g", cluster="c")
    assert [address for address, _, _ in session.asked[2:]] == ["a:1"]
    with pytest.raises(TypeError, match="retries, speed: no such setting"):
        await groups.create_group("g", speed=1, retries=2)
    answers(session, DeleteGroup, None, None)
    await groups.delete_group("g")
    gone = [header_fields(header) for header in session.headers(DeleteGroup)]
    assert gone == [{"groupName": "g", "cleanOffset": "true"}] * 2, "its offsets go with it"


async def test_the_first_broker_that_has_a_group_tells_its_settings(groups: Groups, session: Any) -> None:
    answers(session, GetGroupConfig, GroupNotFound("not here"), bodies.GroupConfig(group_name="g"))
    assert (await groups.group_config("g")).group_name == "g"
    assert [(address, timeout_ms) for address, _, timeout_ms in session.asked] == [
        ("b:1", PATIENCE_MS),
        ("a:1", PATIENCE_MS),
    ]
    answers(session, GetGroupConfig, GroupNotFound("not here"), GroupNotFound("nor here"))
    with pytest.raises(GroupNotFound, match="'g' exists on no broker"):
        await groups.group_config("g")


async def test_members_of_all_brokers_are_one_list_each_named_once(groups: Groups, session: Any) -> None:
    first = bodies.ConsumerConnection(connection_set=connected("x", "y"))
    second = bodies.ConsumerConnection(connection_set=connected("y", "z"))
    answers(session, ConsumerConnections, first, second)
    found = await groups.members("g")
    assert found is not None
    assert [each.client_id for each in found.connection_set] == ["x", "y", "z"]
    answers(session, ConsumerConnections, ConsumerNotOnline("none"), second)
    found = await groups.members("g")
    assert found is not None
    assert [each.client_id for each in found.connection_set] == ["y", "z"]
    answers(session, ConsumerConnections, ConsumerNotOnline("none"), ConsumerNotOnline("none"))
    assert await groups.members("g") is None
    assert {timeout_ms for _, _, timeout_ms in session.asked} == {PATIENCE_MS}


async def test_producers_of_all_brokers_are_one_list_and_none_is_no_error(
    groups: Groups, session: Any
) -> None:
    answers(
        session,
        ProducerConnections,
        SystemFailure("none"),
        bodies.ProducerConnection(connection_set=connected("x")),
    )
    assert [each.client_id for each in await groups.producers("p")] == ["x"]


async def test_topics_of_a_group_are_those_of_every_broker_sorted(groups: Groups, session: Any) -> None:
    answers(
        session, GroupTopics, bodies.TopicList(topic_list=["z", "m"]), bodies.TopicList(topic_list=["a", "m"])
    )
    assert await groups.group_topics("g") == ["a", "m", "z"]


@pytest.mark.seed("S000-6", "S000-7")
async def test_a_mode_is_set_on_every_broker(groups: Groups, session: Any) -> None:
    answers(session, SetRequestMode, None, None)
    await groups.set_consume_mode("T", "g", "POP", share=2)
    assert len(session.asked) == 2
    told = bodies.decode(session.bodies[0], bodies.RequestMode)
    assert (told.topic, told.consumer_group, told.mode, told.pop_share_queue_num) == ("T", "g", "POP", 2)
    with pytest.raises(ValueError, match="mode is 'pop'; it is PULL or POP"):
        await groups.set_consume_mode("T", "g", "pop")


def test_every_part_of_the_admin_client_asks_through_the_same_session(session: Any) -> None:
    asking = Masters(session)
    assert {part(asking)._session for part in (Groups, Topics, Brokers)} == {session}


async def test_an_offset_may_be_set_to_the_very_first_and_not_before_it(session: Any) -> None:
    progress = Progress(Masters(session), Topics(Masters(session)), Groups(Masters(session)))
    session.answers[UpdateConsumerOffset] = [(0, None, b"")]
    await progress.set_offset("g", QUEUE, 0)
    ((address, header, _),) = session.asked
    assert (address, header_fields(header)["commitOffset"], header.queue_id) == ("a:1", "0", 3)
    with pytest.raises(ValueError, match="offset is -1; it cannot be negative"):
        await progress.set_offset("g", QUEUE, -1)


@pytest.mark.parametrize(
    ("to", "queue_id", "told"),
    [
        ("first", -1, (0, -1, -1)),
        ("last", -1, (-1, -1, -1)),
        ("last", 2, (-1, 2, -1)),
        (1_700_000_000_000, -1, (1_700_000_000_000, -1, -1)),
        (datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), -1, (1_700_000_000_000, -1, -1)),
        (5, 0, (-1, 0, 5)),
        (0, 2, (-1, 2, 0)),
    ],
)
async def test_a_reset_names_a_time_or_an_offset_of_one_queue(
    session: Any, to: Any, queue_id: int, told: tuple[int, int, int]
) -> None:
    progress = Progress(Masters(session), Topics(Masters(session)), Groups(Masters(session)))
    session.know("T", brokers=("a", "b"))
    parts = [bodies.ResetOffsetBody(offset_table={MessageQueue(name, 0, "T"): 7}) for name in "ab"]
    answers(session, ResetOffset, *parts)
    found = await progress.reset_offsets("g", "T", to, queue_id=queue_id)
    assert found == {MessageQueue("a", 0, "T"): 7, MessageQueue("b", 0, "T"): 7}
    asked = session.headers(ResetOffset)
    assert [(each.timestamp, each.queue_id, each.offset) for each in asked] == [told] * 2
    assert [(each.topic, each.group, each.is_force) for each in asked] == [("T", "g", True)] * 2
    with pytest.raises(ValueError, match="to is 'tomorrow'; give 'first'"):
        await progress.reset_offsets("g", "T", "tomorrow")
