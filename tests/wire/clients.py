# SPDX-License-Identifier: Apache-2.0
"""Clients about themselves, and what tools ask about clients and, through the broker, of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from aerobee.protocol import message
from tests.wire.peer import Answer, Asked
from tests.wire.scene import DONE, NOW

if TYPE_CHECKING:
    from tests.wire.scene import Scene

SUBSCRIPTION = {
    "classFilterMode": False, "codeSet": [112785], "expressionType": "TAG", "subString": "red", "subVersion": 5,
    "tagsSet": ["red"], "topic": "orders",
}  # fmt: skip
WITH_RETRIES = {
    **SUBSCRIPTION, "codeSet": [], "subString": "*", "subVersion": 6, "tagsSet": [], "topic": "%RETRY%billing",
}  # fmt: skip
CONNECTION = ("language", "JAVA"), ("version", 479)


def heartbeat(client: str = "c1", model: str = "CLUSTERING") -> bytes:
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
        "groupName": "billing", "messageModel": model, "subscriptionDataSet": [SUBSCRIPTION, WITH_RETRIES],
        "unitMode": False,
    }  # fmt: skip
    return json.dumps(
        {
            "clientID": client, "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "shop"}],
            "heartbeatFingerprint": 0, "isWithoutSub": False,
        }
    ).encode()  # fmt: skip


def _own_address(scene: Scene) -> str:
    host, port = scene.peer.writer.get_extra_info("sockname")
    return f"{host}:{port}"


async def _join(scene: Scene) -> None:
    await scene.send()
    assert (await scene.ask(34, {}, heartbeat())).code == 0


async def beat(scene: Scene) -> None:
    await scene.send()
    told = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}
    assert await scene.ask(34, {}, heartbeat()) == Answer(fields=told)
    group = scene.broker.clients.group("billing")
    assert sorted(group.members) == ["c1"]
    assert scene.broker.topics.require("%RETRY%billing").read_queue_nums == 1
    other = await scene.dial()
    scene.peer.asked.clear()
    assert await other.ask(34, {}, heartbeat("c2")) == Answer(fields=told)
    await scene.peer.until(lambda: scene.peer.asked)  # the members are told of each other
    assert scene.peer.asked == [Asked(40, {"consumerGroup": "billing"}, b"")]


async def unregister(scene: Scene) -> None:
    await _join(scene)
    goodbye = {"clientID": "c1", "producerGroup": "shop", "consumerGroup": ""}
    assert await scene.ask(35, goodbye) == DONE
    assert (await scene.ask(204, {"producerGroup": "shop"})).code == 1
    assert (await scene.ask(203, {"consumerGroup": "billing"})).code == 0
    assert await scene.ask(35, {"clientID": "c1", "consumerGroup": "billing"}) == DONE
    assert (await scene.ask(203, {"consumerGroup": "billing"})).code == 206


async def members(scene: Scene) -> None:
    await _join(scene)
    assert (await (await scene.dial()).ask(34, {}, heartbeat("c2"))).code == 0
    answer = await scene.ask(38, {"consumerGroup": "billing"})
    assert answer == Answer(body=b'{"consumerIdList":["c1","c2"]}')
    assert (await scene.ask(38, {"consumerGroup": "nobody"})).code == 1


async def check(scene: Scene) -> None:
    def asked(expression: str) -> bytes:
        by = {
            **SUBSCRIPTION,
            "expressionType": "SQL92",
            "subString": expression,
            "tagsSet": [],
            "codeSet": [],
        }
        return json.dumps({"clientId": "c1", "group": "billing", "subscriptionData": by}).encode()

    assert await scene.ask(46, {}, asked("a BETWEEN 1 AND 3")) == DONE
    refused = await scene.ask(46, {}, asked("a BETWEEN 1"))
    assert (refused.code, refused.fields) == (23, {})


def _queues(*numbers: int) -> list[dict[str, object]]:
    return [{"brokerName": "broker-a", "queueId": number, "topic": "orders"} for number in numbers]


def _lock(client: str, *numbers: int) -> bytes:
    asked = {
        "clientId": client,
        "consumerGroup": "billing",
        "mqSet": _queues(*numbers),
        "onlyThisBroker": False,
    }
    return json.dumps(asked).encode()


async def lock(scene: Scene) -> None:
    assert (await scene.ask(41, {}, _lock("c1", 0, 1))).json == {"lockOKMQSet": _queues(0, 1)}
    second = await scene.ask(41, {}, _lock("c2", 1, 2))
    assert second[:3] == (0, None, {})
    assert second.json == {"lockOKMQSet": _queues(2)}
    scene.clock.advance(60_001)  # nobody renewed it
    assert (await scene.ask(41, {}, _lock("c2", 1))).json == {"lockOKMQSet": _queues(1)}


async def unlock(scene: Scene) -> None:
    await scene.ask(41, {}, _lock("c1", 0, 1))
    assert await scene.ask(42, {}, _lock("c2", 0)) == DONE  # not its own
    assert await scene.ask(42, {}, _lock("c1", 1)) == DONE
    assert (await scene.ask(41, {}, _lock("c2", 0, 1))).json == {"lockOKMQSet": _queues(1)}


async def consumer_connection(scene: Scene) -> None:
    await _join(scene)
    answer = await scene.ask(203, {"consumerGroup": "billing"})
    assert answer[:3] == (0, None, {})
    assert answer.json == {
        "connectionSet": [{"clientAddr": _own_address(scene), "clientId": "c1", **dict(CONNECTION)}],
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionTable": {"orders": SUBSCRIPTION, "%RETRY%billing": WITH_RETRIES},
    }
    assert (await scene.ask(203, {"consumerGroup": "nobody"})).code == 206


async def producer_connection(scene: Scene) -> None:
    await _join(scene)
    answer = await scene.ask(204, {"producerGroup": "shop"})
    assert answer[:3] == (0, None, {})
    assert answer.json == {
        "connectionSet": [{"clientAddr": _own_address(scene), "clientId": "c1", **dict(CONNECTION)}]
    }
    assert (await scene.ask(204, {"producerGroup": "nobody"})).code == 1


async def all_producers(scene: Scene) -> None:
    await _join(scene)
    scene.clock.advance(7)
    member = {
        "clientId": "c1",
        "lastUpdateTimestamp": NOW,
        "remoteIP": _own_address(scene),
        **dict(CONNECTION),
    }
    answer = await scene.ask(328)
    assert answer[:3] == (0, None, {})
    assert answer.json == {"data": {"shop": [member]}}


async def topics_of_group(scene: Scene) -> None:
    await _join(scene)
    for topic in ("orders", "bills"):
        await scene.send(topic)
        offset = {"consumerGroup": "billing", "topic": topic, "queueId": 0, "commitOffset": 1}
        assert await scene.ask(15, offset) == DONE
    answer = await scene.ask(343, {"group": "billing"})
    assert answer[:3] == (0, None, {})
    assert answer.json == {"brokerAddr": scene.address, "topicList": ["bills", "orders"]}


async def subscription(scene: Scene) -> None:
    await _join(scene)
    asked = {"group": "billing", "topic": "orders"}
    answer = await scene.ask(345, asked)
    assert answer[:3] == (0, None, {})
    assert answer.json == {**asked, "subscriptionData": SUBSCRIPTION}
    assert (await scene.ask(345, {**asked, "topic": "bills"})).json == {**asked, "topic": "bills"}


async def running_info(scene: Scene) -> None:
    await _join(scene)
    scene.peer.asked.clear()
    scene.peer.bodies[307] = b'{"jstack":"..."}'
    fields = {"consumerGroup": "billing", "clientId": "c1", "jstackEnable": True}
    assert await scene.ask(307, fields) == Answer(body=b'{"jstack":"..."}')
    texts = {"consumerGroup": "billing", "clientId": "c1", "jstackEnable": "true"}
    assert scene.peer.asked == [Asked(307, texts, b"")]
    assert (await scene.ask(307, {**fields, "clientId": "c2"})).code == 1


async def consume_directly(scene: Scene) -> None:
    await _join(scene)
    scene.peer.asked.clear()
    scene.peer.bodies[309] = b'{"consumeResult":"CR_SUCCESS"}'
    name = scene.message_id(0)
    fields = {
        "consumerGroup": "billing", "clientId": "c1", "msgId": name, "brokerName": "broker-a", "topic": "orders",
    }  # fmt: skip
    assert await scene.ask(309, fields) == Answer(body=b'{"consumeResult":"CR_SUCCESS"}')
    (forwarded,) = scene.peer.asked
    assert (forwarded.code, forwarded.fields) == (
        309, {"consumerGroup": "billing", "clientId": "c1", "msgId": name, "brokerName": "broker-a", "topic": "orders"},
    )  # fmt: skip
    assert message.decode(forwarded.body).body == b"x"
    assert (await scene.ask(309, {**fields, "clientId": "c2"})).code == 1


async def consumer_status(scene: Scene) -> None:
    await _join(scene)
    scene.peer.asked.clear()
    table = b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:7}}'
    scene.peer.bodies[221] = table
    answer = await scene.ask(223, {"topic": "orders", "group": "billing", "clientAddr": ""})
    queue = b'{"brokerName":"broker-a","queueId":0,"topic":"orders"}'
    assert answer == Answer(body=b'{"consumerTable":{"c1":{' + queue + b":7}}}")
    assert [(asked.code, asked.fields["topic"], asked.fields["group"]) for asked in scene.peer.asked] == [
        (221, "orders", "billing")
    ]
    assert (await scene.ask(223, {"topic": "orders", "group": "nobody"})).code == 1


EXCHANGES = {
    34: beat,
    35: unregister,
    38: members,
    46: check,
    41: lock,
    42: unlock,
    203: consumer_connection,
    204: producer_connection,
    328: all_producers,
    343: topics_of_group,
    345: subscription,
    307: running_info,
    309: consume_directly,
    223: consumer_status,
}
