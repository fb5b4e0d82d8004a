# SPDX-License-Identifier: Apache-2.0
"""The broker balances: modes per topic and group, and which queues a client is given."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.broker.operations.admin.settings import change_settings
from aerobee.broker.operations.assignment import _queues, query_assignment, share
from aerobee.broker.state.routes import Host
from aerobee.errors import InvalidParameter, NoPermission, TopicNotFound
from aerobee.protocol.allocation import STRATEGIES, average, by_circle
from aerobee.protocol.bodies import (
    Assignment,
    AssignmentQuery,
    ConsumerData,
    Heartbeat,
    MessageModel,
    MessageQueue,
    Mode,
    RequestMode,
    decode,
)
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.consume import GetRequestModes, QueryAssignment, SetRequestMode

if TYPE_CHECKING:
    from aerobee.protocol.command import Command


class Link:
    remote_text = "10.0.0.7:1"
    is_open = True

    def __init__(self) -> None:
        self.attributes: dict[str, str] = {}

    def send(self, command: Command) -> None: ...


def join(shop, *clients: str, group: str = "billing") -> None:
    for client_id in clients:
        data = ConsumerData(group_name=group)
        shop.broker.clients.heartbeat(
            Link(), Heartbeat(client_id=client_id, consumer_data_set=[data]), shop.clock.now()
        )


def set_mode(shop, mode: str = "POP", **more) -> None:
    body = {"topic": "orders", "consumerGroup": "billing", "mode": mode, "popShareQueueNum": 0} | more
    reply = asyncio.run(shop.ask(SetRequestMode(), msgspec.json.encode(body)))
    assert reply.code == 0


def query(shop, client: str = "c1", **more) -> Assignment:
    body = {"topic": "orders", "consumerGroup": "billing", "clientId": client, "strategyName": "AVG"}
    body |= {"messageModel": "CLUSTERING"} | more
    reply = shop.ask(QueryAssignment(), msgspec.json.encode(body))
    assert reply.code == 0, "success even when nothing is known"
    return decode(reply.body, Assignment)


def queue_ids(assignment: Assignment) -> list[int] | None:
    found = assignment.message_queue_assignments
    return None if found is None else [one.message_queue.queue_id for one in found]


def queues(count: int, brokers: tuple[str, ...] = ("broker-a",)) -> list[MessageQueue]:
    return sorted(MessageQueue(topic="t", broker_name=b, queue_id=i) for b in brokers for i in range(count))


# -- modes ---------------------------------------------------------------------------------------------------


@pytest.mark.seed("S000-1", "S000-3", "S000-6", "S000-7")
def test_the_mode_is_set_per_topic_and_group_and_kept_over_a_restart(shop):
    set_mode(shop, popShareQueueNum=8)
    shop.restart()
    assert shop.broker.pops.modes.get("orders", "billing").mode is Mode.POP
    assert shop.broker.pops.modes.get("orders", "other").mode is Mode.PULL
    reply = shop.ask(GetRequestModes())
    table = msgspec.json.decode(reply.body)["messageRequestModeMap"]["orders"]["billing"]
    assert table == {"topic": "orders", "consumerGroup": "billing", "mode": "POP", "popShareQueueNum": 8}


@pytest.mark.seed("S000-1", "S000-3", "S000-7")
def test_a_mode_may_be_changed_back_and_that_of_other_groups_and_topics_stays(shop):
    shop.broker.topics.ensure("bills", 2)
    for topic, group, mode, more in (
        ("orders", "billing", "POP", 1),
        ("orders", "audit", "POP", 2),
        ("bills", "billing", "POP", 3),
        ("orders", "billing", "PULL", 4),
    ):
        set_mode(shop, mode, topic=topic, consumerGroup=group, popShareQueueNum=more)
    shop.crash()  # what was answered is kept, saved in time or not
    modes = {
        (topic, group): (found.mode, found.pop_share_queue_num)
        for topic in ("orders", "bills")
        for group in ("billing", "audit")
        for found in [shop.broker.pops.modes.get(topic, group)]
    }
    assert modes == {
        ("orders", "billing"): (Mode.PULL, 4),
        ("orders", "audit"): (Mode.POP, 2),
        ("bills", "billing"): (Mode.POP, 3),
        ("bills", "audit"): (Mode.PULL, -1),
    }


@pytest.mark.seed("S000-3")
def test_a_mode_is_pull_or_pop_and_nothing_else(shop):
    modes: tuple[Any, ...] = ("POLL", "pop", "", 7, None)
    for mode in modes:
        with pytest.raises(InvalidParameter, match="neither PULL nor POP"):
            set_mode(shop, mode=mode)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topic": "%RETRY%billing"}, NoPermission),
        ({"topic": "unknown"}, TopicNotFound),
        ({"popShareQueueNum": -2}, InvalidParameter),
    ],
)
def test_refusals_of_a_mode(shop, fields, error):
    with pytest.raises(error):
        set_mode(shop, **fields)


@pytest.mark.seed("S000-7")
def test_a_mode_may_be_set_before_the_groups_first_consumer(shop):
    set_mode(shop, consumerGroup="unknown")
    for _ in range(2):
        assert shop.broker.pops.modes.get("orders", "unknown").mode is Mode.POP
        assert shop.broker.groups.get("unknown") is not None
        shop.crash()  # the group that was made for it is as lasting as the mode


@pytest.mark.seed("S000-39")
def test_without_a_mode_it_is_pull_with_share_minus_one_and_retry_topics_are_always_pulled(shop):
    mode = shop.broker.pops.modes.get("orders", "billing")
    assert (mode.mode, mode.pop_share_queue_num) == (Mode.PULL, -1)
    assert shop.broker.pops.modes.get("%RETRY%billing", "billing").mode is Mode.PULL


def test_a_mode_of_a_retry_topic_that_stands_in_the_file_does_not_count(shop):
    set_mode(shop)
    shop.broker.pops.modes.put(RequestMode(topic="%RETRY%billing", consumer_group="billing", mode=Mode.POP))
    shop.restart()
    found = {name: shop.broker.pops.modes.get(name, "billing").mode for name in ("%RETRY%billing", "orders")}
    assert found == {"%RETRY%billing": Mode.PULL, "orders": Mode.POP}


def test_deleted_topics_and_groups_have_no_mode(shop):
    set_mode(shop)
    shop.broker.pops.remove_group("billing")
    assert shop.broker.pops.modes.get("orders", "billing").mode is Mode.PULL
    set_mode(shop)
    shop.broker.pops.remove_topic("orders")
    assert shop.broker.pops.modes.get("orders", "billing").mode is Mode.PULL


# -- who gets what -------------------------------------------------------------------------------------------


@pytest.mark.seed("S000-24", "S000-38")
def test_pull_mode_divides_the_queues_by_the_named_strategy(shop):
    join(shop, "c1", "c2")
    assert queue_ids(query(shop, "c1")) == [0, 1]
    assert queue_ids(query(shop, "c2")) == [2, 3]
    assert queue_ids(query(shop, "c2", strategyName="AVG_BY_CIRCLE")) == [1, 3]
    one = query(shop).message_queue_assignments[0]
    assert one.mode is Mode.PULL
    assert one.message_queue == MessageQueue(topic="orders", broker_name="broker-a", queue_id=0)


@pytest.mark.seed("S000-33")
def test_broadcasting_gets_every_queue(shop):
    assert queue_ids(query(shop, messageModel="BROADCASTING")) == [0, 1, 2, 3]


@pytest.mark.seed("S000-34")
@pytest.mark.parametrize("model", ["BROADCASTING", "CLUSTERING"])
def test_an_unknown_topic_is_null_not_empty(shop, model, caplog):
    join(shop, "c1")
    assert query(shop, topic="unknown", messageModel=model).message_queue_assignments is None
    assert "unknown" in caplog.text
    reply = shop.ask(QueryAssignment(), b'{"topic":"unknown","consumerGroup":"billing","clientId":"c1"}')
    assert b"messageQueueAssignments" not in reply.body


@pytest.mark.seed("S000-34")
def test_an_unknown_retry_topic_is_null_without_a_warning(shop, caplog):
    join(shop, "c1")
    assert query(shop, topic="%RETRY%billing").message_queue_assignments is None
    assert caplog.text == ""


@pytest.mark.seed("S000-36")
def test_an_unknown_group_is_null(shop):
    assert query(shop).message_queue_assignments is None


@pytest.mark.seed("S000-36", "S000-38")
@pytest.mark.parametrize("mode", ["PULL", "POP"])
def test_the_members_are_those_there_are_at_the_moment_and_of_this_group_only(shop, mode):
    set_mode(shop, mode, popShareQueueNum=1)
    join(shop, "c0", "c4", group="audit")
    join(shop, "c1", "c2", "c3")
    share = {"PULL": [[0, 1], [2], [3]], "POP": [[0, 1, 2], [2, 3], [0, 1, 3]]}[mode]
    assert [queue_ids(query(shop, client)) for client in ("c1", "c2", "c3")] == share
    clients = shop.broker.clients
    clients.unregister("c2", None, "billing")
    assert queue_ids(query(shop, "c3")) == ([2, 3] if mode == "PULL" else [-1])
    clients.unregister("c1", None, "billing")
    shop.clock.advance(minutes=3)
    join(shop, "c0", "c4", group="audit")
    clients.expire(shop.clock.now())  # c3 went without a word
    assert query(shop, "c3").message_queue_assignments is None


@pytest.mark.seed("S000-37")
def test_an_unknown_strategy_is_null(shop):
    join(shop, "c1")
    assert query(shop, strategyName="CONSISTENT_HASH").message_queue_assignments is None


@pytest.mark.seed("S000-37")
def test_clients_are_sorted_so_all_brokers_divide_alike(shop):
    join(shop, "c2", "c10", "c1")
    given_out = [queue_ids(query(shop, c)) for c in ("c1", "c10", "c2")]
    assert given_out == [[0, 1], [2], [3]]


@pytest.mark.seed("S000-78")
def test_any_other_model_is_null(shop):
    join(shop, "c1")
    assert query(shop, messageModel="ROUND_TABLE").message_queue_assignments is None
    assert shop.ask(QueryAssignment(), b"not json").code == 0


@pytest.mark.seed("S000-35")
def test_without_the_servers_balancer_everybody_gets_all_queues(shop):
    join(shop, "c1", "c2")
    change_settings("serverLoadBalancerEnable=false", shop.broker)
    assert queue_ids(query(shop)) == list(range(shop.broker.topics.get("orders").read_queue_nums))


def test_a_light_queue_is_its_queue_0(shop):
    join(shop, "c1")
    assert queue_ids(query(shop, topic="%LMQ%x")) == [0]


class Routes:
    def __init__(self, *hosts: Host, answers: bool = True) -> None:
        self.hosts = hosts if answers else None

    def known(self, topic: str) -> tuple[Host, ...] | None:
        return self.hosts

    async def look_up(self, topic: str) -> None: ...


def test_queues_of_other_brokers_are_assigned_where_a_route_is_known(shop):
    join(shop, "c1", "c2")
    shop.broker.pops.routes = Routes(Host("broker-b", 6, 4, 4), Host("write-only", 2, 4, 4))
    assert [str(one.message_queue) for one in query(shop, "c2").message_queue_assignments] == [
        f"orders/broker-b/{i}" for i in range(4)
    ]
    shop.broker.pops.routes = Routes(answers=False)
    unknown = query_assignment(
        AssignmentQuery(topic="orders", consumer_group="billing", client_id="c2"), shop.broker
    )
    assert unknown is None, "no name server answers: clients keep what they have"


def assigned(shop, client: str, **more) -> list[str]:
    found = query(shop, client, **more).message_queue_assignments
    return [f"{one.message_queue.broker_name}/{one.message_queue.queue_id}" for one in found]


@pytest.mark.seed("S000-37", "S000-38")
@pytest.mark.parametrize("mode", ["PULL", "POP"])
def test_every_broker_divides_the_queues_in_the_same_order_its_own_first_or_last(shop, mode):
    """Each knows its own queues best and hears of the others: clients ask any of them."""
    join(shop, "c1", "c2", "c3", "c4", "c5", "c6")
    set_mode(shop, mode, popShareQueueNum=1)
    shop.broker.pops.routes = Routes(Host("broker-c", 6, 2, 2), Host("a-broker", 6, 2, 2))
    order = ["a-broker/0", "a-broker/1", *(f"broker-a/{i}" for i in range(4)), "broker-c/0", "broker-c/1"]
    own = [order[0:2], order[2:4], *([each] for each in order[4:])]
    shares = own if mode == "PULL" else [[*own[i], *own[(i + 1) % 6]] for i in range(6)]
    assert [assigned(shop, f"c{i}") for i in range(1, 7)] == [sorted(share) for share in shares]


@pytest.mark.seed("S000-33", "S000-35")
@pytest.mark.parametrize("mode", ["PULL", "POP"])
@pytest.mark.parametrize("how", ["broadcasting", "the balancer is off"])
def test_all_queues_are_those_of_every_broker_in_either_mode(shop, mode, how):
    join(shop, "c1", "c2")
    set_mode(shop, mode, popShareQueueNum=1)
    shop.broker.pops.routes = Routes(Host("broker-b", 6, 2, 2))
    more = {"messageModel": "BROADCASTING"} if how == "broadcasting" else {}
    if not more:
        change_settings("serverLoadBalancerEnable=false", shop.broker)
    queues_of_all = [*(f"broker-a/{i}" for i in range(4)), "broker-b/0", "broker-b/1"]
    for client in ("c1", "c2", "stranger"):
        assert assigned(shop, client, **more) == queues_of_all


# -- POP shares ----------------------------------------------------------------------------------------------


@pytest.mark.seed("S000-39", "S000-40", "S000-75")
@pytest.mark.parametrize("extra", [0, -1, 2, 8])
def test_case_1_everybody_pops_every_queue(shop, extra):
    join(shop, "c1", "c2", "c3")
    set_mode(shop, popShareQueueNum=extra)
    for client in ("c1", "c2", "c3", "stranger"):
        found = query(shop, client)
        assert queue_ids(found) == [-1]
        assert found.message_queue_assignments[0].mode is Mode.POP
    assert shop.broker.topics.get("orders").read_queue_nums == 4


@pytest.mark.seed("S000-40")
def test_case_1_is_one_entry_per_broker():
    found = share("c1", queues(4, ("a", "b")), ["c1"], 0, average)
    assert [(queue.broker_name, queue.queue_id) for queue in found] == [("a", -1), ("b", -1)]


@pytest.mark.seed("S000-39", "S000-41", "S000-43", "S000-77")
def test_case_2_a_client_has_its_own_share_and_those_of_the_next_in_the_ring(shop):
    join(shop, "c1", "c2", "c3", "c4")
    set_mode(shop, popShareQueueNum=1)
    given_out = {c: queue_ids(query(shop, c)) for c in ("c1", "c2", "c3", "c4")}
    assert given_out == {"c1": [0, 1], "c2": [1, 2], "c3": [2, 3], "c4": [0, 3]}
    shared = [queue for ids in given_out.values() for queue in ids]
    assert all(shared.count(queue) == 2 for queue in range(4)), "1 + share consumers on each queue"


@pytest.mark.seed("S000-39", "S000-41", "S000-77")
@pytest.mark.parametrize(
    ("extra", "given_out"),
    [
        (1, [[0, 1], [1, 2], [2, 3], [0, 3]]),
        (2, [[0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 3]]),
        (3, [[-1]] * 4),
    ],
)
def test_each_more_of_the_share_count_is_one_more_of_the_ring_until_it_is_all(shop, extra, given_out):
    clients = ["c1", "c2", "c3", "c4"]
    join(shop, *clients)
    set_mode(shop, popShareQueueNum=extra)
    assert [queue_ids(query(shop, client)) for client in clients] == given_out


@pytest.mark.seed("S000-42", "S000-11")
def test_case_3_more_clients_than_queues_leave_nobody_idle(shop):
    clients = [f"c{i}" for i in range(7)]
    join(shop, *clients)
    set_mode(shop, popShareQueueNum=1)
    assert [queue_ids(query(shop, c, strategyName="AVG_BY_CIRCLE")) for c in clients] == [
        [0], [1], [2], [3], [0], [1], [2],
    ]  # fmt: skip


@pytest.mark.seed("S000-74")
def test_overlapping_rounds_give_each_queue_once(shop, monkeypatch):
    """The strategies that are known never overlap; one that gives everything to everybody does, in every round."""
    monkeypatch.setitem(STRATEGIES, "ALL", lambda client, all_queues, clients: list(all_queues))
    join(shop, "c1", "c2", "c3", "c4")
    set_mode(shop, popShareQueueNum=2)
    assert queue_ids(query(shop, strategyName="ALL")) == [0, 1, 2, 3]
    set_mode(shop, mode="PULL")
    assert queue_ids(query(shop, strategyName="ALL")) == [0, 1, 2, 3]


@pytest.mark.seed("S000-76")
@pytest.mark.parametrize("clients", [4, 7])
def test_a_client_missing_in_the_list_gets_the_empty_set(shop, clients):
    join(shop, *(f"c{i}" for i in range(clients)))
    set_mode(shop, popShareQueueNum=1)
    assert queue_ids(query(shop, "stranger")) == []
    assert queue_ids(query(shop, "stranger", topic="orders")) == []


@given(
    count=st.integers(0, 12),
    clients=st.integers(1, 12),
    extra=st.integers(-1, 14),
    strategy=st.sampled_from([average, by_circle]),
)
def test_every_queue_is_given_to_somebody_whatever_the_numbers(count, clients, extra, strategy):
    all_queues, names = queues(count), [f"c{i:02}" for i in range(clients)]
    found = [share(name, all_queues, names, extra, strategy) for name in names]
    covered = {queue.queue_id for one in found for queue in one}
    if any(queue == -1 for queue in covered) or not count:
        assert covered in ({-1}, set())
    else:
        assert covered == set(range(count))
        assert all(found), "nobody is idle"


@given(count=st.integers(0, 40), clients=st.integers(1, 12), strategy=st.sampled_from([average, by_circle]))
def test_the_strategies_give_every_queue_once_and_fairly(count, clients, strategy):
    all_queues, names = queues(count), [f"c{i:02}" for i in range(clients)]
    found = [strategy(name, all_queues, names) for name in names]
    assert sorted(queue for one in found for queue in one) == all_queues
    sizes = [len(one) for one in found]
    assert max(sizes) - min(sizes) <= 1
    assert strategy("stranger", all_queues, names) == []


def test_the_queries_of_other_languages_are_read(shop):
    """C++ sends the model's ordinal."""
    join(shop, "c1")
    assert queue_ids(query(shop, messageModel=1)) == [0, 1, 2, 3]
    assert AssignmentQuery().message_model is MessageModel.CLUSTERING
    assert RequestMode().mode is Mode.PULL
    assert RequestCode.QUERY_ASSIGNMENT == 400


@pytest.mark.parametrize(("of_topic", "of_broker", "given"), [(6, 6, 4), (2, 6, 0), (6, 2, 0), (4, 4, 4)])
def test_queues_that_may_not_be_read_are_given_to_nobody(shop, of_topic, of_broker, given):
    known = shop.broker.topics.get("orders")
    shop.broker.topics.put(msgspec.structs.replace(known, perm=of_topic))
    change_settings(f"brokerPermission={of_broker}", shop.broker)
    assert len(_queues("orders", shop.broker) or []) == given
