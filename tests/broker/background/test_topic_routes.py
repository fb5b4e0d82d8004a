# SPDX-License-Identifier: Apache-2.0
"""What name servers say of a topic's other brokers is asked for once, kept up to date, and forgotten in the end."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import msgspec
import pytest

from aerobee.broker.background.topic_routes import (
    ABSENT_MS,
    FORGET_MS,
    REFRESH_MS,
    LocalRoutes,
    RemoteRoutes,
    hosts_elsewhere,
    routes_for,
)
from aerobee.broker.state.routes import Host
from aerobee.clock import ManualClock
from aerobee.errors import NetworkError, SystemFailure, TopicNotFound
from aerobee.protocol.bodies import BrokerData, QueueData, TopicRoute, encode
from aerobee.protocol.command import Command
from aerobee.settings import BrokerConfig, InForce

FAR = Host("broker-b", 6, 3, 5, "10.0.0.2:10911", "10.0.0.2:8081")
ROUTE = TopicRoute(
    broker_datas=[BrokerData(broker_name="broker-b", broker_addrs={0: "10.0.0.2:10911"})],
    queue_datas=[
        QueueData(broker_name="broker-b", read_queue_nums=3, write_queue_nums=5, perm=6),
        QueueData(broker_name="broker-a", read_queue_nums=8, write_queue_nums=8, perm=6),
    ],
    filter_server_table={"10.0.0.2:10911": ["10.0.0.2:9000", "grpc://10.0.0.2:8081"]},
)


class Asked:
    """Routes whose name servers answer as they are told: a route, an error, or not yet."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.routes = RemoteRoutes(["10.0.0.9:9876"], "broker-a", self.clock)
        self.answer: TopicRoute | Exception | asyncio.Future[TopicRoute] = ROUTE
        self.at: list[int] = []
        self._began = self.clock.now()
        monkeypatch.setattr(self.routes, "_ask", self._ask)

    async def _ask(self, topic: str) -> TopicRoute:
        self.at.append(self.clock.now() - self._began)
        if isinstance(self.answer, Exception):
            raise self.answer
        return await self.answer if isinstance(self.answer, asyncio.Future) else self.answer

    async def pass_ms(self, ms: int) -> None:
        self.clock.advance(ms)
        for _ in range(8):
            await asyncio.sleep(0)


@pytest.fixture
async def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Asked(monkeypatch)
    yield made
    await made.routes.stop()


def test_the_hosts_of_a_route_are_all_but_this_broker() -> None:
    assert hosts_elsewhere(ROUTE, "broker-a") == (FAR,)


def test_a_name_server_of_this_process_is_asked_rather_than_any_other(bench: Any) -> None:
    class Table:
        def route(self, topic: str) -> TopicRoute | None:
            return ROUTE if topic == "orders" else None

    alone = bench.broker
    pointed = dataclasses.replace(alone, settings=InForce(BrokerConfig(namesrv="10.0.0.9:9876")))
    for broker in (alone, pointed):
        routes = routes_for(broker, Table())
        assert isinstance(routes, LocalRoutes)
        assert (routes.known("orders"), routes.known("bills")) == ((FAR,), ())
    assert isinstance(routes_for(pointed, None), RemoteRoutes)
    assert routes_for(alone, None) is None


def test_what_is_no_address_in_a_strangers_list_is_passed_over() -> None:
    word = ["grpc://10.0.0.2", "grpc://:", "10.0.0.2:9000", "grpc://10.0.0.2:8081", "grpc://10.0.0.2:1"]
    route = msgspec.structs.replace(ROUTE, filter_server_table={"10.0.0.2:10911": word})
    assert hosts_elsewhere(route, "broker-a") == (FAR,)


async def test_all_who_ask_at_once_wait_for_one_answer_and_the_next_asks_anew(asked: Asked) -> None:
    answer: asyncio.Future[TopicRoute] = asyncio.get_running_loop().create_future()
    asked.answer = answer
    assert asked.routes.known("orders") is None
    first, leaves, second = (asyncio.ensure_future(asked.routes.look_up("orders")) for _ in range(3))
    await asked.pass_ms(0)
    leaves.cancel()
    answer.set_result(ROUTE)
    await asyncio.gather(first, second)
    assert asked.routes.known("orders") == (FAR,)
    asked.answer = ROUTE
    await asked.routes.look_up("orders")
    assert asked.at == [0, 0]


async def test_what_is_known_is_refreshed_again_and_again(asked: Asked) -> None:
    asked.routes.known("orders")
    await asked.routes.look_up("orders")
    for _ in range(3):
        await asked.pass_ms(REFRESH_MS - 1)
        await asked.pass_ms(1)
    assert asked.at == [0, 30_000, 60_000, 90_000]
    asked.answer = TopicRoute(broker_datas=[], queue_datas=[])
    await asked.pass_ms(REFRESH_MS)
    assert asked.routes.known("orders") == ()


async def test_a_topic_that_is_gone_is_no_longer_known_and_one_that_came_no_longer_absent(
    asked: Asked,
) -> None:
    asked.routes.known("orders")
    await asked.routes.look_up("orders")
    asked.answer = TopicNotFound("gone")
    await asked.pass_ms(REFRESH_MS)
    assert asked.routes.known("orders") == ()
    await asked.pass_ms(ABSENT_MS - 1)
    assert asked.routes.known("orders") == ()
    await asked.pass_ms(1)
    assert asked.routes.known("orders") is None, "to be asked for again"
    asked.answer = ROUTE
    await asked.routes.look_up("orders")
    assert asked.routes.known("orders") == (FAR,)
    assert asked.routes._absent == {}


