# SPDX-License-Identifier: Apache-2.0
"""A name server and broker in one port, whose faults are scripted by message: for what a real one does rarely."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from enum import Enum
from typing import TYPE_CHECKING

from aerobee.net.connection import Answer, Connection, Reply
from aerobee.protocol import batch, bodies, names
from aerobee.protocol import properties as props
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.produce import SendMessageV2, SendResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee.protocol.command import Command

QUEUES = 3
ILLEGAL, BUSY, FLUSH_TIMEOUT = 13, 2, 10


class Fault(Enum):
    """What happens to a request that holds the message."""

    ILLEGAL = "refused, always"
    BUSY_ONCE = "refused once by itself, and in any batch before"
    BUSY = "refused, always, in a way worth another try"
    CUT_BEFORE = "the connection is cut, once; nothing is stored"
    CUT_AFTER = "the connection is cut, once; all is stored"
    SILENT = "all is stored, and nobody is told"


class ScriptedBroker:
    def __init__(self, faults: dict[str, Fault]) -> None:
        self.faults = faults
        self.stored: dict[int, list[str]] = defaultdict(list)  # message ids by queue
        self.frames: Counter[int] = Counter()  # sends by code
        self.status = 0
        self.silenced: set[str] = set()  # messages of requests that are never answered
        self.traces: list[str] = []  # bodies that went to the trace topic
        self._spent: set[str] = set()
        self.address = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self._asked), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        async with server:
            yield self.address

    def _asked(self, connection: Connection, command: Command) -> Answer:
        if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return Reply(body=bodies.encode(self._route()))
        if (
            command.code == RequestCode.SEND_MESSAGE_V2
            and command.fields(SendMessageV2).topic == names.TRACE_TOPIC
        ):
            self.traces.append(command.body.decode())
            return Reply(0, SendResult(msg_id="0" * 32, queue_id=0, queue_offset=0))
        if command.code == RequestCode.SEND_MESSAGE_V2:
            return self._sent(connection, command, [_id(command.fields(SendMessageV2).properties or "")])
        if command.code == RequestCode.SEND_BATCH_MESSAGE:
            return self._sent(
                connection, command, [_id(i.properties_text) for i in batch.decode(command.body)]
            )
        return Reply()

    def _sent(self, connection: Connection, command: Command, ids: list[str]) -> Answer:
        self.frames[command.code] += 1
        for one in ids:
            fault = self.faults.get(one)
            if fault is Fault.ILLEGAL:
                return Reply(ILLEGAL, remark="scripted")
            if fault is Fault.BUSY or (fault is Fault.BUSY_ONCE and one not in self._spent):
                if len(ids) == 1:
                    self._spent.add(one)
                return Reply(BUSY, remark="scripted")
        cutting = [one for one in ids if one not in self._spent and self.faults.get(one) in CUTS]
        self._spent.update(cutting)
        if any(self.faults[one] is Fault.CUT_BEFORE for one in cutting):
            connection.abort()
            return None
        queue_id = command.fields(SendMessageV2).queue_id
        queue = self.stored[queue_id]
        first = len(queue)
        queue += ids
        if cutting:
            connection.abort()
            return None
        if any(self.faults.get(one) is Fault.SILENT for one in ids):
            self.silenced.update(ids)
            return None
        places = ",".join(f"{queue_id:016X}{first + n:016X}" for n in range(len(ids)))
        return Reply(self.status, SendResult(msg_id=places, queue_id=queue_id, queue_offset=first))

    def _route(self) -> bodies.TopicRoute:
        broker = bodies.BrokerData(broker_name="b", cluster="c", broker_addrs={0: self.address})
        queues = bodies.QueueData(broker_name="b", perm=6, read_queue_nums=QUEUES, write_queue_nums=QUEUES)
        return bodies.TopicRoute(broker_datas=[broker], queue_datas=[queues])


CUTS = (Fault.CUT_BEFORE, Fault.CUT_AFTER)


def _id(properties: str) -> str:
    return props.get(properties, props.UNIQ_KEY) or ""
