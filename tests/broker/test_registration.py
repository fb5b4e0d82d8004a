# SPDX-License-Identifier: Apache-2.0
"""A broker tells its name servers, here and over the wire, and a dead one delays nobody."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.background import registration as module
from aerobee.broker.background.registration import (
    Identity,
    LocalLink,
    Registration,
    RemoteLink,
    registration_body,
)
from aerobee.broker.broker import assemble
from aerobee.broker.operations.admin.settings import change_settings
from aerobee.clock import ManualClock
from aerobee.namesrv.name_server import NameServer
from aerobee.protocol.accounts import is_signed
from aerobee.protocol.bodies import DataVersion, TopicConfig
from aerobee.protocol.command import Command
from aerobee.settings import BrokerConfig, InForce, NamesrvConfig, StoreConfig
from tests.turning import until, until_asleep

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

ME = Identity("C", "broker-a", 0, "127.0.0.1:10911")


class Topics:
    """What a broker's topics look like from here."""

    def __init__(self, *names: str) -> None:
        self.table = {name: TopicConfig(topic_name=name) for name in names}
        self.version = DataVersion()
        self.asked = 0

    def put(self, name: str, queues: int = 16) -> None:
        self.table[name] = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        self.version = self.version.next(0)

    def delete(self, name: str) -> None:
        del self.table[name]
        self.version = self.version.next(0)

    def describe(self) -> Any:
        self.asked += 1
        return registration_body(self.table, self.version)


