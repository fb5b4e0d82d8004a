# SPDX-License-Identifier: Apache-2.0
"""Messages come, go, and are finished: send, batch, send back, pull, bulk reads, transactions, replies, recalls."""

from __future__ import annotations

import base64
import itertools
import struct
from typing import TYPE_CHECKING

from aerobee.protocol import message
from tests.wire.peer import Answer, Asked
from tests.wire.scene import DONE, NOW, STAMP

if TYPE_CHECKING:
    from tests.wire.scene import Scene

KEPT = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"  # added to what is sent


def _unsummed(record: message.Record) -> str:
    """Its properties without the checksum the store puts last."""
    return record.properties_text.partition("__CRC32#")[0]


def _check_stored(scene: Scene, queue: int, body: bytes) -> None:
    (record,) = scene.stored("orders", queue)
    host, port = scene.peer.writer.get_extra_info("sockname")
    assert (record.topic, record.queue_id, record.body) == ("orders", queue, body)
    assert _unsummed(record) == f"KEYS\x01k1\x02UNIQ_KEY\x01AB12\x02{KEPT}"
    assert (record.flag, record.sys_flag, record.reconsume_times) == (7, 2, 3)
    assert (record.born_timestamp, record.store_timestamp) == (NOW - 50, NOW)
    assert message.host_text(record.born_host) == f"{host}:{port}"
    assert message.host_text(record.store_host) == scene.address


async def send(scene: Scene) -> None:
    fields = {
        "producerGroup": "shop", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 3,
        "queueId": 2, "sysFlag": 2, "bornTimestamp": NOW - 50, "flag": 7,
        "properties": "KEYS\x01k1\x02UNIQ_KEY\x01AB12\x02", "reconsumeTimes": 3, "unitMode": False,
        "maxReconsumeTimes": 16, "batch": False, "bname": "broker-a",
    }  # fmt: skip
    place = {"msgId": scene.message_id(0), "queueId": "2", "queueOffset": "0", "transactionId": "AB12"}
    assert await scene.ask(10, fields, b"long names") == Answer(fields={**place, **STAMP})
    _check_stored(scene, 2, b"long names")
    assert scene.broker.topics.require("orders").write_queue_nums == 3
    refused = await scene.ask(10, {**fields, "queueId": 3})
    assert (refused.code, refused.fields) == (29, STAMP)


async def send_v2(scene: Scene) -> None:
    fields = {
        "a": "shop", "b": "orders", "c": "TBW102", "d": 3, "e": 1, "f": 2, "g": NOW - 50, "h": 7,
        "i": "KEYS\x01k1\x02UNIQ_KEY\x01AB12\x02", "j": 3, "k": False, "l": 16, "m": False, "n": "broker-a",
    }  # fmt: skip
    place = {"msgId": scene.message_id(0), "queueId": "1", "queueOffset": "0", "transactionId": "AB12"}
    assert await scene.ask(310, fields, b"letters") == Answer(fields={**place, **STAMP})
    _check_stored(scene, 1, b"letters")
    due = NOW + 60_000
    timed = f"UNIQ_KEY\x01CD34\x02TIMER_DELIVER_MS\x01{due}\x02"
    answer = await scene.ask(310, {**fields, "i": timed}, b"later")
    # The wheel turns by the second: what is due on one leaves in the one before, and the handle names its first moment.
    handle = base64.urlsafe_b64encode(f"v1 orders broker-a {due - 999} CD34".encode()).decode()
    assert (answer.code, answer.fields["recallHandle"]) == (0, handle)
    assert answer.fields["transactionId"] == "CD34"


