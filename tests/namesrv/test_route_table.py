# SPDX-License-Identifier: Apache-2.0
"""Who hosts which topic: registration, expiry, permissions, questions. No socket, no clock."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.errors import SystemFailure
from aerobee.namesrv.route_table import RouteTable
from aerobee.protocol.bodies import (
    DataVersion,
    QueueData,
    QueueMappingInfo,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigs,
)
from aerobee.protocol.headers.route import RegisterBroker, UnregisterBroker
from aerobee.settings import InForce, NamesrvConfig


class Link:
    def close(self) -> None: ...


def body(*topics: str, version: int = 1, state: int = 0, queues: int = 4, **more: Any) -> RegisterBrokerBody:
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, **more)
        for name in topics
    }
    configs = TopicConfigs(data_version=DataVersion(version, state, 0), topic_config_table=table)
    return RegisterBrokerBody(topic_config_serialize_wrapper=configs)


def who(name: str = "a", broker_id: int = 0, address: str = "", **more: Any) -> RegisterBroker:
    address = address or f"{name}{broker_id}:1"
    return RegisterBroker(
        broker_name=name,
        broker_addr=address,
        cluster_name="C",
        broker_id=broker_id,
        ha_server_addr=f"{address}-ha",
        **more,
    )


def gone(name: str = "a", broker_id: int = 0) -> UnregisterBroker:
    return UnregisterBroker(
        broker_name=name, broker_addr=f"{name}{broker_id}:1", cluster_name="C", broker_id=broker_id
    )


@pytest.fixture
def table() -> RouteTable:
    return RouteTable()


def test_a_topic_no_longer_registered_stays_unless_told_otherwise() -> None:
    settings = InForce(NamesrvConfig())
    table, link = RouteTable(settings), Link()
    table.register(who(), body("kept", "shared", "gone"), 0, link)
    table.register(who("b"), body("shared", "own"), 0, link)
    table.register(who(), body("kept", "other", version=2), 0, link)
    assert table.route("gone") is not None
    settings.swap(NamesrvConfig(delete_topic_with_broker_registration=True))
    table.register(who(), body("kept", "other", version=3), 0, link)
    assert table.route("gone") is None
    assert table.route("kept") is not None
    shared = table.route("shared")
    assert shared is not None
    assert [queues.broker_name for queues in shared.queue_datas] == ["b"]
    assert table.route("own") is not None


def test_a_broker_of_this_process_registers_topic_by_topic_and_loses_none() -> None:
    table = RouteTable(InForce(NamesrvConfig(delete_topic_with_broker_registration=True)))
    table.register(who(), body("one", "two"), 0, None)
    table.register(who(), body("two", version=2), 0, None)
    assert table.route("one") is not None


def test_the_route_of_a_static_topic_has_its_mapping_as_long_as_the_broker_has_the_topic(
    table: RouteTable,
) -> None:
    registration = body("plain", "static")
    info = QueueMappingInfo(bname="a", topic="static", total_queues=4, curr_id_map={0: 0})
    registration.topic_config_serialize_wrapper.topic_queue_mapping_info_map = {"static": info}
    table.register(who(), registration, 0, None)
    plain, static = table.route("plain"), table.route("static")
    assert plain is not None
    assert static is not None
    assert plain.topic_queue_mapping_by_broker is None
    assert static.topic_queue_mapping_by_broker == {"a": info}
    table.delete_topic("static")
    table.register(who(), body("plain", "static", version=2), 0, None)
    again = table.route("static")
    assert again is not None
    assert again.topic_queue_mapping_by_broker is None


def test_a_registered_topic_has_a_route(table: RouteTable) -> None:
    table.register(who(), body("t", "u"), 0, None)
    route = table.route("t")
    assert route is not None
    assert [(b.broker_name, b.cluster, b.broker_addrs) for b in route.broker_datas] == [
        ("a", "C", {0: "a0:1"})
    ]
    assert [(q.broker_name, q.read_queue_nums, q.perm) for q in route.queue_datas] == [("a", 4, 6)]
    assert table.route("other") is None


def test_a_topic_on_two_brokers_has_both_in_its_route(table: RouteTable) -> None:
    table.register(who("a"), body("t", "u"), 0, None)
    table.register(who("b"), body("t", "v"), 0, None)
    route = table.route("t")
    assert route is not None
    assert [b.broker_name for b in route.broker_datas] == ["a", "b"]
    assert table.cluster_info().cluster_addr_table == {"C": ["a", "b"]}
    assert set(table.topics()) == {"t", "u", "v"}


def test_the_first_registration_of_one_single_topic_is_refused(table: RouteTable) -> None:
    with pytest.raises(SystemFailure, match="'a' id 0 is not registered"):
        table.register(who(), body("t"), 0, None)
    assert table.own_names() == []
    table.register(who(), body("t", "u"), 0, None)
    table.register(who(), body("v", version=2), 0, None)  # later, one changed topic is fine
    assert set(table.topics()) == {"t", "u", "v"}


def test_queue_data_follows_a_changed_version_only(table: RouteTable) -> None:
    table.register(who(), body("t", "u"), 0, None)
    table.register(who(), body("t", "u", queues=8), 0, None)
    assert queues(table) == 4
    table.register(who(), body("t", "u", queues=8, version=2), 0, None)
    assert queues(table) == 8


def test_a_version_is_another_by_its_time_alone(table: RouteTable) -> None:
    """A broker that lost its topics' file counts from the beginning again."""
    table.register(who(), body("t", "u"), 0, None)
    again = body("t", "u", queues=8)
    again.topic_config_serialize_wrapper.data_version = DataVersion(1, 0, 77)
    table.register(who(), again, 0, None)
    assert queues(table) == 8


