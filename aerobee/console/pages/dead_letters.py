# SPDX-License-Identifier: Apache-2.0
"""The dead letters of a group: look at them, choose some, send them again at a rate, take them away as JSON lines."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.responses import StreamingResponse

from aerobee.client.admin.messages import as_new
from aerobee.client.produce.producer import Producer
from aerobee.console.bodies import SHOWN_IN_LIST, body_of, glimpse
from aerobee.console.browsing import MAX_QUEUES, Look, Sought, look_back, newest
from aerobee.console.pages.group import head
from aerobee.console.pages.topic import SENDER
from aerobee.errors import NoRoute
from aerobee.protocol import names
from aerobee.protocol import properties as props

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.responses import Response

    from aerobee.client.message import ReceivedMessage
    from aerobee.console.visit import Visit

MOST_A_SECOND = 1_000


async def show(visit: Visit) -> Response:
    group = visit.name("group")
    look, ends = await _look(visit, group)
    return visit.render(
        "dead_letters.html",
        title=group,
        tab="dead",
        **await head(visit, group),
        look=look,
        rows=[
            (each, origin(each), reason(each), glimpse(each.body), body_of(each.body, SHOWN_IN_LIST))
            for each in look.found
        ],
        older="" if look.is_over else ends,
        most=MOST_A_SECOND,
    )


async def _look(visit: Visit, group: str) -> tuple[Look, str]:
    """The newest, or those before the ends of the last page; and the ends of the next."""
    try:
        route = await visit.desk.admin.route(names.dead_letter_topic(group))
    except NoRoute:
        return Look(), ""  # nothing has died yet
    queues = sorted(route.readable)[:MAX_QUEUES]
    given = [int(end) for end in visit.query("ends").split("-") if end.isdigit() and len(end) < 20]
    begin = dict(zip(queues, given, strict=True)) if len(given) == len(queues) else None
    look = await look_back(visit.desk.admin, begin or await newest(visit.desk.admin, queues, None), Sought())
    return look, "-".join(str(look.ends[queue]) for queue in queues)


def origin(letter: ReceivedMessage) -> str:
    """The topic it was first sent to; empty when it does not say."""
    return letter.property(props.RETRY_TOPIC) or letter.property(props.DLQ_ORIGIN_TOPIC) or ""


def reason(letter: ReceivedMessage) -> str:
    """What its last attempt failed with; empty where no consumer said."""
    return letter.property(props.LAST_ERROR) or ""


async def resend(visit: Visit) -> Response:
    """Those chosen by their ids, one after the other, no faster than asked for."""
    group, chosen = visit.name("group"), visit.form.get("id", [])
    rate = visit.field("rate", "100")
    if not chosen:
        raise ValueError(visit.words("choose dead letters first; nothing was sent"))
    if not rate.isdigit() or not 1 <= int(rate) <= MOST_A_SECOND:
        raise ValueError(
            visit.words("the rate is {rate}; give 1 to {most} a second", rate=rate, most=MOST_A_SECOND)
        )
    topic = names.dead_letter_topic(group)
    async with Producer(visit.desk.admin.session, group=SENDER) as producer:
        for number, message_id in enumerate(chosen):
            if number:
                await visit.desk.clock.sleep(1_000 // int(rate))
            await producer.send(as_new(await visit.desk.admin.message_by_id(message_id, topic)))
    visit.desk.view.forget()
    said = visit.words("{count} dead letters were sent again; the dead letters stay.", count=len(chosen))
    return visit.go(visit.link("groups", group, "dead"), said)


async def export(visit: Visit) -> Response:
    """All of them, one JSON object a line; read while they are sent."""
    group = visit.name("group")

    async def lines() -> AsyncIterator[str]:
        async for letter in visit.desk.admin.dead_letters(group):
            yield json.dumps(_exported(letter), ensure_ascii=False) + "\n"

    headers = {
        "content-disposition": f"attachment; filename*=UTF-8''dead-letters-{quote(group, safe='')}.jsonl"
    }
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers=headers)


def _exported(letter: ReceivedMessage) -> dict[str, Any]:
    """With the names of the Spark columns, as the command line has them."""
    try:
        body = {"body": letter.body.decode()}
    except UnicodeDecodeError:
        body = {"bodyBase64": base64.b64encode(letter.body).decode()}
    return {
        "msgId": letter.message_id,
        "originTopic": origin(letter),
        "reason": reason(letter) or None,
        "tags": letter.tags,
        "keys": letter.keys,
        **body,
        "bornTimestamp": letter.born_timestamp,
        "storeTimestamp": letter.store_timestamp,
        "reconsumeTimes": letter.reconsume_times,
        "properties": letter.properties,
    }
