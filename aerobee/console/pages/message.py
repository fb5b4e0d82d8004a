# SPDX-License-Identifier: Apache-2.0
"""One message: what it is, where it is for every group; sending it again, handing it to one consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response

from aerobee.client.admin.figures import place_of
from aerobee.client.admin.messages import as_new, copy_of
from aerobee.client.produce.producer import Producer
from aerobee.console.bodies import body_of
from aerobee.console.pages.topic import SENDER
from aerobee.errors import AerobeeError
from aerobee.protocol import names

if TYPE_CHECKING:
    from aerobee.client.admin import GroupLag
    from aerobee.client.message import ReceivedMessage
    from aerobee.console.visit import Visit

SHOWN_GROUPS = 100


class Track(NamedTuple):
    group: str
    place: str
    online: bool
    pops: bool
    clients: list[str]


async def show(visit: Visit) -> Response:
    message = await _message(visit)
    return visit.render(
        "message.html",
        title=message.message_id,
        message=message,
        body=body_of(message.body),
        tracks=await _tracks(visit, message),
        is_dead=names.is_dead_letter(message.topic),
    )


async def _message(visit: Visit) -> ReceivedMessage:
    topic = visit.name("topic")
    message = await visit.desk.admin.message_by_id(visit.name("id"), topic)
    message.topic = topic  # as it is kept, also a retry or a dead letter
    return message


async def _tracks(visit: Visit, message: ReceivedMessage) -> list[Track]:
    view, topic = visit.desk.view, message.topic
    groups = [each for each in await view.groups_of(topic) if not names.is_system_group(each)]
    lags = await view.each(groups[:SHOWN_GROUPS], lambda group: view.lag(group, topic))
    return [await _track(visit, message, lag) for lag in lags.values() if not isinstance(lag, AerobeeError)]


async def _track(visit: Visit, message: ReceivedMessage, lag: GroupLag) -> Track:
    members = await visit.desk.view.members(lag.group) if lag.online else None
    clients = [each.client_id for each in members.connection_set] if members else []
    pops = lag.modes.get(message.topic) == "POP"
    return Track(lag.group, place_of(message, lag) or "not read", lag.online, pops, clients)


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
    message, group, client = await _message(visit), visit.field("group"), visit.field("client")
    done = await visit.desk.admin.consume_directly(group, client, message.offset_id, message.topic)
    said = visit.words(
        "{client} answered {result} after {time} ms. {remark}",
        client=client, result=done.consume_result, time=done.spent_time_mills, remark=done.remark or "",
    )  # fmt: skip
    return visit.go(visit.link("messages", message.topic, visit.name("id")), said)
