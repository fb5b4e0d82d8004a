# SPDX-License-Identifier: Apache-2.0
"""Delayed messages: what waits until when, by level and by time; taking one back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.client.admin.waiting import (
    LOOKED_AT,
    Level,
    Timers,
    Waiting,
    every_level,
    of_level,
    of_timer,
)
from aerobee.client.produce.producer import Producer
from aerobee.console.bodies import SHOWN_IN_LIST, body_of, glimpse
from aerobee.console.pages.one_broker import chosen
from aerobee.console.pages.topic import SENDER
from aerobee.errors import AerobeeError, QueryNotFound
from aerobee.protocol.recall_handle import parse_handle

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.pages.one_broker import Chosen
    from aerobee.console.visit import Visit

SHOWN = 25


async def show(visit: Visit) -> Response:
    """Every level, and the timer."""
    broker, now = await chosen(visit), visit.desk.clock.wall()
    runtime, levels = await _figures(visit, broker)
    look, untold = Timers(), ""
    end = visit.number("before", -1)
    try:
        look = await of_timer(visit.desk.admin, broker.name, end if end >= 0 else None, now)
    except AerobeeError as error:
        untold = str(error)
    topic = visit.query("topic")
    shown = [each for each in look.waiting if topic in ("", each.topic)]
    return visit.render(
        "timers.html",
        title=visit.words("Delayed"),
        broker=broker,
        levels=levels,
        at_levels=sum(level.waiting for level in levels),
        in_timer=_figure(runtime, "timerCongestNum"),
        not_added=_figure(runtime, "timerOffsetBehind"),
        late_s=_figure(runtime, "timerReadBehind"),
        look=look,
        untold=untold,
        topic=topic,
        rows=[_row(each) for each in shown[:SHOWN]],
        found=len(shown),
        times=look.by_time(now),
        limit=LOOKED_AT,
    )


async def level(visit: Visit) -> Response:
    """One level: the next one due first."""
    broker = await chosen(visit)
    _, levels = await _figures(visit, broker)
    number = visit.name("level")
    one = next((each for each in levels if str(each.number) == number), None)
    if one is None:
        raise QueryNotFound(visit.words("This broker has no delay level {level}.", level=number[:20]))
    begin = max(one.next_offset, visit.number("from", 0))
    found = await of_level(visit.desk.admin, broker.name, one, begin, SHOWN)
    return visit.render(
        "timer_level.html",
        title=visit.words("Delay level {level}", level=number),
        broker=broker,
        level=one,
        rows=[_row(each) for each in found],
        further=begin + SHOWN if begin + SHOWN < one.end else None,
    )


async def _figures(visit: Visit, broker: Chosen) -> tuple[dict[str, str], list[Level]]:
    view = visit.desk.view
    runtime = await view.runtime(broker.address)
    try:
        settings = await view.once(
            ("config", broker.address), lambda: view.admin.broker_config(broker.address)
        )
    except AerobeeError:
        settings = {}  # how long the levels wait is not told
    return runtime, await every_level(visit.desk.admin, broker.name, runtime, settings)


def _figure(runtime: dict[str, str], name: str) -> int | None:
    text = runtime.get(name, "")
    return int(text) if text.isdigit() else None


def _row(each: Waiting) -> tuple[Waiting, str, Any]:
    return each, glimpse(each.message.body), body_of(each.message.body, SHOWN_IN_LIST)


# -- taking back -------------------------------------------------------------------------------------------------


async def ask(visit: Visit) -> Response:
    """What a handle is of, before it is used."""
    text = visit.query("handle")
    handle = parse_handle(text) if text else None
    return visit.render(
        "timer_recall.html",
        title=visit.words("Take a message back"),
        text=text,
        handle=handle,
        now=visit.desk.clock.wall(),
    )


async def recall(visit: Visit) -> Response:
    text = visit.field("handle")
    handle = parse_handle(text)
    async with Producer(visit.desk.admin.session, group=SENDER) as producer:
        message_id = await producer.recall(handle.topic, text)
    visit.desk.view.forget()
    said = visit.words("{id} for {topic} is taken back: nobody gets it.", id=message_id, topic=handle.topic)
    return visit.go(visit.link("timers", broker=handle.broker_name), said)
