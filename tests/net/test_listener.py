# SPDX-License-Identifier: Apache-2.0
"""A listening port: admission, idle peers, garbage, TLS beside plain, and a graceful end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import resource
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import NetworkError
from aerobee.net.connection import Answer, Connection, Large, Reply, reply_frame
from aerobee.net.door import refuse_taken
from aerobee.net.listener import Listener, ListenLimits
from aerobee.net.tls import TlsMode, client_tls, server_tls
from aerobee.net.unfinished import Unfinished
from aerobee.protocol import command as wire
from aerobee.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from aerobee.clock import ManualClock

    Until = Callable[[Callable[[], object]], Awaitable[None]]


def echo(connection: Connection, command: Command) -> Answer:
    return Reply(body=command.body)


class Visitors:
    def __init__(self) -> None:
        self.now: list[Connection] = []
        self.gone = 0

    def opened(self, connection: Connection) -> None:
        self.now.append(connection)

    def closed(self, connection: Connection) -> None:
        self.now.remove(connection)
        self.gone += 1


async def test_a_port_in_use_is_refused_by_name(ends: Any, clock: ManualClock) -> None:
    first = await ends.listen(echo)
    with pytest.raises(NetworkError, match=f"cannot listen on {first.address}"):
        await Listener(echo, clock).start(first.host, first.port)


async def test_a_port_that_could_not_be_had_leaves_nothing_open(ends: Any, clock: ManualClock) -> None:
    first = await ends.listen(echo)
    before = descriptors()
    for _ in range(3):
        with pytest.raises(NetworkError):
            await Listener(echo, clock).start(first.host, first.port)
    assert descriptors() == before


async def test_a_port_that_is_taken_is_found_out_before_a_start(ends: Any) -> None:
    """Any free port (0), none at all (-1) and one that nobody has are no reason to refuse; and asking takes none."""
    taken = await ends.listen(echo)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    before = descriptors()
    for _ in range(2):
        refuse_taken(("127.0.0.1", 0), ("127.0.0.1", -1), ("127.0.0.1", port))
    with pytest.raises(NetworkError, match=f"cannot listen on {taken.address}: .*another port"):
        refuse_taken(("127.0.0.1", 0), (taken.host, taken.port))
    assert descriptors() == before


def test_a_port_is_taken_on_its_own_address_only() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refuse_taken(("127.0.0.1", port))
        with pytest.raises(NetworkError, match=f"cannot listen on 127.0.0.2:{port}"):
            refuse_taken(("127.0.0.2", port))


async def test_it_listens_on_ipv6_too(clock: ManualClock, ends: Any) -> None:
    listener = Listener(echo, clock)
    try:
        await listener.start("::1", 0)
    except NetworkError:
        pytest.skip("no IPv6 on this machine")
    ends.listeners.append(listener)
    assert listener.address == f"[::1]:{listener.port}"
    link = await ends.dial(listener)
    assert (await link.call(Command(1, body=b"six"))).body == b"six"
    assert link.remote_text == listener.address


async def test_connections_above_the_limit_are_closed_and_logged_once(
    ends: Any, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    visitors = Visitors()
    listener = await ends.listen(echo, observer=visitors, limits=ListenLimits(max_connections=2))
    inside = [await ends.dial(listener) for _ in range(2)]
    await until(lambda: len(visitors.now) == 2)
    for _ in range(3):
        reader, _ = await ends.raw(listener)
        with contextlib.suppress(ConnectionError):  # a reset says the same
            assert await reader.read() == b""
    assert caplog.text.count("max_connections=2") == 1
    assert [(await link.call(Command(1, body=b"in"))).body for link in inside] == [b"in", b"in"]
    inside[0].close()
    await until(lambda: len(visitors.now) == 1)
    assert (await (await ends.dial(listener)).call(Command(1, body=b"freed"))).body == b"freed"
    reader, _ = await ends.raw(listener)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    assert caplog.text.count("max_connections=2") == 2, "somebody had come in since"


async def test_a_port_that_is_full_from_the_start_refuses_and_says_so_once(
    ends: Any, caplog: pytest.LogCaptureFixture
) -> None:
    listener = await ends.listen(echo, limits=ListenLimits(max_connections=0))
    for _ in range(2):
        reader, _ = await ends.raw(listener)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    assert caplog.text.count("max_connections=0 reached") == 1


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(
    ends: Any, clock: ManualClock, until: Until
) -> None:
    visitors = Visitors()
    listener = await ends.listen(echo, observer=visitors, limits=ListenLimits(idle_close_ms=120_000))
    idle, busy = await ends.dial(listener), await ends.dial(listener)
    await until(lambda: len(visitors.now) == 2)
    for _ in range(5):
        await busy.call(Command(1))
        clock.advance(seconds=29)
    assert len(visitors.now) == 2 or visitors.gone == 1
    await until(lambda: visitors.gone == 1)
    assert (await busy.call(Command(1, body=b"here"))).body == b"here"
    await until(lambda: not idle.is_open)


async def test_an_idle_connection_goes_at_the_first_look_after_its_time(
    ends: Any, clock: ManualClock, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    """There are eight looks in that time, and none any more when the port is closed."""
    caplog.set_level(logging.INFO, "aerobee.net")
    listener = await ends.listen(echo, limits=ListenLimits(idle_close_ms=800))
    await ends.raw(listener)
    await until(lambda: listener.connections)
    clock.advance(ms=799)
    assert listener.connections[0].is_open
    clock.advance(ms=1)
    await until(lambda: not listener.connections)
    assert "idle_ms=800" in caplog.text
    await listener.close()
    assert all(timer.cancelled for _, _, timer in clock._timers)


async def test_who_was_busy_once_is_looked_at_often_enough_to_go_in_time(
    ends: Any, clock: ManualClock, until: Until
) -> None:
    """An eighth of the time late at most."""
    listener = await ends.listen(echo, limits=ListenLimits(idle_close_ms=800))
    link = await ends.dial(listener)
    await link.call(Command(1))
    for ms, is_open in ((100, True), (799, True), (1, False)):
        clock.advance(ms=ms)
        await asyncio.sleep(0)
        await until(lambda is_open=is_open: bool(listener.connections) is is_open)  # type: ignore[misc]


async def test_a_peer_that_drips_bytes_counts_as_idle(ends: Any, clock: ManualClock, until: Until) -> None:
    visitors = Visitors()
    listener = await ends.listen(echo, observer=visitors, limits=ListenLimits(idle_close_ms=120_000))
    _reader, writer = await ends.raw(listener)
    await until(lambda: visitors.now)
    frame = wire.encode(Command(1, body=bytes(100)))
    for byte in frame[:20]:
        pending = visitors.now[0]._frames.pending_bytes if visitors.now else 0
        writer.write(bytes([byte]))
        await until(
            lambda pending=pending: not visitors.now or visitors.now[0]._frames.pending_bytes > pending  # type: ignore[misc]
        )
        clock.advance(seconds=10)
        if not visitors.now:
            break
    await until(lambda: not visitors.now)


async def test_a_large_frame_that_keeps_coming_is_not_idle(
    ends: Any, clock: ManualClock, until: Until
) -> None:
    listener = await ends.listen(echo, limits=ListenLimits(idle_close_ms=120_000))
    reader, writer = await ends.raw(listener)
    await until(lambda: listener.connections)
    frame = wire.encode(Command(1, body=bytes(100_000)))
    for at in range(0, len(frame), 10_000):
        writer.write(frame[at : at + 10_000])
        if at + 10_000 < len(frame):
            await until(lambda at=at: listener.connections[0]._frames.pending_bytes == at + 10_000)  # type: ignore[misc]
            clock.advance(seconds=60)
    (size,) = struct.unpack(">I", await reader.readexactly(4))
    assert len(wire.decode(await reader.readexactly(size)).body) == 100_000


async def test_half_closed_peers_are_answered_and_let_go(ends: Any, until: Until) -> None:
    listener = await ends.listen(echo)
    reader, writer = await ends.raw(listener)
    writer.write(wire.encode(Command(1, body=b"last words")))
    writer.write_eof()
    answered = await reader.read()
    assert wire.decode(answered[4:]).body == b"last words"
    await until(lambda: not listener.connections)


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[list[int]]:
    """Whoever opens something within gets EMFILE; closing one of the given makes room for one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(fd) for fd in os.listdir("/proc/self/fd")) + 1, hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.open(os.devnull, os.O_RDONLY))
        yield fillers
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\0\0\0\x40\0\0"])
@pytest.mark.parametrize("mode", list(TlsMode))
async def test_hundreds_who_come_and_go_leave_no_descriptor(
    ends: Any, until: Until, certificate: tuple[Path, Path], said: bytes, mode: TlsMode
) -> None:
    cert, key = map(str, certificate)
    listener = await ends.listen(echo, tls=server_tls(cert, key, mode))
    loop = asyncio.get_running_loop()
    before = descriptors()
    for n in range(100):
        with socket.socket() as one:
            one.setblocking(False)
            await loop.sock_connect(one, (listener.host, listener.port))
            if said:
                await loop.sock_sendall(one, said)
            if n % 2:  # a reset instead of a goodbye
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    # uvloop keeps one of its own.
    await until(lambda: not listener.connections and descriptors() <= before + 1)


