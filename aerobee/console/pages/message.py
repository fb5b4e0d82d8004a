# SPDX-License-Identifier: Apache-2.0
"""One message: what it is, where it is for every group, what happened to it; sending it again, handing it to one
consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from aerobee.client.admin.messages import as_new, copy_of
from aerobee.client.produce.producer import Producer
from aerobee.console.bodies import body_of
from aerobee.console.pages.topic import SENDER
from aerobee.console.timeline import timeline
from aerobee.console.whereabouts import SHOWN_GROUPS, whereabouts
from aerobee.protocol import names

if TYPE_CHECKING:
    from aerobee.client.message import ReceivedMessage
    from aerobee.console.visit import Visit


async def show(visit: Visit) -> Response:
    message = await _message(visit)
    where = await whereabouts(visit.desk.view, message)
    return visit.render(
        "message.html",
        title=message.message_id,
        message=message,
        body=body_of(message.body),
        where=where,
        most_groups=SHOWN_GROUPS,
        line=await timeline(visit.desk.view, message, where.tracks),
        now=visit.desk.clock.wall(),
        is_dead=names.is_dead_letter(message.topic),
    )


async def _message(visit: Visit) -> ReceivedMessage:
    topic = visit.name("topic")
    message = await visit.desk.admin.message_by_id(visit.name("id"), topic)
    message.topic = topic  # as it is kept, also a retry or a dead letter
    return message


async def body(visit: Visit) -> Response:
    """All of it, as a file."""
    message = await _message(visit)
    headers = {"content-disposition": 'attachment; filename="body.bin"'}
    return Response(message.body, media_type="application/octet-stream", headers=headers)


async def resend(visit: Visit) -> Response:
    """A copy, as a new message; a dead letter goes to the topic it came from."""
    message = await _message(visit)
    copy = as_new(message) if names.is_dead_letter(message.topic) else copy_of(message, message.topic)
    async with Producer(visit.desk.admin.session, group=SENDER) as producer:
        sent = await producer.send(copy)
    visit.desk.view.forget()
    said = visit.words("Sent again to {topic} as {id}.", topic=copy.topic, id=sent.message_id)
    return visit.go(visit.link("messages", copy.topic, sent.message_id), said)


async def consume(visit: Visit) -> Response:
    """One consumer handles it now, outside of queues and offsets."""
    message, (group, _, client) = await _message(visit), visit.field("at").partition(" ")
    done = await visit.desk.admin.consume_directly(group, client, message.offset_id, message.topic)
    said = visit.words(
        "{client} answered {result} after {time} ms. {remark}",
        client=client, result=done.consume_result, time=done.spent_time_mills, remark=done.remark or "",
    )  # fmt: skip
    return visit.go(visit.link("messages", message.topic, visit.name("id")), said)