class Town:
    """Name servers and one broker's topics, on one clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.topics = Topics("t", "u")
        self.servers: list[NameServer] = []
        self.registrations: list[Registration] = []

    async def name_server(self, port: int = 0) -> NameServer:
        server = NameServer(NamesrvConfig(port=port), self.clock)
        await server.start()
        self.servers.append(server)
        return server

    def remote(self, address: str) -> RemoteLink:
        return RemoteLink(address, ME, self.topics.describe, self.clock, InForce(BrokerConfig()))

    async def register(self, *links: Any) -> Registration:
        registration = Registration(list(links))
        self.registrations.append(registration)
        await registration.start()
        return registration


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    town = Town()
    yield town
    for registration in town.registrations:
        await registration.stop()
    for server in town.servers:
        await server.stop()


def queues(server: NameServer, topic: str) -> int:
    route = server.routes.route(topic)
    return route.queue_datas[0].read_queue_nums if route else 0


async def test_a_name_server_in_this_process_is_told_in_the_same_turn(town: Town) -> None:
    server = await town.name_server()
    registration = await town.register(LocalLink(server, ME, town.topics.describe))
    assert set(server.routes.topics()) == {"t", "u"}
    town.topics.put("new", 3)
    registration.changed("new")
    assert queues(server, "new") == 3
    town.topics.put("new", 5)
    registration.changed("new")
    town.topics.delete("t")
    registration.changed("t")
    assert queues(server, "new") == 5
    assert set(server.routes.topics()) == {"u", "new"}
    await registration.stop()
    assert server.routes.topics() == []


async def test_a_new_permission_of_the_broker_is_told_in_the_same_turn(town: Town, tmp_path: Path) -> None:
    server = await town.name_server()
    broker = assemble(BrokerConfig(), StoreConfig(index_slots=64, index_entries=64), tmp_path, town.clock)
    broker.topics.ensure("t")
    registration = Registration.for_broker(broker, "127.0.0.1:10911", server)
    town.registrations.append(registration)
    await registration.start()
    broker.topics.listeners.append(registration.changed)
    change_settings("brokerPermission=4", broker)
    route = server.routes.route("t")
    assert route is not None
    assert route.queue_datas[0].perm == 4
    broker.store.close()


async def test_a_broker_in_this_process_never_expires(town: Town) -> None:
    server = await town.name_server()
    await town.register(LocalLink(server, ME, town.topics.describe))
    town.clock.advance(hours=24)
    assert set(server.routes.topics()) == {"t", "u"}


async def test_every_name_server_is_told_and_told_goodbye(town: Town) -> None:
    first, second = await town.name_server(), await town.name_server()
    registration = await town.register(town.remote(first.address), town.remote(second.address))
    assert set(first.routes.topics()) == set(second.routes.topics()) == {"t", "u"}
    info = first.routes.cluster_info()
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: "127.0.0.1:10911"}
    await registration.stop()
    assert first.routes.topics() == second.routes.topics() == []


async def test_the_time_between_registrations_may_change(town: Town) -> None:
    server = await town.name_server()
    settings = InForce(BrokerConfig(register_ms=10_000))
    await town.register(RemoteLink(server.address, ME, town.topics.describe, town.clock, settings))
    settings.swap(BrokerConfig(register_ms=1_000))
    town.clock.advance(10_000)  # as was agreed
    await until(lambda: town.topics.asked == 2)
    await until_asleep(town.clock, 1_000)
    town.clock.advance(1_000)
    await until(lambda: town.topics.asked == 3)


async def test_changes_of_one_turn_make_one_registration(town: Town) -> None:
    server = await town.name_server()
    registration = await town.register(town.remote(server.address))
    asked = town.topics.asked
    for n in range(100):
        town.topics.put(f"topic-{n}")
        registration.changed(f"topic-{n}")
    await until(lambda: len(server.routes.topics()) == 102)
    assert town.topics.asked == asked + 1


async def test_a_dead_name_server_delays_nobody(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT_MS", 20)
    monkeypatch.setattr(module, "GOODBYE_MS", 20)
    alive = await town.name_server()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # takes everything, answers nothing
        writer.close()

    dead = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = dead.sockets[0].getsockname()[1]
    registration = await town.register(town.remote(f"127.0.0.1:{port}"), town.remote(alive.address))
    assert not registration._links[0]._tried.is_set(), "it waited for no answer"  # type: ignore[attr-defined]
    # It waited 20 ms for both: on a busy machine the other one, too, may need longer.
    await until(lambda: set(alive.routes.topics()) == {"t", "u"})
    town.topics.put("new")
    registration.changed("new")
    await until(lambda: queues(alive, "new"))
    await registration.stop()
    town.registrations.clear()
    dead.close()
    await dead.wait_closed()


async def test_a_name_server_that_starts_later_is_told_then(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    server = await town.name_server()
    address, port = server.address, int(server.address.rpartition(":")[2])
    await server.stop()
    town.servers.clear()
    await town.register(town.remote(address))
    await until(lambda: town.clock.advance(100) or town.topics.asked == 4)
    assert caplog.text.count("cannot register") == 1
    server = await town.name_server(port)
    await until(lambda: town.clock.advance(100) or server.routes.topics())


async def test_a_lost_connection_is_made_again_at_once(town: Town) -> None:
    server = await town.name_server()
    await town.register(town.remote(server.address))
    (first,) = server._listener.connections
    first.abort()
    # A closed connection drops the broker, so topics without that connection are a new registration.
    await until(lambda: first not in server._listener.connections and server.routes.topics())


async def test_all_is_repeated_every_thirty_seconds(town: Town) -> None:
    server = await town.name_server()
    await town.register(town.remote(server.address))
    for _ in range(5):
        asked, start = town.topics.asked, town.clock.now()
        await until(lambda asked=asked: town.clock.advance(1_000) or town.topics.asked != asked)  # type: ignore[misc]
        assert 30_000 <= town.clock.now() - start <= 33_000
    assert set(server.routes.topics()) == {"t", "u"}


def test_a_broker_without_write_permission_registers_none() -> None:
    topics = {"t": TopicConfig(topic_name="t", perm=6), "r": TopicConfig(topic_name="r", perm=7)}
    body = registration_body(topics, DataVersion(), broker_perm=4)
    told = body.topic_config_serialize_wrapper.topic_config_table
    assert {name: config.perm for name, config in told.items()} == {"t": 4, "r": 4}
    assert topics["t"].perm == 6


# -- one name server, which answers as it is told ----------------------------------------------------------------


class Scripted:
    """A link whose registrations go well, or fail with what stands in `fails`."""

    def __init__(self, town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.link = town.clock, town.remote("127.0.0.1:9")
        self.at: list[int] = []
        self.fails: Exception | None = None
        self._began = town.clock.now()
        monkeypatch.setattr(self.link, "_register", self._register)

    async def _register(self) -> None:
        self.at.append(self.clock.now() - self._began)
        if self.fails is not None:
            raise self.fails
        self.link.registered = True

    async def pass_ms(self, ms: int) -> None:
        self.clock.advance(ms)
        for _ in range(8):
            await asyncio.sleep(0)


async def test_what_failed_is_tried_again_after_three_seconds_and_said_once(
    town: Town, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    at = Scripted(town, monkeypatch)
    await at.link.start()
    at.fails = OSError("no way there")
    for ms in (30_000, 3_000, 2_999, 1):
        await at.pass_ms(ms)
    assert at.at == [0, 30_000, 33_000, 36_000]
    assert not at.link.registered, "it may have forgotten us"
    assert caplog.text.count("cannot register namesrv=127.0.0.1:9") == 1
    at.fails = None
    for ms in (3_000, 3_000, 26_999, 1):
        await at.pass_ms(ms)
    assert at.at[4:] == [39_000, 69_000]
    assert at.link.registered
    await at.link.stop()


async def test_a_topic_made_while_it_registers_is_told_right_after(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = Scripted(town, monkeypatch)
    register = at._register

    async def slowly() -> None:
        await register()
        if len(at.at) == 1:
            at.link.changed("new")  # what it tells of was described before

    monkeypatch.setattr(at.link, "_register", slowly)
    await at.link.start()
    await at.pass_ms(0)
    assert at.at == [0, 0]
    await at.link.stop()


async def test_a_lost_connection_is_a_reason_to_register_unless_we_go_ourselves(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = Scripted(town, monkeypatch)
    await at.link.start()
    at.link.closed(None)  # type: ignore[arg-type]
    await at.pass_ms(0)
    assert at.at == [0, 0]
    await at.link.stop()
    at.link.closed(None)  # type: ignore[arg-type]
    await at.pass_ms(60_000)
    assert at.at == [0, 0]


def test_a_broker_is_registered_as_soon_as_one_name_server_knows_it(town: Town) -> None:
    links = [town.remote("127.0.0.1:9"), town.remote("127.0.0.1:8")]
    registration = Registration(list(links))
    assert not registration.registered
    links[1].registered = True
    assert registration.registered


def test_a_registration_says_who_comes_and_what_it_brings() -> None:
    me = Identity("C", "broker-a", 3, "127.0.0.1:10911")
    told = me.registration(7, b"body of which the checksum has its highest bit set: 0")
    assert (told.broker_name, told.broker_addr, told.cluster_name) == ("broker-a", "127.0.0.1:10911", "C")
    assert (told.ha_server_addr, told.broker_id) == ("127.0.0.1:10912", 3)
    assert told.heartbeat_timeout_millis == 7
    for number in range(20):  # half of all checksums do not fit Java's int
        body = b"%d" % number
        assert me.registration(body=body).body_crc32 == zlib.crc32(body) % 2**31
    gone = me.goodbye()
    assert (gone.broker_name, gone.broker_addr, gone.cluster_name, gone.broker_id) == (
        "broker-a", "127.0.0.1:10911", "C", 3,
    )  # fmt: skip


async def test_a_name_server_that_refuses_does_not_know_the_broker(
    town: Town, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = await town.name_server()
    link = town.remote(server.address)
    words = [Command(1, remark="not you"), Command(0)]

    class Refusing:
        async def call(self, command: Command, timeout_ms: int) -> Command:
            return words.pop(0)

    async def get(address: str) -> Refusing:
        assert address == server.address
        return Refusing()

    monkeypatch.setattr(link._pool, "get", get)
    registration = await town.register(link)
    assert not registration.registered
    assert "not you" in caplog.text
    town.clock.advance(3_000)
    await until(lambda: registration.registered)


@pytest.mark.parametrize(
    ("grpc", "told"), [(["127.0.0.1:8081"], ["grpc://127.0.0.1:8081"]), ([""], None), ([], None)]
)
async def test_where_a_broker_speaks_grpc_is_told_with_its_topics(
    town: Town, tmp_path: Path, grpc: list[str], told: list[str] | None
) -> None:
    server = await town.name_server()
    broker = assemble(BrokerConfig(), StoreConfig(index_slots=64, index_entries=64), tmp_path, town.clock)
    broker.topics.ensure("t")
    registration = Registration.for_broker(broker, "127.0.0.1:10911", server, *grpc)
    town.registrations.append(registration)
    await registration.start()
    route = server.routes.route("t")
    assert route is not None
    assert route.filter_server_table.get("127.0.0.1:10911") == told
    broker.store.close()


async def test_a_broker_with_an_account_signs_what_it_tells_and_speaks_tls_where_it_is_set(
    tmp_path: Path, town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts: list[Any] = [object()]
    monkeypatch.setattr(module, "namesrv_tls", lambda config: contexts[0])
    settings = BrokerConfig(
        namesrv="127.0.0.1:9", inner_credentials='{"accessKey":"broker","secretKey":"secret"}'
    )
    broker = assemble(settings, StoreConfig(index_slots=64, index_entries=64), tmp_path, town.clock)
    registration = Registration.for_broker(broker, "127.0.0.1:10911", None)
    link: Any = registration._links[0]
    assert link._pool._tls is contexts[0]
    told: list[Command] = []

    class Listening:
        async def call(self, command: Command, timeout_ms: int) -> Command:
            told.append(command)
            return Command(0)

    async def get(address: str) -> Listening:
        return Listening()

    monkeypatch.setattr(link._pool, "get", get)
    monkeypatch.setattr(link._pool, "peek", lambda address: Listening())
    await registration.start()
    await registration.stop()
    broker.store.close()
    assert [command.code for command in told] == [103, 104]
    for command in told:
        fields = command.ext_dict()
        assert fields["AccessKey"] == "broker"
        assert is_signed("secret", fields, command.body, command.version)
    crc = told[0].ext_dict()["bodyCrc32"]
    assert (told[0].body != b"", crc) == (True, str(zlib.crc32(told[0].body) % 2**31))
