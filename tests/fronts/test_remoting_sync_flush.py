# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from typing import Any

from aerobee.errors import DiskFull
from aerobee.net.pool import Pool
from aerobee.protocol import batch
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import request
from aerobee.protocol.headers import produce
from aerobee.server import OFF, Server
from aerobee.settings import StoreConfig

SYNC = StoreConfig(flush="sync", commit_log_segment_bytes=1 << 24, index_slots=1000, index_entries=4000)


async def test_reply_waits_until_the_message_is_on_disk_unless_the_producer_does_not(
    monkeypatch: Any,
) -> None:
    async with Server(ephemeral=True, namesrv_port=OFF, store=SYNC) as server:
        waited: list[int] = []
        durable = server.broker.store.durable

        async def note(end: int, calls: int = 1) -> None:
            await durable(end, calls)
            waited.append(end)

        monkeypatch.setattr(server.broker.store, "durable", note)
        pool = Pool()
        broker = await pool.get(server.broker_address)

        async def send(header: Any, body: bytes) -> int:
            answer = await broker.call(request(header, body))
            assert answer.code == 0, answer.remark
            return len(waited)

        plain = produce.SendMessageV2(topic="orders", queue_id=0)
        assert await send(plain, b"safe") == 1
        assert waited == [server.broker.store.log_max]
        careless = produce.SendMessageV2(topic="orders", queue_id=0, properties="WAIT\x01false\x02")
        assert await send(careless, b"fast") == 1
        items = batch.encode([BatchItem(0, b"a"), BatchItem(0, b"b")])
        assert await send(produce.SendBatch(topic="orders", queue_id=0, batch=True), items) == 2
        assert await send(produce.SendBack(offset=0, group="billing"), b"") == 3
        broker.send(request(plain, b"one way"))
        assert await send(plain, b"last") >= 4
        await pool.close()


async def test_what_the_disk_did_not_keep_is_refused_to_each_who_waits(monkeypatch: Any) -> None:
    async with Server(ephemeral=True, namesrv_port=OFF, store=SYNC) as server:
        pool = Pool()
        broker = await pool.get(server.broker_address)
        plain = produce.SendMessageV2(topic="orders", queue_id=0)
        assert (await broker.call(request(plain, b"safe"))).code == 0

        async def refused(end: int, calls: int = 1) -> None:
            raise DiskFull("no space left")

        monkeypatch.setattr(server.broker.store, "durable", refused)
        waiting = [broker.start_call(request(plain, b"a")), broker.start_call(request(plain, b"b"))]
        broker.send(request(plain, b"one way"))
        waiting.append(broker.start_call(request(plain, b"c")))
        for answer in await asyncio.gather(*waiting):
            assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "no space left")
            assert answer.ext_dict()["MSG_REGION"] == "DefaultRegion"
        monkeypatch.undo()
        assert (await broker.call(request(plain, b"safe again"))).code == 0
        await pool.close()