async def send_batch(scene: Scene) -> None:
    def item(flag: int, body: bytes, properties: bytes) -> bytes:
        size = 4 + 4 + 4 + 4 + 4 + len(body) + 2 + len(properties)
        return (
            struct.pack(">iiiii", size, 0, 0, flag, len(body))
            + body
            + struct.pack(">h", len(properties))
            + properties
        )

    await scene.send()  # so that the first place of the batch is not 0
    items = item(5, b"one", b"UNIQ_KEY\x01A1\x02") + item(6, b"two", b"UNIQ_KEY\x01A2\x02")
    fields = {
        "a": "shop",
        "b": "orders",
        "c": "TBW102",
        "d": 4,
        "e": 0,
        "f": 2,
        "g": NOW - 50,
        "h": 0,
        "j": 3,
        "m": True,
    }
    answer = await scene.ask(320, fields, items)
    _, first, second = scene.stored("orders")
    host, port = scene.peer.writer.get_extra_info("sockname")
    for record in (first, second):
        assert (record.sys_flag, record.reconsume_times, record.queue_id) == (2, 3, 0)
        assert message.host_text(record.born_host) == f"{host}:{port}"
        assert message.host_text(record.store_host) == scene.address
    ids = f"{scene.message_id(first.physical_offset)},{scene.message_id(second.physical_offset)}"
    assert answer == Answer(fields={"msgId": ids, "queueId": "0", "queueOffset": "1", **STAMP})
    assert [(r.flag, r.body, r.unique_key, r.born_timestamp) for r in (first, second)] == [
        (5, b"one", "A1", NOW - 50),
        (6, b"two", "A2", NOW - 50),
    ]
    refused = await scene.ask(320, fields, items[:-1])
    assert (refused.code, refused.fields) == (1, STAMP)


async def send_back(scene: Scene) -> None:
    await scene.send(body=b"first")
    await scene.send(body=b"failed", properties="UNIQ_KEY\x01AB12\x02")
    place = scene.stored("orders")[1].physical_offset
    fields = {
        "offset": place, "group": "billing", "delayLevel": 4, "originMsgId": "AB12", "originTopic": "orders",
        "unitMode": False, "maxReconsumeTimes": 16, "bname": "broker-a",
    }  # fmt: skip
    assert await scene.ask(36, fields) == DONE
    (delayed,) = scene.stored("SCHEDULE_TOPIC_XXXX", 3)
    assert (delayed.body, delayed.reconsume_times) == (b"failed", 1)
    read = delayed.properties
    assert (read["RETRY_TOPIC"], read["REAL_TOPIC"], read["REAL_QID"]) == ("orders", "%RETRY%billing", "0")
    assert (read["ORIGIN_MESSAGE_ID"], read["DELAY"]) == (scene.message_id(place), "4")
    assert (await scene.ask(36, {**fields, "maxReconsumeTimes": 0})) == DONE  # no tries: dead at once
    assert [record.body for record in scene.stored("%DLQ%billing")] == [b"failed"]
    scene.peer.version = (
        120  # before 3.4.9 a client knew no limit: the group's counts, whatever the field says
    )
    assert (await scene.ask(36, {**fields, "maxReconsumeTimes": 0})) == DONE
    assert len(scene.stored("%DLQ%billing")) == 1
    gone = await scene.ask(36, {**fields, "offset": 10**9})
    assert (gone.code, gone.fields) == (1, {})
    assert str(10**9) in (gone.remark or "")


PULL = {
    "consumerGroup": "billing", "topic": "orders", "queueId": 0, "queueOffset": 1, "maxMsgNums": 1,
    "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 1,
    "expressionType": "TAG", "bname": "broker-a",
}  # fmt: skip


async def _pull(scene: Scene, code: int) -> None:
    for number in range(3):
        await scene.send(body=b"%d" % number)
    answer = await scene.ask(code, PULL)
    ends = {"minOffset": "0", "maxOffset": "3", "suggestWhichBrokerId": "0"}
    assert answer[:3] == (0, "FOUND", {"nextBeginOffset": "2", **ends})
    assert [record.body for record in message.decode_all(answer.body)] == [b"1"]
    # Bit 1: the offset the request carries is committed.
    committed = {"consumerGroup": "billing", "topic": "orders", "queueId": 0, "setZeroIfNotFound": False}
    assert (await scene.ask(code, {**PULL, "commitOffset": 2})).code == 0
    assert (await scene.ask(14, committed)).code == 22
    assert (await scene.ask(code, {**PULL, "sysFlag": 5, "commitOffset": 2})).code == 0
    assert await scene.ask(14, committed) == Answer(fields={"offset": "2"})
    # Bit 2: nothing new is waited for; without it the time given means nothing.
    end = {**PULL, "queueOffset": 3, "suspendTimeoutMillis": 15_000}
    nothing = Answer(19, "OFFSET_OVERFLOW_ONE", {"nextBeginOffset": "3", **ends})
    assert await scene.ask(code, end) == nothing
    held = scene.peer.start(code, {**end, "sysFlag": 6})
    await scene.peer.until(lambda: scene.broker.parked.count)
    scene.clock.advance(15_000)
    assert await held == nothing
    # Bit 4: the expression stands in the request; without it in the heartbeat, and there was none.
    unknown = await scene.ask(code, {**PULL, "sysFlag": 0})
    assert (unknown.code, unknown.fields) == (24, {})
    past = await scene.ask(code, {**PULL, "queueOffset": 9})
    assert past == Answer(21, "OFFSET_OVERFLOW_BADLY", {"nextBeginOffset": "3", **ends})


