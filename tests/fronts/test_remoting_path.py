# SPDX-License-Identifier: Apache-2.0
"""The path of a remoting request with a stopwatch in the test's hand: what is timed, under which code, and what nobody
serves."""

from __future__ import annotations

import inspect
import logging
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from aerobee.broker.state.counted import RequestTimes
from aerobee.clock import ManualClock
from aerobee.errors import InvalidParameter, NoPermission
from aerobee.fronts.gates import remoting, table
from aerobee.fronts.gates.call import Port
from aerobee.net.reply import Large, Reply
from aerobee.net.routes import Route
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import ONE_WAY, Command, Header

MS = 1_000_000
QUICK, WELL, REFUSED, LATER, PULL, NOTHING, BULK = 10, 20, 30, 40, int(RequestCode.PULL_MESSAGE), 60, 70


class Asked(Header):
    word: str = "none"


async def _later(answer: Any) -> Any:
    return answer


def _refuses(request: Any, header: Any, parts: Any) -> Any:
    raise InvalidParameter("no")


async def _refuses_later() -> Any:
    raise InvalidParameter("no")


def answers(answer: Any) -> Route:
    return Route(Asked, lambda request, header, parts: answer)


ROUTES = {
    QUICK: answers(b"frame"),
    WELL: answers(Reply(remark="well")),
    REFUSED: Route(Asked, _refuses),
    LATER: Route(Asked, lambda request, header, parts: _later(b"frame")),
    PULL: Route(Asked, lambda request, header, parts: _later(Reply(21))),
    NOTHING: answers(None),
    BULK: answers(Large(b"head", b"body")),
    80: Route(Asked, lambda request, header, parts: _refuses_later()),
}


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.times = RequestTimes()
        self.finished: list[tuple[int, Reply]] = []
        self.took: list[int] = []
        self._now = 0
        monkeypatch.setattr(remoting, "perf_counter_ns", self._look)
        parts = Thing(guard=None)
        self.path = remoting.RemotingPath(Port.BROKER, ROUTES, parts, self.clock, self._finish, self.times)
        self.connection: Any = Thing(answered_ns=0, remote=("10.0.0.1", 5), remote_text="10.0.0.1:5")

    def _look(self) -> int:
        """Each look at the stopwatch is so much later than the one before."""
        self._now += self.took.pop(0) if self.took else 1
        return self._now

    def _finish(self, command: Command, reply: Reply) -> Reply:
        self.finished.append((command.code, reply))
        return reply

    async def ask(self, code: int, *took: int, flag: int = 0, **ext: str) -> Any:
        self.took = [1, *took]
        self.connection.answered_ns = 0
        answer = self.path.handle(self.connection, Command(code, 7, flag, ext=ext))
        return await answer if inspect.iscoroutine(answer) else answer

    def told(self) -> dict[tuple[int, int, bool], tuple[int, int]]:
        """Of each code, answer and way: how many, and how long in all."""
        return {key: (sum(each.counts), int(each.sum)) for key, each in self.times}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


async def test_an_answer_in_bytes_is_one_that_went_well(bench: Bench) -> None:
    for took in (1_000, MS, MS + 1, 500):
        assert await bench.ask(QUICK, took) == b"frame"
    assert bench.told() == {(QUICK, 0, False): (4, 1_000 + MS + MS + 1 + 500)}
    assert bench.times.usual == {QUICK: [3, 1_000 + MS + 500]}, "to the millisecond"
    assert bench.finished == []


async def test_one_way_requests_and_large_answers_are_timed_as_those_in_bytes(bench: Bench) -> None:
    assert await bench.ask(NOTHING, 300) is None
    assert await bench.ask(BULK, 400) == Large(b"head", b"body")
    assert bench.told() == {(NOTHING, 0, False): (1, 300), (BULK, 0, False): (1, 400)}


async def test_an_answer_is_timed_by_its_code_and_finished_by_its_port(bench: Bench) -> None:
    reply = await bench.ask(WELL, 5_000)
    refused = await bench.ask(REFUSED, 6_000)
    assert (reply.code, reply.remark) == (0, "well")
    assert (refused.code, refused.remark) == (InvalidParameter.code, "no")
    assert bench.finished == [(WELL, reply), (REFUSED, refused)]
    assert bench.told() == {
        (WELL, 0, False): (1, 5_000),
        (REFUSED, int(InvalidParameter.code), False): (1, 6_000),
    }


async def test_a_one_way_request_that_is_refused_has_no_code_of_an_answer(bench: Bench) -> None:
    await bench.ask(REFUSED, 6_000, flag=ONE_WAY)
    assert bench.told() == {(REFUSED, -1, False): (1, 6_000)}


async def test_what_waits_for_messages_is_told_apart_from_what_waits_for_the_disk(bench: Bench) -> None:
    assert await bench.ask(LATER, 100, 2 * MS) == b"frame"
    assert (await bench.ask(PULL, 100, 3 * MS)).code == 21
    assert bench.told() == {
        (LATER, 0, False): (1, 2 * MS + 100),
        (PULL, 21, True): (1, 3 * MS + 100),
    }
    assert [code for code, _ in bench.finished] == [PULL]


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.POP_MESSAGE,
        RequestCode.NOTIFICATION,
    ],
)
async def test_each_request_that_waits_for_messages_counts_as_held(
    code: RequestCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ROUTES, int(code), Route(Asked, lambda *_: _later(Reply(21))))
    bench = Bench(monkeypatch)
    await bench.ask(int(code), 100, 100)
    assert list(bench.told()) == [(code, 21, True)]


