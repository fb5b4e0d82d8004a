# SPDX-License-Identifier: Apache-2.0
"""The one path of a remoting request, from command to answer: on the broker's port, the VIP port, the name server's."""

from __future__ import annotations

import logging
from collections import defaultdict
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from aerobee.clock import MS_NS, perf_counter_ns
from aerobee.errors import RequestCodeNotSupported
from aerobee.fronts.gates.call import Call, Place, Port, pass_gates
from aerobee.fronts.gates.recognised import recognised_at
from aerobee.fronts.gates.table import checks_at, gates_at
from aerobee.net.connection import Large, Reply
from aerobee.net.reply import refusal
from aerobee.net.routes import Request, Route
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Header

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from aerobee.clock import Clock
    from aerobee.fronts.gates.call import Gate
    from aerobee.fronts.gates.recognised import Recognised
    from aerobee.net.connection import Answer, Connection
    from aerobee.net.routes import Adapter, Later
    from aerobee.protocol.command import Command

log = logging.getLogger("aerobee.front")

R = TypeVar("R")

NOBODYS = -1
ONE_WAY = -1  # in the place of an answer's code: there is none
# Requests that wait for messages to come.
HELD = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
    }
)
_COMPLAIN_EVERY_MS = 60_000
_MAX_COMPLAINTS = 1000  # codes remembered: a scan of all of them must not grow this for ever


class NoFields(Header):
    """Of requests that nobody serves."""


class RemotingCall(Call):
    __slots__ = ("_command", "_header", "_kind")

    def __init__(self, port: Port, route: str, request: Request, kind: type[Header]) -> None:
        # Written out: `super().__init__` costs as much as all of it.
        command = request.command
        self.port, self.route, self.code = port, route, command.code
        self.remote, self.body, self.user = request.connection.remote, command.body, ""
        self._command = command
        self._kind = kind
        self._header: Header | None = None

    @property
    def version(self) -> int:
        return self._command.version

    @property
    def fields(self) -> Mapping[str, str]:
        return self._command.ext_dict()

    @property
    def asked(self) -> Header:
        if self._header is None:
            self._header = self._command.fields(self._kind)
        return self._header


class Taken(Protocol):
    """Told how long each of some requests took."""

    def add(self, value: float) -> None: ...


class Times(Protocol):
    """Told of every request how long it took, in nanoseconds, by its code and the answer's."""

    @property
    def usual(self) -> dict[int, list[int]]:
        """Code -> how many were answered well, at once and within a millisecond, and their sum: added to from here."""
        ...

    @property
    def held(self) -> Mapping[tuple[int, int], Taken]:
        """By code and the answer's: those that waited for messages to come. It has one for each that is asked for."""
        ...

    def add_run(self, code: int, took_ns: int, times: int) -> None:
        """Well and at once, but the first of its code, or later than that."""

    def add(self, code: int, response: int, took_ns: int) -> None:
        """Any other that was not held."""


class _Unheard:
    def add(self, value: float) -> None:
        """Nobody asks."""


class Untimed:
    def __init__(self) -> None:
        self.usual: dict[int, list[int]] = {}
        self.held: Mapping[tuple[int, int], Taken] = defaultdict(_Unheard)

    def add_run(self, code: int, took_ns: int, times: int) -> None:
        """Nobody asks."""

    def add(self, code: int, response: int, took_ns: int) -> None:
        """Nobody asks."""


def _as_it_is(command: Command, reply: Reply) -> Reply:
    return reply


