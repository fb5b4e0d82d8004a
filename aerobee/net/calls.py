# SPDX-License-Identifier: Apache-2.0
"""Our own requests on one connection: each has a number, by which its answer finds who waits for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from aerobee.errors import NetworkError

if TYPE_CHECKING:
    from aerobee.protocol.command import Command

log = logging.getLogger("aerobee.net")

_FORGET_AT = 1024
_LAST_NUMBER = 0x7FFFFFFF  # Java's opaque is an int; after it they begin anew


class Waiting(Protocol):
    """Who waits for an answer: a future, or something that stands for several of them."""

    def done(self) -> bool: ...
    def set_result(self, answer: Command, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...
    def exception(self) -> BaseException | None: ...


class Calls:
    __slots__ = ("_forget_at", "_number", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, Waiting] = {}  # by the number of the request
        self._number = 0
        self._forget_at = _FORGET_AT

    def number(self) -> int:
        """Of the next request."""
        if len(self.waiting) >= self._forget_at:
            self._forget_abandoned()
        self._number = number = (self._number + 1) & _LAST_NUMBER
        return number

    def answered(self, answer: Command, peer: str) -> None:
        call = self.waiting.pop(answer.opaque, None)
        if call is None or call.done():
            log.debug("late answer peer=%s opaque=%d", peer, answer.opaque)
        else:
            call.set_result(answer)

    def lost(self, peer: str) -> None:
        """No answer will come any more."""
        calls, self.waiting = self.waiting, {}
        for call in calls.values():
            if not call.done():
                call.set_exception(NetworkError(f"connection to {peer} was lost"))
                call.exception()  # may be nobody's any more: no "never retrieved" warning

    def _forget_abandoned(self) -> None:
        """Calls whose caller gave up and whose answer never came; amortised by the doubling bound."""
        self.waiting = {number: call for number, call in self.waiting.items() if not call.done()}
        self._forget_at = max(_FORGET_AT, 2 * len(self.waiting))