def test_a_slave_that_becomes_master_is_written_to_again(table: RouteTable) -> None:
    table.register(who(broker_id=1, address="x:1", enable_acting_master=True), body("t", "u"), 0, None)
    assert perm(table) == 4
    table.register(who(broker_id=0, address="x:1"), body("t", "u"), 0, None)
    assert perm(table) == 6


def test_a_broker_without_a_topic_may_register_first(table: RouteTable) -> None:
    table.register(who(), body(), 0, None)
    assert table.own_names() == ["C", "a"]


def test_a_new_topic_is_taken_even_when_the_version_is_the_same(table: RouteTable) -> None:
    table.register(who(), body("t", "u"), 0, None)
    table.register(who(), body("t", "u", "v"), 0, None)
    assert table.route("v") is not None


def test_a_slave_is_told_its_master_and_does_not_change_queues(table: RouteTable) -> None:
    first = table.register(who(broker_id=1), body("t", "u", queues=2), 0, None)
    assert (first.master_addr, first.ha_server_addr) == (None, None)
    table.register(who(broker_id=0), body("t", "u", queues=4), 0, None)
    second = table.register(who(broker_id=1), body("t", "u", queues=2), 0, None)
    assert (second.master_addr, second.ha_server_addr) == ("a0:1", "a0:1-ha")
    assert queues(table) == 4
    assert table.register(who(broker_id=0), body("t", "u"), 0, None).master_addr is None


def test_the_first_slave_stands_in_for_reads_when_it_says_so(table: RouteTable) -> None:
    table.register(who(broker_id=1, enable_acting_master=True), body("t", "u"), 0, None)
    table.register(who(broker_id=2, enable_acting_master=True), body("t", "u", queues=9), 0, None)
    route = table.route("t")
    assert route is not None
    assert [(q.perm, q.read_queue_nums) for q in route.queue_datas] == [(4, 4)]


def test_an_address_has_one_role(table: RouteTable) -> None:
    table.register(who(broker_id=1, address="x:1"), body("t", "u"), 0, None)
    table.register(who(broker_id=0, address="x:1"), body("t", "u"), 0, None)
    assert table.member_group("C", "a").broker_addrs == {0: "x:1"}


def test_an_address_that_changes_its_broker_name_leaves_the_old_one(table: RouteTable) -> None:
    table.register(who("a", address="x:1"), body("t", "u"), 0, None)
    table.register(who("b", address="x:1"), body("v", "w"), 0, None)
    assert table.own_names() == ["C", "b"]
    assert table.route("t") is None


