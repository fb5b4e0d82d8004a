# SPDX-License-Identifier: Apache-2.0
"""The name server's requests, as brokers, clients and tools put them on the wire."""

from __future__ import annotations

import json
import zlib
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aerobee import ManualClock
from aerobee.namesrv.name_server import NameServer
from aerobee.settings import NamesrvConfig
from tests.wire.peer import Answer, Peer
from tests.wire.scene import DONE, NOW

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

A, B = "10.0.0.1:10911", "10.0.0.2:10911"
BROKER_A = {"brokerName": "broker-a", "brokerAddr": A, "clusterName": "East", "brokerId": 0}


def topic(name: str, flags: int = 0) -> dict[str, object]:
    return {
        "topicName": name, "readQueueNums": 3, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": flags, "order": False, "attributes": {},
    }  # fmt: skip


TOPICS = {
    each["topicName"]: each for each in (topic("t"), topic("unit", 1), topic("subs", 2), topic("both", 3))
}
VERSION = {"counter": 7, "stateVersion": 1, "timestamp": NOW}
QUEUES = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 3, "topicSysFlag": 0, "writeQueueNums": 2}


@dataclass
class Desk:
    server: NameServer
    clock: ManualClock
    peer: Peer
    _exits: AsyncExitStack
    codes: set[int] = field(default_factory=set)

    async def dial(self) -> Peer:
        peer = await Peer.dial(self.server.address, self.peer.form)
        self._exits.push_async_callback(peer.hang_up)
        return peer

    async def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> Answer:
        self.codes.add(code)
        return await self.peer.ask(code, fields, body)

    async def json(self, code: int, fields: Mapping[str, object] | None = None) -> Any:
        answer = await self.ask(code, fields)
        assert answer[:3] == (0, None, {})
        return answer.json

    async def register(
        self, version: Mapping[str, int] = VERSION, topics: Mapping[Any, object] = TOPICS, **more: object
    ) -> Answer:
        told = {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {"dataVersion": version, "topicConfigTable": topics},
        }
        body = json.dumps(told).encode()
        fields = {
            **BROKER_A, "haServerAddr": "10.0.0.1:10912", "heartbeatTimeoutMillis": 60_000,
            "enableActingMaster": False, "compressed": False, "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF, **more,
        }  # fmt: skip
        return await self.ask(103, fields, body)

    async def topics(self) -> list[str]:
        return list((await self.json(206))["topicList"])


@asynccontextmanager
async def desk(form: int) -> AsyncIterator[Desk]:
    clock = ManualClock(NOW)
    async with AsyncExitStack() as exits:
        server = NameServer(NamesrvConfig(port=0), clock)
        await server.start()
        exits.push_async_callback(server.stop)
        peer = await Peer.dial(server.address, form)
        exits.push_async_callback(peer.hang_up)
        yield Desk(server, clock, peer, exits)


# -- brokers -----------------------------------------------------------------------------------------------


async def register(at: Desk) -> None:
    assert await at.register() == DONE
    slave = await at.register(brokerId=1, brokerAddr=B, haServerAddr="10.0.0.2:10912")
    assert slave == Answer(fields={"haServerAddr": "10.0.0.1:10912", "masterAddr": A})
    damaged = await at.register(bodyCrc32=12345)
    assert (damaged.code, damaged.fields) == (1, {})
    await at.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "broker-a:2"})
    assert await at.register() == Answer(body=b'{"table":{"t":"broker-a:2"}}')


async def unregister(at: Desk) -> None:
    await at.register()
    await at.register(brokerId=1, brokerAddr=B)
    assert await at.ask(104, {**BROKER_A, "brokerId": 1, "brokerAddr": B}) == DONE
    assert (await at.json(105, {"topic": "t"}))["brokerDatas"][0]["brokerAddrs"] == {"0": A}
    assert await at.ask(104, BROKER_A) == DONE
    assert await at.topics() == []


