# SPDX-License-Identifier: Apache-2.0
"""What every part of the admin client is built on: asking one broker, or all of a topic or cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from aerobee.errors import AerobeeError, NoRoute, PartlyDone, RequestCodeNotSupported
from aerobee.protocol import bodies
from aerobee.protocol.headers.route import GetClusterInfo, GetGoneBrokers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.client.session.session import Session


T = TypeVar("T")
TIMEOUT_MS = 6_000


class Asking:
    def __init__(self, session: Session) -> None:
        self.session = session

    async def cluster(self) -> bodies.ClusterInfo:
        """Clusters, their brokers and addresses."""
        answer = await self.session.ask_name_server(GetClusterInfo())
        return bodies.decode(answer.body, bodies.ClusterInfo)

    async def gone_brokers(self) -> list[bodies.GoneBroker]:
        """Those that the name server in use misses."""
        try:
            answer = await self.session.ask_name_server(GetGoneBrokers())
        except RequestCodeNotSupported:
            return []
        return bodies.decode(answer.body, bodies.GoneBrokers).gone_brokers

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Master address by broker name, of one cluster or all."""
        info = await self.cluster()
        if cluster is not None and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise NoRoute(f"cluster {cluster!r} is unknown to the name servers; there are: {known}")
        names = None if cluster is None else set(info.cluster_addr_table[cluster])
        found = {
            name: data.master
            for name, data in info.broker_addr_table.items()
            if data.master and (names is None or name in names)
        }
        if not found:
            raise NoRoute(f"the name servers {self.session.namesrv} know no broker")
        return found

    async def masters_of(self, topic: str) -> dict[str, str]:
        route = (await self.session.refresh_route(topic)).route
        return {data.broker_name: data.master for data in route.broker_datas if data.master}

    async def each(self, addresses: dict[str, str], ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        """The same question to several brokers at once; the first refusal is raised."""
        answers = await asyncio.gather(*(ask(address) for address in addresses.values()))
        return dict(zip(addresses, answers, strict=True))

    async def change(
        self, what: str, addresses: dict[str, str], ask: Callable[[str], Awaitable[None]]
    ) -> None:
        """The same change on several brokers at once, tried on each. `what` says it when it is done: PartlyDone tells
        where it was, and where not; what fails everywhere is raised as the first broker says it."""
        answers = await asyncio.gather(*(ask(each) for each in addresses.values()), return_exceptions=True)
        failures: dict[str, AerobeeError] = {}
        for name, answer in zip(addresses, answers, strict=True):
            if isinstance(answer, AerobeeError):
                failures[name] = answer
            elif answer is not None:
                raise answer
        if len(failures) == len(addresses):
            raise next(iter(failures.values()))
        if failures:
            raise PartlyDone(what, [name for name in addresses if name not in failures], failures)