def test_an_older_state_does_not_replace_a_newer_master(table: RouteTable) -> None:
    table.register(who(address="new:1"), body("t", "u", state=5), 0, None)
    table.register(who(address="old:1"), body("t", "u", state=4, version=9), 0, None)
    assert table.member_group("C", "a").broker_addrs == {0: "new:1"}
    table.register(who(address="newer:1"), body("t", "u", state=6), 0, None)
    assert table.member_group("C", "a").broker_addrs == {0: "newer:1"}


def test_a_broker_is_believed_when_it_has_an_older_state_of_its_own(table: RouteTable) -> None:
    table.register(who(), body("t", "u", state=5), 0, None)
    table.register(who(), body("t", "u", state=4, version=9, queues=8), 0, None)
    assert table.data_version("C", "a0:1") == DataVersion(9, 4, 0)
    assert queues(table) == 8


def test_an_address_that_was_not_believed_is_not_thought_to_be_alive(
    table: RouteTable, caplog: pytest.LogCaptureFixture
) -> None:
    table.register(who(address="old:1", broker_id=1), body("t", "u", state=4), 0, None)
    table.register(who(address="new:1"), body("t", "u", state=5), 0, None)
    assert table.data_version("C", "old:1") is not None
    table.register(who(address="old:1"), body("t", "u", state=4), 0, None)
    assert table.data_version("C", "old:1") is None, "it is asked to register again"
    assert "ignored broker=a address=old:1: new:1 has a newer state" in caplog.text


def test_unregistering_the_last_address_takes_the_topics_along(table: RouteTable) -> None:
    table.register(who("a"), body("t", "u"), 0, None)
    table.register(who("b"), body("t", "v"), 0, None)
    table.unregister(gone("a"))
    assert set(table.topics()) == {"t", "v"}
    table.unregister(gone("b"))
    assert (table.topics(), table.own_names(), table.any_address()) == ([], [], None)
    table.unregister(gone("b"))


def test_the_topics_stay_while_a_slave_does(table: RouteTable) -> None:
    table.register(who(broker_id=0), body("t", "u"), 0, None)
    table.register(who(broker_id=1), body("t", "u"), 0, None)
    table.unregister(gone("a", 0))
    assert table.member_group("C", "a").broker_addrs == {1: "a1:1"}
    assert table.route("t") is not None


def test_who_is_dropped_and_why_is_told_once(table: RouteTable, caplog: pytest.LogCaptureFixture) -> None:
    """By the log an operator finds out why clients lost a broker."""
    caplog.set_level(logging.INFO, "aerobee.namesrv")
    table.register(who(), body("x", "y"), 0, None)
    table.unregister(gone())
    table.unregister(gone())
    table.unregister(gone("nobody"))
    table.register(who("b", heartbeat_timeout_millis=100), body("x", "y"), 0, None)
    table.expire(101)
    table.expire(102)
    assert [record.getMessage() for record in caplog.records] == [
        "registered broker=a id=0 address=a0:1",
        "dropped broker=a address=a0:1: unregistered",
        "registered broker=b id=0 address=b0:1",
        "gone without a goodbye broker=b id=0 address=b0:1: silent for 101 ms",
    ]


def test_a_silent_broker_is_dropped_after_its_timeout_and_its_link_returned(table: RouteTable) -> None:
    link = Link()
    table.register(who("a"), body("t", "u"), 0, link)
    table.register(who("b", heartbeat_timeout_millis=1_000), body("t", "v"), 0, None)
    assert table.expire(1_000) == []
    assert table.expire(1_001) == []  # b, which has no connection
    assert table.own_names() == ["C", "a"]
    table.heard("C", "a0:1", 100_000)
    assert table.expire(220_000) == []
    assert table.expire(220_001) == [link]
    assert table.topics() == []


def test_a_closed_connection_drops_what_it_registered_and_only_that(table: RouteTable) -> None:
    first, second = Link(), Link()
    table.register(who("a"), body("t", "u"), 0, first)
    table.register(who("b"), body("t", "v"), 0, second)
    table.register(who("a"), body("t", "u"), 1, second)  # a came back on another connection
    table.closed(first, 2)
    assert table.own_names() == ["C", "a", "b"]
    table.closed(second, 3)
    assert table.own_names() == []


def test_data_versions_are_remembered_by_address(table: RouteTable) -> None:
    assert table.data_version("C", "a0:1") is None
    table.register(who(), body("t", "u", version=7), 0, None)
    assert table.data_version("C", "a0:1") == DataVersion(7, 0, 0)


