# SPDX-License-Identifier: Apache-2.0
"""A server that checks who asks, and peers that sign: each port as it is on the wire, gRPC without its socket."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aerobee.broker.access.policies import Entry, Policy
from aerobee.broker.access.users import User
from aerobee.clock import ManualClock
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.service import NAME, Service
from aerobee.net.connection import Reply
from aerobee.net.pool import Pool
from aerobee.protocol.access import Action, Decision, PolicyType, Resource, UserType
from aerobee.protocol.accounts import Credentials, grpc_signature, sign
from aerobee.protocol.command import Command, Header, request
from aerobee.server import Server
from aerobee.settings import BrokerConfig, StoreConfig
from tests.grpc_line import Line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

ROOT = Credentials("root", "root-secret")
ANN = Credentials("ann", "ann-secret")
NOBODY = Credentials()
SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 24, consume_queue_units=1000, index_slots=1000, index_entries=4000
)
DATE = "20240102T030405Z"


def authorization(account: Credentials, date: str = DATE) -> dict[str, str]:
    signed = grpc_signature(account.secret_key, date).hex()
    text = f"MQv2-HMAC-SHA1 Credential={account.access_key}, SignedHeaders=x-mq-date-time, Signature={signed}"
    return {"authorization": text, "x-mq-date-time": date}


class Ports:
    def __init__(self, server: Server) -> None:
        self.server = server
        self._pool = Pool(lambda connection, command: Reply())
        self.service = Service(server.broker)
        self._line = Line(self.service.method)

    # -- remoting ----------------------------------------------------------------------------------------------

    async def send(self, command: Command, address: str = "") -> Command:
        """As it is: the caller has signed it, or not."""
        return await (await self._pool.get(address or self.server.broker_address)).call(command, 10_000)

    async def ask(self, who: Credentials, header: Header, body: bytes = b"") -> Command:
        return await self.send(sign(request(header, body), who))

    async def ask_vip(self, who: Credentials, header: Header, body: bytes = b"") -> Command:
        return await self.send(sign(request(header, body), who), self.server._listeners[1].address)

    async def ask_namesrv(self, who: Credentials, header: Header, body: bytes = b"") -> Command:
        return await self.send(sign(request(header, body), who), self.server.namesrv)

    # -- gRPC ----------------------------------------------------------------------------------------------------

    async def call(self, who: Credentials, name: str, message: Any, **said: str) -> Any:
        (answer,) = await self.stream(who, name, message, **said)
        return answer

    async def stream(self, who: Credentials, name: str, message: Any, **said: str) -> list[Any]:
        answers = await self._ask(who, name, [message], said)
        return [getattr(pb, f"{name}Response").FromString(each) for each in answers]

    async def telemetry(self, who: Credentials, *commands: Any, **said: str) -> list[Any]:
        return [
            pb.TelemetryCommand.FromString(each) for each in await self._ask(who, "Telemetry", commands, said)
        ]

    async def _ask(
        self, who: Credentials, name: str, messages: Sequence[Any], said: dict[str, str]
    ) -> list[bytes]:
        data = [each.SerializeToString() for each in messages]
        return await self._line.ask(f"/{NAME}/{name}", *data, **self._saying(who, said))

    def _saying(self, who: Credentials, said: dict[str, str]) -> dict[str, str]:
        names = {name.replace("_", "-"): value for name, value in said.items()}
        return {"x-mq-client-id": "c", **(authorization(who) if who.access_key else {}), **names}

    # -- users -----------------------------------------------------------------------------------------------------

    def add(self, who: Credentials, kind: UserType = UserType.NORMAL) -> None:
        self.server.broker.access.put_user(
            User(username=who.access_key, password=who.secret_key, user_type=kind)
        )

    def grant(self, *texts: str, who: Credentials = ANN) -> None:
        """`Topic:orders Pub,Sub`, and `Deny Topic:orders Pub`: all that the user may."""
        entries = []
        for words in map(str.split, texts):
            decision = Decision(words.pop(0)) if words[0] in ("Allow", "Deny") else Decision.ALLOW
            actions = tuple(Action(each) for each in words[1].split(","))
            entries.append(Entry(Resource.parse(words[0]), actions, decision))
        self.server.broker.access.put_policy(who.access_key, Policy().merged(PolicyType.CUSTOM, entries))

    async def close(self) -> None:
        await self._line.close()
        await self._pool.close()


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Ports]:
    wanted: dict[str, Any] = {"authentication": True, "authorization": True, "vip_port": 0, **settings}
    wanted.setdefault("init_user", f'{{"username":"{ROOT.access_key}","password":"{ROOT.secret_key}"}}')
    config = BrokerConfig(**wanted)
    async with Server(ephemeral=True, clock=ManualClock(), config=config, store=SMALL) as server:
        ports = Ports(server)
        ports.add(ANN)
        yield ports
        await ports.close()
