# SPDX-License-Identifier: Apache-2.0
"""Dead letters: looked at, chosen, sent again, taken away."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Message, Producer, PushConsumer
from aerobee.client.options import Options
from tests.turning import until

if TYPE_CHECKING:
    from aerobee import Admin, Server
    from aerobee.client.message import ReceivedMessage


@pytest.fixture
async def dead(server: Server, admin: Admin) -> None:
    """Two orders that nobody could handle."""
    await admin.create_topic("orders", queues=1)
    await admin.create_group("billing")
    async with Producer(server.namesrv, group="shop") as producer:
        for number in range(2):
            await producer.send(Message("orders", b"order %d" % number, keys=[f"o-{number}"]))
    failed = []

    async def refuse(message: ReceivedMessage) -> None:
        failed.append(message)
        raise RuntimeError("refused")

    options = Options(max_reconsume=0, stop_wait_ms=1_000)
    async with PushConsumer(
        server.namesrv,
        group="billing",
        topics={"orders": "*"},
        handler=refuse,
        start="first",
        options=options,
    ):
        await until(lambda: len(failed) == 2)
    assert (await admin.lag("billing")).dead == 2


async def test_without_any_it_says_what_they_are(browser: Any, admin: Admin) -> None:
    await admin.create_group("fine")
    assert "The group has no dead letters." in await browser.get("/groups/fine/dead")


async def test_those_chosen_are_sent_again_and_no_others(browser: Any, admin: Admin, dead: None) -> None:
    page = await browser.get("/groups/billing/dead")
    assert page.count("<dt>attempts</dt><dd>1</dd>") == 2, "as often as they were tried"
    assert page.count("from orders · why: RuntimeError: refused") == 2
    ids = re.findall(r'name="id" value="(\w+)"', page)
    assert all(f">{each}</a> · keys o-" in page for each in ids)
    done = await browser.send("/groups/billing/dead", "/groups/billing/dead", id=ids[0], rate="1000")
    assert "1 dead letters were sent again" in done
    found = [len(await admin.messages_by_key("orders", f"o-{number}")) for number in range(2)]
    assert sorted(found) == [1, 2]


async def test_nothing_chosen_and_a_wrong_rate_are_refused(browser: Any, dead: None) -> None:
    place = "/groups/billing/dead"
    assert "choose dead letters first" in await browser.send(place, place, 400)
    assert "give 1 to 1000 a second" in await browser.send(place, place, 400, id="x", rate="0")


async def test_they_are_taken_away_as_json_lines(browser: Any, dead: None) -> None:
    rows = [json.loads(line) for line in (await browser.get("/groups/billing/dead/export")).splitlines()]
    assert sorted(row["body"] for row in rows) == ["order 0", "order 1"]
    assert {(row["originTopic"], row["reason"]) for row in rows} == {("orders", "RuntimeError: refused")}
