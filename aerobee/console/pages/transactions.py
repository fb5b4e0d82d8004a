# SPDX-License-Identifier: Apache-2.0
"""Transactions: half messages that wait for their producer, how often it was asked, and those that were given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.console.bodies import SHOWN_IN_LIST, body_of, glimpse
from aerobee.console.halves import HALVES_READ, Halves, open_halves
from aerobee.console.pages.listing import page_of
from aerobee.console.pages.one_broker import chosen
from aerobee.errors import AerobeeError, NoRoute
from aerobee.protocol import names

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.visit import Visit

SHOWN = 25
RULES = ("transactionTimeOut", "transactionCheckInterval", "transactionCheckMax")


async def show(visit: Visit) -> Response:
    broker, view = await chosen(visit), visit.desk.view
    halves, untold = Halves(), ""
    try:
        halves = await open_halves(visit.desk.admin, broker.name)
    except NoRoute:
        pass  # the topic is made by the first half message
    except AerobeeError as error:
        untold = str(error)
    topic, group = visit.query("topic"), visit.query("group")
    found = [each for each in halves.open if topic in ("", each.topic) and group in ("", each.group)]
    listing = page_of(visit, found, size=SHOWN)
    try:
        settings = await view.once(
            ("config", broker.address), lambda: view.admin.broker_config(broker.address)
        )
    except AerobeeError:
        settings = {}
    now = visit.desk.clock.wall()
    return visit.render(
        "transactions.html",
        title=visit.words("Transactions"),
        broker=broker,
        halves=halves,
        untold=untold,
        listing=listing,
        rows=[
            (each, glimpse(each.message.body), body_of(each.message.body, SHOWN_IN_LIST))
            for each in listing.rows
        ],
        oldest_ms=now - halves.open[0].sent_at if halves.open else None,
        checked=sum(1 for each in halves.open if each.checks),
        given_up=await _given_up(visit, broker.name),
        rules={name: settings[name] for name in RULES if name in settings},
        limit=HALVES_READ,
        given_up_topic=names.CHECK_MAX_TOPIC,
    )


async def _given_up(visit: Visit, broker: str) -> int | None:
    """None where it is not told."""
    try:
        stats = await visit.desk.view.topic_stats(names.CHECK_MAX_TOPIC)
    except NoRoute:
        return 0
    except AerobeeError:
        return None
    return sum(
        each.max_offset - each.min_offset for queue, each in stats.items() if queue.broker_name == broker
    )
