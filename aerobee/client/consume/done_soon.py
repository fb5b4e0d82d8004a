# SPDX-License-Identifier: Apache-2.0
"""What handlers have done well, the common case: settled once per turn of the loop and queue, not message by message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.message import ReceivedMessage

Q = TypeVar("Q")


class DoneSoon(Generic[Q]):
    def __init__(self, settle: Callable[[dict[Q, list[ReceivedMessage]]], None]) -> None:
        self._settle = settle
        self._done: dict[Q, list[ReceivedMessage]] = {}

    def add(self, queue: Q, batch: list[ReceivedMessage]) -> None:
        if not self._done:
            asyncio.get_running_loop().call_soon(self.settle)
        done = self._done.get(queue)
        if done is None:
            self._done[queue] = list(batch)
        else:
            done += batch

    def settle(self) -> None:
        """All there is, now."""
        done, self._done = self._done, {}
        self._settle(done)
