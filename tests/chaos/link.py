# SPDX-License-Identifier: Apache-2.0
"""Requests to one broker and its name server, one connection each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.net.pool import Pool
from aerobee.protocol.command import request
from aerobee.protocol.headers.consume import PullMessage, PullResult
from aerobee.protocol.message import Record, decode_all

if TYPE_CHECKING:
    from aerobee.protocol.command import Command, Header

TIMEOUT_MS = 30_000
SUBSCRIPTION = 4  # sys flag: the pull brings its own filter
BULK = 4_000


class Address(NamedTuple):
    namesrv: str
    broker: str


class Link:
    def __init__(self, address: Address) -> None:
        self._pool = Pool()
        self._address = address

    async def ask(self, header: Header, body: bytes = b"") -> Command:
        broker = await self._pool.get(self._address.broker)
        return await broker.call(request(header, body), TIMEOUT_MS)

    async def ask_names(self, header: Header) -> Command:
        namesrv = await self._pool.get(self._address.namesrv)
        return await namesrv.call(request(header), TIMEOUT_MS)

    async def close(self) -> None:
        await self._pool.close()

    async def read_queue(self, topic: str, queue_id: int) -> list[Record]:
        """Every message of a queue; none of a queue that does not exist."""
        found: list[Record] = []
        offset = 0
        while True:
            header = PullMessage(
                consumer_group="reader", topic=topic, queue_id=queue_id, queue_offset=offset,
                sys_flag=SUBSCRIPTION, max_msg_nums=BULK,
            )  # fmt: skip
            answer = await self.ask(header)
            if answer.code not in (0, 19, 20, 21):
                return found
            found += decode_all(answer.body)
            result = answer.fields(PullResult)
            if offset >= result.max_offset or result.next_begin_offset <= offset:
                return found
            offset = result.next_begin_offset
