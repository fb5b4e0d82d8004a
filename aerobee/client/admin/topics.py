# SPDX-License-Identifier: Apache-2.0
"""Topics: list, look at, create, change, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.admin.asking import TIMEOUT_MS
from aerobee.errors import AerobeeError, NoRoute, PartlyDone, TopicNotFound
from aerobee.protocol import bodies, names
from aerobee.protocol.headers.route import AllTopics, DeleteTopicRoute
from aerobee.protocol.headers.topics import (
    CreateTopic,
    DeleteTopic,
    GetTopicConfig,
    TopicGroups,
    TopicStatsQuery,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from aerobee.client.admin.asking import Asking
    from aerobee.protocol.bodies import MessageQueue
    from aerobee.protocol.routing import TopicQueues


def named_after_brokers(info: bodies.ClusterInfo) -> frozenset[str]:
    """Topics that RocketMQ makes for clusters and brokers, under their names."""
    replies = {names.reply_topic(cluster) for cluster in info.cluster_addr_table}
    return frozenset({*info.cluster_addr_table, *info.broker_addr_table, *replies})


def is_of_users(topic: str, own: frozenset[str]) -> bool:
    return not (
        topic in own or names.is_retry(topic) or names.is_dead_letter(topic) or names.is_system_topic(topic)
    )


class Topics:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._session = asking.session

    async def topics(self) -> list[str]:
        """All names the name servers know: users' topics, retry and dead-letter topics, RocketMQ's own."""
        answer = await self._session.ask_name_server(AllTopics())
        return sorted(set(bodies.decode(answer.body, bodies.TopicList).topic_list))

    async def user_topics(self) -> list[str]:
        """Without retry, dead-letter and system topics."""
        own = named_after_brokers(await self._asking.cluster())
        return [topic for topic in await self.topics() if is_of_users(topic, own)]

    async def route(self, topic: str) -> TopicQueues:
        """Brokers and queues of a topic, fresh from a name server."""
        return await self._session.refresh_route(topic)

    async def topic_config(self, topic: str) -> dict[str, bodies.TopicConfig]:
        """By broker name."""

        async def ask(address: str) -> bodies.TopicConfig:
            answer = await self._session.call(address, GetTopicConfig(topic=topic), timeout_ms=TIMEOUT_MS)
            return bodies.decode(answer.body, bodies.TopicConfig)

        return await self._asking.each(await self._asking.masters_of(topic), ask)

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        perm: int = 6,
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic on every broker of the cluster (or of all, or on `brokers`), or change it."""
        names.check_topic(topic)
        if not 1 <= queues <= 16_384:
            raise ValueError(f"queues is {queues}; a topic has 1 to 16384")
        header = CreateTopic(
            topic=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_sys_flag=0,
            order=False,
            attributes=",".join(f"+{key}={value}" for key, value in (attributes or {}).items()),
        )

        async def ask(address: str) -> None:
            await self._session.call(address, header, timeout_ms=TIMEOUT_MS)

        masters = await self._asking.masters(cluster)
        chosen = {name: at for name, at in masters.items() if brokers is None or name in brokers}
        await self._asking.change(f"made topic {topic!r}", chosen, ask)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """From every broker, then from the name servers. Its messages are gone. PartlyDone where only some of them
        did it: the same again does the rest."""

        async def ask(address: str) -> None:
            await self._session.call(address, DeleteTopic(topic=topic), timeout_ms=TIMEOUT_MS)

        brokers, what = await self._asking.masters(cluster), f"deleted topic {topic!r}"
        await self._asking.change(what, brokers, ask)
        try:
            await self._session.ask_name_server(DeleteTopicRoute(topic=topic))
        except AerobeeError as error:
            raise PartlyDone(what, list(brokers), {"the name server": error}) from error
        self._session.routes.forget(topic)

    async def topic_stats(self, topic: str) -> dict[MessageQueue, bodies.TopicOffset]:
        """First and next offset, and the time of the last message, of every queue."""

        async def ask(address: str) -> bodies.TopicStats:
            answer = await self._session.call(address, TopicStatsQuery(topic=topic), timeout_ms=TIMEOUT_MS)
            return bodies.decode(answer.body, bodies.TopicStats)

        found: dict[MessageQueue, bodies.TopicOffset] = {}
        for stats in (await self._asking.each(await self._asking.masters_of(topic), ask)).values():
            found.update(stats.offset_table)
        return dict(sorted(found.items(), key=lambda item: (item[0].broker_name, item[0].queue_id)))

    async def groups_of(self, topic: str) -> list[str]:
        """Groups that consume the topic, or have offsets on it."""

        async def ask(address: str) -> list[str]:
            answer = await self._session.call(address, TopicGroups(topic=topic), timeout_ms=TIMEOUT_MS)
            return bodies.decode(answer.body, bodies.GroupList).group_list

        found = await self._asking.each(await self._asking.masters_of(topic), ask)
        return sorted({group for groups in found.values() for group in groups})

    async def topic_exists(self, topic: str) -> bool:
        try:
            await self._session.refresh_route(topic)
        except (NoRoute, TopicNotFound):
            return False
        return True
