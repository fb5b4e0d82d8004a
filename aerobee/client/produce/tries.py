# SPDX-License-Identifier: Apache-2.0
"""How often a failed send is tried again, and in which order those of one queue are.

A broker that restarts is away for a second or two, so tries that follow each other at once all meet the same closed
port. They are spread over the time the send has: another broker is tried at once, the same one after a pause that
doubles, with jitter, so that a thousand producers do not come back in the same instant.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar

from aerobee.clock import tell
from aerobee.errors import AerobeeError, BrokerError, NetworkError, NoPermission, NoRoute, RequestTimeout

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aerobee.client.message import SendResult
    from aerobee.clock import Clock
    from aerobee.protocol.bodies import MessageQueue

T = TypeVar("T")

FIRST_PAUSE_MS = 20
LONGEST_PAUSE_MS = 200  # a closed port costs next to nothing to ask; a pause at the end may cost the message
LEAST_LEFT_MS = 10  # a try with less time than this would only time out

# NO_BUYER_ID and NOT_IN_CURRENT_UNIT have no error class of their own.
RETRY_CODES = frozenset({17, 14, 1, 2, 16, 204, 205, 1500})


class NotAsWished(AerobeeError):
    """The broker has the message, but neither flushed nor replicated as it should, and `retry_unless_ok` is set."""

    retryable: ClassVar[bool] = True

    def __init__(self, result: SendResult) -> None:
        super().__init__(f"stored with status {result.status.name}")
        self.result = result


class Tries:
    """Of one send. Told `now`."""

    def __init__(
        self, refusals: int, began: int, deadline: int, jitter: Callable[[], float] = random.random
    ) -> None:
        """A broker that is away is waited for; a refusal is followed by another try only so often."""
        self.deadline = deadline
        self.at: str | None = None  # the broker of the last try
        self.brokers: set[str] = set()  # all there are
        self.hopeless = False  # the topic will not come
        self._refusals = refusals
        self._began = began
        self._jitter = jitter
        self._made = 1
        self._failed: set[str | None] = set()  # brokers, since the last pause
        self._pauses = 0

    def again(self, error: AerobeeError, now: int) -> int | None:
        """How many milliseconds to wait before the next try; None when there is to be none."""
        left_ms = self.deadline - now - LEAST_LEFT_MS
        if self.hopeless or left_ms <= 0 or not worth_a_retry(error):
            return None
        if not isinstance(error, (NetworkError, NoRoute)) and self._made > self._refusals:
            return None
        self._made += 1
        self._failed.add(self.at)
        if self.brokers - self._failed:
            return 0
        if isinstance(error, NoPermission):
            return None  # another broker may be open to writing; the same one does not change its mind
        self._failed.clear()
        pause_ms = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << min(self._pauses, 10))
        self._pauses += 1
        return min(int(pause_ms * (0.5 + self._jitter() / 2)), left_ms)

    @asynccontextmanager
    async def in_time(self, clock: Clock, topic: str) -> AsyncIterator[None]:
        """What comes before a send counts as part of its time: a server may be slow to open, or say nothing."""
        try:
            async with asyncio.timeout(max(0, self.deadline - clock.now()) / 1000):
                yield
        except TimeoutError as error:
            if isinstance(error, NetworkError):
                raise
            raise NetworkError(f"no way to a broker of {topic!r} was found in time") from None

    def told(self, error: AerobeeError, topic: str, now: int) -> AerobeeError:
        """The error of the last try, with what was tried; a refusal of the broker stands for itself."""
        took_ms = now - self._began
        if isinstance(error, RequestTimeout):
            last = f", the last try at broker {self.at!r}" if self.at else ""
            return RequestTimeout(
                f"no answer to a send to {topic!r} within {took_ms} ms{last}; it may have "
                "arrived. A longer send_timeout_ms gives a slow or restarting broker more time"
            )
        if isinstance(error, BrokerError) or self._made == 1 or not worth_a_retry(error):
            return error
        last, ask = (f", the last at broker {self.at!r}", " is it running?") if self.at else ("", "")
        return type(error)(
            f"a message to {topic!r} could not be sent: {self._made} tries in {took_ms} ms{last}: {error};{ask} "
            "A longer send_timeout_ms gives a restarting broker more time"
        )


def worth_a_retry(error: AerobeeError) -> bool:
    if isinstance(error, BrokerError):
        return error.code in RETRY_CODES
    return bool(getattr(error, "retryable", False)) or getattr(error, "code", None) in RETRY_CODES


class Lines:
    """Sends that must go to one queue and wait for its broker: a line each, so that none overtakes another. By topic the
    same for those that do not know their queue yet.

    The first that has to wait is the head of a line and tries again and again; the others of the queue, and those that
    come meanwhile, wait behind it. When it is through, or gives up, all of them set out in their order.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: dict[MessageQueue | str, deque[asyncio.Future[None]]] = {}

    def __contains__(self, queue: MessageQueue | str) -> bool:
        return queue in self._lines

    def lead(self, queue: MessageQueue | str) -> bool:
        """Become the head of a new line; False when there is one to join."""
        if queue in self._lines:
            return False
        self._lines[queue] = deque()
        return True

    async def through(self, queue: MessageQueue | str, deadline: int, work: Callable[[], Awaitable[T]]) -> T:
        """`work`, in its turn: at the head of a new line, or behind those who stand there."""
        if self.lead(queue):
            return await self.headed(queue, work())
        await self.join(queue, deadline)
        return await work()

    async def headed(self, queue: MessageQueue | str, work: Awaitable[T]) -> T:
        """What the head of a line does; then all of it sets out."""
        try:
            return await work
        finally:
            self.dissolve(queue)

    async def join(self, queue: MessageQueue | str, deadline: int) -> None:
        """Until it is this send's turn, or too late."""
        line = self._lines.get(queue)
        if line is None:
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        timer = self._clock.call_at(deadline, partial(tell, turn, None))
        try:
            await turn
        finally:
            timer.cancel()
            if turn in line:
                line.remove(turn)

    def dissolve(self, queue: MessageQueue | str) -> None:
        """Everybody sets out. Who comes before the last of them has done so joins them."""
        line = self._lines[queue]
        for turn in line:
            tell(turn, None)
        # After the tasks just woken, which are scheduled in their order.
        asyncio.get_running_loop().call_soon(self._end, queue)

    def _end(self, queue: MessageQueue | str) -> None:
        if self._lines[queue]:
            self.dissolve(queue)
        else:
            del self._lines[queue]