async def data_version(at: Desk) -> None:
    asked = json.dumps(VERSION).encode()
    assert await at.ask(322, BROKER_A, asked) == Answer(fields={"changed": "true"})
    await at.register()
    kept = b'{"counter":7,"stateVersion":1,"timestamp":%d}' % NOW
    assert await at.ask(322, BROKER_A, asked) == Answer(fields={"changed": "false"}, body=kept)
    newer = json.dumps({**VERSION, "counter": 8}).encode()
    assert await at.ask(322, BROKER_A, newer) == Answer(fields={"changed": "true"}, body=kept)


async def heartbeat(at: Desk) -> None:
    await at.register()
    for _ in range(3):
        at.clock.advance(59_000)
        assert await at.ask(904, {**BROKER_A, "heartbeatTimeoutMills": 60_000}) == DONE
        assert len(await at.topics()) == 4
    unknown = await at.ask(904, {**BROKER_A, "brokerAddr": B})
    assert unknown == DONE


async def members(at: Desk) -> None:
    await at.register()
    await at.register(brokerId=1, brokerAddr=B)
    answer = await at.ask(901, {"clusterName": "East", "brokerName": "broker-a"})
    addresses = f'{{0:"{A}",1:"{B}"}}'
    expected = (
        f'{{"brokerMemberGroup":{{"brokerAddrs":{addresses},"brokerName":"broker-a","cluster":"East"}}}}'
    )
    assert answer == Answer(body=expected.encode())


# -- clients and tools -------------------------------------------------------------------------------------


