# SPDX-License-Identifier: Apache-2.0
"""Moving a group to another place of a topic: first what that means in messages, then the move."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from aerobee.console.pages.group import head

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.visit import Visit


async def show(visit: Visit) -> Response:
    """The form; and, once it says where to, the plan."""
    group, topic = visit.name("group"), visit.query("topic")
    steps = []
    if topic and visit.query("to"):
        place = _place(visit.query("to"), visit.query("at"))
        steps = await visit.desk.admin.plan_reset(group, topic, place)
    return visit.render(
        "group_reset.html",
        title=group,
        tab="reset",
        **await head(visit, group),
        topic=topic,
        to=visit.query("to"),
        at=visit.query("at"),
        steps=steps,
        again=sum(step.again for step in steps),
        skipped=sum(step.skipped for step in steps),
    )


async def reset(visit: Visit) -> Response:
    group, topic = visit.name("group"), visit.field("topic")
    await visit.desk.admin.reset_offsets(group, topic, _place(visit.field("to"), visit.field("at")))
    visit.desk.view.forget()
    return visit.go(
        visit.link("groups", group), visit.words("{group} was moved in {topic}.", group=group, topic=topic)
    )


def _place(to: str, at: str) -> str | datetime:
    """ "first", "last", or the time of the other field."""
    if to in ("first", "last"):
        return to
    try:
        return datetime.fromisoformat(at).astimezone()
    except ValueError:
        raise ValueError(f"{at!r} is no time; write it as 2026-08-01T12:30") from None