def test_write_permission_is_wiped_and_given_back_per_broker(table: RouteTable) -> None:
    table.register(who("a"), body("t", "u"), 0, None)
    table.register(who("b"), body("t", "v"), 0, None)
    assert table.wipe_write_perm("a") == 2
    route = table.route("t")
    assert route is not None
    assert {q.broker_name: q.perm for q in route.queue_datas} == {"a": 4, "b": 6}
    assert table.add_write_perm("a") == 2
    assert {q.perm for q in route.queue_datas} == {6}
    assert table.wipe_write_perm("nobody") == 0


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(table: RouteTable) -> None:
    table.register(who("a"), body("t", "u"), 0, None)
    other = RegisterBroker(broker_name="z", broker_addr="z:1", cluster_name="D")
    table.register(other, body("t", "w"), 0, None)
    table.delete_topic("t", "C")
    route = table.route("t")
    assert route is not None
    assert [q.broker_name for q in route.queue_datas] == ["z"]
    table.delete_topic("t", "nowhere")
    table.delete_topic("t")
    assert table.route("t") is None
    assert table.topics_of_cluster("D") == ["w"]
    assert table.topics_of_cluster("nowhere") == []


def test_a_topic_registered_by_hand_needs_known_brokers(table: RouteTable) -> None:
    table.register(who("a"), body("t", "u"), 0, None)
    table.register_topic("x", [QueueData(broker_name="a", read_queue_nums=3)])
    table.register_topic("y", [QueueData(broker_name="nobody")])
    table.register_topic("z", [QueueData(broker_name="a"), QueueData(broker_name="nobody")])
    assert table.route("z") is None, "all of it or nothing"
    assert table.route("x") is not None
    assert table.route("y") is None
    assert "y" not in table.topics()


def test_unit_topics_are_told_by_their_flag(table: RouteTable) -> None:
    table.register(who("a"), body("plain", "plain2"), 0, None)
    table.register(who("b"), body("unit", "unit2", topic_sys_flag=1), 0, None)
    table.register(who("c"), body("sub", "sub2", topic_sys_flag=2), 0, None)
    table.register(who("d"), body("both", "both2", topic_sys_flag=3), 0, None)
    assert table.topics_with_flags(1) == ["unit", "unit2", "both", "both2"]
    assert table.topics_with_flags(2) == ["sub", "sub2", "both", "both2"]
    assert table.topics_with_flags(2, 1) == ["sub", "sub2"]


def test_filter_servers_are_part_of_the_route(table: RouteTable) -> None:
    registration = body("t", "u")
    registration.filter_server_list = ["f:1"]
    table.register(who(), registration, 0, None)
    route = table.route("t")
    assert route is not None
    assert route.filter_server_table == {"a0:1": ["f:1"]}


steps = st.lists(
    st.tuples(
        st.sampled_from(["register", "unregister", "close", "expire"]),
        st.sampled_from("ab"),
        st.integers(0, 2),
        st.integers(0, 60_000),
    ),
    max_size=40,
)


@given(steps)
def test_whatever_happens_topics_have_exactly_the_brokers_alive(
    steps: list[tuple[str, str, int, int]],
) -> None:
    table, now = RouteTable(), 0
    links = {(name, i): Link() for name in "ab" for i in range(3)}
    alive: dict[tuple[str, int], int] = {}
    for action, name, broker_id, later in steps:
        now += later
        if action == "register":
            table.register(who(name, broker_id), body("t", f"only-{name}"), now, links[name, broker_id])
            alive[name, broker_id] = now
        elif action == "unregister":
            table.unregister(gone(name, broker_id))
            alive.pop((name, broker_id), None)
        elif action == "close":
            table.closed(links[name, broker_id], now)
            alive.pop((name, broker_id), None)
        else:
            table.expire(now)
            alive = {key: heard for key, heard in alive.items() if heard + 120_000 >= now}
        expected = {n: {i: f"{n}{i}:1" for n2, i in alive if n2 == n} for n in {n for n, _ in alive}}
        info = table.cluster_info()
        assert {n: data.broker_addrs for n, data in info.broker_addr_table.items()} == expected
        assert set(info.cluster_addr_table.get("C", [])) == set(expected)
        for n in table.topics():
            route = table.route(n)
            assert route is not None
            assert {q.broker_name for q in route.queue_datas} <= set(expected)