async def route(at: Desk) -> None:
    await at.register()
    await at.ask(100, {"namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "broker-a:2"})
    assert await at.json(105, {"topic": "t", "acceptStandardJsonOnly": True}) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": A},
                "brokerName": "broker-a",
                "cluster": "East",
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "orderTopicConf": "broker-a:2",
        "queueDatas": [QUEUES],
    }
    missing = await at.ask(105, {"topic": "nowhere"})
    assert missing == Answer(17, "No topic route info in name server for the topic: nowhere")


async def cluster(at: Desk) -> None:
    await at.register()
    await at.register(brokerName="broker-b", brokerAddr=B)

    def row(name: str, address: str) -> str:
        told = f'"brokerName":"{name}","cluster":"East","enableActingMaster":false'
        return f'"{name}":{{"brokerAddrs":{{0:"{address}"}},{told}}}'

    brokers = f"{row('broker-a', A)},{row('broker-b', B)}"
    clusters = '{"East":["broker-a","broker-b"]}'
    expected = f'{{"brokerAddrTable":{{{brokers}}},"clusterAddrTable":{clusters}}}'
    assert await at.ask(106) == Answer(body=expected.encode())


async def gone(at: Desk) -> None:
    assert await at.ask(20_007) == Answer(body=b'{"goneBrokers":[]}')
    broker, at.peer = at.peer, await at.dial()
    at.peer, looker = broker, at.peer
    await at.register()
    await broker.hang_up()
    at.peer = looker
    while not (found := await at.json(20_007))["goneBrokers"]:
        pass
    missing = {
        "brokerAddr": A, "brokerId": 0, "brokerName": "broker-a", "cluster": "East", "since": NOW,
        "why": "connection closed",
    }  # fmt: skip
    assert found == {"goneBrokers": [missing]}
    await at.register()
    assert await at.json(20_007) == {"goneBrokers": []}


async def wipe(at: Desk) -> None:
    await at.register()
    assert await at.ask(205, {"brokerName": "broker-a"}) == Answer(fields={"wipeTopicCount": "4"})
    assert (await at.json(105, {"topic": "t"}))["queueDatas"] == [{**QUEUES, "perm": 4}]
    assert await at.ask(205, {"brokerName": "nobody"}) == Answer(fields={"wipeTopicCount": "0"})


async def give_back(at: Desk) -> None:
    await at.register()
    await at.ask(205, {"brokerName": "broker-a"})
    assert await at.ask(327, {"brokerName": "broker-a"}) == Answer(fields={"addTopicCount": "4"})
    assert (await at.json(105, {"topic": "t"}))["queueDatas"] == [QUEUES]


async def all_topics(at: Desk) -> None:
    await at.register()
    assert await at.json(206) == {"topicList": ["t", "unit", "subs", "both"]}


async def topics_of_cluster(at: Desk) -> None:
    await at.register()
    await at.register(
        topics={"w": topic("w"), "x": topic("x")}, brokerName="broker-b", brokerAddr=B, clusterName="West"
    )
    assert await at.json(224, {"cluster": "West"}) == {"topicList": ["w", "x"]}


async def system_topics(at: Desk) -> None:
    await at.register()
    assert await at.json(304) == {"brokerAddr": A, "topicList": ["East", "broker-a"]}


async def unit_topics(at: Desk) -> None:
    await at.register()
    assert await at.json(311) == {"topicList": ["unit", "both"]}


async def unit_subscriptions(at: Desk) -> None:
    await at.register()
    assert await at.json(312) == {"topicList": ["subs", "both"]}


async def plain_unit_subscriptions(at: Desk) -> None:
    await at.register()
    assert await at.json(313) == {"topicList": ["subs"]}


async def register_topic(at: Desk) -> None:
    await at.register()
    body = json.dumps({"queueDatas": [QUEUES], "brokerDatas": []}).encode()
    assert await at.ask(217, {"topic": "new"}, body) == DONE
    assert (await at.json(105, {"topic": "new"}))["queueDatas"] == [QUEUES]


async def delete_topic(at: Desk) -> None:
    await at.register()
    assert await at.ask(216, {"topic": "t", "clusterName": "West"}) == DONE
    assert "t" in await at.topics()
    assert await at.ask(216, {"topic": "t", "clusterName": "East"}) == DONE
    assert await at.ask(216, {"topic": "both"}) == DONE
    assert await at.topics() == ["unit", "subs"]


# -- settings ----------------------------------------------------------------------------------------------

ENTRY = {"namespace": "n", "key": "k", "value": "v"}
KEY = {"namespace": "n", "key": "k"}


async def put(at: Desk) -> None:
    assert await at.ask(100, ENTRY) == DONE
    assert await at.ask(101, KEY) == Answer(fields={"value": "v"})


async def get(at: Desk) -> None:
    assert await at.ask(101, KEY) == Answer(22, "No config item, Namespace: n Key: k")
    await at.ask(100, {**ENTRY, "value": "w"})
    assert await at.ask(101, KEY) == Answer(fields={"value": "w"})


async def delete(at: Desk) -> None:
    await at.ask(100, ENTRY)
    await at.ask(100, {**ENTRY, "key": "other"})
    assert await at.ask(102, KEY) == DONE
    assert (await at.ask(101, KEY)).code == 22
    assert (await at.ask(101, {**KEY, "key": "other"})).code == 0


async def listed(at: Desk) -> None:
    assert await at.ask(219, {"namespace": "n"}) == Answer(22, "No config item, Namespace: n")
    await at.ask(100, ENTRY)
    assert await at.json(219, {"namespace": "n"}) == {"table": {"k": "v"}}


async def get_settings(at: Desk) -> None:
    answer = await at.ask(319)
    assert answer[:3] == (0, None, {})
    assert {"listenPort=0", "brokerExpiryMs=120000"} <= {*answer.body.decode().splitlines()}


async def change_settings(at: Desk) -> None:
    assert await at.ask(318, {}, b"brokerExpiryMs=5000\n") == DONE
    assert "brokerExpiryMs=5000" in (await at.ask(319)).body.decode().splitlines()
    refused = await at.ask(318, {}, b"brokerExpiryMs=soon\n")
    assert (refused.code, refused.fields) == (29, {})


EXCHANGES = {
    100: put,
    101: get,
    102: delete,
    103: register,
    104: unregister,
    105: route,
    106: cluster,
    205: wipe,
    206: all_topics,
    216: delete_topic,
    217: register_topic,
    219: listed,
    224: topics_of_cluster,
    304: system_topics,
    311: unit_topics,
    312: unit_subscriptions,
    313: plain_unit_subscriptions,
    318: change_settings,
    319: get_settings,
    322: data_version,
    327: give_back,
    901: members,
    904: heartbeat,
    20_007: gone,
}
