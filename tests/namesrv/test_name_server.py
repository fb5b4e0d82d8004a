# SPDX-License-Identifier: Apache-2.0
"""The name server over its port: every request code, both JSON dialects, expiry and settings that stay."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.clock import ManualClock
from aerobee.errors import DiskFull, error_for
from aerobee.namesrv.name_server import NameServer
from aerobee.net.pool import Pool
from aerobee.protocol.bodies import (
    ClusterInfo,
    DataVersion,
    GoneBrokers,
    KVTable,
    MemberGroupAnswer,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigs,
    TopicList,
    TopicRoute,
    compress_registration,
    decode,
    encode,
    encode_registration,
)
from aerobee.protocol.command import Command, convert_fields, request
from aerobee.protocol.headers import route as headers
from aerobee.settings import NamesrvConfig
from aerobee.store.metadata import JsonFile
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.net.connection import Connection


class Desk:
    """A running name server and one connection to it."""

    def __init__(self, server: NameServer, link: Connection, clock: ManualClock) -> None:
        self.server, self.link, self.clock = server, link, clock

    async def ask(self, header: Any, body: bytes = b"", version: int = 479) -> Command:
        command = request(header, body)
        command.version = version
        answer = await self.link.call(command)
        if answer.code:
            raise error_for(answer.code, answer.remark)
        return answer

    async def register(
        self, *topics: str, name: str = "broker-a", compressed: bool = False, **more: Any
    ) -> Command:
        table = {topic: TopicConfig(topic_name=topic) for topic in topics}
        configs = TopicConfigs(data_version=DataVersion(1, 0, 5), topic_config_table=table)
        registration = RegisterBrokerBody(topic_config_serialize_wrapper=configs)
        body = compress_registration(registration, 479) if compressed else encode_registration(registration)
        fields: dict[str, Any] = {"body_crc32": zlib.crc32(body) & 0x7FFFFFFF, **more}
        header = headers.RegisterBroker(
            broker_name=name,
            broker_addr=f"{name}:10911",
            cluster_name="DefaultCluster",
            compressed=compressed,
            **fields,
        )
        return await self.ask(header, body)

    async def topics(self) -> list[str]:
        return decode((await self.ask(headers.AllTopics())).body, TopicList).topic_list


CONFIG = NamesrvConfig(port=0)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    clock = ManualClock()
    server = NameServer(CONFIG, clock)
    await server.start()
    pool = Pool()
    yield Desk(server, await pool.get(server.address), clock)
    await pool.close()
    await server.stop()


@pytest.mark.parametrize("compressed", [False, True])
async def test_a_broker_registers_and_clients_find_its_topics(desk: Desk, compressed: bool) -> None:
    await desk.register("t", "u", compressed=compressed)
    answer = await desk.ask(headers.GetRoute(topic="t"))
    route = decode(answer.body, TopicRoute)
    assert route.broker_datas[0].broker_addrs == {0: "broker-a:10911"}
    assert route.queue_datas[0].write_queue_nums == 16
    assert sorted(await desk.topics()) == ["t", "u"]


@pytest.mark.parametrize(
    ("version", "standard", "expected"),
    [
        (479, None, b'"brokerAddrs":{"0":"'),
        (401, None, b'"brokerAddrs":{"0":"'),
        (400, None, b'"brokerAddrs":{0:"'),
        (317, None, b'"brokerAddrs":{0:"'),
        (317, True, b'"brokerAddrs":{"0":"'),
        (121, False, b'"brokerAddrs":{0:"'),
    ],
)
async def test_each_requester_gets_the_json_it_reads(
    desk: Desk, version: int, standard: bool | None, expected: bytes
) -> None:
    await desk.register("t", "u")
    answer = await desk.ask(headers.GetRoute(topic="t", accept_standard_json_only=standard), version=version)
    assert expected in answer.body
    assert b" " not in answer.body, "Go clients cut the text by hand"


async def test_an_unknown_topic_is_refused_with_17(desk: Desk) -> None:
    answer = await desk.link.call(request(headers.GetRoute(topic="nowhere")))
    assert answer.code == 17
    assert "No topic route info in name server for the topic: nowhere" in (answer.remark or "")


async def test_a_damaged_or_lone_registration_is_refused_with_1(desk: Desk) -> None:
    with pytest.raises(Exception, match="crc32 not match"):
        await desk.register("t", "u", body_crc32=12345)
    with pytest.raises(Exception, match="register all its topics first"):
        await desk.register("t")
    await desk.register("t", "u", body_crc32=0)


async def test_garbage_in_a_body_is_answered_and_the_connection_lives(desk: Desk) -> None:
    header = headers.RegisterBroker(broker_name="a", broker_addr="a:1", cluster_name="C", compressed=True)
    for body in (b"\xff" * 10, zlib.compress(b"\x7f\xff\xff\xff")):
        assert (await desk.link.call(request(header, body))).code == 1
    assert (await desk.link.call(Command(103))).code == 1
    assert await desk.topics() == []


async def test_an_unknown_request_code_is_refused_with_3(desk: Desk) -> None:
    assert (await desk.link.call(Command(9999))).code == 3


async def test_a_silent_broker_disappears_after_two_minutes(desk: Desk) -> None:
    await desk.register("t", "u")
    desk.clock.advance(seconds=119)
    assert await desk.topics() == ["t", "u"]
    await desk.ask(
        headers.BrokerHeartbeat(
            cluster_name="DefaultCluster", broker_addr="broker-a:10911", broker_name="broker-a"
        )
    )
    desk.clock.advance(seconds=119)
    desk.link = await (pool := Pool()).get(desk.server.address)
    assert await desk.topics() == ["t", "u"]
    desk.clock.advance(seconds=10)
    assert await desk.topics() == []
    await pool.close()


async def test_a_broker_whose_connection_closes_disappears_at_once(desk: Desk) -> None:
    pool = Pool()
    broker = Desk(desk.server, await pool.get(desk.server.address), desk.clock)
    await broker.register("t", "u")
    broker.link.abort()
    async with asyncio.timeout(30):
        while await desk.topics():
            pass
    await pool.close()


async def test_a_name_server_that_stops_misses_nobody(caplog: pytest.LogCaptureFixture) -> None:
    server, pool = NameServer(CONFIG, ManualClock()), Pool()
    await server.start()
    await Desk(server, await pool.get(server.address), ManualClock()).register("t", "u")
    await server.stop()
    await pool.close()
    assert server.routes.gone(ManualClock().now()) == {}
    assert "gone" not in caplog.text


async def test_since_when_a_broker_is_missed_is_told_by_the_wall_clock(desk: Desk) -> None:
    await desk.register("t", "u")
    desk.clock.set_wall(desk.clock.now() + 3_600_000)
    desk.clock.advance(seconds=130)
    link = await (pool := Pool()).get(desk.server.address)  # the silent broker's was closed
    answer = await link.call(request(headers.GetGoneBrokers()))
    (missing,) = decode(answer.body, GoneBrokers).gone_brokers
    assert (missing.broker_name, missing.since) == ("broker-a", desk.clock.wall() - 130_000)
    await pool.close()


async def test_unregistering_ends_the_route(desk: Desk) -> None:
    await desk.register("t", "u")
    await desk.ask(
        headers.UnregisterBroker(
            broker_name="broker-a", broker_addr="broker-a:10911", cluster_name="DefaultCluster"
        )
    )
    assert await desk.topics() == []


async def test_cluster_members_and_lists(desk: Desk) -> None:
    await desk.register("t", "u")
    info = await desk.ask(headers.GetClusterInfo())
    assert b'{0:"broker-a:10911"}' in info.body
    assert decode(info.body, ClusterInfo).cluster_addr_table == {"DefaultCluster": ["broker-a"]}
    members = await desk.ask(headers.GetMemberGroup(cluster_name="DefaultCluster", broker_name="broker-a"))
    assert decode(members.body, MemberGroupAnswer).broker_member_group.broker_addrs == {0: "broker-a:10911"}
    system = decode((await desk.ask(headers.SystemTopics())).body, TopicList)
    assert (system.broker_addr, system.topic_list) == ("broker-a:10911", ["DefaultCluster", "broker-a"])
    by_cluster = await desk.ask(headers.TopicsByCluster(cluster="DefaultCluster"))
    assert decode(by_cluster.body, TopicList).topic_list == ["t", "u"]
    for header in (
        headers.UnitTopics(),
        headers.UnitSubscriptionTopics(),
        headers.UnitSubscriptionNonUnitTopics(),
    ):
        assert decode((await desk.ask(header)).body, TopicList).topic_list == []


async def test_write_permission_is_wiped_and_given_back(desk: Desk) -> None:
    await desk.register("t", "u")
    wiped = await desk.ask(headers.WipeWritePerm(broker_name="broker-a"))
    assert convert_fields(wiped.ext_dict(), headers.WipeWritePermResult).wipe_topic_count == 2
    assert decode((await desk.ask(headers.GetRoute(topic="t"))).body, TopicRoute).queue_datas[0].perm == 4
    given = await desk.ask(headers.AddWritePerm(broker_name="broker-a"))
    assert convert_fields(given.ext_dict(), headers.AddWritePermResult).add_topic_count == 2


async def test_topics_are_registered_and_deleted_by_operators(desk: Desk) -> None:
    await desk.register("t", "u")
    queues = TopicRoute(queue_datas=[QueueData(broker_name="broker-a", read_queue_nums=2)])
    await desk.ask(headers.RegisterTopicRoute(topic="x"), encode(queues))
    await desk.ask(headers.DeleteTopicRoute(topic="t", cluster_name="DefaultCluster"))
    await desk.ask(headers.DeleteTopicRoute(topic="u"))
    assert await desk.topics() == ["x"]


async def test_a_broker_asks_whether_its_version_is_known(desk: Desk) -> None:
    async def changed(version: DataVersion) -> tuple[str, bytes]:
        header = headers.QueryDataVersion(
            broker_name="broker-a", broker_addr="broker-a:10911", cluster_name="DefaultCluster"
        )
        answer = await desk.ask(header, encode(version))
        return answer.ext_dict()["changed"], answer.body

    assert await changed(DataVersion(1, 0, 5)) == ("true", b"")
    await desk.register("t", "u")
    assert (await changed(DataVersion(1, 0, 5)))[0] == "false"
    told, stored = await changed(DataVersion(2, 0, 5))
    assert (told, decode(stored, DataVersion)) == ("true", DataVersion(1, 0, 5))


async def test_asking_for_its_version_is_a_brokers_sign_of_life(desk: Desk) -> None:
    await desk.register("t", "u")
    asking = headers.QueryDataVersion(
        broker_name="broker-a", broker_addr="broker-a:10911", cluster_name="DefaultCluster"
    )
    for _ in range(3):
        desk.clock.advance(seconds=119)
        await desk.ask(asking, encode(DataVersion(1, 0, 5)))
    assert await desk.topics() == ["t", "u"]


async def test_a_broker_of_this_process_is_heard_by_the_clock_that_looks_for_silent_ones() -> None:
    """Not by the wall clock, which somebody may have set."""
    clock = ManualClock()
    clock.set_wall(clock.now() - 3_600_000)
    server = NameServer(CONFIG, clock)
    await server.start()
    header = headers.RegisterBroker(broker_name="own", broker_addr="own:1", cluster_name="C")
    table = {topic: TopicConfig(topic_name=topic) for topic in "tu"}
    body = RegisterBrokerBody(topic_config_serialize_wrapper=TopicConfigs(topic_config_table=table))
    server.register(header, body)
    clock.advance(seconds=119)
    assert server.routes.topics() == ["t", "u"]
    server.withdraw("own", ["t"])
    assert server.routes.topics() == ["u"]
    clock.advance(seconds=10)
    assert server.routes.topics() == []
    server.register(header, body)
    server.unregister(headers.UnregisterBroker(broker_name="own", broker_addr="own:1", cluster_name="C"))
    assert server.routes.topics() == []
    await server.stop()
    assert all(timer.cancelled for _, _, timer in clock._timers), "nobody is looked for any more"


async def test_settings_by_namespace_and_the_order_of_ordered_topics(desk: Desk) -> None:
    assert (await desk.link.call(request(headers.GetKV(namespace="n", key="k")))).code == 22
    assert (await desk.link.call(request(headers.GetKVList(namespace="n")))).code == 22
    await desk.ask(headers.PutKV(namespace="ORDER_TOPIC_CONFIG", key="t", value="broker-a:4"))
    value = await desk.ask(headers.GetKV(namespace="ORDER_TOPIC_CONFIG", key="t"))
    assert value.ext_dict() == {"value": "broker-a:4"}
    registered = await desk.register("t", "u")
    assert decode(registered.body, KVTable).table == {"t": "broker-a:4"}
    assert (
        decode((await desk.ask(headers.GetRoute(topic="t"))).body, TopicRoute).order_topic_conf
        == "broker-a:4"
    )
    assert b"orderTopicConf" not in (await desk.ask(headers.GetRoute(topic="u"))).body
    await desk.ask(headers.DeleteKV(namespace="ORDER_TOPIC_CONFIG", key="t"))
    assert b"orderTopicConf" not in (await desk.ask(headers.GetRoute(topic="t"))).body
    listed = await desk.ask(headers.GetKVList(namespace="ORDER_TOPIC_CONFIG"))
    assert decode(listed.body, KVTable).table == {}


async def test_settings_are_there_again_after_a_restart(tmp_path: Path) -> None:
    for before, after in ((None, "1"), ("1", "2")):
        server, pool = NameServer(CONFIG, ManualClock(), tmp_path), Pool()
        await server.start()
        desk = Desk(server, await pool.get(server.address), ManualClock())
        if before:
            assert (await desk.ask(headers.GetKV(namespace="n", key="k"))).ext_dict() == {"value": before}
        await desk.ask(headers.PutKV(namespace="n", key="k", value=after))
        await pool.close()
        await server.stop()
    saved = msgspec.json.decode((tmp_path / "namesrv" / "kvConfig.json").read_bytes())
    assert saved == {"configTable": {"n": {"k": "2"}}}


async def test_settings_that_cannot_be_kept_are_refused_and_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, pool = NameServer(CONFIG, ManualClock(), tmp_path), Pool()
    await server.start()
    desk = Desk(server, await pool.get(server.address), ManualClock())
    await desk.ask(headers.PutKV(namespace="n", key="kept", value="1"))

    def full(self: JsonFile, data: bytes) -> None:
        raise DiskFull("no space")

    monkeypatch.setattr(JsonFile, "save", full)
    for change in (
        headers.PutKV(namespace="n", key="kept", value="2"),
        headers.PutKV(namespace="n", key="new", value="3"),
        headers.DeleteKV(namespace="n", key="kept"),
    ):
        assert (await desk.link.call(request(change))).code == 14
        listed = await desk.ask(headers.GetKVList(namespace="n"))
        assert decode(listed.body, KVTable).table == {"kept": "1"}
    monkeypatch.undo()
    await desk.ask(headers.DeleteKV(namespace="n", key="kept"))
    saved = msgspec.json.decode((tmp_path / "namesrv" / "kvConfig.json").read_bytes())
    assert saved == {"configTable": {"n": {}}}
    await pool.close()
    await server.stop()


async def test_its_own_settings_are_shown_and_some_may_change(desk: Desk) -> None:
    shown = (await desk.ask(headers.GetNamesrvConfig())).body.decode()
    assert "brokerExpiryMs=120000\n" in shown
    assert "listenPort=0\n" in shown
    await desk.ask(
        headers.UpdateNamesrvConfig(), b"# note\nbrokerExpiryMs=1000\nscanNotActiveBrokerInterval=100\n"
    )
    desk.clock.advance(seconds=5)  # the look that was planned before
    await desk.register("t", "u")
    desk.clock.advance(seconds=1.2)
    assert desk.server.routes.topics() == []
    link = await (pool := Pool()).get(desk.server.address)  # the silent broker's was closed
    await link.call(request(headers.UpdateNamesrvConfig(), b"deleteTopicWithBrokerRegistration=true\n"))
    shown = (await link.call(request(headers.GetNamesrvConfig()))).body.decode()
    assert "deleteTopicWithBrokerRegistration=true\n" in shown
    for change, code in {
        b"kvConfigPath=/etc/passwd": 16,
        b"port=1": 29,
        b"scanIntervalMs=often": 29,
        b"deleteTopicWithBrokerRegistration=1": 29,
    }.items():
        answer = await link.call(request(headers.UpdateNamesrvConfig(), change))
        assert answer.code == code, change
    await pool.close()


@pytest.mark.parametrize("sign", [headers.BrokerHeartbeat, headers.QueryDataVersion])
async def test_signs_of_life_are_counted_by_the_clock_that_no_operator_sets(desk: Desk, sign: Any) -> None:
    await desk.register("t", "u")
    desk.clock.set_wall(desk.clock.now() + 86_400_000)
    alive = sign(cluster_name="DefaultCluster", broker_addr="broker-a:10911", broker_name="broker-a")
    await desk.ask(alive, encode(DataVersion(1, 0, 5)))
    desk.clock.advance(seconds=119)
    broker, desk.link = desk.link, await (pool := Pool()).get(desk.server.address)
    assert broker.is_open
    desk.clock.advance(seconds=10)
    assert await desk.topics() == []
    await until(lambda: not broker.is_open)
    await pool.close()


async def test_a_registration_without_a_body_is_one_of_no_topic(desk: Desk) -> None:
    for compressed in (False, True):
        asked = headers.RegisterBroker(
            broker_name="broker-a", broker_addr="a:1", cluster_name="C", compressed=compressed, broker_id=0
        )
        assert (await desk.ask(asked)).code == 0
    assert await desk.topics() == []


async def test_a_topic_is_registered_on_all_the_brokers_named(desk: Desk) -> None:
    for name in ("broker-a", "broker-b"):
        await desk.register("t", "u", name=name)
    named = [QueueData(broker_name=name) for name in ("broker-a", "broker-b")]
    await desk.ask(headers.RegisterTopicRoute(topic="new"), encode(TopicRoute(queue_datas=named)))
    route = decode((await desk.ask(headers.GetRoute(topic="new"))).body, TopicRoute)
    assert [queues.broker_name for queues in route.queue_datas] == ["broker-a", "broker-b"]
