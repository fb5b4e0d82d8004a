# SPDX-License-Identifier: Apache-2.0
"""The two ends of a pipe without sockets: what passes, who is slowed down, what is counted as unfinished."""

from __future__ import annotations

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.fronts.grpc.mux import PREFACE, _Back, _Front, _Side


class Transport:
    def __init__(self, unwritten: int = 0) -> None:
        self.calls: list[Any] = []
        self.closing, self._unwritten = False, unwritten

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.calls.append("close")
        self.closing = True

    def abort(self) -> None:
        self.calls.append("abort")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def get_write_buffer_size(self) -> int:
        return self._unwritten

    def get_extra_info(self, name: str) -> Any:
        return ("10.0.0.1", 7) if name == "peername" else None


class Unfinished:
    """What the ports together may hold of messages that are not whole."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def hold(self, who: Any, size: int) -> None:
        self.calls.append(size)

    def release(self, who: Any) -> None:
        self.calls.append("release")


@pytest.fixture
def pipes() -> Any:
    said: list[str] = []
    return SimpleNamespace(
        said=said,
        open_sides=set(),
        clients={},
        unfinished=Unfinished(),
        limits=SimpleNamespace(max_message=1_000, max_streams=2, handshake_ms=5_000),
        complaints=SimpleNamespace(add=said.append),
    )


def joined(pipes: Any, one: _Side, two: _Side) -> tuple[Transport, Transport]:
    ends = Transport(), Transport()
    one.other, two.other = two, one
    for side, end in zip((one, two), ends, strict=True):
        side.transport = end  # type: ignore[assignment]
        pipes.open_sides.add(side)
    return ends


def test_what_one_end_says_the_other_writes_and_who_cannot_write_slows_the_other_down(pipes: Any) -> None:
    one, two = _Side(pipes), _Side(pipes)
    first, second = joined(pipes, one, two)
    one.data_received(b"a")
    two.data_received(b"b")
    one.pause_writing()
    one.resume_writing()
    assert (first.calls, second.calls) == ([b"b"], [b"a", "pause", "resume"])


def test_an_end_whose_other_is_not_there_or_gone_says_nothing_to_it(pipes: Any) -> None:
    alone, left = _Side(pipes), _Side(pipes)
    half = _Side(pipes, left)
    for side in (alone, half):
        side.data_received(b"a")
        side.pause_writing()
        side.resume_writing()
        side.connection_lost(None)
        side.close()
        side.abort()
    assert left.transport is None


def test_an_end_that_is_lost_closes_the_other_and_is_open_no_more(pipes: Any) -> None:
    one = _Side(pipes)
    pipes.clients["unix:1"] = ("10.0.0.1", 7)
    two = _Back(pipes, one, "unix:1")
    first, second = joined(pipes, one, two)
    two.connection_lost(None)
    assert (first.calls, second.calls) == (["close"], [])
    assert (pipes.open_sides, pipes.clients, two.transport) == ({one}, {}, None)
    one.close()
    assert first.calls == ["close"], "once"


async def test_a_peer_that_does_not_read_what_is_left_has_so_long(
    pipes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    later: list[Any] = []
    monkeypatch.setattr(
        asyncio.get_running_loop(), "call_later", lambda delay, do: later.append((delay, do)), raising=False
    )
    for unwritten in (0, 1):
        side = _Side(pipes)
        side.transport = Transport(unwritten)  # type: ignore[assignment]
        side.close()
    assert [delay for delay, _ in later] == [5.0]


def data_frame(stream: int, payload: bytes, flags: int = 0) -> bytes:
    return struct.pack(">IBI", len(payload) << 8, flags, stream) + payload


def message(size: int) -> bytes:
    return b"\0" + struct.pack(">I", size) + bytes(size)


def test_parts_of_messages_are_held_and_let_go_when_one_is_whole(pipes: Any) -> None:
    front, back = _Front(pipes), _Side(pipes)
    _, inner = joined(pipes, front, back)
    whole = message(100)
    pieces = [
        PREFACE,
        data_frame(1, whole[:50]),  # 45 of it
        data_frame(1, whole[50:60]),  # 10 more, still not whole: what is held is not let go in between
        data_frame(3, whole[:25]),  # another
        data_frame(1, whole[60:]),  # the first is whole
        data_frame(3, whole[25:]),  # and the second
        data_frame(1, message(10)),  # whole at once
    ]
    for piece in pieces:
        front.data_received(piece)
    assert pipes.unfinished.calls == [45, 55, 75, "release", 20, "release"]
    assert inner.calls == pieces


def test_a_client_with_too_much_under_way_is_cut_off_and_nothing_of_it_passes(pipes: Any) -> None:
    front, back = _Front(pipes), _Side(pipes)
    outer, inner = joined(pipes, front, back)
    front.remote_text = "10.0.0.1:7"
    front.data_received(PREFACE + b"".join(data_frame(stream, b"\0") for stream in (1, 3, 5)))
    assert outer.calls == ["abort"]
    assert inner.calls == []
    (said,) = pipes.said
    assert said.startswith("closing peer=10.0.0.1:7: ")
