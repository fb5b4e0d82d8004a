# SPDX-License-Identifier: Apache-2.0
"""The messages of a topic, newest first: by queue, tag, key, time or SQL."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aerobee.console.bodies import SHOWN_IN_LIST, body_of, glimpse
from aerobee.console.browsing import LOOKED_AT, MAX_QUEUES, Look, Sought, look_back, newest
from aerobee.console.pages.topic import head

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.visit import Visit
    from aerobee.protocol.bodies import MessageQueue


async def show(visit: Visit) -> Response:
    topic = visit.name("topic")
    every = sorted((await visit.desk.admin.route(topic)).readable)
    chosen = [queue for queue in every if visit.query("queue") in ("", _name(queue))]
    key = visit.query("key")
    if key:
        found = await visit.desk.admin.messages_by_key(topic, key)
        look = Look(found=found[::-1], looked_at=len(found))
    else:
        look = await _look(visit, chosen[:MAX_QUEUES])
    return visit.render(
        "topic_messages.html",
        title=topic,
        tab="messages",
        topic=topic,
        **await head(visit, topic),
        queues=[_name(queue) for queue in every],
        look=look,
        rows=[(each, glimpse(each.body), body_of(each.body, SHOWN_IN_LIST)) for each in look.found],
        older="" if look.is_over else "-".join(str(look.ends[queue]) for queue in chosen[:MAX_QUEUES]),
        too_many_queues=len(chosen) > MAX_QUEUES and not key,
        limit=LOOKED_AT,
        most_queues=MAX_QUEUES,
    )


async def _look(visit: Visit, queues: list[MessageQueue]) -> Look:
    sought = Sought(visit.query("tag"), visit.query("sql"), _time(visit.query("since")) or 0)
    ends = [int(end) for end in visit.query("ends").split("-") if end.isdigit() and len(end) < 20]
    if len(ends) == len(queues):
        begin = dict(zip(queues, ends, strict=True))
    else:
        begin = await newest(visit.desk.admin, queues, _time(visit.query("until")))
    return await look_back(visit.desk.admin, begin, sought)


def _name(queue: MessageQueue) -> str:
    return f"{queue.broker_name}/{queue.queue_id}"


def _time(text: str) -> int | None:
    """What a browser's field of date and time gives."""
    if not text:
        return None
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time; write it as 2026-08-01T12:30") from None
