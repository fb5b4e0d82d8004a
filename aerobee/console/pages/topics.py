# SPDX-License-Identifier: Apache-2.0
"""All topics: found, ordered, with their figures; and a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.console.pages.listing import SORTED_BY_FIGURES, page_with_figures, sought, too_many
from aerobee.errors import AerobeeError
from aerobee.protocol import names

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.desk import Desk
    from aerobee.console.visit import Visit

PERMS = {"rw": 6, "r": 4, "w": 2, "none": 0}


class Row(NamedTuple):
    topic: str
    queues: int | None = None
    brokers: int | None = None
    messages: int | None = None
    last_stored: int | None = None
    in_rate: float | None = None


SORTS = {
    "messages": lambda row: -(row.messages or 0),
    "rate": lambda row: -(row.in_rate or 0),
    "last": lambda row: -(row.last_stored or 0),
}


async def show(visit: Visit) -> Response:
    view = visit.desk.view
    known = await (view.every_topic() if visit.query("all") else view.topics())
    found = sought(known, visit.query("q"))
    listing = await page_with_figures(visit, found, lambda topics: rows_of(visit.desk, topics), SORTS)
    return visit.render(
        "topics.html",
        title=visit.words("Topics"),
        listing=listing,
        rows=listing.rows,
        known=len(known),
        too_many=too_many(visit, found),
        limit=SORTED_BY_FIGURES,
        queues=await view.default_queues() if visit.may_change else None,
    )


async def rows_of(desk: Desk, topics: list[str]) -> list[Row]:
    found = await desk.view.each(topics, lambda topic: _row(desk, topic))
    return [Row(topic) if isinstance(row, AerobeeError) else row for topic, row in found.items()]


async def _row(desk: Desk, topic: str) -> Row:
    stats = await desk.view.topic_stats(topic)
    return Row(
        topic=topic,
        queues=len(stats),
        brokers=len({queue.broker_name for queue in stats}),
        messages=sum(entry.max_offset - entry.min_offset for entry in stats.values()),
        last_stored=max((entry.last_update_timestamp for entry in stats.values()), default=0),
        in_rate=await desk.view.rate("TOPIC_PUT_NUMS", topic),
    )


async def create(visit: Visit) -> Response:
    topic, queues, perm = visit.field("topic"), visit.field("queues", "8"), visit.field("perm", "rw")
    names.check_topic(topic)
    if not queues.isdigit() or perm not in PERMS:
        raise ValueError(visit.words("queues is {queues}; give a number", queues=queues))
    if await visit.desk.admin.topic_exists(topic):
        raise ValueError(visit.words("topic {topic} exists already", topic=topic))
    kind = visit.field("type")
    await visit.desk.admin.create_topic(
        topic, queues=int(queues), perm=PERMS[perm], attributes={"message.type": kind} if kind else None
    )
    visit.desk.view.forget()
    return visit.go(visit.link("topics", topic), visit.words("Topic {topic} was created.", topic=topic))