async def test_a_topic_that_is_nowhere_is_asked_for_again_only_by_who_wants_it(asked: Asked) -> None:
    asked.answer = TopicNotFound("nowhere")
    asked.routes.known("orders")
    await asked.routes.look_up("orders")
    for _ in range(3):
        await asked.pass_ms(REFRESH_MS)
    assert asked.at == [0]


async def test_what_was_known_stays_when_nobody_answers(
    asked: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    asked.routes.known("orders")
    await asked.routes.look_up("orders")
    asked.answer = NetworkError("nobody there")
    for _ in range(2):
        await asked.pass_ms(REFRESH_MS)
    assert asked.routes.known("orders") == (FAR,)
    assert caplog.text.count("no name server tells the route of topic=orders") == 1
    asked.answer = ROUTE
    await asked.pass_ms(REFRESH_MS)
    asked.answer = SystemFailure("odd")
    await asked.pass_ms(REFRESH_MS)
    assert caplog.text.count("no name server tells the route of topic=orders") == 2, "once each time"


async def test_a_topic_that_nobody_asks_for_is_forgotten_after_five_minutes(asked: Asked) -> None:
    asked.routes.known("orders")
    await asked.routes.look_up("orders")
    for _ in range(FORGET_MS // REFRESH_MS):
        await asked.pass_ms(REFRESH_MS)
    assert len(asked.at) == 1 + FORGET_MS // REFRESH_MS, "five minutes to the moment: not yet"
    await asked.pass_ms(REFRESH_MS)
    assert asked.routes._known == {}
    for _ in range(3):
        await asked.pass_ms(REFRESH_MS)
    assert len(asked.at) == 1 + FORGET_MS // REFRESH_MS


# -- several name servers ----------------------------------------------------------------------------------------


class Answers:
    """In place of the connections: each server answers with its word, or with an error."""

    def __init__(self, **by_server: Command | Exception) -> None:
        self.by_server = by_server
        self.asked: list[str] = []

    async def get(self, server: str) -> Answers:
        self.asked.append(server)
        word = self.by_server[server.partition(":")[0]]
        if isinstance(word, Exception):
            raise word
        self._word = word
        return self

    async def call(self, command: Command, timeout_ms: int) -> Command:
        assert (command.ext_dict()["topic"], timeout_ms) == ("orders", 1_000)
        assert command.ext_dict()["acceptStandardJsonOnly"] == "true"
        return self._word

    async def close(self) -> None: ...


def ask_of(**by_server: Command | Exception) -> tuple[Any, Answers]:
    routes: Any = RemoteRoutes([f"{name}:1" for name in by_server], "broker-a", ManualClock())
    routes._pool = Answers(**by_server)
    return routes, routes._pool


async def test_a_name_server_that_fails_is_passed_over_and_not_asked_first_again() -> None:
    good = Command(0, body=encode(ROUTE))
    routes, answers = ask_of(a=NetworkError("dead"), b=good)
    for _ in range(3):
        assert (await routes._ask("orders")).queue_datas == ROUTE.queue_datas
    assert answers.asked.count("a:1") <= 1
    assert answers.asked.count("b:1") == 3


async def test_a_name_server_that_knows_of_no_such_topic_is_believed() -> None:
    routes, answers = ask_of(a=Command(17, remark="no such topic"), b=Command(17, remark="no such topic"))
    with pytest.raises(TopicNotFound):
        await routes._ask("orders")
    assert len(answers.asked) == 1


async def test_when_none_answers_the_last_one_says_why() -> None:
    routes, answers = ask_of(a=NetworkError("dead"), b=Command(1, remark="full"))
    with pytest.raises((NetworkError, SystemFailure)):
        await routes._ask("orders")
    assert sorted(answers.asked) == ["a:1", "b:1"]


async def test_the_end_waits_for_no_answer(asked: Asked) -> None:
    asked.answer = asyncio.get_running_loop().create_future()
    waits = asyncio.ensure_future(asked.routes.look_up("orders"))
    await asked.pass_ms(0)
    async with asyncio.timeout(5):
        await asked.routes.stop()
        await waits
    assert asked.routes.known("orders") is None


async def test_the_end_ends_a_refresh_that_nobody_answers(asked: Asked) -> None:
    asked.routes.known("orders")
    await asked.routes.look_up("orders")
    asked.answer = asyncio.get_running_loop().create_future()
    await asked.pass_ms(REFRESH_MS)
    refresh = asked.routes._refresh
    assert refresh is not None
    assert not refresh.done()
    await asked.routes.stop()
    assert refresh.done()


async def test_nothing_is_asked_for_after_the_end(asked: Asked) -> None:
    asked.routes.known("orders")
    await asked.routes.look_up("orders")
    await asked.routes.stop()
    for _ in range(3):
        await asked.pass_ms(REFRESH_MS)
    assert asked.at == [0]


async def test_however_many_topics_are_known_each_is_asked_for_once_a_time(asked: Asked) -> None:
    for topic in ("orders", "bills", "trades"):
        asked.routes.known(topic)
        await asked.routes.look_up(topic)
    for _ in range(3):
        await asked.pass_ms(REFRESH_MS)
    assert asked.at == [0] * 3 + [30_000] * 3 + [60_000] * 3 + [90_000] * 3
