# SPDX-License-Identifier: Apache-2.0
"""One topic: its queues, who reads it and who sends to it, its settings; changing and deleting it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.client.message import Message
from aerobee.client.produce.producer import Producer
from aerobee.console.pages.listing import page_of
from aerobee.console.pages.topics import PERMS
from aerobee.errors import AerobeeError, NoRoute
from aerobee.protocol import names

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.visit import Visit

SENDER = "aerobee-console"
SHOWN_GROUPS = 100


async def show(visit: Visit) -> Response:
    topic, view = visit.name("topic"), visit.desk.view
    stats = await view.topic_stats(topic)
    groups = [each for each in await view.groups_of(topic) if not names.is_system_group(each)]
    return visit.render(
        "topic.html",
        title=topic,
        tab="",
        topic=topic,
        **await head(visit, topic),
        queues=page_of(visit, list(stats.items()), size=64),
        groups=await view.each(groups[:SHOWN_GROUPS], lambda group: view.lag(group, topic)),
        is_error=lambda value: isinstance(value, AerobeeError),
        more_groups=max(0, len(groups) - SHOWN_GROUPS),
        producers=await _producers(visit),
    )


async def head(visit: Visit, topic: str) -> dict[str, Any]:
    """What every tab shows above."""
    view = visit.desk.view
    stats = await view.topic_stats(topic)
    if not stats and not await visit.desk.admin.topic_exists(topic):
        raise NoRoute(f"topic {topic!r} does not exist")
    return {
        "messages": sum(entry.max_offset - entry.min_offset for entry in stats.values()),
        "last_stored": max((entry.last_update_timestamp for entry in stats.values()), default=0),
        "queue_count": len(stats),
        "in_rate": await view.rate("TOPIC_PUT_NUMS", topic),
        "may_send": names.may_send(topic) and visit.may_change,
    }


async def _producers(visit: Visit) -> dict[str, Any] | None:
    """All there are: RocketMQ does not tell which topic a producer sends to. None where it tells none at all."""
    view = visit.desk.view
    try:
        found = await view.once("producers", view.admin.all_producers)
    except AerobeeError:
        return None
    return {
        group: infos for group, infos in found.items() if group != SENDER and not names.is_system_group(group)
    }


# -- a test message --------------------------------------------------------------------------------------


async def send_form(visit: Visit) -> Response:
    topic = visit.name("topic")
    return visit.render("topic_send.html", title=topic, tab="send", topic=topic, **await head(visit, topic))


async def send(visit: Visit) -> Response:
    t, topic = visit.words, visit.name("topic")
    body = visit.form.get("body", [""])[0].encode()
    delay = visit.field("delay")
    message = Message(
        topic,
        body,
        tags=visit.field("tags") or None,
        keys=visit.field("keys").split(),
        properties=_pairs(visit.field("properties")) or None,
        sharding_key=visit.field("sharding_key") or None,
        delay_ms=int(float(delay) * 1000) if delay else None,
    )
    async with Producer(visit.desk.admin.session, group=SENDER) as producer:
        sent = await producer.send(message)
    visit.desk.view.forget()
    queue, offset = sent.queue.queue_id, sent.queue_offset
    said = t(
        "Sent as {id} to queue {queue}, offset {offset}.", id=sent.message_id, queue=queue, offset=offset
    )
    return visit.go(visit.link("topics", topic, "messages"), said)


def _pairs(text: str) -> dict[str, str]:
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise ValueError(f"property {line!r}: write it as name=value")
        found[name.strip()] = value.strip()
    return found


# -- settings --------------------------------------------------------------------------------------------


async def settings(visit: Visit) -> Response:
    topic = visit.name("topic")
    configs = await visit.desk.admin.topic_config(topic)
    return visit.render(
        "topic_settings.html",
        title=topic,
        tab="settings",
        topic=topic,
        **await head(visit, topic),
        configs=configs,
        config=next(iter(configs.values())),
        perms=PERMS,
    )


async def change(visit: Visit) -> Response:
    topic, queues, perm = visit.name("topic"), visit.field("queues"), visit.field("perm")
    if not queues.isdigit() or perm not in PERMS:
        raise ValueError(visit.words("queues is {queues}; give a number", queues=queues))
    await visit.desk.admin.create_topic(topic, queues=int(queues), perm=PERMS[perm])
    visit.desk.view.forget()
    said = visit.words("Topic {topic} was changed.", topic=topic)
    return visit.go(visit.link("topics", topic, "settings"), said)


async def delete_form(visit: Visit) -> Response:
    topic, view = visit.name("topic"), visit.desk.view
    groups = [each for each in await view.groups_of(topic) if not names.is_system_group(each)]
    return visit.render(
        "topic_delete.html",
        title=topic,
        tab="settings",
        topic=topic,
        **await head(visit, topic),
        groups=groups,
    )


async def delete(visit: Visit) -> Response:
    topic = visit.name("topic")
    if visit.field("name") != topic:
        raise ValueError(visit.words("type the topic's name to delete it; nothing was deleted"))
    await visit.desk.admin.delete_topic(topic)
    visit.desk.view.forget()
    return visit.go(visit.link("topics"), visit.words("Topic {topic} was deleted.", topic=topic))
