# SPDX-License-Identifier: Apache-2.0
"""One search field for all: a topic, a group, or a message by its id."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aerobee.console.pages.listing import sought
from aerobee.errors import AerobeeError, NoPermission, QueryNotFound

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.visit import Visit

SHOWN = 50
# A producer's or a broker's, of IPv4 and IPv6, and gRPC's, which is two longer.
_looks_like_an_id = re.compile(r"[0-9A-Fa-f]{32,58}").fullmatch


async def show(visit: Visit) -> Response:
    """Straight to it where the name is the whole name of one thing."""
    text, view = visit.query("q").strip(), visit.desk.view
    try:
        topics, groups = await view.every_topic(), list(await view.groups())
    except NoPermission:
        return visit.go(await _one_that_it_may_see(visit, text))
    if text in topics and text not in groups:
        return visit.go(visit.link("topics", text))
    if text in groups and text not in topics:
        return visit.go(visit.link("groups", text))
    is_an_id = _looks_like_an_id(text) is not None
    if is_an_id and (topic := await _topic_of_message(visit, text)):
        return visit.go(visit.link("messages", topic, text))
    found_topics, found_groups = (sought(each, text) if text else [] for each in (topics, groups))
    return visit.render(
        "find.html",
        title=visit.words("Search"),
        text=text,
        is_an_id=is_an_id,
        topics=found_topics[:SHOWN],
        groups=found_groups[:SHOWN],
        more=max(0, len(found_topics) - SHOWN) + max(0, len(found_groups) - SHOWN),
    )


async def _topic_of_message(visit: Visit, message_id: str) -> str:
    """Empty where there is none: every topic is asked for it, as by `aerobee messages get`."""
    try:
        return (await visit.desk.admin.message_by_id(message_id)).topic
    except QueryNotFound:
        return ""


async def _one_that_it_may_see(visit: Visit, text: str) -> str:
    """Where the account may not list topics or groups: the one of that whole name, or the list that refuses it."""
    try:
        await visit.desk.view.lag(text)
    except AerobeeError:
        return visit.link("topics", text) if text else visit.link("groups")
    return visit.link("groups", text)