async def pull(scene: Scene) -> None:
    await _pull(scene, 11)


async def lite_pull(scene: Scene) -> None:
    await _pull(scene, 361)


async def read_units(scene: Scene) -> None:
    for number in range(4):
        await scene.send(body=b"x" * number + b"end")
    records = scene.stored("orders")
    where = {"topic": "orders", "queueId": 0, "offset": 1}
    answer = await scene.ask(20002, {**where, "count": 2, "step": 1})
    places = [*(record.physical_offset for record in records), scene.broker.store.log_max]
    expected = b"".join(struct.pack(">qiq", at, end - at, 0) for at, end in itertools.pairwise(places))
    assert answer == Answer(fields={"offset": "1"}, body=expected[20:60])
    stepped = await scene.ask(20002, {**where, "count": 3, "step": 2})
    assert stepped == Answer(fields={"offset": "1"}, body=expected[20:40] + expected[60:])
    assert (await scene.ask(20002, {**where, "topic": "nothing", "count": 2})).code == 17


async def read_log(scene: Scene) -> None:
    await scene.send(body=b"one")
    await scene.send(body=b"two")
    second = scene.stored("orders")[1].physical_offset
    answer = await scene.ask(20003, {"position": second, "size": 1 << 20})
    end = scene.broker.store.log_max
    assert answer[:3] == (0, None, {"minPosition": "0", "maxPosition": str(end)})
    assert [record.body for record in message.decode_all(answer.body)] == [b"two"]
    assert len((await scene.ask(20003, {"position": 4, "size": 9})).body) == 9


async def read_heads(scene: Scene) -> None:
    for queue in (0, 1, 0):
        await scene.send(queue=queue)
    version = scene.broker.topics.data_version
    known = f"{NOW}.{version.timestamp}.{version.counter}.0."
    stamp = known + str(scene.broker.store.log_max)
    named = await scene.ask(20004, {}, b'["orders","nothing"]')
    heads = b'{"topics":{"orders":[[0,0,2],[1,0,1],[2,0,0],[3,0,0]]}}'
    assert named == Answer(fields={"stamp": stamp}, body=heads)
    same = Answer(fields={"stamp": stamp, "since": stamp})
    assert await scene.ask(20004, {"since": stamp}, b'["orders"]') == same
    assert await scene.ask(20004, {"since": stamp}) == same
    await scene.send(queue=1)
    later = known + str(scene.broker.store.log_max)
    moved = await scene.ask(20004, {"since": stamp})
    assert moved == Answer(fields={"stamp": later, "since": stamp}, body=b'{"topics":{"orders":[[1,0,2]]}}')
    assert await scene.ask(20004, {"since": "another time"}) == Answer(fields={"stamp": later})
    assert (await scene.ask(20004, {}, b'["t"' + b',"t"' * 256 + b"]")).code == 29


async def view(scene: Scene) -> None:
    await scene.send(body=b"one")
    await scene.send(body=b"two")
    answer = await scene.ask(33, {"offset": scene.stored("orders")[1].physical_offset})
    assert answer[:3] == (0, None, {})
    assert message.decode(answer.body).body == b"two"
    assert (await scene.ask(33, {"offset": 7})).code == 1


