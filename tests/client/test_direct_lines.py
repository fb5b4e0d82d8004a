# SPDX-License-Identifier: Apache-2.0
"""The sockets of blocking sends alone: what a line takes for its answer, and which line a thread is given."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.options import Options
from aerobee.client.produce.direct import DirectSends, Line
from aerobee.client.session.route_cache import RouteCache
from aerobee.clock import ManualClock
from aerobee.errors import NetworkError, RequestTimeout
from aerobee.protocol import command as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Line, socket.socket, list[Any]]]:
    """A line, its other end, and how the line was dialled."""
    near, far = socket.socketpair()
    dialled: list[Any] = []

    def dial(address: tuple[str, int], timeout_s: float) -> Any:
        dialled.append((address, timeout_s))
        return _Noted(near, dialled)

    monkeypatch.setattr(socket, "create_connection", dial)
    line = Line("10.0.0.1:10911", 2.5)
    yield line, far, dialled
    line.close()
    far.close()


class _Noted:
    """A socket of a pair has no TCP options."""

    def __init__(self, inner: socket.socket, noted: list[Any]) -> None:
        self._inner = inner
        self._noted = noted

    def setsockopt(self, *option: int) -> None:
        self._noted.append(option)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def frame(opaque: int, flag: int = wire.RESPONSE, code: int = 0, remark: str | None = None) -> bytes:
    return wire.encode(wire.Command(code, opaque, flag, remark=remark))


def asked(line: Line) -> wire.Command:
    return line.ask(lambda opaque: frame(opaque, flag=0))


def test_a_line_is_dialled_by_host_and_port_and_sends_without_delay(pair: Any) -> None:
    line, _, dialled = pair
    assert dialled == [(("10.0.0.1", 10911), 2.5), (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    assert line._socket.gettimeout() == 2.5


@pytest.mark.parametrize(("timeout_s", "dial_s"), [(0.5, 0.5), (3.0, 3.0), (9.0, 3.0)])
def test_dialling_has_three_seconds_at_most(
    monkeypatch: pytest.MonkeyPatch, timeout_s: float, dial_s: float
) -> None:
    given: list[float] = []

    def dial(address: tuple[str, int], timeout_s: float) -> Any:
        given.append(timeout_s)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", dial)
    with pytest.raises(NetworkError, match=r"^cannot connect to 10\.0\.0\.1:1: Connection refused$"):
        Line("10.0.0.1:1", timeout_s)
    assert given == [dial_s]


def test_only_the_answer_to_what_was_asked_is_taken_for_it(pair: Any) -> None:
    line, far, _ = pair
    far.sendall(frame(1, flag=0, code=40) + frame(7, remark="another's") + frame(1, remark="ours"))
    assert asked(line).remark == "ours"
    assert wire.decode(far.recv(1 << 16)[4:]).opaque == 1
    far.sendall(frame(1, remark="late") + frame(2, remark="next"))
    assert asked(line).remark == "next"


def test_an_answer_in_pieces_is_waited_for(pair: Any) -> None:
    line, far, _ = pair
    whole = frame(1, remark="whole")
    pieces = threading.Thread(target=lambda: [far.sendall(whole[at : at + 1]) for at in range(len(whole))])
    pieces.start()
    assert asked(line).remark == "whole"
    pieces.join()


def test_the_numbers_of_requests_begin_again_before_they_are_too_large(pair: Any) -> None:
    line, far, _ = pair
    line._opaque = 0x7FFFFFFE
    for opaque in (0x7FFFFFFF, 0):
        far.sendall(frame(opaque))
        assert asked(line).opaque == opaque


def test_what_goes_wrong_on_a_line_is_told_as_what_it_is(pair: Any) -> None:
    line, far, _ = pair
    line._socket.settimeout(0.001)
    with pytest.raises(RequestTimeout, match="no answer in time"):
        asked(line)
    far.close()
    line._socket.settimeout(2.5)
    with pytest.raises(NetworkError, match=r"^connection to 10\.0\.0\.1:10911(: Broken pipe| was lost)$"):
        asked(line)


def test_the_end_of_a_line_is_told(pair: Any) -> None:
    line, far, _ = pair
    far.shutdown(socket.SHUT_WR)
    with pytest.raises(NetworkError, match=r"^connection to 10\.0\.0\.1:10911 was lost$"):
        asked(line)


def test_a_line_is_open_as_long_as_nothing_comes_by_itself(pair: Any) -> None:
    line, far, _ = pair
    assert line.is_open()
    assert line._socket.gettimeout() == 2.5, "and waits as long as before for its next answer"
    far.sendall(b"x")
    assert not line.is_open()


def test_a_line_whose_other_end_is_gone_is_not_open(pair: Any) -> None:
    line, far, _ = pair
    far.close()
    assert not line.is_open()
    line.close()
    assert not line.is_open(), "nor one that is closed here"


# -- which line ----------------------------------------------------------------------------------------------


class Spare:
    """A line that nobody writes to."""

    def __init__(self, used: int, *, is_open: bool = True) -> None:
        self.last_used = used
        self.asked = 0
        self.closed = False
        self._open = is_open

    def is_open(self) -> bool:
        self.asked += 1
        return self._open

    def ask(self, render: Callable[[int], bytes]) -> Any:
        return render(1)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def sends() -> Any:
    clock = ManualClock(100_000)
    session: Any = SimpleNamespace(clock=clock, routes=RouteCache(), options=Options())
    sender: Any = SimpleNamespace()
    found: Any = DirectSends(session, sender, lambda message: sender)
    found.clock = clock
    return found


def test_the_line_used_last_is_used_next_and_is_asked_only_after_a_second(sends: Any) -> None:
    older, newer = Spare(sends.clock.now()), Spare(sends.clock.now())
    sends._lines["a:1"] += [older, newer]
    sends.clock.advance(999)
    assert sends._open_line("a:1") is newer
    assert newer.asked == 0, "surely open"
    sends.clock.advance(1)
    assert sends._open_line("a:1") is older
    assert older.asked == 1
    assert sends._open_line("a:1") is None
    assert not older.closed
    assert not newer.closed


def test_lines_that_were_closed_meanwhile_are_passed_over(sends: Any) -> None:
    good, gone = Spare(0), Spare(0, is_open=False)
    sends._lines["a:1"] += [good, gone]
    sends._lines["b:1"] += [Spare(0)]
    assert sends._open_line("a:1") is good
    assert (gone.closed, good.closed) == (True, False)
    assert len(sends._lines["b:1"]) == 1, "another broker's lines are not looked at"


def test_a_line_that_answered_is_kept_with_the_time_of_its_use(sends: Any) -> None:
    line = Spare(0)
    sends._lines["a:1"].append(line)
    sends.clock.advance(5_000)
    assert sends._ask("a:1", lambda opaque: b"answer") == b"answer"
    assert (list(sends._lines["a:1"]), line.last_used) == ([line], sends.clock.now())
    assert (sends._in_use, line.closed) == (0, False)


def test_a_line_that_failed_is_closed_and_not_kept(sends: Any) -> None:
    line = Spare(0)
    sends._lines["a:1"].append(line)
    with pytest.raises(ZeroDivisionError):
        sends._ask("a:1", lambda opaque: 1 // 0)
    assert (line.closed, list(sends._lines["a:1"]), sends._in_use) == (True, [], 0)


def test_a_send_that_outlasts_the_end_closes_its_line_itself(sends: Any) -> None:
    line, other = Spare(0), Spare(0)
    sends._lines["a:1"].append(line)
    sends._lines["b:1"].append(other)
    waits: list[Any] = []

    def meanwhile(opaque: int) -> bytes:
        sends._idle.wait_for = lambda over, wait_s: waits.append((over(), wait_s))  # type: ignore[func-returns-value]
        sends.close(1_500)
        return b"answer"

    assert sends._ask("a:1", meanwhile) == b"answer"
    assert waits == [(False, 1.5)], "one is under way still, and is not waited for without end"
    assert (line.closed, other.closed, list(sends._lines["a:1"])) == (True, True, [])


def test_the_end_waits_for_the_sends_under_way(sends: Any) -> None:
    line, begun, ended = Spare(0), threading.Event(), threading.Event()
    sends._lines["a:1"].append(line)

    def slowly(opaque: int) -> bytes:
        begun.set()
        ended.wait(30)
        return b"answer"

    sending = threading.Thread(target=sends._ask, args=("a:1", slowly))
    closing = threading.Thread(target=sends.close, args=(120_000,))
    sending.start()
    begun.wait(30)
    closing.start()
    while not sends._idle._waiters:
        pass
    ended.set()
    closing.join(30)
    sending.join(30)
    assert not closing.is_alive(), "told as soon as the last has ended"
    assert line.closed


@pytest.mark.parametrize(
    "options", [Options(tls="on"), Options(trace=True), Options(avoid_slow_brokers=True)]
)
def test_what_a_line_cannot_do_does_not_begin_on_one(options: Options) -> None:
    session: Any = SimpleNamespace(clock=ManualClock(), routes=RouteCache(), options=options)
    fails: Any = lambda message: 1 // 0  # noqa: E731
    message: Any = SimpleNamespace(topic="T")
    session.routes._topics["T"] = SimpleNamespace(writable=[1])
    assert DirectSends(session, message, fails).send(message, None, None, None) is None
