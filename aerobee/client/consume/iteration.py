# SPDX-License-Identifier: Apache-2.0
"""Messages one after the other: `async for message in consumer`, without end, until the consumer is stopped."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.client.message import ReceivedMessage

    Fetch = Callable[[], Awaitable[list[ReceivedMessage]]]


class Messages:
    """An iterator over what `fetch` brings; `async with` gives back what was fetched and not handed out.

    It ends when the consumer is stopped. A message counts as handed out when it has been returned.
    """

    def __init__(self, fetch: Fetch, is_in: Callable[[], bool]) -> None:
        self._fetch = fetch
        self._is_in = is_in
        self._waiting: list[ReceivedMessage] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        while not self._waiting:
            if not self._is_in():
                raise StopAsyncIteration
            self._waiting = (await self._fetch())[::-1]
        return self._waiting.pop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leased messages that nobody got are for others at once, not only when their time has passed."""
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            if message.lease is not None:
                with suppress(AerobeeError):  # it comes again later then
                    await message.nack()
