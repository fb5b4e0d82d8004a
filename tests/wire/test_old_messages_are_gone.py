# SPDX-License-Identifier: Apache-2.0
"""A queue that no longer begins at 0: what its smallest offset is to readers, in every field that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.protocol import message
from tests.wire.messages import PULL
from tests.wire.peer import BINARY, JSON, Answer
from tests.wire.popping import POP
from tests.wire.scene import DONE, NOW, scene

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.wire.scene import Scene

HOURS = 73
LATER = NOW + HOURS * 3_600_000


@pytest.fixture(params=[JSON, BINARY], ids=["json", "binary"])
async def here(request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """Six messages in each of two queues, of which a deleted log file took the first three."""
    async with scene(request.param) as made:
        for number in range(6):
            if number == 3:
                await made.send(topic="filler", body=b"x" * 900_000)
            for queue in (0, 1):
                await made.send(body=b"%d" % number, queue=queue)
            if number == 2:
                await made.send(topic="filler", body=b"x" * 900_000)
        made.clock.advance(hours=HOURS)
        await made.send(topic="filler", body=b"x" * 900_000)
        assert await made.ask(329) == DONE
        yield made


async def test_pulls_tell_the_smallest_and_the_largest_offset(here: Scene) -> None:
    ends = {"minOffset": "3", "maxOffset": "6", "suggestWhichBrokerId": "0"}
    found = await here.ask(11, {**PULL, "queueOffset": 4})
    assert found[:3] == (0, "FOUND", {"nextBeginOffset": "5", **ends})
    gone = await here.ask(11, {**PULL, "queueOffset": 1})
    assert gone == Answer(21, "OFFSET_TOO_SMALL", {"nextBeginOffset": "3", **ends})
    assert await here.ask(31, {"topic": "orders", "queueId": 0}) == Answer(fields={"offset": "3"})
    assert await here.ask(30, {"topic": "orders", "queueId": 0}) == Answer(fields={"offset": "6"})


@pytest.mark.parametrize(
    ("mode", "first", "bodies"), [(0, 3, [b"3", b"4"]), (1, 5, [b"5"])], ids=["MIN", "MAX"]
)
async def test_a_new_group_pops_from_the_oldest_or_from_the_newest(
    here: Scene, mode: int, first: int, bodies: list[bytes]
) -> None:
    answer = await here.ask(200050, {**POP, "initMode": mode, "bornTime": LATER})
    assert (answer.code, answer.fields["startOffsetInfo"]) == (0, f"0 1 {first}")
    assert [record.body for record in message.decode_all(answer.body)] == bodies


async def test_tools_are_told_the_smallest_offset(here: Scene) -> None:
    stats = await here.ask(202, {"topic": "orders"})
    queue = '{"brokerName":"broker-a","queueId":0,"topic":"orders"}'
    entry = f'{queue}:{{"lastUpdateTimestamp":{NOW},"maxOffset":6,"minOffset":3}}'
    assert entry in stats.body.decode()
    view = await here.ask(321, {"topic": "orders", "queueId": 0, "index": 3, "count": 1})
    assert (view.json["minQueueIndex"], view.json["maxQueueIndex"]) == (3, 6)
    assert (await here.ask(11, {**PULL, "queueOffset": 4})).code == 0  # the group is known from here on
    figures = (await here.ask(20001, {"group": "billing", "topic": "orders"})).json
    assert [(each["minOffset"], each["maxOffset"]) for each in figures["queues"][:2]] == [(3, 6), (3, 6)]