async def test_a_refusal_that_comes_later_is_answered_and_finished_too(bench: Bench) -> None:
    reply = await bench.ask(80, 100, 100)
    assert (reply.code, reply.remark) == (InvalidParameter.code, "no")
    assert bench.finished == [(80, reply)]
    assert bench.told() == {(80, int(InvalidParameter.code), False): (1, 200)}


async def test_of_requests_read_together_each_begins_where_the_last_ended(bench: Bench) -> None:
    bench.took = [1_000, 50, 70, 90]
    for code in (QUICK, WELL, QUICK):
        bench.path.handle(bench.connection, Command(code))
    assert bench.connection.answered_ns == 1_000 + 50 + 70 + 90
    assert bench.told() == {(QUICK, 0, False): (2, 140), (WELL, 0, False): (1, 70)}


async def test_codes_that_nobody_serves_are_one(bench: Bench) -> None:
    for code in (1_000, 1_001):
        refused = await bench.ask(code, 10)
        assert (refused.code, refused.remark) == (3, f" request type {code} not supported")
    assert bench.told() == {(-1, 3, False): (2, 20)}


async def test_a_refusal_at_a_gate_counts_for_the_code_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(call: Any) -> None:
        raise NoPermission("not you")

    monkeypatch.setattr(remoting, "gates_at", lambda place: (refuses,) if place.code == WELL else ())
    bench = Bench(monkeypatch)
    assert (await bench.ask(WELL, 10)).remark == "not you"
    assert bench.told() == {(WELL, 16, False): (1, 10)}


async def test_a_code_that_nobody_serves_is_told_once_a_minute(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    await bench.ask(1_000)
    bench.clock.advance(59_999)
    await bench.ask(1_000)
    assert lines() == ["request code=1000 peer=10.0.0.1:5: not supported"]
    bench.clock.advance(1)
    await bench.ask(1_000)
    assert len(lines()) == 2
    bench.clock.advance(30_000)
    await bench.ask(1_001)
    await bench.ask(1_000)
    assert len(lines()) == 3, "each by itself"


async def test_a_scan_of_codes_is_not_remembered_for_ever(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for code in range(1_000, 2_000):
        await bench.ask(code)
    assert len(caplog.records) == 1_000
    await bench.ask(1_000)
    assert len(caplog.records) == 1_000, "a thousand are"
    await bench.ask(2_000)
    await bench.ask(1_000)
    assert len(caplog.records) == 1_002, "and then they begin anew"


async def test_the_adapter_has_the_fields_the_caller_and_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With gates before it and without."""

    def gate(call: Any) -> None:
        call.user = "ann"

    seen: list[Any] = []

    def adapter(request: Any, header: Asked, parts: Any) -> Any:
        seen.append((request.connection, request.command.code, request.user, header.word, parts))
        return b"frame"

    connection: Any = Thing(answered_ns=0, remote=("10.0.0.1", 5), remote_text="10.0.0.1:5")
    parts = Thing(guard=None)
    for gates, user in (((), ""), ((gate,), "ann")):
        monkeypatch.setattr(remoting, "gates_at", lambda place, gates=gates: gates)
        path = remoting.RemotingPath(Port.BROKER, {5: Route(Asked, adapter)}, parts, ManualClock())
        assert path.may_run(5) is not bool(gates)
        assert path.handle(connection, Command(5, ext={"word": "hello"})) == b"frame"
        assert seen.pop() == (connection, 5, user, "hello", parts)


# -- who serves requests ahead of the path ---------------------------------------------------------------------


def checked(monkeypatch: pytest.MonkeyPatch, checks: Any) -> remoting.RemotingPath:
    """Code 5 has a gate, of access control where `checks` are; code 6 has none."""

    def passes(call: Any) -> None:
        """A gate that lets everybody through."""

    monkeypatch.setattr(remoting, "gates_at", lambda place: (passes,) if place.code == 5 else ())
    monkeypatch.setattr(remoting, "checks_at", lambda place: checks if place.code == 5 else ())
    routes = {code: answers(b"frame") for code in (5, 6)}
    return remoting.RemotingPath(Port.BROKER, routes, Thing(guard=None), ManualClock())


def test_what_is_open_or_checked_may_run_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(call: Any) -> None:
        if call.asked.word != "please":
            raise NoPermission("no")

    connection: Any = Thing(remote=("10.0.0.1", 5))
    path = checked(monkeypatch, (refuses,))
    assert path.has_checks
    assert [path.may_run(code) for code in (5, 6, 7)] == [True, True, False]
    assert path.admits(connection, Command(6))
    assert not path.admits(connection, Command(5))
    assert path.admits(connection, Command(5, ext={"word": "please"}))
    assert not path.admits(connection, Command(7))
    gated = checked(monkeypatch, ())
    assert not gated.has_checks
    assert [gated.may_run(code) for code in (5, 6, 7)] == [False, True, False]
    assert not gated.admits(connection, Command(5))


def test_gates_of_the_table_are_made_for_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(table, "GATES", (lambda place: seen.append(place),))
    clock, parts = ManualClock(), Thing(guard=None)
    remoting.RemotingPath(Port.VIP, {5: answers(b"")}, parts, clock)
    assert {(each.port, each.route, each.code) for each in seen} == {
        (Port.VIP, "Asked", 5),
        (Port.VIP, "", None),
    }
    assert all(each.clock is clock and each.parts is parts for each in seen)
