# SPDX-License-Identifier: Apache-2.0
"""The one place that asks the cluster: what was asked within the last second is not asked again, so that many browsers
cost as much as one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aerobee.client.admin.brokers import USUAL_QUEUES
from aerobee.client.admin.topics import is_of_users, named_after_brokers
from aerobee.errors import AclDenied, AerobeeError, GroupNotFound, NoPermission, SystemFailure
from aerobee.protocol import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from aerobee.client.admin import Admin, GroupLag
    from aerobee.clock import Clock
    from aerobee.protocol import bodies
    from aerobee.protocol.bodies import MessageQueue

T = TypeVar("T")
K = TypeVar("K")

FRESH_MS = 1_000
MAX_ANSWERS = 4_096
NAMES_AT_ONCE = 1_000
AT_ONCE = 8  # questions on the way at the same time, for one page


class ClusterView:
    """Questions of all pages. A failure is not kept: the next one asks again."""

    def __init__(self, admin: Admin, clock: Clock) -> None:
        self.admin = admin
        self._clock = clock
        self._answers: OrderedDict[Any, tuple[int, asyncio.Task[Any]]] = OrderedDict()

    async def once(self, key: Any, ask: Callable[[], Awaitable[T]], fresh_ms: int = FRESH_MS) -> T:
        """The answer to `ask`, or the one of less than `fresh_ms` ago. Who leaves does not stop it for the others."""
        now = self._clock.now()
        known = self._answers.get(key)
        if known is None or now - known[0] >= fresh_ms or _failed(known[1]):

            async def asked() -> T:
                return await ask()

            known = (now, asyncio.get_running_loop().create_task(asked(), name=f"console {key}"))
            known[1].add_done_callback(_failed)  # whose reader has left: its failure is nobody's news
            self._answers[key] = known
            self._answers.move_to_end(key)
            self._trim()
        return cast("T", await asyncio.shield(known[1]))

    def _trim(self) -> None:
        while len(self._answers) > MAX_ANSWERS:
            _, (_, oldest) = self._answers.popitem(last=False)
            oldest.cancel()

    def forget(self) -> None:
        """After something was changed: the next page shows it."""
        for key in [key for key, (_, task) in self._answers.items() if task.done()]:
            del self._answers[key]

    async def stop(self) -> None:
        tasks = [task for _, task in self._answers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._answers.clear()

    async def each(self, keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T | AerobeeError]:
        """The same question of many things, a few at a time; those that fail have their error."""
        left = iter(list(keys))
        found: dict[K, T | AerobeeError] = {}

        async def ask_on() -> None:
            for key in left:
                try:
                    found[key] = await ask(key)
                except AerobeeError as error:
                    found[key] = error

        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(ask_on())
        return found

    # -- the questions ---------------------------------------------------------------------------------------

    async def cluster(self) -> bodies.ClusterInfo:
        return await self.once("cluster", self.admin.cluster)

    async def masters(self) -> dict[str, str]:
        return await self.once("masters", self.admin.masters)

    async def gone_brokers(self) -> list[bodies.GoneBroker]:
        """None for an account that may not ask."""

        async def ask() -> list[bodies.GoneBroker]:
            with suppress(NoPermission, AclDenied):
                return await self.admin.gone_brokers()
            return []

        return await self.once("gone brokers", ask)

    async def topics(self) -> list[str]:
        """Users' topics. Ten thousand names are told apart in several turns of the loop, which may be a broker's."""

        async def ask() -> list[str]:
            own, found = named_after_brokers(await self.cluster()), []
            every = await self.every_topic()
            for begin in range(0, len(every), NAMES_AT_ONCE):
                found += [topic for topic in every[begin : begin + NAMES_AT_ONCE] if is_of_users(topic, own)]
                await asyncio.sleep(0)
            return found

        return await self.once("user topics", ask, 3 * FRESH_MS)

    async def default_queues(self) -> int:
        """For a form: what it needs may not keep its page away."""

        async def ask() -> int:
            try:
                return await self.admin.default_queues()
            except AerobeeError:
                return USUAL_QUEUES

        return await self.once("default queues", ask, 30 * FRESH_MS)

    async def every_topic(self) -> list[str]:
        return await self.once("topics", self.admin.topics, 3 * FRESH_MS)

    async def groups(self) -> dict[str, bodies.GroupConfig]:
        """Users' groups."""
        found = await self.once("groups", self.admin.groups)
        return {name: config for name, config in found.items() if not names.is_system_group(name)}

    async def group_config(self, group: str) -> bodies.GroupConfig | None:
        """Also for who may look at this group and not list all of them; None: there is none."""
        try:
            return (await self.groups()).get(group)
        except NoPermission:
            with suppress(GroupNotFound):
                return await self.admin.group_config(group)
            return None

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        return await self.once(("lag", group, topic), lambda: self.admin.lag(group, topic))

    async def members(self, group: str) -> bodies.ConsumerConnection | None:
        return await self.once(("members", group), lambda: self.admin.members(group))

    async def running(self, group: str, client_id: str) -> bodies.ConsumerRunningInfo:
        """What a consumer says of itself; it is asked through its broker."""
        return await self.once(
            ("running", group, client_id), lambda: self.admin.running_info(group, client_id), 3 * FRESH_MS
        )

    async def held(self, group: str, client_id: str) -> int:
        """Messages a consumer has in hand, pulled or popped."""
        info = await self.running(group, client_id)
        popped = sum(queue.wait_ack_count for queue in info.mq_pop_table.values())
        return popped + sum(queue.cached_msg_count for queue in info.mq_table.values())

    async def topic_stats(self, topic: str) -> dict[MessageQueue, bodies.TopicOffset]:
        return await self.once(("stats", topic), lambda: self.admin.topic_stats(topic))

    async def groups_of(self, topic: str) -> list[str]:
        return await self.once(("groups of", topic), lambda: self.admin.groups_of(topic))

    async def runtime(self, address: str) -> dict[str, str]:
        return await self.once(("runtime", address), lambda: self.admin.broker_runtime(address))

    async def rate(self, counter: str, key: str) -> float:
        """Messages a second over the last minute, of all brokers: `TOPIC_PUT_NUMS` of a topic, `GROUP_GET_NUMS` of
        `topic@group`. A broker that has not counted any yet refuses, which means none."""

        async def ask() -> float:
            total = 0.0
            for address in (await self.masters()).values():
                try:
                    total += (await self.admin.broker_stats(address, counter, key)).stats_minute.tps
                except SystemFailure:
                    continue
            return total

        return await self.once((counter, key), ask)


def _failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
