# SPDX-License-Identifier: Apache-2.0
"""Random and mutated requests against a name server's handlers: always an answer or a closed connection."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.clock import ManualClock
from aerobee.namesrv.handlers import ROUTES
from aerobee.namesrv.name_server import NameServer
from aerobee.net.connection import Connection
from aerobee.protocol import command as wire
from aerobee.protocol.bodies import (
    RegisterBrokerBody,
    TopicConfig,
    compress_registration,
    encode_registration,
)
from aerobee.protocol.command import Command
from aerobee.protocol.frames import FrameDecoder
from aerobee.settings import NamesrvConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = int(os.environ.get("AEROBEE_FUZZ", "3000"))
NAMES = [
    "brokerName",
    "brokerAddr",
    "clusterName",
    "brokerId",
    "topic",
    "namespace",
    "key",
    "value",
    "cluster",
]


class Wire(asyncio.Transport):
    """A peer that only listens."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


def requests(chance: random.Random) -> Iterator[bytes]:
    registration = RegisterBrokerBody()
    table = registration.topic_config_serialize_wrapper.topic_config_table
    table.update({name: TopicConfig(topic_name=name) for name in ("t", "u")})
    bodies = [
        b"",
        encode_registration(registration),
        compress_registration(registration, 479),
        b'{"queueDatas":[{"brokerName":"a"}]}',
        b"key=value\nbrokerExpiryMs=1",
    ]
    values = ["", "a", "0", "-1", "true", "é" * 40, str(1 << 70), "C", "a:1"]
    while True:
        ext = {name: chance.choice(values) for name in chance.sample(NAMES, chance.randrange(len(NAMES)))}
        if chance.random() < 0.3:
            ext["compressed"] = "true"
        body = bytearray(chance.choice(bodies))
        for _ in range(chance.choice([0, 0, 1, 5])):
            if body:
                body[chance.randrange(len(body))] = chance.randrange(256)
        command = Command(
            chance.choice([*ROUTES, chance.randrange(1 << 16)]),
            chance.randrange(1 << 31),
            chance.choice([0, 0, 0, 1, 2, 3]),
            chance.choice([0, 36, 121, 400, 479]),
            ext=ext,
            body=bytes(body),
            serialize=chance.choice([0, 0, 1]),
        )
        if command.serialize and command.code > 32767:
            continue
        frame = bytearray(wire.encode(command))
        for _ in range(chance.choice([0, 0, 0, 1, 3])):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        yield bytes(frame)


@pytest.mark.slow
async def test_whatever_is_sent_the_name_server_answers_or_closes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "aerobee")
    server = NameServer(NamesrvConfig(), ManualClock())
    link, peer = Connection(server._path.handle), Wire()
    link.connection_made(peer)
    for number, frame in enumerate(requests(random.Random(11))):
        if number == ROUNDS:
            break
        link.data_received(frame)
        if peer.is_closed or link._frames.pending_bytes:
            link, peer = Connection(server._path.handle), Wire()
            link.connection_made(peer)
        for answer in FrameDecoder().feed(bytes(peer.sent)):
            assert wire.decode(answer).is_response
        peer.sent.clear()
    assert [record.getMessage() for record in caplog.records] == []
