# SPDX-License-Identifier: Apache-2.0
"""One group: where its messages are, queue by queue, who owns what; pausing, moving and deleting it."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from aerobee.console.pages.curves import curve
from aerobee.console.pages.listing import page_of
from aerobee.console.problems import of_group
from aerobee.errors import AerobeeError, GroupNotFound
from aerobee.protocol import names
from aerobee.protocol.versions import version_text

if TYPE_CHECKING:
    from markupsafe import Markup
    from starlette.responses import Response

    from aerobee.client.admin import GroupLag
    from aerobee.console.visit import Visit
    from aerobee.protocol import bodies

MEMBERS_ASKED = 32  # what each holds; of larger groups the first ones
QUEUES_SHOWN = 100


class Member(NamedTuple):
    client_id: str
    address: str
    language: str
    version: str
    queues: int | None  # None: it did not tell
    held: int | None
    rate: float | None
    failed_rate: float | None


async def show(visit: Visit) -> Response:
    group, view = visit.name("group"), visit.desk.view
    values = await head(visit, group)
    lag: GroupLag = values["lag"]
    connected = await view.members(group) if lag.online else None
    members, owners = await _members(visit, group, connected)
    return visit.render(
        "group.html",
        title=group,
        tab="",
        **values,
        queues=page_of(visit, lag.queues, size=QUEUES_SHOWN),
        owners=owners,
        members=members,
        connected=connected,
        unfinished=_unfinished(visit, group),
        speed=_speed(visit, group),
    )


async def head(visit: Visit, group: str) -> dict[str, Any]:
    """What every tab shows above."""
    lag = await visit.desk.view.lag(group)
    config = await visit.desk.view.group_config(group)
    if config is None and not lag.queues:
        raise GroupNotFound(f"group {group!r} does not exist")
    history = visit.desk.history
    latest = history.latest
    seen = latest.groups.get(group) if latest else None
    return {
        "group": group,
        "lag": lag,
        "config": config,
        "rate": history.done_rate(group),
        "problems": list(of_group(seen, latest, history)) if seen and latest else [],
        "topics": sorted(topic for topic in lag.modes if not names.is_retry(topic)),
    }


async def _members(
    visit: Visit, group: str, connected: bodies.ConsumerConnection | None
) -> tuple[list[Member], dict[tuple[str, str, int], str]]:
    """The members, and the owner of each queue, as they say themselves."""
    found = connected.connection_set if connected else []
    asked = [each.client_id for each in found[:MEMBERS_ASKED]]
    told = await visit.desk.view.each(asked, lambda client: visit.desk.view.running(group, client))
    owners: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    members = []
    for each in found:
        info = told.get(each.client_id)
        plain = (each.client_id, each.client_addr, each.language, version_text(each.version))
        if info is None or isinstance(info, AerobeeError):
            members.append(Member(*plain, None, None, None, None))
            continue
        queues = [*info.mq_table, *info.mq_pop_table]
        for queue in queues:
            owners[queue.topic, queue.broker_name, queue.queue_id].append(each.client_id)
        held = sum(queue.cached_msg_count for queue in info.mq_table.values())
        held += sum(popped.wait_ack_count for popped in info.mq_pop_table.values())
        good = sum(status.consume_ok_tps for status in info.status_table.values())
        bad = sum(status.consume_failed_tps for status in info.status_table.values())
        members.append(Member(*plain, len(queues), held, good, bad))
    return members, {queue: _together(clients) for queue, clients in owners.items()}


def _together(clients: list[str]) -> str:
    return clients[0] if len(clients) == 1 else f"{clients[0]} +{len(clients) - 1}"


def _speed(visit: Visit, group: str) -> Markup:
    t, points = visit.words, visit.desk.history.groups.get(group, ())
    speeds = [
        (after.at, max(0, after.done - before.done) * 1000 / (after.at - before.at))
        for before, after in pairwise(points)
        if after.at - before.at >= 1_000
    ]
    return curve({t("done"): speeds}, t, title=t("Done, a second"), unit="/s")


def _unfinished(visit: Visit, group: str) -> Markup:
    t, points = visit.words, list(visit.desk.history.groups.get(group, ()))
    return curve(
        {
            t("ready and retrying"): [(point.at, point.waiting) for point in points],
            t("in flight"): [(point.at, point.in_flight) for point in points],
        },
        t,
        title=t("Not finished"),
    )


# -- settings --------------------------------------------------------------------------------------------


async def settings(visit: Visit) -> Response:
    group = visit.name("group")
    return visit.render("group_settings.html", title=group, tab="settings", **await head(visit, group))


async def pause(visit: Visit) -> Response:
    return await _switch(visit, "paused")


async def resume(visit: Visit) -> Response:
    return await _switch(visit, "consuming")


async def _switch(visit: Visit, state: str) -> Response:
    group = visit.name("group")
    await _change(visit, group, consume_enable=state == "consuming")
    t = visit.words
    said = (
        t("{group} is paused.", group=group)
        if state == "paused"
        else t("{group} consumes again.", group=group)
    )
    return visit.go(visit.link("groups", group, "settings"), said)


async def change(visit: Visit) -> Response:
    group, retries = visit.name("group"), visit.field("retries")
    if not retries.isdigit():
        raise ValueError(visit.words("attempts is {text}; give a number", text=retries))
    ordered = visit.field("ordered") == "yes"
    await _change(visit, group, retry_max_times=int(retries), consume_message_orderly=ordered)
    return visit.go(visit.link("groups", group, "settings"), visit.words("{group} was changed.", group=group))


async def _change(visit: Visit, group: str, **changed: Any) -> None:
    """A group's settings are replaced as a whole: what is not changed is sent as it is."""
    config = await visit.desk.admin.group_config(group)
    kept = msgspec.structs.asdict(config)
    del kept["group_name"]
    await visit.desk.admin.create_group(group, **{**kept, **changed})
    visit.desk.view.forget()


async def mode(visit: Visit) -> Response:
    """Pull or POP, for one topic."""
    group, topic, how = visit.name("group"), visit.field("topic"), visit.field("mode")
    await visit.desk.admin.set_consume_mode(topic, group, how)
    visit.desk.view.forget()
    said = visit.words("{group} fetches {topic} by {mode}.", group=group, topic=topic, mode=how)
    return visit.go(visit.link("groups", group, "settings"), said)


async def create(visit: Visit) -> Response:
    group = visit.field("group")
    if group in await visit.desk.admin.groups():
        raise ValueError(visit.words("group {group} exists already", group=group))
    await visit.desk.admin.create_group(group)
    visit.desk.view.forget()
    return visit.go(visit.link("groups", group), visit.words("Group {group} was created.", group=group))


async def delete_form(visit: Visit) -> Response:
    group = visit.name("group")
    return visit.render("group_delete.html", title=group, tab="settings", **await head(visit, group))


async def delete(visit: Visit) -> Response:
    group = visit.name("group")
    if visit.field("name") != group:
        raise ValueError(visit.words("type the group's name to delete it; nothing was deleted"))
    await visit.desk.admin.delete_group(group)
    visit.desk.view.forget()
    return visit.go(visit.link("groups"), visit.words("Group {group} was deleted.", group=group))
