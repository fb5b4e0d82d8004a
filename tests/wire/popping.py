# SPDX-License-Identifier: Apache-2.0
"""POP and the broker's balancing: pop, ack, change of invisible time, peek, notification, assignment, modes, figures."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

from aerobee.protocol import message
from tests.wire.clients import heartbeat
from tests.wire.peer import Answer
from tests.wire.scene import DONE, NOW

if TYPE_CHECKING:
    from tests.wire.scene import Scene

POP = {
    "consumerGroup": "billing", "topic": "orders", "queueId": 1, "maxMsgNums": 2, "invisibleTime": 60_000,
    "pollTime": 0, "bornTime": NOW, "initMode": 0, "expType": "TAG", "exp": "*", "order": False,
    "attemptId": "", "bname": "broker-a",
}  # fmt: skip
NOTHING = {"startOffsetInfo": "", "msgOffsetInfo": ""}  # what an answer without messages says of them


def _bodies(answer: Answer) -> list[bytes]:
    return [record.body for record in message.decode_all(answer.body)]


async def _send(scene: Scene, *bodies: bytes, queue: int = 1) -> None:
    for body in bodies:
        await scene.send(body=body, queue=queue)


def _times(pop_time: int = NOW, invisible: int = 60_000, revive: int = 0, rest: int = 0) -> dict[str, str]:
    return {
        "popTime": str(pop_time), "invisibleTime": str(invisible), "reviveQid": str(revive), "restNum": str(rest),
    }  # fmt: skip


async def pop(scene: Scene) -> None:
    await _send(scene, b"0", b"1", b"2", b"3")
    first = await scene.ask(200050, POP)
    assert first[:3] == (
        0, "FOUND", {**_times(revive=1, rest=2), "startOffsetInfo": "0 1 0", "msgOffsetInfo": "0 1 0,1"},
    )  # fmt: skip
    assert _bodies(first) == [b"0", b"1"]
    scene.clock.advance(5)
    second = await scene.ask(200050, {**POP, "maxMsgNums": 1, "invisibleTime": 30_000, "bornTime": NOW + 5})
    assert second[:3] == (
        0, "FOUND",
        {**_times(NOW + 5, 30_000, 2, 1), "startOffsetInfo": "0 1 2", "msgOffsetInfo": "0 1 2"},
    )  # fmt: skip
    assert _bodies(second) == [b"2"]
    # A tag that nothing has: nothing, and the answer still has all its fields.
    new = {**POP, "bornTime": NOW + 5}
    other = {**new, "consumerGroup": "tagged", "exp": "red"}
    none = await scene.ask(200050, other)
    assert none == Answer(210, "NO_MESSAGE_IN_QUEUE", {**_times(NOW + 5, revive=3), **NOTHING})
    ordered = await scene.ask(200050, {**new, "consumerGroup": "ordered", "order": True, "attemptId": "a1"})
    assert ordered[:3] == (
        0, "FOUND",
        {
            **_times(NOW + 5, revive=999, rest=2), "startOffsetInfo": "0 1 0", "msgOffsetInfo": "0 1 0,1",
            "orderCountInfo": "0 1 0",
        },
    )  # fmt: skip
    again = {**new, "consumerGroup": "ordered", "order": True}
    assert (await scene.ask(200050, {**again, "attemptId": "a2"})).code == 210  # blocked
    assert (await scene.ask(200050, {**again, "attemptId": "a1"})).fields["msgOffsetInfo"] == "0 1 0,1"
    for amount in (0, 33):
        refused = await scene.ask(200050, {**POP, "bornTime": NOW + 5, "maxMsgNums": amount})
        assert (refused.code, refused.fields, refused.body) == (29, {}, b"")
    stale = await scene.ask(200050, {**POP, "bornTime": NOW - 600, "pollTime": 50})
    zeros = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
    assert (stale.code, stale.fields, stale.body) == (210, zeros, b"")


async def _in_flight(scene: Scene) -> int:
    return int((await scene.ask(20001, {"group": "billing"})).json["inFlight"])


async def ack(scene: Scene) -> None:
    await _send(scene, b"0", b"1")
    popped = await scene.ask(200050, {**POP, "maxMsgNums": 1, "queueId": 1})
    handle = f"0 {NOW} 60000 {popped.fields['reviveQid']} 0 broker-a 1 0"
    fields = {
        "consumerGroup": "billing", "topic": "orders", "queueId": 1, "extraInfo": handle, "offset": 0,
        "bname": "broker-a",
    }  # fmt: skip
    assert await _in_flight(scene) == 1
    assert await scene.ask(200051, fields) == DONE
    assert await _in_flight(scene) == 0
    assert await scene.ask(200051, fields) == DONE  # twice is as good as once
    beyond = await scene.ask(200051, {**fields, "offset": 99})
    assert (beyond.code, beyond.fields) == (208, {})
    queue = await scene.ask(200051, {**fields, "queueId": 4})
    assert (queue.code, queue.fields) == (13, {})
    short = await scene.ask(200051, {**fields, "extraInfo": "0 1 2"})
    assert (short.code, short.fields) == (1, {})


async def batch_ack(scene: Scene) -> None:
    await _send(scene, b"0", b"1", b"2")
    popped = await scene.ask(200050, {**POP, "maxMsgNums": 3})
    entry = {
        "c": "billing", "t": "orders", "r": "0", "so": 0, "q": 1, "rq": int(popped.fields["reviveQid"]), "pt": NOW,
        "it": 60_000, "b": base64.b64encode(bytes([0b101])).decode(),
    }  # fmt: skip
    body = json.dumps({"brokerName": "broker-a", "acks": [entry]}).encode()
    assert await scene.ask(200151, {}, body) == DONE
    scene.clock.advance(61_000)
    retry = "%RETRY%billing_orders"
    await scene.peer.until(lambda: scene.stored(retry))
    assert [record.body for record in scene.stored(retry)] == [b"1"]
    assert (await scene.ask(200151, {}, b'{"acks":[]}')).code == 208


async def change_invisible(scene: Scene) -> None:
    await _send(scene, b"0", b"1", b"2")
    popped = await scene.ask(200050, {**POP, "maxMsgNums": 3})
    revive = popped.fields["reviveQid"]
    scene.clock.advance(10_000)
    fields = {
        "consumerGroup": "billing", "topic": "orders", "queueId": 1,
        "extraInfo": f"0 {NOW} 60000 {revive} 0 broker-a 1 1", "offset": 1, "invisibleTime": 20_000,
        "bname": "broker-a",
    }  # fmt: skip
    changed = await scene.ask(200053, fields)
    assert changed == Answer(
        fields={"popTime": str(NOW + 10_000), "invisibleTime": "20000", "reviveQid": revive}
    )
    # The new receipt begins at the message itself; it acks that message and no other of the batch.
    handle = f"1 {NOW + 10_000} 20000 {revive} 0 broker-a 1 1"
    ack_fields = {**fields, "extraInfo": handle}
    assert await scene.ask(200051, ack_fields) == DONE
    assert await _in_flight(scene) == 2
    gone = await scene.ask(200053, {**fields, "offset": 3})
    zeros = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"}
    assert (gone.code, gone.fields) == (208, zeros)


async def peek(scene: Scene) -> None:
    await _send(scene, b"0", b"1", b"2")
    fields = {"consumerGroup": "billing", "topic": "orders", "queueId": 1, "maxMsgNums": 2}
    for _ in range(2):  # looking takes nothing
        answer = await scene.ask(200052, fields)
        assert answer[:3] == (0, "FOUND", _times(0, 0, 0, 1))
        assert _bodies(answer) == [b"0", b"1"]
    nothing = await scene.ask(200052, {**fields, "queueId": 2})
    assert nothing == Answer(19, "NO_MESSAGE_IN_QUEUE", _times(0, 0))


async def notification(scene: Scene) -> None:
    await _send(scene, b"0")
    fields = {
        "consumerGroup": "billing", "topic": "orders", "queueId": 1, "pollTime": 5_000, "bornTime": NOW,
        "order": False, "attemptId": "", "expType": "TAG", "exp": "*",
    }  # fmt: skip
    yes, no = ({"hasMsg": text, "pollingFull": "false"} for text in ("true", "false"))
    assert await scene.ask(200054, fields) == Answer(fields=yes)
    other = {**fields, "queueId": 2}
    assert await scene.ask(200054, {**other, "pollTime": 0}) == Answer(fields=no)
    held = scene.peer.start(200054, other)
    await scene.peer.until(lambda: scene.broker.pops.notices.waiting("orders", "billing", 2))
    scene.clock.advance(5_000)
    assert await held == Answer(fields=no)
    held = scene.peer.start(200054, {**other, "bornTime": NOW + 5_000})
    await scene.peer.until(lambda: scene.broker.pops.notices.waiting("orders", "billing", 2))
    await _send(scene, b"new", queue=2)
    assert await held == Answer(fields=yes)
    # An ordered queue that is blocked has nothing, but for the attempt that blocks it.
    ordered = {"order": True, "attemptId": "a1", "bornTime": NOW + 5_000}
    assert (await scene.ask(200050, {**POP, **ordered})).code == 0
    for attempt, answer in (("a1", yes), ("a2", no)):
        asked = {**fields, **ordered, "pollTime": 0, "attemptId": attempt}
        assert await scene.ask(200054, asked) == Answer(fields=answer)
    # What comes is told of when it matches.
    held = scene.peer.start(200054, {**fields, "queueId": 3, "bornTime": NOW + 5_000, "exp": "red"})
    await scene.peer.until(lambda: scene.broker.pops.notices.waiting("orders", "billing", 3))
    await scene.send(queue=3, properties="TAGS\x01blue\x02")
    await scene.ask(200055, {"consumerGroup": "billing", "topic": "orders", "queueId": 3})
    assert scene.broker.pops.notices.waiting("orders", "billing", 3)
    await scene.send(queue=3, properties="TAGS\x01red\x02")
    assert await held == Answer(fields=yes)


async def polling_info(scene: Scene) -> None:
    await _send(scene, b"0", queue=0)
    where = {"consumerGroup": "billing", "topic": "orders", "queueId": 1}
    assert await scene.ask(200055, where) == Answer(fields={"pollingNum": "0"})
    held = [scene.peer.start(200050, {**POP, "pollTime": 5_000}) for _ in range(2)]
    await scene.peer.until(lambda: scene.broker.pops.parked.waiting("orders", "billing", 1) == 2)
    assert await scene.ask(200055, where) == Answer(fields={"pollingNum": "2"})
    assert await scene.ask(200055, {**where, "queueId": 2}) == Answer(fields={"pollingNum": "0"})
    assert (await scene.ask(200055, {**where, "queueId": 4})).code == 29
    scene.clock.advance(5_000)
    for answer in held:
        assert (await answer).code == 210


async def assignment(scene: Scene) -> None:
    await scene.send()
    for client in ("c1", "c2"):
        assert (await scene.ask(34, {}, heartbeat(client))).code == 0
    query = {
        "topic": "orders", "consumerGroup": "billing", "clientId": "c2", "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    }  # fmt: skip

    async def assigned(**change: str) -> object:
        answer = await scene.ask(400, {}, json.dumps({**query, **change}).encode())
        assert answer[:3] == (0, None, {})
        return answer.json

    def queues(mode: str, *numbers: int) -> object:
        return {
            "messageQueueAssignments": [
                {
                    "messageQueue": {"brokerName": "broker-a", "queueId": number, "topic": "orders"},
                    "mode": mode,
                }
                for number in numbers
            ]
        }

    assert await assigned() == queues("PULL", 2, 3)
    assert await assigned(messageModel="BROADCASTING") == queues("PULL", 0, 1, 2, 3)
    assert await assigned(topic="nowhere") == {}
    assert await assigned(strategyName="ODD") == {}
    mode = b'{"topic":"orders","consumerGroup":"billing","mode":"POP","popShareQueueNum":0}'
    assert await scene.ask(401, {}, mode) == DONE
    assert await assigned() == queues("POP", -1)


async def set_mode(scene: Scene) -> None:
    await scene.send()
    mode = {"topic": "orders", "consumerGroup": "billing", "mode": "POP", "popShareQueueNum": 3}

    async def put(**change: object) -> Answer:
        return await scene.ask(401, {}, json.dumps({**mode, **change}).encode())

    assert await put() == DONE
    (kept,) = scene.broker.pops.modes.all().message_request_mode_map["orders"].values()
    assert (kept.consumer_group, kept.mode.value, kept.pop_share_queue_num) == ("billing", "POP", 3)
    assert [(await put(**odd)).code for odd in ({"topic": "%RETRY%billing"}, {"topic": "no"}, {"mode": "PUSH"})] == [
        16, 17, 29,
    ]  # fmt: skip


async def get_modes(scene: Scene) -> None:
    await scene.send()
    mode = {"topic": "orders", "consumerGroup": "billing", "mode": "POP", "popShareQueueNum": 3}
    await scene.ask(401, {}, json.dumps(mode).encode())
    answer = await scene.ask(402)
    assert answer[:3] == (0, None, {})
    assert answer.json == {"messageRequestModeMap": {"orders": {"billing": mode}}}


async def figures(scene: Scene) -> None:
    await _send(scene, b"0", b"1", b"2")
    await scene.ask(200050, {**POP, "maxMsgNums": 1})
    scene.clock.advance(1_000)
    for name in ("group", "consumerGroup"):
        answer = await scene.ask(20001, {name: "billing", "topic": "orders"})
        assert answer[:3] == (0, None, {})
        told = answer.json
        (queue,) = [each for each in told.pop("queues") if each["topic"] == "orders" and each["queueId"] == 1]
        assert told == {
            "group": "billing", "online": False, "modes": {"orders": "PULL"}, "ready": 2, "inFlight": 1,
            "retrying": 0, "delayed": 0, "dead": 0, "oldestMs": 1_000, "delayedIsExact": True,
            "conflicts": {}, "exact": True,
        }  # fmt: skip
        assert queue == {
            "topic": "orders", "brokerName": "broker-a", "queueId": 1, "minOffset": 0, "maxOffset": 3, "committed": 0,
            "position": 1, "ready": 2, "inFlight": 1, "oldestReadyMs": 1_000, "oldestInFlightMs": 1_000,
            "behindBytes": queue["behindBytes"], "behindMs": 0,
        }  # fmt: skip
    assert (await scene.ask(20001, {})).code == 29


async def message_state(scene: Scene) -> None:
    await _send(scene, b"0", b"1")
    await scene.ask(200050, {**POP, "maxMsgNums": 1, "queueId": 1})
    place = {"consumerGroup": "billing", "topic": "orders", "queueId": 1}
    answer = await scene.ask(20006, {**place, "offset": 0})
    assert answer[:3] == (0, None, {})
    leased = {
        "group": "billing",
        "place": "leased",
        "leasedUntil": NOW + 60_000,
        "poppedAt": NOW,
        "reason": "",
    }
    assert answer.json == leased
    waiting = {**leased, "place": "waiting", "leasedUntil": 0, "poppedAt": 0}
    assert (await scene.ask(20006, {**place, "offset": 1})).json == waiting
    for odd, code in (({"offset": 2}, 208), ({"queueId": 99}, 29), ({"topic": "nowhere"}, 17)):
        assert (await scene.ask(20006, {**place, "offset": 0, **odd})).code == code


async def export_records(scene: Scene) -> None:
    await _send(scene, b"0")
    await scene.ask(200050, POP)
    assert await scene.ask(200056) == DONE
    (written,) = [
        record for queue in range(8) for record in scene.stored("rmq_sys_REVIVE_LOG_DefaultCluster", queue)
    ]
    told = json.loads(written.body)
    assert (told["t"], told["c"], told["q"], told["so"], told["n"]) == ("orders", "billing", 1, 0, 1)
    assert (told["pt"], told["it"], told["bn"]) == (NOW, 60_000, "broker-a")


EXCHANGES = {
    200050: pop,
    200051: ack,
    200151: batch_ack,
    200053: change_invisible,
    200052: peek,
    200054: notification,
    200055: polling_info,
    200056: export_records,
    400: assignment,
    401: set_mode,
    402: get_modes,
    20001: figures,
    20006: message_state,
}
