# SPDX-License-Identifier: Apache-2.0
"""A server that checks who asks, and peers that sign."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aerobee.broker.access.users import User
from aerobee.clock import ManualClock
from aerobee.protocol.access import Action, Decision, PolicyType, Resource, UserType
from aerobee.protocol.accounts import Credentials, grpc_signature, sign
from aerobee.protocol.command import Command, Header, request
from aerobee.protocol.policies import Entry, Policy
from aerobee.server import Server
from aerobee.settings import BrokerConfig, StoreConfig
from tests.ports import Wires

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

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


class Ports(Wires):
    # -- remoting ----------------------------------------------------------------------------------------------

    async def send(self, command: Command, address: str = "") -> Command:
        """As it is: the caller has signed it, or not."""
        return await self.exchange(command, address)

    async def ask(self, who: Credentials, header: Header, body: bytes = b"", address: str = "") -> Command:
        return await self.exchange(sign(request(header, body), who), address)

    async def ask_vip(self, who: Credentials, header: Header, body: bytes = b"") -> Command:
        return await self.ask(who, header, body, self.vip_address)

    async def ask_namesrv(self, who: Credentials, header: Header, body: bytes = b"") -> Command:
        return await self.ask(who, header, body, self.server.namesrv)

    # -- gRPC ----------------------------------------------------------------------------------------------------

    async def call(self, who: Credentials, name: str, message: Any, **said: str) -> Any:
        return await self.unary(name, message, _saying(who, said))

    async def stream(self, who: Credentials, name: str, message: Any, **said: str) -> list[Any]:
        return await self.answers(name, message, _saying(who, said))

    async def telemetry(self, who: Credentials, *commands: Any, **said: str) -> list[Any]:
        return await self.told(commands, _saying(who, said))

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


def _saying(who: Credentials, said: dict[str, str]) -> dict[str, str]:
    names = {name.replace("_", "-"): value for name, value in said.items()}
    return {**(authorization(who) if who.access_key else {}), **names}


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
