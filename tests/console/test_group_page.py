# SPDX-License-Identifier: Apache-2.0
"""One group: its figures, its consumers, and everything that can be done to it, seen by the cluster afterwards."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Message, Producer, PushConsumer
from aerobee.client.options import Options
from tests.turning import until

if TYPE_CHECKING:
    from aerobee import Admin, Server
    from aerobee.client.message import ReceivedMessage


@pytest.fixture
async def billing(server: Server, admin: Admin) -> None:
    """A group that has read nothing of 20 orders."""
    await admin.create_topic("orders", queues=2)
    await admin.create_group("billing", retry_max_times=5, consume_broadcast_enable=False)
    async with Producer(server.namesrv, group="shop") as producer:
        for number in range(20):
            await producer.send(Message("orders", b"order %d" % number))
    await admin.reset_offsets("billing", "orders", "first")


async def test_a_group_without_consumers_shows_what_waits(browser: Any, billing: None) -> None:
    page = await browser.get("/groups/billing")
    assert "nobody consumes" in page and "Nobody consumes in this group now." in page
    assert '<span class="word">ready</span><b>20</b>' in page
    assert page.count('<th scope="row"><a href="/topics/orders">') == 2


async def test_consumers_are_shown_with_what_they_own_and_hold(
    browser: Any, server: Server, admin: Admin, billing: None
) -> None:
    release, held = asyncio.Event(), []

    async def hold(message: ReceivedMessage) -> None:
        held.append(message)
        await release.wait()

    options = Options(stop_wait_ms=1_000, concurrency=20)
    consumer = PushConsumer(
        server.namesrv, group="billing", topics={"orders": "*"}, handler=hold, options=options
    )
    async with consumer:
        await until(lambda: len(held) == 20)
        visit = await browser.get("/groups/billing")
        client = (await admin.members("billing")).connection_set[0].client_id
        assert "online" in visit
        assert visit.count(client) == 4  # as a member, as the owner of both queues and of the retries
        assert '<td class="n">20</td>' in visit
        release.set()


async def test_a_move_is_shown_before_it_is_done(browser: Any, admin: Admin, billing: None) -> None:
    plan = await browser.get("/groups/billing/reset?topic=orders&to=last")
    assert "Move it: 0 come again, 20 are skipped" in plan
    assert (await admin.lag("billing")).ready == 20, "the plan moves nothing"
    page = await browser.send("/groups/billing/reset?topic=orders&to=last", "/groups/billing/reset")
    assert "billing was moved in orders." in page
    assert (await admin.lag("billing")).ready == 0
    back = await browser.get("/groups/billing/reset?topic=orders&to=first")
    assert "Move it: 20 come again, 0 are skipped" in back


async def test_a_time_that_is_none_is_refused(browser: Any, billing: None) -> None:
    assert "is no time" in await browser.get("/groups/billing/reset?topic=orders&to=time&at=then", 400)


async def test_pausing_keeps_the_other_settings(browser: Any, admin: Admin, billing: None) -> None:
    page = await browser.send("/groups/billing/settings", "/groups/billing/pause")
    assert "billing is paused." in page
    config = await admin.group_config("billing")
    assert (config.consume_enable, config.retry_max_times) == (False, 5)
    assert config.consume_broadcast_enable is False
    await browser.send("/groups/billing/settings", "/groups/billing/resume")
    config = await admin.group_config("billing")
    assert (config.consume_enable, config.retry_max_times) == (True, 5)


async def test_attempts_and_mode_are_changed(browser: Any, admin: Admin, billing: None) -> None:
    wrong = await browser.send("/groups/billing/settings", "/groups/billing/settings", 400, retries="many")
    assert "attempts is many; give a number" in wrong
    await browser.send("/groups/billing/settings", "/groups/billing/settings", retries="2")
    assert (await admin.group_config("billing")).retry_max_times == 2
    page = await browser.send("/groups/billing/settings", "/groups/billing/mode", mode="POP")
    assert "billing fetches orders by POP." in page
    assert (await admin.lag("billing")).modes["orders"] == "POP"


async def test_a_group_is_created_and_deleted_by_its_name(browser: Any, admin: Admin) -> None:
    await browser.send("/groups", "/groups", group="made-here")
    assert "made-here" in await admin.groups()
    assert "exists already" in await browser.send("/groups", "/groups", 400, group="made-here")
    await browser.send("/groups/made-here/delete", "/groups/made-here/delete", 400, name="made-there")
    assert "made-here" in await admin.groups()
    await browser.send("/groups/made-here/delete", "/groups/made-here/delete", name="made-here")
    assert "made-here" not in await admin.groups()


async def test_a_topic_is_changed_and_deleted_by_its_name(browser: Any, admin: Admin, billing: None) -> None:
    await browser.send("/topics/orders/settings", "/topics/orders/settings", queues="4", perm="r")
    config = next(iter((await admin.topic_config("orders")).values()))
    assert (config.write_queue_nums, config.perm) == (4, 4)
    assert "20 messages are gone" in await browser.get("/topics/orders/delete")
    await browser.send("/topics/orders/delete", "/topics/orders/delete", 400, name="")
    assert await admin.topic_exists("orders")
    await browser.send("/topics/orders/delete", "/topics/orders/delete", name="orders")
    assert not await admin.topic_exists("orders")


async def test_search_goes_straight_to_the_only_thing_of_that_name(browser: Any, billing: None) -> None:
    answer = await browser.http.get("/find?q=billing")
    assert (answer.status_code, answer.headers["location"]) == (303, "/groups/billing")
    assert "/topics/orders" in await browser.get("/find?q=ord")


async def test_the_overview_tells_of_the_group_nobody_serves(browser: Any, billing: None) -> None:
    page = await browser.get("/")
    assert '<span class="word">ready</span><b>20</b>' in page
    assert "broker-a" in page and "Aerobee " in page


@pytest.mark.parametrize("path", ["/groups/nosuch", "/topics/nosuch", "/topics/nosuch/messages"])
async def test_what_does_not_exist_is_said_not_to(browser: Any, path: str) -> None:
    assert "Not there" in await browser.get(path, 404)


async def test_a_cluster_that_is_away_is_said_to_be(open_console: Any) -> None:
    async with open_console("127.0.0.1:1") as browser:
        for path in ("/", "/topics", "/groups/billing"):
            assert "The cluster does not answer" in await browser.get(path, 503)
