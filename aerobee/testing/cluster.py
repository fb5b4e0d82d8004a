# SPDX-License-Identifier: Apache-2.0
"""What a test asks a running cluster, whoever runs it: Aerobee's own test server, or Apache RocketMQ's."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from aerobee.clock import SystemClock
from aerobee.errors import GroupNotFound
from aerobee.protocol import names
from aerobee.testing.waiting import not_on_a_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from aerobee.client.admin import Admin, GroupLag
    from aerobee.client.admin.waiting import Waiting
    from aerobee.client.message import ReceivedMessage
    from aerobee.client.options import SessionOptions

T = TypeVar("T")

LOOK_MS = 20
_NO_CLOCK = (
    "a server in a process of its own lives by the machine's clock, which no test moves; "
    "TestServer.with_manual_clock() has one that can be moved"
)


class ClusterUnderTest(ABC):
    """Questions are asked over the wire, as an operator's tools do. Those that wait are awaited, so that the test's own
    consumers run meanwhile; `blocking` has the same for plain tests."""

    account: dict[str, Any]  # options of a client that may do everything
    clock_stands = False  # until the test moves it

    @property
    @abstractmethod
    def namesrv(self) -> str: ...

    @property
    @abstractmethod
    def broker_address(self) -> str: ...

    @abstractmethod
    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on a loop that is not the test's, and wait for it."""

    @abstractmethod
    def create_topic(self, topic: str, queues: int = 4) -> None: ...

    # -- at once -------------------------------------------------------------------------------------------

    def lag(self, group: str) -> GroupLag:
        """Where the group's messages are now: ready, in flight, delayed, retrying, dead; none of a group that the
        broker has not met, be it yet or for ever: a name mistyped has no lag."""
        return self.run(self._ask(lambda admin: self._lag(admin, group)))

    async def _lag(self, admin: Admin, group: str) -> GroupLag:
        from aerobee.client.admin import GroupLag

        try:
            return await self._figures(admin, group)
        except GroupNotFound:
            return GroupLag(group=group)

    def messages_of(self, topic: str) -> list[ReceivedMessage]:
        """Everything a topic has, in the order it was stored; nothing when there is no such topic. Nobody consumes it
        by that. `%DLQ%billing` and `%RETRY%billing` are topics too."""
        return self.run(self._ask(lambda admin: _all_of(admin, topic)))

    def delayed(self, topic: str | None = None) -> list[Waiting]:
        """What waits for its time to go to a topic (None: to any), the next one due first: each with its `message`, its
        `topic` and when it is `due`, in ms of the server's clock. Of each broker at most some thousand are looked at."""
        from aerobee.client.admin.waiting import of_all

        return self.run(self._ask(lambda admin: of_all(admin, topic, self._wall())))

    def _wall(self) -> int:
        return SystemClock().wall()

    # -- waiting -------------------------------------------------------------------------------------------

    async def wait_for_dead_letter(self, group: str, timeout_ms: int = 10_000) -> ReceivedMessage:
        """The group's first dead letter, as soon as there is one; AssertionError when there is none in time. A group
        that the broker has not met yet has none."""

        async def look(admin: Admin) -> ReceivedMessage | None:
            return await anext(aiter(admin.dead_letters(group)), None)

        async def tell(admin: Admin) -> str:
            return f"no dead letter of {group!r} within {timeout_ms} ms: {await self._where(admin, group)}"

        return await self._ask(lambda admin: _until(look, tell, admin, timeout_ms))

    async def wait_until_idle(self, group: str, timeout_ms: int = 10_000) -> None:
        """Until the group has nothing left to do: nothing ready, in flight, retrying or waiting for a retry.

        A consumer says how far it is every `persist_offsets_ms` (5 s): make that shorter in a test that shall be quick.
        A group that the broker has not met yet is waited for, and so is one that has told no offset.
        """

        async def look(admin: Admin) -> bool:
            if not _is_idle(await self._figures(admin, group)):
                return False
            # Where the figures are put together, a retry may have come due between two of them.
            return _is_idle(await admin.lag(group))

        async def tell(admin: Admin) -> str:
            return f"{group!r} is not idle after {timeout_ms} ms: {await self._where(admin, group)}"

        await self._ask(lambda admin: _until(look, tell, admin, timeout_ms))

    async def _figures(self, admin: Admin, group: str) -> GroupLag:
        """With the retries that wait, of which Apache's broker gives no figure."""
        from aerobee.client.admin.waiting import of_all

        lag = await admin.lag(group)
        if not lag.exact:
            lag.delayed = len(await of_all(admin, names.retry_topic(group), self._wall()))
        return lag

    async def _where(self, admin: Admin, group: str) -> str:
        try:
            lag = await self._figures(admin, group)
        except GroupNotFound:
            return "the broker has met no consumer of that name"
        if not _is_told(lag):
            return "the broker knows no offset of that group" + (", which is connected" if lag.online else "")
        hint = (
            "; the server's clock stands still: clock.advance()" if lag.delayed and self.clock_stands else ""
        )
        return (
            f"ready {lag.ready}, in flight {lag.in_flight}, retrying {lag.retrying}, waiting for a retry {lag.delayed}, "
            f"dead {lag.dead}{hint}"
        )

    @property
    def blocking(self) -> Blocking:
        """The waits, for tests without async."""
        return Blocking(self)

    async def _ask(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        from aerobee.client.admin import Admin

        async with Admin(self.namesrv, options=self._admin_options()) as admin:
            return await question(admin)

    def _admin_options(self) -> SessionOptions:
        from aerobee.client.options import SessionOptions

        return SessionOptions(**self.account)


class OutsideCluster(ClusterUnderTest):
    """Of other processes: all that it is told goes over the wire."""

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        from aerobee.client import blocking

        return blocking.run(work)

    @property
    def clock(self) -> NoReturn:
        """There is none to move."""
        raise RuntimeError(_NO_CLOCK)

    def create_topic(self, topic: str, queues: int = 4) -> None:
        async def create() -> None:
            await self._ask(lambda admin: admin.create_topic(topic, queues=queues))

        self.run(create())


class Blocking:
    """`server.blocking.wait_for_dead_letter("billing")`."""

    def __init__(self, cluster: ClusterUnderTest) -> None:
        self._cluster = cluster

    def wait_for_dead_letter(self, group: str, timeout_ms: int = 10_000) -> ReceivedMessage:
        not_on_a_loop("blocking.wait_for_dead_letter", "await server.wait_for_dead_letter(...)")
        return self._cluster.run(self._cluster.wait_for_dead_letter(group, timeout_ms))

    def wait_until_idle(self, group: str, timeout_ms: int = 10_000) -> None:
        not_on_a_loop("blocking.wait_until_idle", "await server.wait_until_idle(...)")
        self._cluster.run(self._cluster.wait_until_idle(group, timeout_ms))


def _is_idle(lag: GroupLag) -> bool:
    return _is_told(lag) and not (lag.ready or lag.in_flight or lag.retrying or lag.delayed)


def _is_told(lag: GroupLag) -> bool:
    """Apache's broker has an answer for groups it never met, too: nothing of no queue."""
    return lag.exact or bool(lag.queues)


async def _all_of(admin: Admin, topic: str) -> list[ReceivedMessage]:
    if not await admin.topic_exists(topic):
        return []
    found = []
    for queue in (await admin.route(topic)).readable:
        begin, end = await admin.offset_range(queue)
        found += [message async for message in admin.browse(queue, begin, end)]
    return sorted(found, key=lambda message: (message.store_timestamp, message.physical_offset))


async def _until(
    look: Callable[[Admin], Awaitable[T | None]],
    tell: Callable[[Admin], Awaitable[str]],
    admin: Admin,
    timeout_ms: int,
) -> T:
    clock = SystemClock()
    deadline = clock.now() + timeout_ms
    while not (found := await _looked(look, admin)):
        if clock.now() > deadline:
            raise AssertionError(await tell(admin))
        await asyncio.sleep(LOOK_MS / 1000)
    return found


async def _looked(look: Callable[[Admin], Awaitable[T | None]], admin: Admin) -> T | None:
    """A group of which nobody has told the broker yet may come."""
    try:
        return await look(admin)
    except GroupNotFound:
        return None
