# SPDX-License-Identifier: Apache-2.0
"""Offsets of groups and queues, and what tools are told of progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.wire.clients import heartbeat
from tests.wire.messages import PULL
from tests.wire.peer import Answer, Asked
from tests.wire.scene import DONE, NOW

if TYPE_CHECKING:
    from tests.wire.scene import Scene

BILLING = {"consumerGroup": "billing", "topic": "orders", "queueId": 1}
QUEUE = {"topic": "orders", "queueId": 1}


def _key(queue: int, topic: str = "orders") -> str:
    return f'{{"brokerName":"broker-a","queueId":{queue},"topic":"{topic}"}}'


async def _read_some(scene: Scene) -> None:
    """Queue 1 has four messages, a second apart; the group has pulled three of them and committed two."""
    for number in range(4):
        await scene.send(body=b"%d" % number, queue=1)
        scene.clock.advance(1_000)
    assert (await scene.ask(11, {**PULL, "queueId": 1, "queueOffset": 0, "maxMsgNums": 3})).code == 0
    assert await scene.ask(15, {**BILLING, "commitOffset": 2}) == DONE


async def query(scene: Scene) -> None:
    await _read_some(scene)
    assert await scene.ask(14, BILLING) == Answer(fields={"offset": "2"})
    new = {**BILLING, "consumerGroup": "new"}
    assert await scene.ask(14, new) == Answer(fields={"offset": "0"})  # a young queue is read from its first
    assert (await scene.ask(14, {**new, "setZeroIfNotFound": False})).code == 22


async def update(scene: Scene) -> None:
    await _read_some(scene)
    assert await scene.ask(15, {**BILLING, "commitOffset": 3}) == DONE
    assert await scene.ask(14, BILLING) == Answer(fields={"offset": "3"})
    refused: list[dict[str, Any]] = [{"consumerGroup": "nobody"}, {"topic": "nowhere"}, {"queueId": -1}]
    answers = [await scene.ask(15, {**BILLING, "commitOffset": 1, **odd}) for odd in refused]
    assert [(answer.code, answer.fields) for answer in answers] == [(26, {}), (17, {}), (29, {})]


async def largest(scene: Scene) -> None:
    await _read_some(scene)
    assert await scene.ask(30, QUEUE) == Answer(fields={"offset": "4"})
    assert await scene.ask(30, {**QUEUE, "queueId": 0, "committed": True}) == Answer(fields={"offset": "0"})


async def smallest(scene: Scene) -> None:
    await _read_some(scene)  # of one that is not 0 see test_old_messages_are_gone.py
    assert await scene.ask(31, QUEUE) == Answer(fields={"offset": "0"})


async def by_time(scene: Scene) -> None:
    await _read_some(scene)
    await scene.send(queue=1)
    await scene.send(queue=1)  # two of one time: at 4 and 5

    async def offset(at: int, **more: object) -> Answer:
        return await scene.ask(29, {**QUEUE, "timestamp": NOW + at, **more})

    assert await offset(1_000) == Answer(fields={"offset": "1"})
    assert await offset(1_001) == Answer(fields={"offset": "2"})
    assert await offset(4_000, boundaryType="LOWER") == Answer(fields={"offset": "4"})
    assert await offset(4_000, boundaryType="UPPER") == Answer(fields={"offset": "5"})
    assert await offset(9_000) == Answer(fields={"offset": "6"})


async def earliest(scene: Scene) -> None:
    scene.clock.advance(500)
    await _read_some(scene)
    assert await scene.ask(32, QUEUE) == Answer(fields={"timestamp": str(NOW + 500)})
    assert await scene.ask(32, {**QUEUE, "queueId": 0}) == Answer(fields={"timestamp": "-1"})


async def reset(scene: Scene) -> None:
    await _read_some(scene)
    fields = {"topic": "orders", "group": "billing", "timestamp": NOW + 1_000, "isForce": True}
    moved = {0: 0, 1: 1, 2: 0, 3: 0}
    table = ",".join(f"{_key(queue)}:{offset}" for queue, offset in moved.items())
    assert await scene.ask(222, fields) == Answer(body=f'{{"offsetTable":{{{table}}}}}'.encode())
    told = await scene.ask(11, {**PULL, "queueId": 1, "queueOffset": 3})
    assert (told.code, told.fields["nextBeginOffset"]) == (21, "1")  # the reader is told at its next pull
    one = await scene.ask(222, {**fields, "queueId": 1, "offset": 3})
    assert one == Answer(body=f'{{"offsetTable":{{{_key(1)}:3}}}}'.encode())
    beyond = await scene.ask(222, {**fields, "queueId": 1, "offset": 9})
    assert (beyond.code, beyond.fields) == (1, {})
    assert (await scene.ask(222, {**fields, "group": "nobody"})).code == 26
    assert (await scene.ask(222, {**fields, "topic": "nowhere"})).code == 17
    # Older: the group's clients are told the new offsets and move themselves.
    assert await scene.ask(25, {}, b"useServerSideResetOffset=false") == DONE
    assert (await scene.ask(34, {}, heartbeat())).code == 0
    scene.peer.asked.clear()
    back = await scene.ask(222, {**fields, "queueId": 1, "timestamp": NOW})
    assert back == Answer(body=f'{{"offsetTable":{{{_key(1)}:0}}}}'.encode())
    texts = {"topic": "orders", "group": "billing", "timestamp": str(NOW), "isForce": "true"}
    assert scene.peer.asked == [Asked(220, texts, back.body)]


async def all_offsets(scene: Scene) -> None:
    await _read_some(scene)
    answer = await scene.ask(43)
    assert answer[:3] == (0, None, {})
    own = "".join(f' "RMQ_SYS_TRANS_{kind}HALF_TOPIC@CID_RMQ_SYS_TRANS":{{0:0}},' for kind in ("", "OP_"))
    version = f'"dataVersion":{{"counter":0,"stateVersion":0,"timestamp":{NOW}}}'
    table = f'"offsetTable":{{{own} "orders@billing":{{1:2}} }}'
    assert " ".join(answer.body.decode().split()) == f"{{{version}, {table} }}"


async def delay_offsets(scene: Scene) -> None:
    for level in (1, 3):
        await scene.send(properties=f"DELAY\x01{level}\x02")
    scene.clock.advance(1_000)  # the first level is a second, the third ten
    await scene.peer.until(lambda: scene.stored("orders"))
    table = ",".join(f"{level}:{1 if level == 1 else 0}" for level in range(1, 19))
    version = '"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0}'
    assert await scene.ask(45) == Answer(body=f'{{{version},"offsetTable":{{{table}}}}}'.encode())


async def timer_counts(scene: Scene) -> None:
    assert await scene.ask(61) == Answer(
        body=b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":0},"timingCount":{}}'
    )
    for topic, seconds in (("orders", 2), ("orders", 60), ("bills", 60)):
        await scene.send(topic, properties=f"TIMER_DELIVER_MS\x01{NOW + 1_000 * seconds}\x02")
    scene.clock.advance(500)
    await scene.peer.until(lambda: scene.broker.stats.counted.timers.pending == 3)
    scene.clock.advance(2_500)
    await scene.peer.until(lambda: scene.stored("orders"))
    answer = await scene.ask(61)
    assert answer[:3] == (0, None, {})
    told = answer.json
    came, version = told["timingCount"]["bills"]["timeStamp"], told["dataVersion"]
    went = told["timingCount"]["orders"]["timeStamp"]
    assert told["timingCount"] == {
        "orders": {"count": 1, "timeStamp": went},
        "bills": {"count": 1, "timeStamp": came},
    }
    assert NOW <= came < went <= NOW + 3_000
    assert version == {"counter": 4, "stateVersion": 0, "timestamp": went}, "three in, one out"


async def time_spans(scene: Scene) -> None:
    await _read_some(scene)
    answer = await scene.ask(303, {"topic": "orders", "group": "billing"})
    assert answer[:3] == (0, None, {})

    def span(queue: int, first: int, last: int, consumed: int, behind: int) -> dict[str, object]:
        named = {"brokerName": "broker-a", "queueId": queue, "topic": "orders"}
        return {
            "messageQueue": named, "minTimeStamp": first, "maxTimeStamp": last, "consumeTimeStamp": consumed,
            "delayTime": behind,
        }  # fmt: skip

    assert answer.json == {
        "consumeTimeSpanSet": [
            span(0, -1, -1, -1, 0),
            span(1, NOW, NOW + 3_000, NOW + 1_000, 2_000),
            span(2, -1, -1, -1, 0),
            span(3, -1, -1, -1, 0),
        ]
    }


async def correction(scene: Scene) -> None:
    await _read_some(scene)
    for group, offset in (("ahead", 3), ("behind", 1)):
        assert (await scene.ask(11, {**PULL, "queueId": 1, "consumerGroup": group})).code == 0
        await scene.ask(15, {**BILLING, "consumerGroup": group, "commitOffset": offset})
    asked = {"topic": "orders", "compareGroup": "ahead", "filterGroups": "behind"}
    assert await scene.ask(308, asked) == Answer(body=b'{"correctionOffsets":{1:2}}')
    assert await scene.ask(308, {**asked, "filterGroups": ""}) == Answer(body=b'{"correctionOffsets":{1:1}}')
    never = await scene.ask(308, {**asked, "compareGroup": "behind"})
    assert never == Answer(body=b'{"correctionOffsets":{1:%d}}' % (2**63 - 1))


async def clone(scene: Scene) -> None:
    await _read_some(scene)
    fields = {"srcGroup": "billing", "destGroup": "copy", "topic": "orders", "offline": True}
    assert await scene.ask(314, fields) == DONE
    assert await scene.ask(14, {**BILLING, "consumerGroup": "copy"}) == Answer(fields={"offset": "2"})
    # Of a group that is there, only topics it subscribes, unless it is taken for one that is not.
    await scene.send("bills", queue=1)
    bills = {**BILLING, "topic": "bills"}
    assert await scene.ask(15, {**bills, "commitOffset": 1}) == DONE
    assert (await scene.ask(34, {}, heartbeat())).code == 0
    asked = {**bills, "consumerGroup": "copy", "setZeroIfNotFound": False}
    assert await scene.ask(314, {**fields, "topic": "bills", "offline": False}) == DONE
    assert (await scene.ask(14, asked)).code == 22
    assert await scene.ask(314, {**fields, "topic": "bills"}) == DONE
    assert await scene.ask(14, asked) == Answer(fields={"offset": "1"})


def _progress(queue: int, end: int, committed: int, consumed: int, pulled: int) -> str:
    return (
        f'{_key(queue)}:{{"brokerOffset":{end},"consumerOffset":{committed},"lastTimestamp":{consumed},'
        f'"pullOffset":{pulled}}}'
    )


def _stats() -> str:
    rows = [_progress(queue, 0, 0, 0, 0) for queue in range(4)]
    rows[1] = _progress(1, 4, 2, NOW + 1_000, 3)
    return f'{{"consumeTps":0.0,"offsetTable":{{{",".join(rows)}}}}}'


async def stats(scene: Scene) -> None:
    await _read_some(scene)
    expected = Answer(body=_stats().encode())
    assert await scene.ask(208, {"consumerGroup": "billing", "topic": "orders"}) == expected
    assert await scene.ask(208, {"consumerGroup": "billing", "topicList": "orders;"}) == expected
    assert await scene.ask(208, {"consumerGroup": "billing"}) == expected


async def stats_of_all(scene: Scene) -> None:
    await _read_some(scene)
    answer = await scene.ask(317, {"isOrder": False})
    assert answer[:3] == (0, None, {})
    text = answer.body.decode()
    assert text.startswith(f'{{"brokerAddr":"{scene.address}","consumeStatsList":[')
    assert f'{{"billing":[{_stats()}]}}' in text
    assert text.endswith('],"totalDiff":2,"totalInflightDiff":1}')
    ordered = (await scene.ask(317, {"isOrder": True})).body.decode()
    assert '{"billing":[]}' in ordered
    assert ordered.endswith('],"totalDiff":0,"totalInflightDiff":0}')


EXCHANGES = {
    14: query,
    15: update,
    30: largest,
    31: smallest,
    29: by_time,
    32: earliest,
    222: reset,
    43: all_offsets,
    45: delay_offsets,
    61: timer_counts,
    303: time_spans,
    308: correction,
    314: clone,
    208: stats,
    317: stats_of_all,
}
