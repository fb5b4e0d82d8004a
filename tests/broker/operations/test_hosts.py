# SPDX-License-Identifier: Apache-2.0
"""Which brokers a gRPC client is told of, and when asking creates a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.background.topic_routes import hosts_elsewhere
from aerobee.broker.operations.hosts import hosts_of, hosts_or_new_topic, readable
from aerobee.broker.state.routes import Host
from aerobee.errors import TopicNotFound
from aerobee.protocol.bodies import BrokerData, QueueData, TopicRoute

if TYPE_CHECKING:
    from collections.abc import Callable

FAR = Host("broker-b", 6, 4, 4, "10.0.0.2:10911", "10.0.0.2:8081")
MUTE = Host("apache-a", 6, 4, 4, "10.0.0.3:10911")


class Routes:
    """Name servers that know these hosts; silent ones know nothing, however often they are asked."""

    def __init__(self, *hosts: Host, silent: bool = False) -> None:
        self._hosts, self._silent = hosts, silent
        self._asked = False

    def known(self, topic: str) -> tuple[Host, ...] | None:
        return self._hosts if self._asked and not self._silent else None

    async def look_up(self, topic: str) -> None:
        self._asked = True

    async def stop(self) -> None: ...


def names_of(hosts: list[Host]) -> list[str]:
    return [host.broker_name for host in hosts]


async def test_this_broker_comes_first_and_those_that_speak_no_grpc_not_at_all(bench: Any) -> None:
    bench.broker.topics.ensure("orders", 3)
    bench.broker.pops.routes = Routes(MUTE, FAR)
    hosts = await hosts_of("orders", bench.broker)
    assert hosts == [Host("broker-a", 6, 3, 3), FAR]


async def test_a_topic_only_on_brokers_without_grpc_says_so(bench: Any) -> None:
    bench.broker.pops.routes = Routes(MUTE)
    for ask in (hosts_of, hosts_or_new_topic):
        with pytest.raises(TopicNotFound, match="apache-a"):
            await ask("orders", bench.broker)


async def test_without_an_answer_this_broker_tells_its_own(bench: Any) -> None:
    bench.broker.topics.ensure("orders", 3)
    for routes in (None, Routes(FAR, silent=True)):
        bench.broker.pops.routes = routes
        assert names_of(await hosts_of("orders", bench.broker)) == ["broker-a"]
        with pytest.raises(TopicNotFound, match="does not exist"):
            await hosts_of("bills", bench.broker)


@pytest.mark.parametrize(
    ("on_route", "on_send", "made"), [(True, True, True), (False, True, False), (True, False, False)]
)
async def test_asking_creates_a_topic_only_where_both_settings_say_so(
    make_bench: Callable[..., Any],
    on_route: bool,
    on_send: bool,
    made: bool,
) -> None:
    broker = make_bench(grpc_auto_create_on_route=on_route, auto_create_topics=on_send).broker
    broker.pops.routes = Routes()
    if made:
        assert names_of(await hosts_or_new_topic("orders", broker)) == ["broker-a"]
    else:
        with pytest.raises(TopicNotFound):
            await hosts_or_new_topic("orders", broker)
    assert (broker.topics.get("orders") is not None) == made


async def test_asking_creates_nothing_that_exists_elsewhere_and_no_retry_topic(
    make_bench: Callable[..., Any],
) -> None:
    broker = make_bench(grpc_auto_create_on_route=True).broker
    broker.pops.routes = Routes(FAR)
    assert await hosts_or_new_topic("orders", broker) == [FAR]
    assert broker.topics.get("orders") is None
    broker.pops.routes = Routes()
    with pytest.raises(TopicNotFound):
        await hosts_or_new_topic("%RETRY%billing", broker)


async def test_a_broker_that_may_not_be_read_is_no_place_to_consume(make_bench: Callable[..., Any]) -> None:
    broker = make_bench(perm=2).broker
    broker.topics.ensure("orders", 3)
    broker.pops.routes = Routes(FAR, Host("broker-c", 6, 0, 4, grpc_address="10.0.0.3:8081"))
    assert readable(await hosts_of("orders", broker)) == [FAR]


@pytest.mark.parametrize(
    ("filter_servers", "address"),
    [
        (["grpc://10.0.0.2:8081"], "10.0.0.2:8081"),
        (["10.0.0.9:3000", "grpc://[::1]:8081"], "[::1]:8081"),
        (["grpc://nonsense", "grpc://:1", "grpc://host:99999"], ""),
        ([], ""),
    ],
)
def test_a_grpc_address_is_read_from_the_route_and_rubbish_is_passed_over(
    filter_servers: list[str], address: str
) -> None:
    route = TopicRoute(
        broker_datas=[BrokerData(broker_name="broker-b", broker_addrs={0: "b:1", 1: "slave:1"})],
        queue_datas=[QueueData(broker_name=name, read_queue_nums=2) for name in ("broker-a", "broker-b")],
        filter_server_table={"b:1": filter_servers, "slave:1": ["grpc://slave:8081"]},
    )
    assert hosts_elsewhere(route, "broker-a") == (Host("broker-b", 6, 2, 0, "b:1", address),)
