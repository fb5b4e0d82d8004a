# SPDX-License-Identifier: Apache-2.0
"""What the broker counts, as a tool reads it: exactly as much as went through, by topic and by group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.wire.peer import JSON
from tests.wire.popping import POP
from tests.wire.scene import DONE, NOW, scene

if TYPE_CHECKING:
    from tests.wire.scene import Scene


async def last_minute(at: Scene, name: str, key: str) -> dict[str, float]:
    answer = await at.ask(315, {"statsName": name, "statsKey": key})
    assert answer.code == 0, (name, answer.remark)
    told: dict[str, float] = answer.json["statsMinute"]
    return told


@pytest.mark.seed("S000-61", "S000-79")
@pytest.mark.parametrize("ordered", [False, True])
async def test_messages_and_bytes_are_counted_once_each_way(ordered: bool) -> None:
    async with scene(JSON) as here:
        for body in (b"a" * 5_000, b"b", b"c", b"d"):
            await here.send(body=body, queue=1)
        sizes = [record.size for record in here.stored("orders", 1)]
        popped = await here.ask(200050, {**POP, "maxMsgNums": 2, "order": ordered})
        assert popped.fields["msgOffsetInfo"] == "0 1 0,1"
        handle = f"0 {NOW} 60000 {popped.fields['reviveQid']} 0 broker-a 1 0"
        fields = {
            "consumerGroup": "billing",
            "topic": "orders",
            "queueId": 1,
            "extraInfo": handle,
            "offset": 0,
        }
        assert await here.ask(200051, fields) == DONE
        assert await here.ask(200051, fields) == DONE  # counted once
        place = here.stored("orders", 1)[2].physical_offset
        assert await here.ask(36, {"offset": place, "group": "billing", "delayLevel": 1}) == DONE
        here.clock.advance(10_000)
        await here.peer.until(lambda: here.stored("%RETRY%billing"))
        key = "orders@billing"
        sums = {
            name: (await last_minute(here, name, of))["sum"]
            for name, of in {
                "TOPIC_PUT_NUMS": "orders", "TOPIC_PUT_SIZE": "orders", "GROUP_GET_NUMS": key,
                "GROUP_GET_SIZE": key, "GROUP_CK_NUMS": key, "GROUP_ACK_NUMS": key, "SNDBCK_PUT_NUMS": key,
            }.items()
        }  # fmt: skip
        assert sums == {
            "TOPIC_PUT_NUMS": 4, "TOPIC_PUT_SIZE": sum(sizes), "GROUP_GET_NUMS": 2, "GROUP_GET_SIZE": sum(sizes[:2]),
            "GROUP_CK_NUMS": 2, "GROUP_ACK_NUMS": 1, "SNDBCK_PUT_NUMS": 1,
        }  # fmt: skip
