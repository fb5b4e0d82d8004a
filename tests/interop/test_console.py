# SPDX-License-Identifier: Apache-2.0
"""Every page of the console on the original: it works, or says what that broker does not tell; acts arrive."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import httpx

from aerobee import (
    Admin,
    Message,
    Producer,
    PushConsumer,
    PushOptions,
    TransactionProducer,
    TransactionState,
)
from aerobee.console.app import make_app
from aerobee.console.routes import ROUTES, Act

if TYPE_CHECKING:
    from servers import Server

    from aerobee.client.message import ReceivedMessage

TOPIC, GROUP = "console-orders", "console-billing"
# Pages of something that is not there: a broker that keeps no users, a client or a step that was not named.
EXPLAINED = ("/find", "/accounts/users/{user}", "/accounts/users/{user}/step", "/clients/one")


async def _fine(message: ReceivedMessage) -> None:
    return None


async def test_every_page_works_and_acts_arrive(make_server) -> None:
    server: Server = make_server("rocketmq")
    app = make_app(server.namesrv)
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Admin(server.namesrv))
        message_id = await _filled(admin, server.namesrv)
        broker = next(iter(await admin.masters()))
        consumer = PushConsumer(
            server.namesrv,
            group=GROUP,
            topics={TOPIC: "*"},
            handler=_fine,
            start="first",
            options=PushOptions(trace=True, persist_offsets_ms=500),
        )
        await stack.enter_async_context(consumer)
        transport = httpx.ASGITransport(app=app)
        browser = await stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        )
        stack.push_async_callback(app.state.console.desks.stop)
        wrong = {}
        for route in ROUTES:
            if not isinstance(route, Act):
                named = {
                    "id": message_id,
                    "broker": broker,
                    "level": "18",
                    "name": "brokerName",
                    "user": "shop",
                }
                path = route.path.format(topic=TOPIC, group=GROUP, **named)
                answer = await browser.get(path)
                if answer.status_code >= (500 if route.path in EXPLAINED else 300):
                    wrong[path] = (answer.status_code, answer.text[-600:])
        assert wrong == {}
        group = (await browser.get(f"/groups/{GROUP}")).text
        assert "This broker tells less" in group
        assert ">-1<" not in group
        assert "RocketMQ V5_3_3" in (await browser.get("/")).text
        await _waiting(browser)
        await _one_message(browser, message_id)
        await _act(browser, admin)


async def _waiting(browser: httpx.AsyncClient) -> None:
    """What is delayed, undecided, connected and set is told by the original, too."""
    assert f"for {TOPIC}" in (await browser.get("/timers/levels/18")).text
    assert f"for {TOPIC}" in (await browser.get("/timers")).text
    undecided = (await browser.get("/transactions")).text
    assert (
        "undecided" in undecided and "committed" not in undecided.split("<main")[1].split("No group gets")[0]
    )
    assert GROUP in (await browser.get("/clients?kind=consumers")).text
    assert "names and values only" in (await browser.get("/settings")).text
    assert "Access control is off" in (await browser.get("/accounts")).text
    assert "tells of no audit log" in (await browser.get("/accounts/audit")).text


async def _one_message(browser: httpx.AsyncClient, message_id: str) -> None:
    """Of where it is the original tells less, which is said; traces are the same. Soon: offsets are kept every 5 s."""
    for _ in range(60):
        page = (await browser.get(f"/messages/{TOPIC}/{message_id}")).text
        if "finished, or filtered out" in page and ">handled<" in page:
            break
        await asyncio.sleep(0.5)
    assert "finished, or filtered out" in page, page
    assert "This broker tells offsets only" in page
    assert ">handled<" in page
    assert "Its consumers trace, its producer does not." in page


async def _filled(admin: Admin, namesrv: str) -> str:
    """The id of a message."""
    await admin.create_topic(TOPIC, queues=2)
    await admin.create_group(GROUP)
    async with Producer(namesrv, group="console-shop") as producer:
        for number in range(10):
            sent = await producer.send(
                Message(TOPIC, b"order %d" % number, keys=[f"c-{number}"], tags="paid")
            )
        for delayed in (
            Message(TOPIC, b"level", delay_level=18),
            Message(TOPIC, b"timer", delay_ms=3_600_000),
        ):
            await producer.send(delayed)
    async with TransactionProducer(namesrv, group="console-tx", check=_unsure) as producer:
        for state in (TransactionState.UNKNOWN, TransactionState.COMMIT):
            body = b"undecided" if state is TransactionState.UNKNOWN else b"committed"
            await producer.send_in_transaction(Message(TOPIC, body), lambda *_, state=state: state)
    return sent.message_id


async def _unsure(message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


async def _act(browser: httpx.AsyncClient, admin: Admin) -> None:
    page = (await browser.get(f"/groups/{GROUP}/settings")).text
    token = page.split('name="token" value="')[1].split('"')[0]
    paused = await browser.post(f"/groups/{GROUP}/pause", data={"token": token})
    assert paused.status_code == 303
    async with asyncio.timeout(20):
        while (await admin.group_config(GROUP)).consume_enable:  # noqa: ASYNC110 - the original is asked
            await asyncio.sleep(0.2)
    sent = await browser.post(
        f"/topics/{TOPIC}/send", data={"token": token, "body": "by hand", "keys": "c-hand"}
    )
    assert sent.status_code == 303
    found = await browser.get(f"/topics/{TOPIC}/messages?tag=paid")
    assert "order 9" in found.text
    assert "order 9" not in (await browser.get(f"/topics/{TOPIC}/messages?tag=void")).text
