# SPDX-License-Identifier: Apache-2.0
"""Topics, groups and the broker itself, as tools ask for them and change them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.wire.clients import heartbeat
from tests.wire.messages import PULL
from tests.wire.peer import Answer
from tests.wire.scene import DONE, NOW

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.wire.scene import Exchange, Scene

TOPIC = {
    "topic": "bills", "defaultTopic": "TBW102", "readQueueNums": 3, "writeQueueNums": 2, "perm": 4,
    "topicFilterType": "MULTI_TAG", "topicSysFlag": 1, "order": True, "attributes": "+message.type=FIFO",
    "force": False,
}  # fmt: skip
AS_KEPT = {
    "attributes": {"message.type": "FIFO"}, "order": True, "perm": 4, "readQueueNums": 3,
    "topicFilterType": "MULTI_TAG", "topicName": "bills", "topicSysFlag": 1, "writeQueueNums": 2,
}  # fmt: skip


async def _json(scene: Scene, code: int, fields: Mapping[str, object] | None = None) -> Any:
    answer = await scene.ask(code, fields)
    assert answer[:3] == (0, None, {})
    return answer.json


# -- topics ------------------------------------------------------------------------------------------------


async def put_topic(scene: Scene) -> None:
    assert await scene.ask(17, TOPIC) == DONE
    assert await _json(scene, 351, {"topic": "bills"}) == AS_KEPT
    for odd in ({"topic": "TBW102"}, {"topic": "bad name"}, {"perm": 99}, {"readQueueNums": -1}):
        refused = await scene.ask(17, {**TOPIC, **odd})
        assert (refused.code, refused.fields) == (29, {}), odd


async def put_topics(scene: Scene) -> None:
    second = {**AS_KEPT, "topicName": "taxes", "attributes": {}, "perm": 6, "order": False}
    body = json.dumps({"topicConfigList": [AS_KEPT, second]}).encode()
    assert await scene.ask(18, {}, body) == DONE
    assert await _json(scene, 351, {"topic": "bills"}) == AS_KEPT
    assert await _json(scene, 351, {"topic": "taxes"}) == second
    own = json.dumps({"topicConfigList": [{**second, "topicName": "new"}, {**second, "topicName": "TBW102"}]})
    assert (await scene.ask(18, {}, own.encode())).code == 29
    assert (await scene.ask(351, {"topic": "new"})).code == 17  # all or none


async def put_static_topic(scene: Scene) -> None:
    part = {
        "bname": "broker-a", "endOffset": -1, "gen": 0, "logicOffset": 0, "queueId": 0, "startOffset": 0,
        "timeOfEnd": -1, "timeOfStart": -1,
    }  # fmt: skip
    mapping = {
        "bname": "broker-a", "currIdMap": {}, "dirty": False, "epoch": 5, "scope": "__global__",
        "hostedQueues": {"0": [part], "1": [{**part, "queueId": 1}]}, "topic": "bills", "totalQueues": 2,
    }  # fmt: skip
    fields = {**TOPIC, "attributes": "", "readQueueNums": 2}
    assert await scene.ask(513, fields, json.dumps(mapping).encode()) == DONE
    answer = await scene.ask(351, {"topic": "bills", "lo": True})
    assert answer[:3] == (0, None, {})
    text = answer.body.decode().replace("{0:[", '{"0":[').replace(",1:[", ',"1":[')  # Java's numbers as keys
    assert json.loads(text) == {**AS_KEPT, "attributes": {}, "readQueueNums": 2, "mappingDetail": mapping}
    moved = json.dumps(
        {**mapping, "epoch": 6, "hostedQueues": {"0": [{**part, "bname": "broker-b"}]}}
    ).encode()
    assert (await scene.ask(513, fields, moved)).code == 1


async def delete_topic(scene: Scene) -> None:
    await scene.send()
    assert await scene.ask(215, {"topic": "orders"}) == DONE
    assert (await scene.ask(351, {"topic": "orders"})).code == 17
    assert scene.stored("orders") == []
    assert (await scene.ask(215, {"topic": "TBW102"})).code == 29


async def topic_config(scene: Scene) -> None:
    await scene.ask(17, TOPIC)
    assert await _json(scene, 351, {"topic": "bills"}) == AS_KEPT
    missing = await scene.ask(351, {"topic": "nowhere"})
    assert (missing.code, missing.fields) == (17, {})


async def all_topics(scene: Scene) -> None:
    await scene.ask(17, TOPIC)
    found = await _json(scene, 21)
    assert found["topicConfigTable"]["bills"] == AS_KEPT
    assert found["topicConfigTable"]["SCHEDULE_TOPIC_XXXX"]["readQueueNums"] == 18
    version = {"counter": found["dataVersion"]["counter"], "stateVersion": 0, "timestamp": NOW}
    assert found["dataVersion"] == found["mappingDataVersion"] == version
    assert sorted(found) == [
        "dataVersion", "mappingDataVersion", "topicConfigTable", "topicQueueMappingDetailMap",
        "topicQueueMappingInfoMap",
    ]  # fmt: skip


async def topic_stats(scene: Scene) -> None:
    await scene.ask(17, {**TOPIC, "perm": 6})
    await scene.send("bills", queue=1)
    scene.clock.advance(5)
    await scene.send("bills", queue=1)

    def row(queue: int, last: int, end: int) -> str:
        key = f'{{"brokerName":"broker-a","queueId":{queue},"topic":"bills"}}'
        return f'{key}:{{"lastUpdateTimestamp":{last},"maxOffset":{end},"minOffset":0}}'

    rows = ",".join([row(0, 0, 0), row(1, NOW + 5, 2), row(2, 0, 0)])
    answer = await scene.ask(202, {"topic": "bills"})
    assert answer == Answer(body=f'{{"offsetTable":{{{rows}}},"topicPutTps":0.0}}'.encode())
    assert (await scene.ask(202, {"topic": "nowhere"})).code == 17


async def groups_of_topic(scene: Scene) -> None:
    await scene.send()
    for group in ("billing", "audit"):
        await scene.ask(11, {**PULL, "queueOffset": 0, "consumerGroup": group})
        offset = {"consumerGroup": group, "topic": "orders", "queueId": 0, "commitOffset": 1}
        assert await scene.ask(15, offset) == DONE
    assert await _json(scene, 300, {"topic": "orders"}) == {"groupList": ["audit", "billing"]}
    assert await _json(scene, 300, {"topic": "bills"}) == {"groupList": []}


async def system_topics(scene: Scene) -> None:
    await scene.send()
    assert await _json(scene, 305) == {
        "brokerAddr": scene.address,
        "topicList": [
            "BenchmarkTest", "DefaultCluster", "DefaultCluster_REPLY_TOPIC", "OFFSET_MOVED_EVENT",
            "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "SELF_TEST_TOPIC",
            "TBW102", "broker-a", "rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
            "rmq_sys_wheel_timer",
        ],
    }  # fmt: skip


# -- groups ------------------------------------------------------------------------------------------------

GROUP = {
    "attributes": {}, "brokerId": 0, "consumeBroadcastEnable": False, "consumeEnable": True,
    "consumeFromMinEnable": False, "consumeMessageOrderly": True, "consumeTimeoutMinute": 7,
    "groupName": "billing", "groupRetryPolicy": {"type": "CUSTOMIZED"}, "groupSysFlag": 1,
    "notifyConsumerIdsChangedEnable": False, "retryMaxTimes": 3, "retryQueueNums": 2,
    "whichBrokerWhenConsumeSlowly": 4,
}  # fmt: skip


async def put_group(scene: Scene) -> None:
    assert await scene.ask(200, {}, json.dumps(GROUP).encode()) == DONE
    assert await _json(scene, 352, {"group": "billing"}) == GROUP
    odd = await scene.ask(200, {}, json.dumps({**GROUP, "groupName": "bad name"}).encode())
    assert (odd.code, odd.fields) == (29, {})


async def put_groups(scene: Scene) -> None:
    second = {**GROUP, "groupName": "audit", "retryMaxTimes": 5}
    assert await scene.ask(225, {}, json.dumps({"groupConfigList": [GROUP, second]}).encode()) == DONE
    assert await _json(scene, 352, {"group": "billing"}) == GROUP
    assert await _json(scene, 352, {"group": "audit"}) == second


async def all_groups(scene: Scene) -> None:
    await scene.send()
    await scene.ask(200, {}, json.dumps(GROUP).encode())
    await scene.ask(353, {"group": "billing", "topic": "orders", "readable": False})
    found = await _json(scene, 201)
    assert found["subscriptionGroupTable"]["billing"] == GROUP
    assert "TOOLS_CONSUMER" in found["subscriptionGroupTable"]
    assert found["forbiddenTable"] == {"billing": {"orders": 4}}
    version = found["dataVersion"]
    assert version == {"counter": version["counter"], "stateVersion": 0, "timestamp": NOW}
    assert sorted(found) == ["dataVersion", "forbiddenTable", "subscriptionGroupTable"]


async def group_config(scene: Scene) -> None:
    await scene.ask(200, {}, json.dumps(GROUP).encode())
    assert await _json(scene, 352, {"group": "billing"}) == GROUP
    missing = await scene.ask(352, {"group": "nobody"})
    assert (missing.code, missing.fields) == (26, {})


async def delete_group(scene: Scene) -> None:
    await scene.send()
    offset = {"consumerGroup": "billing", "topic": "orders", "queueId": 0}
    for clean, left in ((False, Answer(fields={"offset": "1"})), (True, 22)):
        await scene.ask(200, {}, json.dumps(GROUP).encode())
        assert await scene.ask(15, {**offset, "commitOffset": 1}) == DONE
        assert await scene.ask(207, {"groupName": "billing", "cleanOffset": clean}) == DONE
        assert (await scene.ask(352, {"group": "billing"})).code == 26
        kept = await scene.ask(14, {**offset, "setZeroIfNotFound": False})
        assert kept == left or kept.code == left


async def forbid(scene: Scene) -> None:
    await scene.send()
    await scene.ask(200, {}, json.dumps(GROUP).encode())
    asked = {"group": "billing", "topic": "orders"}
    assert await _json(scene, 353, asked) == {**asked, "readable": True}
    assert await _json(scene, 353, {**asked, "readable": False}) == {**asked, "readable": False}
    assert (await scene.ask(34, {}, heartbeat())).code == 0
    subscribed = {**PULL, "queueOffset": 0, "sysFlag": 0, "subVersion": 5}  # asked for by the heartbeat alone
    refused = await scene.ask(11, subscribed)
    assert (refused.code, refused.fields) == (16, {})
    assert await _json(scene, 353, {**asked, "readable": True}) == {**asked, "readable": True}
    assert (await scene.ask(11, subscribed)).code != 16


# -- the broker --------------------------------------------------------------------------------------------


async def runtime(scene: Scene) -> None:
    await scene.send(body=b"x" * 100)
    await scene.send(body=b"x" * 100)
    scene.clock.advance(3_661_000)
    table = (await _json(scene, 28))["table"]
    assert all(isinstance(value, str) for value in table.values())
    expected = {
        "brokerVersion": "479", "brokerVersionDesc": "V5_3_3", "brokerActive": "true", "bootTimestamp": str(NOW),
        "runtime": "[ 0 days, 1 hours, 1 minutes, 1 seconds ]", "putMessageTimesTotal": "2",
        "putMessageFailedTimes": "0", "msgPutTotalTodayNow": "2", "msgGetTotalTodayNow": "0",
        "commitLogMinOffset": "0", "commitLogMaxOffset": str(scene.broker.store.log_max),
        "earliestMessageTimeStamp": str(NOW), "dispatchBehindBytes": "0", "sendThreadPoolQueueSize": "0",
        "sendThreadPoolQueueCapacity": "10000", "scheduleMessageOffset_1": "0,0", "scheduleMessageOffset_18": "0,0",
        "timerReadBehind": "0", "timerOffsetBehind": "0", "timerCongestNum": "0",
    }  # fmt: skip
    assert {key: table.get(key) for key in expected} == expected


async def get_settings(scene: Scene) -> None:
    answer = await scene.ask(26)
    version = f'{{"counter":0,"stateVersion":0,"timestamp":{NOW}}}'
    assert answer[:3] == (0, None, {"version": version})
    told = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
    port = scene.address.rpartition(":")[2]
    expected = {
        "brokerName": "broker-a", "brokerClusterName": "DefaultCluster", "brokerId": "0", "listenPort": port,
        "brokerPermission": "6", "fileReservedTime": "72", "flushDiskType": "ASYNC_FLUSH",
    }  # fmt: skip
    assert {key: told.get(key) for key in expected} == expected


async def change_settings(scene: Scene) -> None:
    assert await scene.ask(25, {}, b"fileReservedTime=24\nbrokerPermission=4\n") == DONE
    told = (await scene.ask(26)).body.decode().splitlines()
    assert {"fileReservedTime=24", "brokerPermission=4"} <= {*told}
    assert {*(await scene.ask(26)).fields["changed"].split(",")} == {"fileReservedTime", "brokerPermission"}
    both = await scene.ask(25, {}, b"fileReservedTime=48\nbrokerName=other")
    assert (both.code, both.fields) == (29, {})
    assert "fileReservedTime=24" in (await scene.ask(26)).body.decode().splitlines()  # all or nothing


async def stats(scene: Scene) -> None:
    asked = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"}
    for _ in range(7):
        scene.clock.advance(10_000)
        await scene.send()
    scene.clock.advance(10_000)
    await scene.send()  # the sampler has run
    told = await _json(scene, 315, asked)
    assert sorted(told) == ["statsDay", "statsHour", "statsMinute"]
    assert sorted(told["statsMinute"]) == ["avgpt", "sum", "tps"]
    assert told["statsMinute"]["sum"] == 6
    assert (await scene.ask(315, {**asked, "statsKey": "nothing"})).code == 1


async def high_availability(scene: Scene) -> None:
    await scene.send()
    end = scene.broker.store.log_max
    assert await _json(scene, 907) == {
        "haConnectionInfo": [], "inSyncSlaveNums": 0, "master": True, "masterCommitLogMaxOffset": end,
    }  # fmt: skip


def _clean(code: int) -> Exchange:
    async def clean(scene: Scene) -> None:
        await scene.send(body=b"old")
        await scene.send("filler", b"x" * 600_000)
        await scene.send("filler", b"x" * 600_000)
        assert (await scene.ask(31, {"topic": "orders", "queueId": 0})).fields == {"offset": "0"}
        scene.clock.jump(NOW + 73 * 3_600_000)  # the broker's own round does not come in between
        assert await scene.ask(code) == DONE
        assert (await scene.ask(31, {"topic": "orders", "queueId": 0})).fields == {"offset": "1"}

    return clean


async def reset_flush(scene: Scene) -> None:
    assert await scene.ask(908, {"masterFlushOffset": 7}) == DONE


async def epochs(scene: Scene) -> None:
    assert await scene.ask(1007) == Answer(1, "this request only for controllerMode ")


async def export(scene: Scene) -> None:
    assert await scene.ask(355, {"configType": "topics"}) == Answer(remark="export done.")


EXCHANGES: dict[int, Exchange] = {
    17: put_topic,
    18: put_topics,
    513: put_static_topic,
    215: delete_topic,
    351: topic_config,
    21: all_topics,
    202: topic_stats,
    300: groups_of_topic,
    305: system_topics,
    200: put_group,
    225: put_groups,
    201: all_groups,
    352: group_config,
    207: delete_group,
    353: forbid,
    28: runtime,
    26: get_settings,
    25: change_settings,
    315: stats,
    907: high_availability,
    306: _clean(306),
    316: _clean(316),
    329: _clean(329),
    908: reset_flush,
    1007: epochs,
    355: export,
}
