# SPDX-License-Identifier: Apache-2.0
"""Aerobee's gRPC port with nothing behind it: what a client reaches when the server costs as little as it can here.

`python -m benchmarks.grpc_floor DATA MESSAGES SIZE` prints the ready line of `aerobee serve` and runs until it is ended.

HTTP/2, TLS and the port are Aerobee's; so are routes, assignments, heartbeats and settings. But a send is answered by a
constant, a receive by as many ready-made messages as it asks for (up to MESSAGES a topic), an ack by a constant: nothing
is parsed beyond a topic's name, checked, stored, leased or looked up. `grpc_peers.py` puts its rate beside the broker's.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import uvloop

from aerobee import BrokerConfig, Server, StoreConfig
from aerobee.fronts.grpc.exchange import Method
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.service import NAME
from aerobee.fronts.grpc.status import OK

if TYPE_CHECKING:
    from aerobee.fronts.grpc.exchange import Exchange
    from aerobee.fronts.grpc.service import Service

SENT = pb.SendMessageResponse(
    status=OK, entries=[pb.SendResultEntry(status=OK, message_id="01" + "0" * 32, offset=0)]
).SerializeToString()
ACKED = pb.AckMessageResponse(
    status=OK, entries=[pb.AckMessageResultEntry(status=OK, message_id="01" + "0" * 32)]
).SerializeToString()
STATUS = pb.ReceiveMessageResponse(status=OK).SerializeToString()
DELIVERED_AT = pb.ReceiveMessageResponse(
    delivery_timestamp={"seconds": 1_700_000_000}
).SerializeToString()  # Python's client fails without it


class ReadyMade:
    """Messages of a topic, as many as there are said to be, written before they are asked for."""

    def __init__(self, messages: int, size: int) -> None:
        self._body = b"x" * size
        self._left: dict[str, int] = defaultdict(lambda: messages)
        self._made: dict[str, bytes] = {}

    def answers_to(self, request: bytes) -> list[bytes]:
        """To one receive; none when all are taken."""
        asked = pb.ReceiveMessageRequest.FromString(request)
        topic = asked.message_queue.topic.name
        count = min(asked.batch_size, self._left[topic])
        self._left[topic] -= count
        return [STATUS, *[self._message(topic)] * count, DELIVERED_AT] if count else []

    def _message(self, topic: str) -> bytes:
        made = self._made.get(topic)
        if made is None:
            message = pb.Message(body=self._body)
            message.topic.name = topic
            system = message.system_properties
            system.message_id, system.receipt_handle = "01" + "0" * 32, "receipt"
            system.message_type, system.body_encoding = pb.NORMAL, pb.IDENTITY
            system.body_digest.type = pb.MD5
            system.body_digest.checksum = hashlib.md5(self._body, usedforsecurity=False).hexdigest().upper()
            system.born_host = system.store_host = "127.0.0.1:10911"
            system.born_timestamp.seconds = system.store_timestamp.seconds = 1_700_000_000
            system.delivery_attempt = 1
            made = self._made[topic] = pb.ReceiveMessageResponse(message=message).SerializeToString()
        return made


class Constants:
    def __init__(self, service: Service, ready: ReadyMade) -> None:
        self._hold = service.method(f"/{NAME}/ReceiveMessage").heard
        self._ready = ready
        heard = {"SendMessage": self.sent, "AckMessage": self.acked, "ReceiveMessage": self.received}
        service._methods |= {f"/{NAME}/{name}": Method(each) for name, each in heard.items()}

    def sent(self, exchange: Exchange, data: bytes) -> None:
        exchange.answer(SENT)

    def acked(self, exchange: Exchange, data: bytes) -> None:
        exchange.answer(ACKED)

    def received(self, exchange: Exchange, data: bytes) -> None:
        answers = self._ready.answers_to(data)
        if not answers:
            self._hold(exchange, data)  # the broker knows of no message, and lets it wait
            return
        for answer in answers:
            exchange.write(answer)
        exchange.finish()


def broker_behind(data: str) -> Server:
    roomy = StoreConfig(disk_clean_ratio=1.0, disk_full_ratio=1.0)
    return Server(
        data, namesrv_port=0, broker_port=0, grpc_port=0, config=BrokerConfig(host="127.0.0.1"), store=roomy
    )


async def ready_until_ended(server: Server, grpc_address: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(
        f"aerobee ready namesrv={server.namesrv} broker={server.broker_address} grpc={grpc_address}",
        flush=True,
    )
    await stop.wait()


async def main(data: str, messages: int, size: int) -> None:
    async with broker_behind(data) as server:
        Constants(server._grpc.service, ReadyMade(messages, size))  # type: ignore[union-attr]
        await ready_until_ended(server, server.grpc_address)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
