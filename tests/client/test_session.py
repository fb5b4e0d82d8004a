# SPDX-License-Identifier: Apache-2.0
"""Two ends over real sockets of this machine: a name server and brokers made of one handler each."""

from __future__ import annotations

import asyncio
import os
import re
from typing import Any

import pytest

from aerobee.client.consume.push_consumer import PushConsumer
from aerobee.client.message import Message
from aerobee.client.options import Options
from aerobee.client.produce.producer import Producer
from aerobee.client.session.route_cache import RouteCache
from aerobee.client.session.session import Session
from aerobee.clock import ManualClock
from aerobee.errors import MessageIllegal, NetworkError, NoRoute, SystemBusy
from aerobee.net.connection import Connection, Reply
from aerobee.protocol import accounts, batch, bodies
from aerobee.protocol.bodies import BrokerData, MessageQueue, QueueData, TopicRoute
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.consume import NotifyIdsChanged
from aerobee.protocol.headers.produce import SendMessageV2, SendResult
from aerobee.protocol.headers.route import GetRoute
from aerobee.protocol.routing import limited, unfold
from tests.turning import until, until_asleep


class FakeServer:
    """Answers by a function of the command; remembers what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.commands: list[Any] = []
        self.connections: list[Connection] = []

    def _asked(self, connection: Connection, command: Any) -> Any:
        self.commands.append(command)
        return self.answer(command)

    def _accept(self) -> Connection:
        self.connections.append(Connection(self._asked))
        return self.connections[-1]

    async def start(self, port: int = 0) -> str:
        self.server = await asyncio.get_running_loop().create_server(self._accept, "127.0.0.1", port)
        self.address = f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self.address

    def count(self, code: int) -> int:
        return sum(command.code == code for command in self.commands)

    def stop(self) -> None:
        self.server.close()
        for connection in self.connections:
            connection.abort()


def route(*brokers: FakeServer, perm: int = 6) -> TopicRoute:
    names = [f"b{n}" for n, _ in enumerate(brokers)]
    return TopicRoute(
        broker_datas=[
            BrokerData(broker_name=name, broker_addrs={0: broker.address})
            for name, broker in zip(names, brokers, strict=True)
        ],
        queue_datas=[
            QueueData(broker_name=n, perm=perm, read_queue_nums=2, write_queue_nums=2) for n in names
        ],
    )


def stored(command: Any) -> Any:
    """A broker to which nothing goes wrong."""
    if command.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        queue_id = command.fields(SendMessageV2).queue_id
        is_batch = command.code == RequestCode.SEND_BATCH_MESSAGE
        places = ["7F00000100002A9F0000000000000000"] * (len(batch.decode(command.body)) if is_batch else 1)
        return Reply(header=SendResult(msg_id=",".join(places), queue_id=queue_id, queue_offset=9))
    return Reply()


@pytest.fixture
async def world() -> Any:
    """A name server that knows topic T on two brokers."""

    class World:
        def __init__(self) -> None:
            self.topics: dict[str, TopicRoute] = {}
            self.namesrv = FakeServer(self._names)
            self.brokers = [FakeServer(stored), FakeServer(stored)]

        def _names(self, command: Any) -> Any:
            found = self.topics.get(command.fields(GetRoute).topic)
            return Reply(17, remark="no") if found is None else Reply(body=bodies.encode(found))

    found = World()
    for server in (found.namesrv, *found.brokers):
        await server.start()
    found.topics["T"] = route(*found.brokers)
    yield found
    for server in (found.namesrv, *found.brokers):
        server.stop()
    await asyncio.sleep(0)


async def test_the_next_name_server_is_asked_when_one_fails(world: Any, unused_tcp_port: int) -> None:
    session = Session(f"127.0.0.1:{unused_tcp_port};{world.namesrv.address}")
    await session.start()
    assert len((await session.route("T")).writable) == 4
    await session.route("T")
    assert world.namesrv.count(105) == 1, "a route is asked for once"
    with pytest.raises(NoRoute, match="create it, or send to it first"):
        await session.route("unknown")
    await session.stop()


@pytest.mark.parametrize("topic", ["T", "created-by-sending"])
async def test_first_sends_begun_together_ask_for_the_route_once_and_keep_their_order(
    world: Any, topic: str
) -> None:
    world.topics["TBW102"] = world.topics["T"]
    for _ in range(20):  # a new producer each: routes, connections and greetings are all still to come
        for server in (world.namesrv, *world.brokers):
            server.commands.clear()
        async with Producer(world.namesrv.address, group="p") as producer:
            await asyncio.gather(*(producer.send(Message(topic, b"%02d" % n)) for n in range(40)))
        for broker in world.brokers:
            sent = [bytes(command.body) for command in broker.commands if command.code == 310]
            assert len(sent) == 20
            assert sent == sorted(sent)
        # One more at the start, which makes sure that it is a name server.
        assert world.namesrv.count(105) == 1 + (1 if topic == "T" else 2)


async def test_who_waits_for_a_first_route_is_told_when_the_client_is_closed(world: Any) -> None:
    asked = asyncio.Event()
    world.namesrv.answer = lambda command: asked.set()
    session = Session(world.namesrv.address)
    await session.start()
    waiting = [asyncio.ensure_future(session.route("T")) for _ in range(3)]
    await asked.wait()
    await session.stop()
    for each in waiting:
        with pytest.raises(NetworkError, match="route of T: this client is closed"):
            await each
    with pytest.raises(NetworkError, match="closed"):
        await session.route("T")


async def test_a_new_connection_begins_with_our_heartbeat(world: Any) -> None:
    async with Producer(world.namesrv.address, group="p") as producer:
        await producer.send(Message("T", b"x"), queue=MessageQueue("b0", 0, "T"))
        codes = [command.code for command in world.brokers[0].commands]
        assert codes == [34, 310]
        world.brokers[0].connections[0].abort()
        await until(lambda: producer.session.open_connection(world.brokers[0].address) is None)
        await producer.send(Message("T", b"x"), queue=MessageQueue("b0", 0, "T"))
        assert [command.code for command in world.brokers[0].commands] == [34, 310, 34, 310]
    assert world.brokers[0].count(35) == 1, "it says good-bye"


async def test_a_failed_send_is_tried_on_the_other_broker(world: Any) -> None:
    world.brokers[0].answer = lambda command: Reply(2, remark="busy") if command.code == 310 else Reply()
    async with Producer(world.namesrv.address, group="p") as producer:
        results = [await producer.send(Message("T", b"x")) for _ in range(8)]
        assert {result.queue.broker_name for result in results} == {"b1"}
        assert world.brokers[0].count(310) >= 2
        with pytest.raises(SystemBusy):
            await producer.send(Message("T", b"x"), queue=MessageQueue("b0", 0, "T"))


async def test_a_broker_that_dies_is_survived(world: Any) -> None:
    async with Producer(world.namesrv.address, group="p") as producer:
        await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(8)))
        world.brokers[0].stop()
        await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(8)))


async def test_what_a_retry_cannot_help_is_raised_at_once(world: Any) -> None:
    for broker in world.brokers:
        broker.answer = lambda command: Reply(13, remark="illegal") if command.code == 310 else Reply()
    async with Producer(world.namesrv.address, group="p") as producer:
        with pytest.raises(MessageIllegal, match="illegal"):
            await producer.send(Message("T", b"x"))
    assert sum(broker.count(310) for broker in world.brokers) == 1


async def test_avoided_brokers_get_nothing_for_a_while(world: Any) -> None:
    world.brokers[0].answer = lambda command: Reply(2, remark="busy") if command.code == 310 else Reply()
    async with Producer(
        world.namesrv.address, group="p", options=Options(avoid_slow_brokers=True)
    ) as producer:
        for _ in range(12):
            await producer.send(Message("T", b"x"))
    assert world.brokers[0].count(310) == 1


async def test_an_answer_that_never_comes_times_out_and_says_what_was_asked(world: Any) -> None:
    for broker in world.brokers:
        broker.answer = lambda command: None if command.code == 310 else Reply()
    options = Options(send_timeout_ms=150, send_retries=1)
    async with Producer(world.namesrv.address, group="p", options=options) as producer:
        with pytest.raises(NetworkError, match="send to 'T'"):
            await producer.send(Message("T", b"x"))


async def test_requests_are_signed(world: Any) -> None:
    options = Options(access_key="key", secret_key="secret", security_token="token")
    async with Producer(world.namesrv.address, group="p", options=options) as producer:
        await producer.send(Message("T", b"body"))
    (command,) = [c for broker in world.brokers for c in broker.commands if c.code == 310]
    fields = command.ext_dict()
    assert (fields["AccessKey"], fields["SecurityToken"]) == ("key", "token")
    unsigned = {name: value for name, value in fields.items() if name != "Signature"}
    assert fields["Signature"] == accounts.signature("secret", unsigned, b"body")


def test_the_signature_is_javas() -> None:
    # HMAC-SHA1 over the values in order of the names, then the body; computed once by hand with openssl.
    assert accounts.signature("secret", {"b": "2", "a": "1"}, b"body") == accounts.signature(
        "secret", {"a": "1", "b": "2"}, b"body"
    )
    import base64
    import hashlib
    import hmac

    expected = base64.b64encode(hmac.new(b"secret", b"12body", hashlib.sha1).digest()).decode()
    assert accounts.signature("secret", {"b": "2", "a": "1", "Signature": "x"}, b"body") == expected


@pytest.mark.seed("S001-5", "S003-43")
async def test_notices_for_unknown_groups_are_ignored(world: Any) -> None:
    async with Producer(world.namesrv.address, group="p") as producer:
        await producer.send(Message("T", b"x"), queue=MessageQueue("b0", 0, "T"))
        from aerobee.protocol import command as wire

        world.brokers[0].connections[0].send(wire.request(NotifyIdsChanged(consumer_group="nobody")))
        answer = await world.brokers[0].connections[0].call(wire.Command(999))
        assert answer.code == 3, "and unknown requests are refused"


class TestRoutes:
    def test_only_brokers_with_a_master_can_be_written(self) -> None:
        found = unfold(
            "T",
            TopicRoute(
                broker_datas=[
                    BrokerData(broker_name="a", broker_addrs={0: "a:1"}),
                    BrokerData(broker_name="b", broker_addrs={1: "b:1"}),
                ],
                queue_datas=[
                    QueueData(broker_name="b", perm=6, read_queue_nums=1, write_queue_nums=1),
                    QueueData(broker_name="a", perm=6, read_queue_nums=2, write_queue_nums=1),
                    QueueData(broker_name="a", perm=4, read_queue_nums=0, write_queue_nums=5),
                ],
            ),
        )
        assert [str(queue) for queue in found.readable] == ["T/a/0", "T/a/1", "T/b/0"]
        assert [str(queue) for queue in found.writable] == ["T/a/0"]

    def test_an_ordered_topic_names_its_queues_itself(self) -> None:
        found = unfold("T", TopicRoute(order_topic_conf="a:1;b:2"))
        assert [str(queue) for queue in found.writable] == ["T/a/0", "T/b/0", "T/b/1"]
        assert found.ordered

    @pytest.mark.seed("S004-44")
    def test_a_new_topic_gets_at_most_four_queues_of_the_template(self) -> None:
        template = TopicRoute(
            queue_datas=[QueueData(broker_name="a", perm=7, read_queue_nums=8, write_queue_nums=8)]
        )
        (data,) = limited(template, 4).queue_datas
        assert (data.read_queue_nums, data.write_queue_nums, data.perm) == (4, 4, 6)

    @pytest.mark.seed("S003-12", "S004-59")
    def test_a_missing_slave_is_replaced_by_the_next_then_by_any(self) -> None:
        routes = RouteCache()
        members = {0: "master:1", 2: "second:1"}
        routes.put("T", TopicRoute(broker_datas=[BrokerData(broker_name="a", broker_addrs=members)]))
        assert routes.address("a", 0) == "master:1"
        assert routes.address("a", 1) == "second:1"
        assert routes.address("a", 7) == "master:1"
        assert routes.address("b") is None
        assert routes.is_master("a", "master:1")

    def test_a_version_tells_of_changes_only(self) -> None:
        routes = RouteCache()
        one = TopicRoute(broker_datas=[BrokerData(broker_name="a", broker_addrs={0: "a:1"})])
        assert routes.put("T", one)
        before = routes.version
        assert not routes.put(
            "T", TopicRoute(broker_datas=[BrokerData(broker_name="a", broker_addrs={0: "a:1"})])
        )
        assert routes.version == before
        routes.put("T", TopicRoute(broker_datas=[BrokerData(broker_name="a", broker_addrs={0: "a:2"})]))
        assert routes.version > before
        assert routes.master("a") == "a:2"


@pytest.mark.seed("S004-43")
def test_the_client_id_is_address_and_a_unique_instance() -> None:
    one, two = Session("127.0.0.1:9876"), Session("127.0.0.1:9876")
    assert re.fullmatch(rf"127\.0\.0\.1@{os.getpid()}#\d+", one.client_id)
    assert one.client_id != two.client_id
    named = Session("127.0.0.1:9876", Options(instance="DEFAULT", client_ip="10.1.2.3"))
    assert named.client_id == "10.1.2.3@DEFAULT"


@pytest.mark.seed("S004-7", "S003-43", "S004-40")
async def test_routes_are_refreshed_every_thirty_seconds(world: Any) -> None:
    clock = ManualClock()
    session = Session(world.namesrv.address, clock=clock)
    await session.start()
    assert len((await session.route("T")).readable) == 4
    world.topics["T"] = route(world.brokers[0])
    clock.advance(29_999)
    with pytest.raises(NoRoute):  # over the same connection, so a refresh before it would be seen
        await session.refresh_route("U")
    assert [command.fields(GetRoute).topic for command in world.namesrv.commands] == ["T", "U"]
    assert len((await session.route("T")).readable) == 4
    clock.advance(1)
    await until(lambda: world.namesrv.count(105) == 3)
    await until(lambda: len(session.routes.get("T").readable) == 2)
    await session.stop()


@pytest.mark.seed("S003-43", "S004-7")
async def test_each_topic_in_use_is_refreshed_though_one_of_them_is_gone(world: Any) -> None:
    clock = ManualClock()
    session = Session(world.namesrv.address, clock=clock)
    session.consumers["g"] = told = Told()  # type: ignore[assignment]
    world.topics |= {"S": world.topics["T"], "U": world.topics["T"]}
    await session.start()
    for topic in ("S", "T", "U"):
        await session.route(topic)
    for number in range(2):
        del world.topics["STU"[number]]
        changed = route(world.brokers[number])
        world.topics["U"] = changed
        told.topics.clear()
        clock.advance(session.options.route_refresh_ms)
        await until(lambda: session.routes.get("U").route == changed)  # noqa: B023
        assert told.topics == ["STU"[number], "U"]
    assert [session.routes.get(topic) is None for topic in ("S", "T", "U")] == [True, True, False]
    await session.stop()


@pytest.mark.seed("S004-40", "S004-6")
async def test_a_starting_consumer_asks_for_the_routes_of_all_it_subscribes(world: Any) -> None:
    world.topics["U"] = world.topics["T"]
    topics = {"T": "A || B", "U": "*"}
    consumer = PushConsumer(world.namesrv.address, group="g", topics=topics, handler=lambda message: None)
    async with consumer:
        asked = [command.fields(GetRoute).topic for command in world.namesrv.commands]
        assert {"T", "U", "%RETRY%g"} <= set(asked), "before anything is consumed"
        held = {each.topic: each.sub_string for each in consumer.heartbeat_data().subscription_data_set}
        assert held == {**topics, "%RETRY%g": "*"}, "its subscriptions, by topic"


class Told:
    """A consumer that notes which routes changed."""

    def __init__(self, group: str = "g") -> None:
        self.group = group
        self.topics: list[str] = []
        self.members = 0

    def route_changed(self, topic: str) -> None:
        self.topics.append(topic)

    def members_changed(self) -> None:
        self.members += 1

    def heartbeat_data(self) -> bodies.ConsumerData:
        return bodies.ConsumerData(group_name=self.group)


async def test_a_route_that_changes_or_goes_is_told_to_consumers_once(world: Any) -> None:
    session = Session(world.namesrv.address)
    session.consumers["g"] = told = Told()  # type: ignore[assignment]
    await session.start()
    await session.route("T")
    await session.refresh_route("T")
    assert told.topics == ["T"], "the same again is no news"
    world.topics["T"] = route(world.brokers[0])
    await session.refresh_route("T")
    assert told.topics == ["T", "T"]
    del world.topics["T"]
    for _ in range(2):
        with pytest.raises(NoRoute, match=r"topic 'T' is unknown to the name servers .*: create it, or send"):
            await session.refresh_route("T")
    assert told.topics == ["T", "T", "T"]
    assert session.routes.get("T") is None
    await session.stop()


@pytest.mark.seed("S003-13", "S003-34")
async def test_a_broker_we_have_no_address_of_is_looked_for_once_in_a_fresh_route(world: Any) -> None:
    session = Session(world.namesrv.address)
    await session.start()
    world.topics["T"] = route(world.brokers[0])
    await session.route("T")
    assert await session.master("b0", "T") == world.brokers[0].address
    assert world.namesrv.count(105) == 1, "it is known"
    with pytest.raises(NoRoute, match="broker 'b1' of topic 'T' has no address in the routes"):
        await session.master("b1", "T")
    assert world.namesrv.count(105) == 2
    world.topics["T"] = route(*world.brokers)
    assert await session.master("b1", "T") == world.brokers[1].address
    await session.stop()


async def test_a_broker_that_is_away_delays_no_heartbeat_of_others(world: Any, caplog: Any) -> None:
    session = Session(world.namesrv.address)
    session.consumers["g"] = Told()  # type: ignore[assignment]
    await session.start()
    await session.route("T")
    assert await session.heartbeat() == 2
    world.brokers[1].stop()
    await until(lambda: session.open_connection(world.brokers[1].address) is None)
    assert await session.heartbeat() == 1
    assert f"server={world.brokers[1].address} does not answer" in caplog.text
    assert world.brokers[0].count(34) == 2
    await session.stop()


async def test_a_producer_with_nothing_to_send_tells_within_a_second_that_servers_are_back(
    world: Any, caplog: Any
) -> None:
    clock = ManualClock()
    world.topics["T"] = route(world.brokers[0])
    servers = world.namesrv, world.brokers[0]
    session = Session(world.namesrv.address, clock=clock)
    async with Producer(session, group="shop") as producer:
        await producer.send(Message("T", b"one"))
        for server in servers:
            server.stop()
        await until(lambda: session.open_connection(world.brokers[0].address) is None)
        await session.heartbeat()
        with pytest.raises(NetworkError):
            await session.refresh_route("T")
        for server in servers:
            await server.start(int(server.address.rpartition(":")[2]))

        def all_are_back() -> bool:
            clock.advance(100)
            return not session.outages.open

        await until(all_are_back)
    for server in servers:
        told = [record.getMessage() for record in caplog.records if server.address in record.getMessage()]
        assert len(told) == 2
        assert told[0].startswith(f"server={server.address} does not answer")
        assert told[1].startswith(f"server={server.address} answers again after s=")


async def test_a_client_that_does_not_come_up_tells_by_its_exception_alone(world: Any, caplog: Any) -> None:
    world.namesrv.stop()
    for _ in range(2):
        with pytest.raises(NetworkError, match="no name server answers"):
            await Producer(Session(world.namesrv.address), group="shop").start()
    assert caplog.messages == []


async def test_a_name_server_that_is_away_at_the_start_is_told_when_another_answers(
    world: Any, caplog: Any
) -> None:
    away = "127.0.0.1:1"
    async with Producer(Session(f"{away};{world.namesrv.address}"), group="shop") as producer:
        assert set(producer.session.outages.open) == {away}
        (line,) = caplog.messages
        assert line.startswith(f"server={away} does not answer, trying on")


async def test_a_broker_that_says_nothing_is_told_and_one_that_refuses_has_answered(
    world: Any, caplog: Any
) -> None:
    session = Session(world.namesrv.address, Options(request_timeout_ms=50))
    session.consumers["g"] = Told()  # type: ignore[assignment]
    await session.start()
    await session.route("T")
    assert await session.heartbeat() == 2
    silent = world.brokers[1]
    silent.answer = lambda command: asyncio.sleep(60)
    assert await session.heartbeat() == 1
    assert f"server={silent.address} does not answer" in caplog.text
    silent.answer = lambda command: Reply(1, remark="no")
    await session.heartbeat()
    assert f"server={silent.address} answers again" in caplog.text
    assert not session.outages.open
    await session.stop()


async def test_a_new_connection_to_a_broker_is_told_to_consumers_and_one_to_a_name_server_is_not(
    world: Any,
) -> None:
    """Members may have changed while we were away; a name server knows nothing of members."""
    session = Session(world.namesrv.address)
    session.consumers["g"] = told = Told()  # type: ignore[assignment]
    await session.start()
    await session.route("T")
    assert (told.members, world.namesrv.count(34)) == (0, 0)
    address = world.brokers[0].address
    await asyncio.gather(*(session.connection(address) for _ in range(3)))
    assert (told.members, world.brokers[0].count(34)) == (1, 1), "greeted once"
    await session.connection(address)
    assert (told.members, world.brokers[0].count(34)) == (1, 1)
    world.brokers[0].connections[0].abort()
    await until(lambda: session.open_connection(address) is None)
    await session.connection(address)
    assert (told.members, world.brokers[0].count(34)) == (2, 2)
    assert session.broker_versions.keys() == {address}
    await session.stop()


async def test_one_that_neither_produces_nor_consumes_says_nothing_of_itself(world: Any) -> None:
    session = Session(world.namesrv.address)
    await session.start()
    await session.route("T")
    await session.connection(world.brokers[0].address)
    assert await session.heartbeat() == 0
    assert world.brokers[0].count(34) == 0
    await session.stop()


async def test_slaves_hear_of_consumers_only_and_a_good_bye_goes_to_all_that_were_told(world: Any) -> None:
    session = Session(world.namesrv.address)
    master, slave = world.brokers
    one = route(master)
    one.broker_datas[0].broker_addrs[1] = slave.address
    world.topics["T"] = one
    session.producers["p"] = object()  # type: ignore[assignment]
    await session.start()
    await session.route("T")
    assert await session.heartbeat() == 1
    session.consumers["g"] = Told()  # type: ignore[assignment]
    assert await session.heartbeat() == 2
    await session.leave(consumer_group="g")
    await session.leave(producer_group="p")
    for broker in (master, slave):
        gone = [command.ext_dict() for command in broker.commands if command.code == 35]
        assert [(each.get("consumerGroup"), each.get("producerGroup")) for each in gone] == [
            ("g", None), (None, "p")
        ]  # fmt: skip
        assert {each["clientID"] for each in gone} == {session.client_id}
    slave.stop()
    await until(lambda: session.open_connection(slave.address) is None)
    await session.leave(consumer_group="g")
    assert master.count(35) == 3, "one that cannot be reached will find out"
    session.routes.put("T", TopicRoute(broker_datas=[
        BrokerData(broker_name="b0", broker_addrs={0: slave.address, 1: master.address})
    ]))  # fmt: skip
    await session.leave(consumer_group="g")
    assert master.count(35) == 4, "also where that one comes first"
    await session.stop()


@pytest.mark.seed("S003-14", "S003-45")
async def test_a_group_that_has_said_good_bye_is_named_in_no_heartbeat_that_comes_between(world: Any) -> None:
    """Else its broker would count it as a member for as long as others of its session live, and nobody would
    consume the queues that are its share."""
    session, gate = Session(world.namesrv.address), asyncio.Event()
    first, second = world.brokers
    session.consumers["stays"] = Told("stays")  # type: ignore[assignment]
    session.consumers["goes"] = Told("goes")  # type: ignore[assignment]
    await session.start()
    await session.route("T")
    assert await session.heartbeat() == 2

    async def slowly() -> Reply:
        await gate.wait()
        return Reply()

    for broker in (first, second):
        broker.answer = lambda command: slowly() if command.code == 35 else Reply()
    leaving = asyncio.ensure_future(session.leave(consumer_group="goes"))
    await until(lambda: first.count(35) + second.count(35) == 1)
    assert await session.heartbeat() == 2
    gate.set()
    await leaving
    for broker in (first, second):
        beats = [
            [each.group_name for each in bodies.decode(command.body, bodies.Heartbeat).consumer_data_set]
            for command in broker.commands
            if command.code == RequestCode.HEART_BEAT
        ]
        assert beats == [["stays", "goes"], ["stays"]]
    del session.consumers["goes"]
    session.consumers["goes"] = Told("goes")  # type: ignore[assignment]
    assert await session.heartbeat() == 2
    assert b"goes" in first.commands[-1].body, "another of the same group is one again"
    await session.stop()


async def test_a_session_is_over_when_its_last_user_is(world: Any) -> None:
    session = Session(world.namesrv.address)
    for _ in range(2):
        await session.start()
    assert len(session.tasks._tasks) == 2, "routes and heartbeats, once"
    await session.stop()
    assert len((await session.route("T")).writable) == 4
    await session.stop()
    assert not session.tasks._tasks
    with pytest.raises(NetworkError):
        await session.refresh_route("T")


async def test_heartbeats_and_routes_go_on_at_their_intervals(world: Any) -> None:
    clock = ManualClock()
    session = Session(world.namesrv.address, Options(heartbeat_ms=1_000, route_refresh_ms=5_000), clock)
    session.consumers["g"] = Told()  # type: ignore[assignment]
    await session.start()
    await session.route("T")
    for n in range(1, 4):
        await until_asleep(clock, 1_000)
        clock.advance(1_000)
        await until(lambda n=n: world.brokers[0].count(34) == n)  # type: ignore[misc]
    assert world.namesrv.count(105) == 1
    session.unuse_topic("T")
    clock.advance(2_000)
    await until(lambda: world.namesrv.count(105) == 1)
    assert session._brokers() == [], "nobody of a topic that is not used is told"
    await session.stop()