async def by_key(scene: Scene) -> None:
    await scene.send(body=b"one", properties="KEYS\x01k1\x02UNIQ_KEY\x01U1\x02")
    scene.clock.advance(1000)
    await scene.send(body=b"two", properties="KEYS\x01k1 k2\x02UNIQ_KEY\x01U2\x02")
    asked = {"topic": "orders", "key": "k1", "maxNum": 10, "beginTimestamp": NOW, "endTimestamp": NOW + 999}
    last = {
        "indexLastUpdateTimestamp": str(NOW + 1000),
        "indexLastUpdatePhyoffset": str(scene.stored("orders")[1].physical_offset),
    }

    async def found(**change: object) -> list[bytes]:
        answer = await scene.ask(12, {**asked, **change})
        assert answer[:3] == (0, None, last)
        return [record.body for record in message.decode_all(answer.body)]

    assert await found() == [b"one"]
    assert sorted(await found(endTimestamp=NOW + 1000)) == [b"one", b"two"]
    assert await found(beginTimestamp=NOW + 1, endTimestamp=NOW + 1000) == [b"two"]
    assert len(await found(endTimestamp=NOW + 1000, maxNum=1)) == 1
    assert await found(key="U1", _UNIQUE_KEY_QUERY=True) == [b"one"]
    assert (await scene.ask(12, {**asked, "key": "k3"})).code == 22


async def queue_view(scene: Scene) -> None:
    for number in range(3):
        await scene.send(body=b"%d" % number, properties="TAGS\x01red\x02")
    records = scene.stored("orders")
    answer = await scene.ask(
        321, {"topic": "orders", "queueId": 0, "index": 1, "count": 1, "consumerGroup": ""}
    )
    place, end = records[1].physical_offset, records[2].physical_offset
    unit = {"physicOffset": place, "physicSize": end - place, "tagsCode": 112785, "eval": True}
    assert answer[:3] == (0, None, {})
    assert answer.json == {"maxQueueIndex": 3, "minQueueIndex": 0, "queueData": [unit]}


async def _half(scene: Scene, body: bytes, more: str = "") -> dict[str, object]:
    answer = await scene.send(
        body=body, properties="TRAN_MSG\x01true\x02PGROUP\x01shop\x02UNIQ_KEY\x01U\x02" + more, f=4
    )
    half = int(answer.fields["queueOffset"])
    return {
        "topic": "orders", "producerGroup": "shop", "tranStateTableOffset": half,
        "commitLogOffset": int(answer.fields["msgId"][-16:], 16), "fromTransactionCheck": False,
        "msgId": "U", "transactionId": "U", "bname": "broker-a",
    }  # fmt: skip


async def end_transaction(scene: Scene) -> None:
    kept, dropped, open_ = [await _half(scene, body) for body in (b"commit", b"rollback", b"unknown")]
    assert await scene.ask(37, {**open_, "commitOrRollback": 0}) == DONE
    assert await scene.ask(37, {**dropped, "commitOrRollback": 12}) == DONE
    assert scene.stored("orders") == []
    assert await scene.ask(37, {**kept, "commitOrRollback": 8}) == DONE
    (record,) = scene.stored("orders")
    assert (record.body, record.sys_flag & 12) == (b"commit", 8)
    odd = await scene.ask(37, {**open_, "commitOrRollback": 5})
    assert (odd.code, odd.fields) == (1, {})
    other = await scene.ask(37, {**open_, "producerGroup": "thieves", "commitOrRollback": 8})
    assert (other.code, other.fields) == (1, {})
    assert len(scene.stored("orders")) == 1
    # Once the time to decide is over, only the answer to a check ends it.
    late = await _half(scene, b"late", "CHECK_IMMUNITY_TIME_IN_SECONDS\x015\x02")
    scene.clock.advance(5_001)
    assert (await scene.ask(37, {**late, "commitOrRollback": 8})).code == 604
    assert await scene.ask(37, {**late, "commitOrRollback": 8, "fromTransactionCheck": True}) == DONE
    assert [record.body for record in scene.stored("orders")] == [b"commit", b"late"]