def queues(table: RouteTable) -> int:
    route = table.route("t")
    assert route is not None
    return route.queue_datas[0].read_queue_nums


def perm(table: RouteTable) -> int:
    route = table.route("t")
    assert route is not None
    return route.queue_datas[0].perm


def test_a_brokers_cluster_is_known_as_long_as_the_broker_is(table: RouteTable) -> None:
    assert table.cluster_of("a") is None
    table.register(who(), body("t", "u"), 0, Link())
    assert table.cluster_of("a") == "C"
    table.unregister(gone())
    assert table.cluster_of("a") is None


@pytest.mark.parametrize(
    ("broker_id", "acting", "perm"), [(0, None, 6), (0, False, 6), (0, True, 6), (1, False, 6), (1, True, 4)]
)
def test_only_a_slave_that_acts_as_master_is_for_reading_alone(
    table: RouteTable, broker_id: int, acting: bool | None, perm: int
) -> None:
    table.register(who(broker_id=broker_id, enable_acting_master=acting), body("t", "u"), 0, Link())
    route = table.route("t")
    assert route is not None
    assert [queues.perm for queues in route.queue_datas] == [perm]


def test_whether_a_slave_may_act_as_master_is_what_was_said_last(table: RouteTable) -> None:
    for said in (True, None, True, False):
        table.register(who(enable_acting_master=said), body("t", "u"), 0, None)
        route = table.route("t")
        assert route is not None
        assert [broker.enable_acting_master for broker in route.broker_datas] == [bool(said)]


def test_an_old_slave_alone_does_not_speak_for_the_queues(table: RouteTable) -> None:
    table.register(who(broker_id=1), body("t", "u"), 0, None)
    assert table.topics() == []
    assert table.member_group("C", "a").broker_addrs == {1: "a1:1"}


def test_an_address_whose_place_was_taken_is_forgotten_when_its_connection_closes(table: RouteTable) -> None:
    link = Link()
    table.register(who(address="old:1"), body("t", "u"), 0, link)
    table.register(who(address="new:1"), body("t", "u"), 1, Link())
    table.closed(link, 2)
    assert table.data_version("C", "old:1") is None
    assert table.data_version("C", "new:1") is not None


def test_a_topic_registered_by_hand_keeps_the_hosts_it_has(table: RouteTable) -> None:
    for name in ("a", "b"):
        table.register(who(name), body(f"of-{name}", "v"), 0, None)
    table.register_topic("of-a", [QueueData(broker_name="b")])
    route = table.route("of-a")
    assert route is not None
    assert {queues.broker_name for queues in route.queue_datas} == {"a", "b"}


def test_a_topic_whose_last_mapping_is_gone_has_none(table: RouteTable) -> None:
    registration = body("static", "u")
    info = QueueMappingInfo(bname="a", topic="static", total_queues=4, curr_id_map={0: 0})
    registration.topic_config_serialize_wrapper.topic_queue_mapping_info_map = {"static": info}
    table.register(who("a"), registration, 0, None)
    table.register(who("b"), body("static", "v"), 0, None)
    table.unregister(gone("a"))
    route = table.route("static")
    assert route is not None
    assert route.topic_queue_mapping_by_broker is None


def test_who_is_given_write_permission_may_be_read_as_well(table: RouteTable) -> None:
    table.register(who(), body("t", "u", perm=0), 0, None)
    assert table.add_write_perm("a") == 2
    assert perm(table) == 6


def test_a_cluster_has_its_own_brokers_and_the_topics_that_any_of_them_hosts(table: RouteTable) -> None:
    table.register(who("a"), body("shared", "of-a"), 0, None)
    table.register(msgspec.structs.replace(who("b"), cluster_name="D"), body("shared", "of-b"), 0, None)
    assert sorted(table.topics_of_cluster("C")) == ["of-a", "shared"]
    assert sorted(table.topics_of_cluster("D")) == ["of-b", "shared"]
    assert table.member_group("C", "b").broker_addrs == {}
    assert table.member_group("D", "b").broker_addrs == {0: "b0:1"}
