# SPDX-License-Identifier: Apache-2.0
"""Brokers as a whole: runtime figures and settings."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.client.admin.asking import TIMEOUT_MS
from aerobee.errors import NoPermission, NoRoute, TopicNotFound
from aerobee.protocol import bodies, names
from aerobee.protocol.headers.cluster import (
    BrokerConfigResult,
    BrokerRuntime,
    BrokerStats,
    GetBrokerConfig,
    UpdateBrokerConfig,
)
from aerobee.protocol.headers.route import AddWritePerm, WipeWritePerm

if TYPE_CHECKING:
    from aerobee.client.admin.asking import Asking

USUAL_QUEUES = 8  # where no broker tells its own


class Brokers:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._session = asking.session

    async def broker_runtime(self, address: str) -> dict[str, str]:
        """Figures of one broker, as RocketMQ names them."""
        answer = await self._session.call(address, BrokerRuntime(), timeout_ms=TIMEOUT_MS)
        return bodies.decode(answer.body, bodies.KVTable).table

    async def broker_config(self, address: str) -> dict[str, str]:
        answer = await self._session.call(address, GetBrokerConfig(), timeout_ms=TIMEOUT_MS)
        return parse_lines(answer.body.decode())

    async def default_queues(self, cluster: str | None = None) -> int:
        """By a broker's settings; by the topic it makes others after, where this account may not see those."""
        masters = await self._asking.masters(cluster)
        with suppress(NoPermission, KeyError):
            return int((await self.broker_config(next(iter(masters.values()))))["defaultTopicQueueNums"])
        with suppress(NoRoute, TopicNotFound):
            route = (await self._session.refresh_route(names.DEFAULT_TOPIC)).route
            told = (each.write_queue_nums for each in route.queue_datas if each.broker_name in masters)
            return next(told, USUAL_QUEUES)
        return USUAL_QUEUES

    async def live_settings(self, address: str) -> frozenset[str]:
        answer = await self._session.call(address, GetBrokerConfig(), timeout_ms=TIMEOUT_MS)
        return frozenset(filter(None, (answer.fields(BrokerConfigResult).changed or "").split(",")))

    async def update_broker_config(self, address: str, settings: dict[str, str]) -> None:
        body = "".join(f"{name}={value}\n" for name, value in settings.items()).encode()
        await self._session.call(address, UpdateBrokerConfig(), body, timeout_ms=TIMEOUT_MS)

    async def broker_stats(self, address: str, name: str, key: str) -> bodies.BrokerStatsData:
        """One counter, by minute, hour and day: `TOPIC_PUT_NUMS` of a topic, `GROUP_GET_NUMS` of `topic@group`..."""
        header = BrokerStats(stats_name=name, stats_key=key)
        answer = await self._session.call(address, header, timeout_ms=TIMEOUT_MS)
        return bodies.decode(answer.body, bodies.BrokerStatsData)

    async def forbid_writes(self, broker_name: str) -> None:
        """Take a broker out of the routes of producers; consumers go on."""
        await self._session.ask_name_server(WipeWritePerm(broker_name=broker_name))

    async def allow_writes(self, broker_name: str) -> None:
        await self._session.ask_name_server(AddWritePerm(broker_name=broker_name))


def parse_lines(text: str) -> dict[str, str]:
    """`name=value` lines of a property file."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}
