# SPDX-License-Identifier: Apache-2.0
"""Transactions: half messages that are open, and how often their producer was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee import BrokerConfig, Message, Server, TransactionProducer, TransactionState
from aerobee.console import halves
from aerobee.errors import RequestCodeNotSupported
from tests.turning import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee import Admin
    from aerobee.client.message import ReceivedMessage

asked: list[str] = []


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Asks the first time at once, and then not again for as long as a test takes."""
    config = BrokerConfig(transaction_timeout_ms=0, transaction_check_ms=60_000)
    async with Server(ephemeral=True, grpc_port=-1, config=config) as running:
        yield running


async def unsure(message: ReceivedMessage) -> TransactionState:
    asked.append(message.message_id)
    return TransactionState.UNKNOWN


@pytest.fixture
async def producer(server: Server, admin: Admin) -> AsyncIterator[TransactionProducer]:
    asked.clear()
    await admin.create_topic("orders", queues=1)
    async with TransactionProducer(server.namesrv, group="shop-tx", check=unsure) as running:
        yield running


async def begin(producer: TransactionProducer, body: bytes, state: TransactionState) -> str:
    return (await producer.send_in_transaction(Message("orders", body), lambda *_: state)).message_id


async def test_with_none_open_it_says_what_would_be_there(browser: Any, server: Server) -> None:
    page = await browser.get("/transactions")
    assert "No transaction is open." in page and "gives up after" in page


async def test_only_what_is_open_is_there_and_who_it_is_of(
    browser: Any, producer: TransactionProducer
) -> None:
    await begin(producer, b"committed", TransactionState.COMMIT)
    await begin(producer, b"rolled back", TransactionState.ROLLBACK)
    await begin(producer, b"undecided", TransactionState.UNKNOWN)
    page = await browser.get("/transactions")
    assert "undecided" in page and "rolled back" not in page and "committed<" not in page
    assert "for orders" in page and "of producers shop-tx" in page
    assert "undecided" in await browser.get("/transactions?group=shop-tx&topic=orders")
    assert "No open transaction is of that." in await browser.get("/transactions?group=others")


@pytest.mark.slow
async def test_one_that_was_asked_about_is_there_once_with_its_count(
    browser: Any, producer: TransactionProducer
) -> None:
    await begin(producer, b"undecided", TransactionState.UNKNOWN)
    await until(lambda: asked)
    page = await browser.get("/transactions")
    assert page.count("asked about 1 times") == 1
    assert page.count("of producers shop-tx") == 1


async def test_more_than_are_read_are_said(
    browser: Any, producer: TransactionProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halves, "HALVES_READ", 1)
    for body in (b"one", b"two"):
        await begin(producer, body, TransactionState.UNKNOWN)
    assert "Only the first 1 half messages were looked at" in await browser.get("/transactions")


async def test_a_hostile_body_is_escaped(browser: Any, producer: TransactionProducer) -> None:
    await begin(producer, b"<script>alert(1)</script>", TransactionState.UNKNOWN)
    page = await browser.get("/transactions?topic=&group=")
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    assert "<script>x" not in await browser.get("/transactions?topic=%3Cscript%3Ex")


async def test_a_broker_that_does_not_let_them_be_read_says_so(
    browser: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any) -> None:
        raise RequestCodeNotSupported("not here")

    await browser.get("/transactions")
    desk = await browser.app.state.console.desks.of("")
    monkeypatch.setattr(desk.admin, "offset_range", refuse)
    assert "cannot be looked at" in await browser.get("/transactions")