async def resume_check(scene: Scene) -> None:
    half = await _half(scene, b"given up")
    place = int(str(half["commitLogOffset"]))
    (record,) = scene.stored("RMQ_SYS_TRANS_HALF_TOPIC")
    assert await scene.ask(323, {"topic": "orders", "msgId": scene.message_id(place)}) == DONE
    again = scene.stored("RMQ_SYS_TRANS_HALF_TOPIC")[1]
    assert (again.body, again.unique_key) == (record.body, "U")
    assert (await scene.ask(323, {"msgId": "odd"})).code == 1


HEARTBEAT = b'{"clientID":"asker","producerDataSet":[{"groupName":"askers"}],"consumerDataSet":[]}'


async def _reply(scene: Scene, code: int, fields: dict[str, object]) -> None:
    asker = await scene.dial()
    assert (await asker.ask(34, {}, HEARTBEAT)).code == 0
    assert await scene.ask(code, fields, b"answer") == Answer(
        fields={"msgId": "0", "queueId": "0", "queueOffset": "0", **STAMP}
    )
    await scene.peer.until(lambda: asker.asked)
    (pushed,) = asker.asked
    host, port = scene.peer.writer.get_extra_info("sockname")
    properties = pushed.fields["properties"]
    assert properties.startswith("CORRELATION_ID\x017\x02REPLY_TO_CLIENT\x01asker\x02")
    assert pushed == Asked(
        326,
        {
            "producerGroup": "answerers", "topic": "DefaultCluster_REPLY_TOPIC", "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "2", "bornTimestamp": str(NOW - 50),
            "flag": "7", "properties": properties, "reconsumeTimes": "3", "unitMode": "false",
            "bornHost": f"{host}:{port}", "storeHost": scene.address, "storeTimestamp": str(NOW),
        },
        b"answer",
    )  # fmt: skip


async def reply(scene: Scene) -> None:
    fields = {
        "producerGroup": "answerers", "topic": "DefaultCluster_REPLY_TOPIC", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 2, "bornTimestamp": NOW - 50, "flag": 7,
        "properties": "CORRELATION_ID\x017\x02REPLY_TO_CLIENT\x01asker\x02", "reconsumeTimes": 3,
        "unitMode": False,
    }  # fmt: skip
    await _reply(scene, 324, fields)


async def reply_v2(scene: Scene) -> None:
    fields = {
        "a": "answerers", "b": "DefaultCluster_REPLY_TOPIC", "c": "TBW102", "d": 4, "e": 0, "f": 2,
        "g": NOW - 50, "h": 7, "i": "CORRELATION_ID\x017\x02REPLY_TO_CLIENT\x01asker\x02", "j": 3, "k": False,
    }  # fmt: skip
    await _reply(scene, 325, fields)
    del fields["j"]
    assert (await scene.ask(325, fields, b"of an old client")).code == 0
    (_, kept) = scene.stored("DefaultCluster_REPLY_TOPIC")
    assert (kept.body, kept.sys_flag, kept.flag, kept.reconsume_times) == (b"of an old client", 2, 7, 0)


async def recall(scene: Scene) -> None:
    due = NOW + 60_000
    timed = f"UNIQ_KEY\x01CD34\x02TIMER_DELIVER_MS\x01{due}\x02"
    handle = (await scene.send(body=b"later", properties=timed)).fields["recallHandle"]
    fields = {"producerGroup": "shop", "topic": "orders", "recallHandle": handle, "bname": "broker-a"}
    assert await scene.ask(370, fields) == Answer(fields={"msgId": "CD34", **STAMP})
    other = f"UNIQ_KEY\x01EF56\x02TIMER_DELIVER_MS\x01{due}\x02"
    await scene.send(body=b"other", properties=other)
    scene.clock.advance(60_000)
    await scene.peer.until(lambda: scene.stored("orders"))
    assert [record.body for record in scene.stored("orders")] == [b"other"]
    odd = await scene.ask(370, {**fields, "recallHandle": "x"})
    assert (odd.code, odd.fields) == (604, STAMP)


EXCHANGES = {
    10: send,
    310: send_v2,
    320: send_batch,
    36: send_back,
    11: pull,
    361: lite_pull,
    20002: read_units,
    20003: read_log,
    20004: read_heads,
    33: view,
    12: by_key,
    321: queue_view,
    37: end_transaction,
    323: resume_check,
    324: reply,
    325: reply_v2,
    370: recall,
}
