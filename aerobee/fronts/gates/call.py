# SPDX-License-Identifier: Apache-2.0
"""What a gate sees and says.

    decode -> gates -> operation -> answer

A gate is made once for each route of each port, when the port opens; where it has nothing to do it is not made, and a
route without gates costs nothing. It is shown a `Call`, refuses by raising a `BrokerError`, and may return a function
that will be told how the request ended: None when it was answered, or the error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from enum import Enum
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Sequence

    from aerobee.clock import Clock

log = logging.getLogger("aerobee.gates")


class Port(Enum):
    BROKER = "broker"
    VIP = "vip"
    GRPC = "grpc"
    NAMESRV = "namesrv"
    HTTP = "http"


class Place(NamedTuple):
    """Where a gate may stand: at one route of one port."""

    port: Port
    route: str  # the name of its header or call; empty for requests that nobody serves
    code: int | None  # remoting's
    clock: Clock
    parts: Any  # what the operations behind it work on: the broker, the name server's parts


class Call:
    """One request on its way in; the same for every port. What takes work to know is worked out when asked for."""

    __slots__ = ("body", "code", "port", "remote", "route", "user")

    def __init__(
        self, port: Port, route: str, code: int | None, remote: tuple[str, int], body: bytes
    ) -> None:
        self.port = port
        self.route = route
        self.code = code
        self.remote = remote  # the peer's host and port
        self.body = body  # as it came: remoting's body, gRPC's whole request
        # Who signed it; empty when nobody did or nobody looked, None when its address alone is trusted.
        self.user: str | None = ""

    @property
    def version(self) -> int:
        """Of the client's remoting protocol; 0 where there is none."""
        return 0

    @property
    def fields(self) -> Mapping[str, str]:
        """What came beside the body, as text: remoting's extFields, gRPC's metadata, HTTP's account."""
        raise NotImplementedError

    @property
    def asked(self) -> Any:
        """The request as its route reads it: a header, or gRPC's message. Raises when it is none."""
        raise NotImplementedError


Outcome = Callable[[BaseException | None], None]
Gate = Callable[[Call], Outcome | None]
MakeGate = Callable[[Place], Gate | None]


# -- the way through ---------------------------------------------------------------------------------------


def pass_gates(gates: Sequence[Gate], call: Call, work: Callable[[], Any]) -> Any:
    """What `work` answers behind the gates, at once or as a coroutine."""
    waiting = _enter(gates, call)
    if not waiting:
        return work()
    try:
        answer = work()
    except BaseException as error:
        _tell(waiting, error)
        raise
    if iscoroutine(answer):
        return _held(waiting, answer)
    _tell(waiting, None)
    return answer


async def _held(waiting: list[Outcome], later: Coroutine[Any, Any, Any]) -> Any:
    try:
        answer = await later
    except BaseException as error:  # also CancelledError: the peer left while its request was held
        _tell(waiting, error)
        raise
    _tell(waiting, None)
    return answer


async def stream_through_gates(
    gates: Sequence[Gate], call: Call, work: Callable[[], AsyncGenerator[Any, None]]
) -> AsyncGenerator[Any, None]:
    waiting = _enter(gates, call)
    try:
        async with aclosing(work()) as answers:  # a peer that leaves in the middle ends the work at once
            async for answer in answers:
                yield answer
    except BaseException as error:
        _tell(waiting, error)
        raise
    _tell(waiting, None)


def _enter(gates: Sequence[Gate], call: Call) -> list[Outcome]:
    """Those that wait to be told; the first refusal is told to the gates before it."""
    waiting: list[Outcome] = []
    try:
        for gate in gates:
            outcome = gate(call)
            if outcome is not None:
                waiting.append(outcome)
    except BaseException as error:
        _tell(waiting, error)
        raise
    return waiting


def _tell(waiting: list[Outcome], error: BaseException | None) -> None:
    for outcome in reversed(waiting):
        try:
            outcome(error)
        except Exception:  # the work is done: its answer is not lost for a gate that only wanted to know
            log.exception("a gate failed when told how a request ended")