class RemotingPath:
    """`handle` is the handler of every connection a port accepts."""

    def __init__(
        self,
        port: Port,
        routes: Mapping[int, Route],
        parts: Any,
        clock: Clock,
        finish: Callable[[Command, Reply], Reply] = _as_it_is,
        times: Times | None = None,
    ) -> None:
        self._port = port
        self._parts = parts
        self._clock = clock
        self._finish = finish  # what a port adds to answers, refusals among them
        self._times = times or Untimed()
        self._usual = self._times.usual
        self._complained: dict[int, int] = {}  # unknown code -> when it was last logged
        # Routes without gates, as plain tuples: a named one takes seven times as long to take apart.
        self._open: dict[int, tuple[type[Header], Adapter]] = {}
        self._gated: dict[int, tuple[str, Route, tuple[Gate, ...]]] = {}
        self._checked: dict[int, tuple[str, type[Header], tuple[Gate, ...]]] = {}
        # Of those that are checked: requests that need no more than a look at their names and signature.
        self.recognised: dict[int, Recognised] = {}
        for code, route in routes.items():
            name = route.header.__name__
            place = Place(port, name, code, clock, parts)
            gates, checks = gates_at(place), checks_at(place)
            if gates:
                self._gated[code] = (name, route, gates)
                if checks:
                    self._checked[code] = (name, route.header, checks)
                    if (known := recognised_at(place)) is not None:
                        self.recognised[code] = known
            else:
                self._open[code] = (route.header, route.adapter)
        self._unknown = ("", Route(NoFields, self._refuse), gates_at(Place(port, "", None, clock, parts)))

    # -- for who serves requests without passing here: only what is open, or was admitted

    @property
    def has_checks(self) -> bool:
        return bool(self._checked)

    def may_run(self, code: int) -> bool:
        """Whether no gate stands before a request, or `admits` tells all that its gates would."""
        return code in self._open or code in self._checked

    def admits(self, connection: Connection, command: Command) -> bool:
        """Whether a request that may run is let through; who is not is told so by `handle`."""
        checked = self._checked.get(command.code)
        if checked is None:
            return command.code in self._open
        name, header, checks = checked
        call = RemotingCall(self._port, name, Request(connection, command), header)
        try:
            for check in checks:
                check(call)
        except Exception:  # whatever it is, `handle` meets it again and answers it
            return False
        return True

    def handle(self, connection: Connection, command: Command) -> Answer | Later:
        request = Request(connection, command)
        route = self._open.get(command.code)
        # Looking at the clock is a good part of a small request: of those read together each begins where the one
        # before it ended.
        began = connection.answered_ns or perf_counter_ns()
        try:
            if route is None:
                answer = self._through_gates(request)
            else:
                header, adapter = route
                answer = adapter(request, command.fields(header), self._parts)
        except Exception as error:
            answer = refusal(command, error, connection.remote_text)
        connection.answered_ns = ended = perf_counter_ns()
        took_ns = ended - began
        if type(answer) is bytes or answer is None or type(answer) is Large:
            usual = self._usual.get(command.code)
            if usual is None or took_ns > MS_NS:
                self._times.add_run(command.code, took_ns, 1)
            else:
                usual[0] += 1
                usual[1] += took_ns
            return answer
        if type(answer) is Reply:
            # Codes that nobody serves are anybody's to make up: they are one.
            code = command.code if route is not None or command.code in self._gated else NOBODYS
            result = ONE_WAY if command.is_one_way else int(answer.code)
            self._times.add(code, result, took_ns)
            return self._finish(command, answer)
        return self._later(request, cast("Later", answer), began)

    def _through_gates(self, request: Request) -> Answer | Later:
        name, (header, adapter), gates = self._gated.get(request.command.code, self._unknown)
        call = RemotingCall(self._port, name, request, header)

        def work() -> Answer | Later:
            request.user = call.user
            return adapter(request, call.asked, self._parts)

        return cast("Answer | Later", pass_gates(gates, call, work))

    async def _later(self, request: Request, later: Later, began: int) -> Answer:
        try:
            answer = await later
        except Exception as error:
            answer = refusal(request.command, error, request.connection.remote_text)
        note_later(self._times, request.command.code, answer, began)
        return self._finish(request.command, answer) if type(answer) is Reply else answer

    def _refuse(self, request: Request, header: Header, parts: Any) -> Answer:
        code, now = request.command.code, self._clock.now()
        last = self._complained.get(code)
        if last is None or now - last >= _COMPLAIN_EVERY_MS:
            if len(self._complained) >= _MAX_COMPLAINTS:
                self._complained.clear()
            self._complained[code] = now
            log.warning("request code=%d peer=%s: not supported", code, request.connection.remote_text)
        raise RequestCodeNotSupported(f" request type {code} not supported")


def result_of(answer: Answer) -> int:
    """The code that an answer carries; whole frames are made for those that went well."""
    return int(answer.code) if type(answer) is Reply else 0


def note_later(times: Times, code: int, answer: Answer, began: int) -> None:
    """How long one took that was not answered at once."""
    result, took_ns = result_of(answer), perf_counter_ns() - began
    if code in HELD:
        times.held[code, result].add(took_ns)
    else:  # it waited for the disk, or for another broker: that is the time it takes
        times.add(code, result, took_ns)


def answer_of(result: R | Coroutine[Any, Any, R], make: Callable[[R], Answer]) -> Answer | Later:
    """What `make` says of an operation's result: now, or when the operation lets go of a request it holds."""
    return _held(result, make) if type(result) is CoroutineType else make(cast("R", result))


async def _held(later: Coroutine[Any, Any, R], make: Callable[[R], Answer]) -> Answer:
    return make(await later)
