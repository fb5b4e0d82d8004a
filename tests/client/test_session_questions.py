# SPDX-License-Identifier: Apache-2.0
"""What a session asks of name servers and brokers, and what it makes of the answers. No network."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.client.options import Options, ProducerOptions, PullOptions
from aerobee.client.produce.producer import Producer
from aerobee.client.produce.sender import Sender
from aerobee.client.produce.tries import Tries
from aerobee.client.session import broker_requests
from aerobee.client.session.session import Session
from aerobee.clock import ManualClock
from aerobee.errors import (
    BrokerError,
    NetworkError,
    NoRoute,
    RequestCodeNotSupported,
    RequestTimeout,
    SystemFailure,
    TopicNotFound,
    UnknownResponse,
)
from aerobee.net.connection import Reply
from aerobee.protocol import bodies
from aerobee.protocol import command as wire
from aerobee.protocol.bodies import BrokerData, QueueData, TopicRoute
from aerobee.protocol.command import Command
from aerobee.protocol.headers.produce import PushReply
from aerobee.protocol.headers.route import GetRoute


def route(**brokers: dict[int, str]) -> TopicRoute:
    return TopicRoute(
        broker_datas=[BrokerData(broker_name=name, broker_addrs=at) for name, at in brokers.items()],
        queue_datas=[
            QueueData(broker_name=name, perm=6, read_queue_nums=1, write_queue_nums=1) for name in brokers
        ],
    )


class Asked(Session):  # type: ignore[type-arg]
    """Name servers answer what is in `answers`, in turn."""

    def __init__(self, namesrv: str = "127.0.0.1:1;127.0.0.1:2", **options: Any) -> None:
        super().__init__(namesrv, Options(**options), ManualClock())  # type: ignore[misc]
        self.answers: list[Any] = []
        self.questions: list[tuple[str, Any]] = []

    async def call(self, address: str, header: Any, body: bytes = b"", **_: Any) -> Command:  # type: ignore[override]
        self.questions.append((address, header))
        found = self.answers.pop(0)
        if isinstance(found, BaseException):
            raise found
        return Command(0, body=bodies.encode(found))


async def test_a_route_is_asked_for_as_standard_json() -> None:
    """Brokers' numbers are keys there, which only RocketMQ's own reader takes as they are."""
    session = Asked()
    session.answers = [TopicNotFound("none"), route(a={0: "a:1"})]
    await session.meet_name_server()
    await session.refresh_route("T")
    assert [header for _, header in session.questions] == [
        GetRoute(topic="TBW102", accept_standard_json_only=True),
        GetRoute(topic="T", accept_standard_json_only=True),
    ]


async def test_the_next_name_server_is_asked_when_one_is_away_and_kept_from_then_on() -> None:
    session = Asked()
    session.answers = [NetworkError("gone"), route(a={0: "a:1"}), route(a={0: "a:1"})]
    first = await session.refresh_route("T")
    await session.refresh_route("T")
    asked = [address for address, _ in session.questions]
    assert sorted(asked[:2]) == ["127.0.0.1:1", "127.0.0.1:2"]
    assert asked[2] == asked[1]
    assert [queue.broker_name for queue in first.writable] == ["a"]
    session.answers = [NetworkError("one"), NetworkError("two")]
    with pytest.raises(NetworkError, match="two"):
        await session.refresh_route("T")
    session.answers = [SystemFailure("no")]
    with pytest.raises(SystemFailure):
        await session.refresh_route("T")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RequestCodeNotSupported("?"), "is a broker, or speaks for one: give the name server's address"),
        (NetworkError("refused"), "no name server answers at 127.0.0.1:1: refused; is it running"),
    ],
)
async def test_a_wrong_address_is_blamed_when_a_client_starts(error: Exception, said: str) -> None:
    session = Asked("127.0.0.1:1")
    session.answers = [error]
    with pytest.raises(NetworkError, match=said):
        await session.meet_name_server()


class Reader:
    def __init__(self) -> None:
        self.told: list[str] = []

    def route_changed(self, topic: str) -> None:
        self.told.append(topic)


@pytest.mark.seed("S003-43")
async def test_consumers_are_told_of_routes_that_change_or_go_and_of_no_others() -> None:
    session, one, two = Asked(), Reader(), Reader()
    session.consumers = {"g": one, "h": two}  # type: ignore[dict-item]
    same = route(a={0: "a:1"})
    session.answers = [same, same, route(b={0: "b:1"}), TopicNotFound("T"), TopicNotFound("T")]
    told = []
    for _ in range(3):
        await session.refresh_route("T")
        told.append(len(one.told))
    for _ in range(2):
        with pytest.raises(NoRoute, match="topic 'T' is unknown to the name servers 127"):
            await session.refresh_route("T")
        told.append(len(one.told))
    assert told == [1, 1, 2, 3, 3]
    assert one.told == two.told == ["T"] * 3
    assert session.routes.had("T")


async def test_a_route_that_is_known_is_not_asked_for_again() -> None:
    session = Asked()
    session.answers = [route(a={0: "a:1"})]
    first = await session.route("T")
    assert await session.route("T") is first
    assert len(session.questions) == 1
    session.unuse_topic("T")
    session.unuse_topic("never used")
    assert session._brokers() == []


async def test_the_master_of_a_broker_is_looked_for_once_and_then_any_of_its_name_will_do() -> None:
    session = Asked()
    session.routes.put("T", route(a={0: "a:1"}))
    assert await session.master("a", "T") == "a:1"
    assert session.questions == []
    session.answers = [route(a={0: "a:1"}, b={1: "b-slave:1"})]
    assert await session.master("b", "T") == "b-slave:1"
    session.answers = [route(a={0: "a:1"})]
    with pytest.raises(NoRoute, match="broker 'c' of topic 'T' has no address in the routes"):
        await session.master("c", "T")


async def test_an_adopted_route_is_known_from_then_on() -> None:
    session, reader = Asked(), Reader()
    session.consumers = {"g": reader}  # type: ignore[dict-item]
    found = session.adopt_route("new", route(a={0: "a:1"}))
    assert [queue.topic for queue in found.writable] == ["new"]
    assert session.routes.get("new") is found
    assert reader.told == ["new"]


async def test_producers_tell_masters_that_they_live_and_consumers_tell_slaves_too() -> None:
    session = Asked()
    session.answers = [route(a={0: "a:1", 1: "a-slave:1"})]
    await session.route("T")
    session.routes.put("other", route(z={0: "z:1"}))
    told: list[str] = []

    async def heartbeat_to(address: str) -> bool:
        told.append(address)
        return address == "a:1"

    session._heartbeat_to = heartbeat_to  # type: ignore[method-assign]
    assert await session.heartbeat() == 0
    assert told == []
    session.producers = {"p": object()}  # type: ignore[dict-item]
    assert await session.heartbeat() == 1
    assert told == ["a:1"]
    told.clear()
    session.consumers = {"g": Reader()}  # type: ignore[dict-item]
    assert await session.heartbeat() == 1, "of two that were told one has heard"
    assert told == ["a:1", "a-slave:1"]


async def test_a_session_begins_with_its_first_user_and_ends_with_its_last() -> None:
    session = Asked()
    names = lambda: sorted(task.get_name() for task in session.tasks._tasks)  # noqa: E731
    await session.start()
    await session.start()
    assert (session.users, names()) == (2, ["heartbeat", "routes"])
    await session.stop()
    assert names() == ["heartbeat", "routes"]
    await session.stop()
    assert (session.users, names()) == (0, [])


async def test_options_of_another_role_are_refused() -> None:
    with pytest.raises(TypeError, match="takes ProducerOptions or Options as options, not PullOptions"):
        Session.of_role(ProducerOptions, None, PullOptions(), None)
    shared = Asked()
    assert Session.of_role(ProducerOptions, shared, None, None) is shared
    with pytest.raises(ValueError, match="give host:port, several separated by ';'"):
        Session("")
    await asyncio.sleep(0)


async def test_a_producer_that_finds_no_name_server_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Asked("127.0.0.1:1")
    producer = Producer(session, group="p")
    session.answers = [NetworkError("refused")]
    with pytest.raises(NetworkError, match="no name server answers"):
        await producer.start()
    assert (session.users, session.producers, session.tasks._tasks) == (0, {}, set())
    session.answers = [TopicNotFound("none")]
    async with producer as entered:
        assert entered is producer
        assert session.producers == {"p": producer}
        with pytest.raises(RuntimeError, match="'p' was started already"):
            await producer.start()
        with pytest.raises(ValueError, match="'p' has a producer in this session already"):
            await Producer(session, group="p").start()
    await producer.stop()
    assert (session.users, session.producers) == (0, {})


async def test_a_way_that_is_not_found_in_time_is_told_as_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = Asked("127.0.0.1:1")
    sender = Sender(session, "p")
    now = sender._clock.now()
    with pytest.raises(NetworkError, match="no way to a broker of 'T' was found in time"):
        async with Tries(0, now, now).in_time(sender._clock, "T"):
            await asyncio.Event().wait()
    with pytest.raises(RequestTimeout, match="its own"):
        async with Tries(0, now, now + 60_000).in_time(sender._clock, "T"):
            raise RequestTimeout("its own")


async def test_a_connection_lost_before_the_greeting_is_greeted_by_nobody() -> None:
    session = Asked()
    await session._introduce("a:1")
    assert session._greeted == {}
    assert session.open_connection("a:1") is None


@pytest.mark.parametrize(("producers", "consumers", "watches"), [(0, 0, 0), (1, 0, 1), (0, 1, 1), (1, 1, 1)])
async def test_an_outage_is_watched_by_who_produces_or_consumes(
    producers: int, consumers: int, watches: int
) -> None:
    session = Asked()
    session.producers = dict.fromkeys("p"[:producers])  # type: ignore[assignment]
    session.consumers = dict.fromkeys("c"[:consumers])  # type: ignore[assignment]
    for _ in range(2):
        session._failed("127.0.0.1:1", NetworkError("gone"))
    assert [task.get_name() for task in session.tasks._tasks] == ["outages"] * watches
    assert list(session.outages.open) == ["127.0.0.1:1"]
    await session.tasks.cancel()


async def test_who_waits_for_a_route_or_a_greeting_is_told_when_the_session_ends() -> None:
    session = Asked()
    await session.start()

    async def hang(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()  # one each: to cancel one of them must not end the other

    session._first_routes._work = hang
    session._greetings._work = hang
    waiting = [asyncio.ensure_future(each) for each in (session.route("T"), session._greetings.get("a:1"))]
    session.outages.failed("a:1", NetworkError("gone"))
    await asyncio.sleep(0)
    await session.stop()
    for each in waiting:
        with pytest.raises(NetworkError, match="this client is closed"):
            await asyncio.wait_for(each, 10)
    assert not session.outages.open


async def test_a_server_that_was_away_is_asked_as_what_it_is_and_forgotten_when_it_is_nothing_to_us() -> None:
    session = Asked("127.0.0.1:1;127.0.0.1:2")
    session.routes.put("T", route(a={0: "a:1"}))
    greeted: list[str] = []

    async def heartbeat_to(address: str) -> bool:
        greeted.append(address)
        return True

    session._heartbeat_to = heartbeat_to  # type: ignore[method-assign]
    session.answers = [route()]
    for address in ("127.0.0.1:2", "a:1", "gone:1"):
        session.outages.failed(address, NetworkError("gone"))
        await session._is_back(address)
    assert session.questions == [("127.0.0.1:2", GetRoute(topic="TBW102", accept_standard_json_only=True))]
    assert greeted == ["a:1"]
    assert list(session.outages.open) == ["127.0.0.1:2", "a:1"], "who answers is told elsewhere"


async def test_a_session_that_ends_leaves_no_timer_behind() -> None:
    session = Asked()
    await session.start()
    session.deadlines.watch(asyncio.get_running_loop().create_future(), session.clock.now() + 50)
    await session.stop()
    assert session.deadlines._timer is None
    clock: Any = session.clock
    assert all(timer.cancelled for *_, timer in clock._timers)


async def test_what_needs_no_answer_says_so_on_the_wire() -> None:
    session, sent = Asked(access_key="me", secret_key="secret"), []

    class Line:
        def send(self, command: Command) -> None:
            sent.append(command)

    async def connection(address: str) -> Any:
        assert address == "a:1"
        return Line()

    session.connection = connection  # type: ignore[method-assign]
    await session.send("a:1", GetRoute(topic="T"), b"body")
    (command,) = sent
    assert (command.flag, command.body, command.ext_dict()["topic"]) == (2, b"body", "T")
    assert {"AccessKey", "Signature"} <= command.ext_dict().keys()


@pytest.mark.parametrize(("asked_ms", "waits_ms"), [(0, 3_000), (500, 500), (30_000, 30_000)])
async def test_a_call_waits_as_long_as_it_is_told_or_as_usual(asked_ms: int, waits_ms: int) -> None:
    session = Session("127.0.0.1:1", Options(), ManualClock())
    line = Line(Command(19, remark="nothing"))
    session.connection = line.connection  # type: ignore[method-assign]
    header = GetRoute(topic="T")
    answer = await session.call("a:1", header, b"body", timeout_ms=asked_ms, accept=(0, 19))
    assert (answer.code, line.waited) == (19, [waits_ms]), "a code that is accepted is no refusal"
    with pytest.raises(UnknownResponse, match="nothing"):
        await session.call("a:1", header)
    assert not session.outages.open


async def test_a_call_that_is_not_answered_is_an_outage_until_one_is() -> None:
    session = Session("127.0.0.1:1", Options(), ManualClock())
    line = Line(NetworkError("gone"))
    session.connection = line.connection  # type: ignore[method-assign]
    with pytest.raises(NetworkError, match="gone"):
        await session.call("a:1", GetRoute(topic="T"))
    assert list(session.outages.open) == ["a:1"]
    line.answer = Command(1, remark="refused")
    with pytest.raises(BrokerError):
        await session.call("a:1", GetRoute(topic="T"))
    assert not session.outages.open, "who refuses has answered"


class Line:
    """A connection that gives one answer."""

    def __init__(self, answer: Command | Exception) -> None:
        self.answer = answer
        self.attributes = {"address": "a:1"}
        self.waited: list[int] = []

    async def connection(self, address: str) -> Any:
        return self

    async def call(self, request: Command, timeout_ms: int) -> Command:
        self.waited.append(timeout_ms)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_reply_is_acknowledged_by_who_waits_for_it_and_refused_where_nobody_does() -> None:
    """The broker tells whoever replied which of the two it was."""
    session, heard = Asked(), []

    class Waits:
        def __init__(self, name: str, *, waits: bool) -> None:
            self.name = name
            self.waits = waits

        def reply_arrived(self, header: PushReply, body: bytes) -> bool:
            heard.append((self.name, header.topic, body))
            return self.waits

    session.producers = {"p": Waits("p", waits=False), "q": Waits("q", waits=True)}  # type: ignore[dict-item]
    reply = wire.request(PushReply(topic="R"), b"answer")
    connection: Any = None
    assert isinstance(broker_requests.handle(session, connection, reply), Reply)
    assert heard == [("p", "R", b"answer"), ("q", "R", b"answer")]
    del session.producers["q"]
    with pytest.raises(SystemFailure, match="no request waits for this reply"):
        broker_requests.handle(session, connection, reply)