async def test_who_leaves_without_a_word_was_never_there(
    ends: Any, until: Until, certificate: tuple[Path, Path]
) -> None:
    cert, key = map(str, certificate)
    visitors = Visitors()
    listener = await ends.listen(echo, observer=visitors, tls=server_tls(cert, key))
    _, writer = await ends.raw(listener)
    await until(lambda: listener._door.waiting)
    writer.close()
    await until(lambda: not listener._door.waiting)
    assert (visitors.now, visitors.gone) == ([], 0)


@pytest.mark.parametrize("said", [b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01"])
async def test_a_stalled_handshake_is_cut_off(
    ends: Any, until: Until, certificate: tuple[Path, Path], said: bytes
) -> None:
    cert, key = map(str, certificate)
    listener = await ends.listen(echo, tls=server_tls(cert, key), limits=ListenLimits(handshake_ms=20))
    reader, writer = await ends.raw(listener)
    writer.write(said)
    with contextlib.suppress(ConnectionError):
        await reader.read()
    await until(lambda: not listener._door.waiting)


async def test_without_descriptors_it_says_so_once_and_accepts_again(
    ends: Any, until: Until, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aerobee.net")
    monkeypatch.setattr("aerobee.net.door._RETRY_SECONDS", 0)
    listener = await ends.listen(echo)
    refused: list[int] = []
    monkeypatch.setattr(listener._door, "_drop_silent", refused.append)
    loop = asyncio.get_running_loop()
    with socket.socket() as one:
        one.setblocking(False)
        with no_descriptor_left():
            await loop.sock_connect(one, (listener.host, listener.port))
            await until(lambda: len(refused) >= 3)
        await until(lambda: listener.connections)
    told = [record.getMessage().split(" address")[0] for record in caplog.records]
    assert told == ["cannot accept", "accepting again"]
    assert not any(record.exc_info for record in caplog.records)


async def test_without_descriptors_those_who_never_spoke_make_room(
    ends: Any, until: Until, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.setattr("aerobee.net.door._RETRY_SECONDS", 0.001)
    listener = await ends.listen(echo)
    speaker = await ends.dial(listener)
    await speaker.call(Command(1))
    silent = [await ends.raw(listener) for _ in range(3)]
    await until(lambda: len(listener.connections) == 4)
    clock.advance(seconds=5)
    loop = asyncio.get_running_loop()
    with socket.socket() as one:
        one.setblocking(False)
        with no_descriptor_left():
            await loop.sock_connect(one, (listener.host, listener.port))
            await until(lambda: len(listener.connections) == 2)  # the speaker and the new one
        for reader, _ in silent:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert (await speaker.call(Command(1, body=b"here"))).body == b"here"


async def test_those_who_wait_to_be_admitted_count_and_may_have_to_go(
    ends: Any, until: Until, certificate: tuple[Path, Path], clock: ManualClock
) -> None:
    """They have said nothing yet: where there are enough of them nobody else is let in, and where there are no
    descriptors left those go who have had their time."""
    cert, key = map(str, certificate)
    limits = ListenLimits(max_connections=2, handshake_ms=5_000)
    listener = await ends.listen(echo, tls=server_tls(cert, key), limits=limits)
    door = listener._door
    early_reader, _ = await ends.raw(listener)
    await until(lambda: door.waiting == 1)
    clock.advance(ms=1)
    _, late = await ends.raw(listener)
    await until(lambda: door.waiting == 2)
    refused, _ = await ends.raw(listener)
    with contextlib.suppress(ConnectionError):
        assert await refused.read() == b""
    assert (door.waiting, listener.connections) == (2, [])
    clock.advance(ms=4_998)
    door._make_room()
    await asyncio.sleep(0)
    assert door.waiting == 2
    clock.advance(ms=1)
    door._make_room()
    with contextlib.suppress(ConnectionError):
        assert await early_reader.read() == b""
    await until(lambda: door.waiting == 1)
    late.write(wire.encode(Command(1)))
    await until(lambda: listener.connections)


@pytest.mark.parametrize(
    ("mode", "limits"),
    [
        (TlsMode.REQUIRED, ListenLimits(handshake_ms=20, idle_close_ms=3_600_000)),
        (TlsMode.PERMISSIVE, ListenLimits(handshake_ms=3_600_000, idle_close_ms=20)),
    ],
)
async def test_a_first_byte_is_waited_for_as_long_as_its_sender_may_take(
    ends: Any, until: Until, certificate: tuple[Path, Path], mode: TlsMode, limits: ListenLimits
) -> None:
    """A plain peer may open a connection long before it uses it; where it must speak TLS it has to begin."""
    cert, key = map(str, certificate)
    listener = await ends.listen(echo, tls=server_tls(cert, key, mode), limits=limits)
    reader, _ = await ends.raw(listener)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    await until(lambda: not listener._door.waiting)


# -- bounds over all connections -------------------------------------------------------------------------


async def test_the_oldest_unfinished_frames_are_cut_off_first(
    ends: Any, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    unfinished = Unfinished(250_000)
    listener = await ends.listen(echo, unfinished=unfinished)
    frame = wire.encode(Command(1, body=bytes(1_000_000)))
    links = [await ends.raw(listener) for _ in range(3)]
    for n, (_, writer) in enumerate(links, 1):
        writer.write(frame[:80_000])
        await until(lambda n=n: unfinished.total == n * 80_000)  # type: ignore[misc]
    links[2][1].write(frame[80_000:100_000])
    await until(lambda: len(listener.connections) == 2)
    assert await links[0][0].read() == b""
    assert unfinished.total == 180_000
    assert caplog.text.count("cutting off") == 1
    assert "max_unfinished_bytes=250000" in caplog.text
    for _, writer in links[1:]:
        writer.transport.abort()
    await until(lambda: unfinished.total == 0)


async def test_a_frame_counts_from_its_own_beginning(ends: Any, until: Until) -> None:
    unfinished = Unfinished(1_000_000)
    listener = await ends.listen(echo, unfinished=unfinished)
    frame = wire.encode(Command(1, body=bytes(1_000)))
    (old_reader, old), (_, new) = await ends.raw(listener), await ends.raw(listener)
    old.write(frame[:500])
    await until(lambda: unfinished.total == 500)
    new.write(frame[:600])
    await until(lambda: unfinished.total == 1_100)
    old.write(frame[500:] + frame[:100])  # whole, and another one begun: now the younger of the two
    await old_reader.readexactly(4)
    assert unfinished.total == 700
    assert [connection.remote for connection in unfinished._held] == [  # type: ignore[attr-defined]
        new.get_extra_info("sockname"),
        old.get_extra_info("sockname"),
    ]


# -- the end ---------------------------------------------------------------------------------------------


async def test_closing_answers_held_requests_first(ends: Any, until: Until) -> None:
    wake = asyncio.Event()

    async def held() -> Answer:
        await wake.wait()
        return Reply(body=b"answered at the end")

    listener = await ends.listen(lambda connection, command: held())
    link = await ends.dial(listener)
    call = link.start_call(Command(1))
    await until(lambda: listener.connections and listener.connections[0].held)
    closing = asyncio.ensure_future(listener.close())
    await asyncio.sleep(0)
    with pytest.raises(NetworkError):
        await ends.pool().get(listener.address)
    wake.set()
    assert (await call).body == b"answered at the end"
    await closing
    await until(lambda: not link.is_open)


async def test_closing_waits_for_every_held_request_not_only_the_first_that_is_answered(
    ends: Any, until: Until
) -> None:
    wake = [asyncio.Event() for _ in range(3)]

    async def held(at: int) -> Answer:
        await wake[at].wait()
        return Reply(remark=str(at))

    listener = await ends.listen(lambda connection, command: held(command.code))
    link = await ends.dial(listener)
    calls = [link.start_call(Command(at)) for at in range(3)]
    await until(lambda: listener.connections and len(listener.connections[0].held) == 3)
    closing = asyncio.ensure_future(listener.close())
    for at, call in enumerate(calls):
        assert not closing.done()
        wake[at].set()
        assert (await call).remark == str(at)
    await closing


async def test_closing_takes_no_more_requests(ends: Any, until: Until) -> None:
    wake, served = asyncio.Event(), list[int]()

    async def held() -> Answer:
        await wake.wait()
        return Reply()

    def handle(connection: Connection, command: Command) -> Any:
        served.append(command.code)
        return held() if command.code == 1 else Reply()

    listener = await ends.listen(handle)
    link = await ends.dial(listener)
    first = link.start_call(Command(1))
    await until(lambda: served)
    closing = asyncio.ensure_future(listener.close())
    await until(lambda: listener._emptied is not None)
    late = link.start_call(Command(2))
    for _ in range(100):
        await asyncio.sleep(0)
    wake.set()
    await first
    await closing
    with pytest.raises(NetworkError):
        await late
    assert served == [1]


async def test_closing_lets_a_slow_reader_have_its_answer(ends: Any, until: Until) -> None:
    listener = await ends.listen(lambda connection, command: Reply(body=bytes(20_000_000)))
    reader, writer = await ends.raw(listener)
    writer.write(wire.encode(Command(1)))
    await until(lambda: listener.connections and listener.connections[0]._paused)
    closing = asyncio.ensure_future(listener.close(grace_ms=20_000))
    (size,) = struct.unpack(">I", await reader.readexactly(4))
    assert len(wire.decode(await reader.readexactly(size)).body) == 20_000_000
    await closing


async def test_closing_cuts_what_is_not_answered_in_time(ends: Any, until: Until) -> None:
    async def forever() -> Answer:
        await asyncio.Event().wait()
        return None

    listener = await ends.listen(lambda connection, command: forever())
    link = await ends.dial(listener)
    call = link.start_call(Command(1))
    await until(lambda: listener.connections and listener.connections[0].held)
    await listener.close(grace_ms=5)
    with pytest.raises(NetworkError):
        await call


async def test_closing_does_not_wait_for_a_peer_that_never_reads(ends: Any, until: Until) -> None:
    listener = await ends.listen(lambda connection, command: Reply(body=bytes(10_000_000)))
    _, writer = await ends.raw(listener)
    writer.transport.pause_reading()
    writer.write(wire.encode(Command(1)))
    await until(lambda: listener.connections and listener.connections[0]._paused)
    await listener.close(grace_ms=5)
    assert not listener.connections


async def test_closing_ends_though_a_connection_never_says_that_it_is_lost(
    ends: Any, until: Until, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("aerobee.net.listener._CUT_SECONDS", 0.01)
    listener = await ends.listen(echo)
    monkeypatch.setattr(listener, "closed", lambda connection: None)  # what a connection says when it is lost
    await ends.raw(listener)
    await until(lambda: listener.connections)
    async with asyncio.timeout(5):
        await listener.close(grace_ms=5)
    listener._alive.clear()
    assert "closed with connections=1 that did not end" in caplog.text


async def test_closing_turns_away_who_is_being_admitted(
    ends: Any, certificate: tuple[Path, Path], until: Until
) -> None:
    cert, key = map(str, certificate)
    listener = await ends.listen(echo, tls=server_tls(cert, key))
    reader, _ = await ends.raw(listener)
    await until(lambda: listener._door.waiting)
    await listener.close()
    await asyncio.sleep(0)
    assert listener._door.waiting == 0
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""


async def test_closing_twice_or_before_any_connection_is_fine(ends: Any) -> None:
    listener = await ends.listen(echo)
    await listener.close()
    await listener.close()


# -- TLS -------------------------------------------------------------------------------------------------


async def test_tls_and_plain_share_one_port(ends: Any, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    listener = await ends.listen(echo, tls=server_tls(str(cert), str(key)))
    secret = await ends.dial(listener, tls=client_tls(str(cert)))
    trusting = await ends.dial(listener, tls=client_tls())
    plain = await ends.dial(listener)
    body = bytes(3_000_000)
    for link in (secret, trusting, plain):
        assert (await link.call(Command(1, body=body))).body == body
    assert isinstance(secret._transport.get_extra_info("ssl_object"), (ssl.SSLObject, ssl.SSLSocket))
    assert plain._transport.get_extra_info("ssl_object") is None


async def test_a_body_sent_from_where_it_lies_arrives_whole_with_and_without_tls(
    ends: Any, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    lying = memoryview(bytes(range(256)) * 20_000)

    def large(_: Connection, command: Command) -> Large:
        return Large(reply_frame(command, Reply()), lying[1:])

    listener = await ends.listen(large, tls=server_tls(str(cert), str(key)))
    for tls in (None, client_tls()):
        peer = await ends.dial(listener, tls=tls)
        assert (await peer.call(Command(1))).body == lying[1:]
        assert (await peer.call(Command(1))).body == lying[1:]


async def test_plain_is_refused_where_tls_is_required(ends: Any, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    tls = server_tls(str(cert), str(key), TlsMode.REQUIRED)
    listener = await ends.listen(echo, tls=tls)
    assert (await (await ends.dial(listener, tls=client_tls())).call(Command(1, body=b"s"))).body == b"s"
    plain = await ends.dial(listener)
    with pytest.raises(NetworkError):
        await plain.call(Command(1))


async def test_a_tls_hello_on_a_plain_port_is_closed(ends: Any, caplog: pytest.LogCaptureFixture) -> None:
    listener = await ends.listen(echo)
    with pytest.raises(NetworkError, match="cannot connect"):
        await ends.dial(listener, tls=client_tls())
    assert "frame of" in caplog.text


async def test_a_tls_hello_that_is_garbage_or_never_comes_is_closed(
    ends: Any, certificate: tuple[Path, Path], until: Until
) -> None:
    cert, key = certificate
    limits = ListenLimits(handshake_ms=20, idle_close_ms=20)
    listener = await ends.listen(echo, tls=server_tls(str(cert), str(key)), limits=limits)
    for first in (b"\x16garbage that is no handshake at all", b""):
        reader, writer = await ends.raw(listener)
        writer.write(first)
        with contextlib.suppress(ConnectionError):
            await reader.read()
    assert (await (await ends.dial(listener)).call(Command(1, body=b"well"))).body == b"well"
    await until(lambda: not listener._door.waiting)


async def test_the_connection_limit_holds_for_tls_too(
    ends: Any, certificate: tuple[Path, Path], until: Until
) -> None:
    cert, key = certificate
    tls = server_tls(str(cert), str(key))
    listener = await ends.listen(echo, tls=tls, limits=ListenLimits(max_connections=1))
    link = await ends.dial(listener, tls=client_tls())
    await until(lambda: listener.connections)
    with pytest.raises(NetworkError):
        await ends.dial(listener, tls=client_tls())
    assert (await link.call(Command(1, body=b"in"))).body == b"in"


def test_tls_settings_that_cannot_work_are_refused_by_name(tmp_path: Path) -> None:
    assert server_tls("", "") is None
    assert server_tls("cert.pem", "", TlsMode.OFF) is None
    with pytest.raises(ValueError, match=r"nowhere\.pem"):
        server_tls(str(tmp_path / "nowhere.pem"), "")


# -- garbage ---------------------------------------------------------------------------------------------


def nonsense(chance: random.Random) -> bytes:
    good = wire.encode(Command(1, body=chance.randbytes(20)))
    match chance.randrange(7):
        case 0:
            return chance.randbytes(chance.randrange(200))
        case 1:
            return b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
        case 2:
            return good[: chance.randrange(len(good))]
        case 3:
            at = chance.randrange(len(good))
            return good[:at] + chance.randbytes(1) + good[at + 1 :]
        case 4:
            return struct.pack(">I", chance.randrange(1 << 32)) + chance.randbytes(8)
        case 5:
            return b""
        case _:
            return struct.pack(">II", 40, chance.randrange(1 << 32)) + chance.randbytes(36)


@pytest.mark.slow
async def test_a_thousand_garbage_connections_do_no_harm(ends: Any, until: Until, clock: ManualClock) -> None:
    logging.getLogger("aerobee.net").setLevel(logging.ERROR)
    try:
        chance = random.Random(7)
        listener = await ends.listen(echo, limits=ListenLimits(idle_close_ms=120_000))
        healthy = await ends.dial(listener)
        for n in range(1000):
            _, writer = await asyncio.open_connection(listener.host, listener.port)
            writer.write(nonsense(chance))
            if n % 3 == 0:
                writer.transport.abort()
            elif n % 3 == 1:
                writer.close()
            else:
                ends.writers.append(writer)
            if n % 50 == 0:
                assert (await healthy.call(Command(1, body=b"%d" % n))).body == b"%d" % n
        for _ in range(10):
            clock.advance(seconds=29)
            await healthy.call(Command(1))
        await until(lambda: len(listener.connections) == 1)
        assert (await healthy.call(Command(1, body=b"fine"))).body == b"fine"
    finally:
        logging.getLogger("aerobee.net").setLevel(logging.NOTSET)
