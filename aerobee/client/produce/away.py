# SPDX-License-Identifier: Apache-2.0
"""Servers that are away, as all sends of a producer meet them: of a thousand that wait for one a few ask it for all, and
who meets a broker again tells the others. A producer without retries waits for nobody, and each of its sends asks."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from aerobee.clock import tell
from aerobee.errors import AerobeeError, NetworkError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aerobee.client.options import SendOptions
    from aerobee.client.session.session import Session
    from aerobee.net.connection import Connection
    from aerobee.protocol.bodies import MessageQueue

REST_MS = 100  # a server that comes back is noticed so much later at most


class Lately:
    """What failed a moment ago, by name. Told `now`."""

    def __init__(self) -> None:
        self._failed: dict[str, tuple[int, NetworkError]] = {}

    def failed(self, what: str, error: NetworkError, now: int) -> None:
        self._failed = {name: one for name, one in self._failed.items() if self._counts(one[0], now)}
        self._failed[what] = now, error

    def error(self, what: str, now: int) -> NetworkError | None:
        """What it failed with, as long as nobody need ask again."""
        found = self._failed.get(what)
        if found is None or not self._counts(found[0], now):
            return None
        return type(found[1])(str(found[1]))  # its own traceback for each who raises it

    def _counts(self, when: int, now: int) -> bool:
        return now - when < REST_MS


class Away:
    def __init__(self, session: Session[SendOptions]) -> None:
        self._session = session
        self._clock = session.clock
        self._waits = session.options.send_retries > 0
        self._silent = Lately()  # addresses, and topics whose route nobody told
        self._looked_for = Lately()  # topics whose route was asked for again
        self._resting: list[asyncio.Future[None]] = []  # sends between two tries

    async def queues(
        self, topic: str, ask: Callable[[str], Awaitable[Sequence[MessageQueue]]]
    ) -> Sequence[MessageQueue]:
        """As `ask` says, unless that would ask name servers that have just not answered."""
        if self._session.routes.get(topic) is None:
            self._raise_known(topic)
        try:
            return await ask(topic)
        except NetworkError as error:
            self._silent.failed(topic, error, self._clock.now())
            raise

    async def connection(self, address: str) -> Connection:
        """The one to a broker, unless it has just refused one."""
        known = self._session.open_connection(address)
        if known is not None:
            return known
        self._raise_known(address)
        try:
            connection = await self._session.connection(address)
        except NetworkError as error:
            self._silent.failed(address, error, self._clock.now())
            raise
        for over in self._resting:
            tell(over, None)
        return connection

    def _raise_known(self, what: str) -> None:
        if self._waits and (error := self._silent.error(what, self._clock.now())) is not None:
            raise error

    async def look_for(self, topic: str, error: AerobeeError) -> None:
        """After a failure: a route of now, where that may help and nobody has just asked for one."""
        if isinstance(error, NetworkError):
            now = self._clock.now()
            if self._looked_for.error(topic, now) is not None:
                return
            self._looked_for.failed(topic, error, now)
        elif not getattr(error, "refresh_route", False):
            return
        with suppress(AerobeeError):  # the route we have is the best there is
            await self._session.refresh_route(topic)

    async def rest(self, error: AerobeeError, pause_ms: int) -> None:
        """Until the next try, or until somebody meets a broker again."""
        if not isinstance(error, NetworkError):
            await self._clock.sleep(pause_ms)
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_at(self._clock.now() + pause_ms, partial(tell, over, None))
        self._resting.append(over)
        try:
            await over
        finally:
            timer.cancel()
            self._resting.remove(over)
