# SPDX-License-Identifier: Apache-2.0
"""One connection per address, dialled once however many ask."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.errors import NetworkError
from aerobee.net import pool as pool_module
from aerobee.net.connection import Answer, Connection, Limits, Reply
from aerobee.net.shared import Shared
from aerobee.net.tls import client_tls
from aerobee.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Until = Callable[[Callable[[], object]], Awaitable[None]]


def echo(connection: Connection, command: Command) -> Answer:
    return Reply(body=command.body)


class Seen:
    def __init__(self) -> None:
        self.events: list[str] = []

    def opened(self, connection: Connection) -> None:
        self.events.append("opened")

    def closed(self, connection: Connection) -> None:
        self.events.append("closed")


async def test_everyone_who_asks_at_once_shares_one_dial(ends: Any, until: Until) -> None:
    listener = await ends.listen(echo)
    pool = ends.pool()
    found = await asyncio.gather(*(pool.get(listener.address) for _ in range(20)))
    assert len(set(map(id, found))) == 1
    assert await pool.get(listener.address) is found[0]
    await until(lambda: len(listener.connections) == 1)


async def test_one_callers_cancellation_is_not_the_others(ends: Any) -> None:
    listener = await ends.listen(echo)
    pool = ends.pool()
    impatient = asyncio.ensure_future(pool.get(listener.address))
    patient = asyncio.ensure_future(pool.get(listener.address))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await (await patient).call(Command(1, body=b"x"))).body == b"x"
    with pytest.raises(asyncio.CancelledError):
        await impatient


async def test_a_closed_connection_is_replaced_and_observers_are_told(ends: Any, until: Until) -> None:
    seen = Seen()
    listener = await ends.listen(echo)
    pool = ends.pool(observer=seen)
    first = await pool.get(listener.address)
    assert pool.connections == {listener.address: first}
    await until(lambda: listener.connections)
    listener.connections[0].abort()
    await until(lambda: seen.events == ["opened", "closed"])
    assert pool.peek(listener.address) is None
    second = await pool.get(listener.address)
    assert second is not first
    assert (await second.call(Command(1, body=b"again"))).body == b"again"


async def test_what_is_open_is_listed_with_its_address_and_nothing_that_was_closed(
    ends: Any, until: Until
) -> None:
    first, second = await ends.listen(echo), await ends.listen(echo)
    pool = ends.pool(limits=Limits(max_frame=1_000))
    links = {each.address: await pool.get(each.address) for each in (first, second)}
    assert pool.connections == links
    for address, link in links.items():
        assert link.attributes["address"] == address
        assert link.limits.max_frame == 1_000
    links[first.address].close()
    assert list(pool.connections) == [second.address], "it ends in a later turn of the loop"
    await until(lambda: list(pool._open) == [second.address])


async def test_one_that_ends_after_it_was_replaced_takes_nobody_along(ends: Any) -> None:
    """Its end may be noticed late; the address has another connection by then."""
    listener = await ends.listen(echo)
    pool = ends.pool()
    first = await pool.get(listener.address)
    first.close()
    second = await pool.get(listener.address)
    pool.closed(first)
    assert pool.peek(listener.address) is second


async def test_a_peer_that_never_says_goodbye_is_cut_off(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "GOODBYE_MS", 5)
    happened: list[str] = []

    class Deaf:
        is_open = True

        def close(self) -> None:
            happened.append("closed")

        def abort(self) -> None:
            happened.append("aborted")

    pool = ends.pool(tls=client_tls())
    pool._open["127.0.0.1:1"] = Deaf()
    await pool.close()
    assert happened == ["closed", "aborted"]
    assert pool.connections == {}


async def test_a_failed_dial_names_the_address_for_all_who_waited(ends: Any) -> None:
    listener = await ends.listen(echo)
    await listener.close()
    pool = ends.pool()
    results = await asyncio.gather(*(pool.get(listener.address) for _ in range(3)), return_exceptions=True)
    for result in results:
        assert isinstance(result, NetworkError)
        assert listener.address in str(result)


async def test_a_dial_that_nobody_answers_gives_up(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "DIAL_MS", 5)

    async def never(*args: object, **kwargs: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    with pytest.raises(NetworkError, match=r"cannot connect to 127\.0\.0\.1:1 within 5 ms"):
        await ends.pool().get("127.0.0.1:1")


async def test_a_wrong_address_is_misuse_not_a_network_error(ends: Any) -> None:
    pool = ends.pool()
    for _ in range(2):
        with pytest.raises(ValueError, match="nonsense"):
            await pool.get("nonsense")


async def test_a_closed_pool_dials_no_more(ends: Any) -> None:
    listener = await ends.listen(echo)
    pool = ends.pool()
    link = await pool.get(listener.address)
    await pool.close()
    assert not link.is_open
    with pytest.raises(NetworkError, match="closed"):
        await pool.get(listener.address)


async def test_closing_ends_a_dial_under_way(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*args: object, **kwargs: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    pool = ends.pool()
    waiting = asyncio.ensure_future(pool.get("127.0.0.1:1"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await pool.close()
    with pytest.raises(NetworkError, match="closed"):
        await waiting


async def test_a_peer_that_asks_a_client_without_handler_is_refused(ends: Any, until: Until) -> None:
    listener = await ends.listen(echo)
    await ends.dial(listener)
    await until(lambda: listener.connections)
    assert (await listener.connections[0].call(Command(9999))).code == 3


async def test_work_that_is_shared_has_ended_when_its_end_was_waited_for() -> None:
    ended: list[str] = []

    async def work(key: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(key)

    shared = Shared(work, "asking for")
    asking = asyncio.ensure_future(shared.get("a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await shared.close()
    assert ended == ["a"]
    with pytest.raises(NetworkError, match="not asking for a: this client is closed"):
        await asking
