# SPDX-License-Identifier: Apache-2.0
"""`aerobee messages delayed`: what waits for its time, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import complete, connect, output

if TYPE_CHECKING:
    from aerobee.client.admin.waiting import Waiting

LOOKED_AT = 20_000  # messages of the timer's topic, and of each delay level, at most

COLUMNS = {
    "msgId": "message", "topic": "to topic", "keys": "keys", "tags": "tags", "due": "due", "in": "in", "by": "by",
    "body": "body",
}  # fmt: skip


def delayed(
    topic: Annotated[
        str | None,
        typer.Argument(help="only those that go to this topic [all]", autocompletion=complete.topics),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-l", "--count", "-c", help="at most so many, the next due first", min=1)
    ] = 100,
    broker: Annotated[str | None, typer.Option("--broker", "-b", help="only of this broker")] = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Messages that wait for their time: sent with a delay level or a delivery time, or failed and to be tried again.

    The next one due comes first. BY is what it waits by: its delay level, or the timer. Failed ones go to the topic
    %RETRY%GROUP of their group. --json has the handle by which a message of the timer is taken back (Producer.recall).

    aerobee messages delayed

    aerobee messages delayed orders --json
    """
    found, unseen = connect.run(_delayed(connect.address_of(namesrv), topic, broker))
    rows = [_row(each) for each in found[:limit]]
    if output.wants_json(json):
        output.line(output.pretty_json(rows))
    elif rows:
        now = connect.clock.wall()
        output.table([_readable(row, each, now) for row, each in zip(rows, found, strict=False)], COLUMNS)
    else:
        output.note("nothing waits" + (f" to go to {topic}" if topic else ""))
    if len(found) > limit:
        output.note(f"the first {limit} of {len(found):,}; --limit shows more")
    for name in unseen:
        output.note(f"{name}: more wait than were looked at ({LOOKED_AT:,} of the timer, and of each level)")


async def _delayed(address: str, topic: str | None, broker: str | None) -> tuple[list[Waiting], list[str]]:
    """What waits; and the brokers of which not all was looked at."""
    from aerobee.cli.cluster import chosen
    from aerobee.client.admin.waiting import of_broker

    found: list[Waiting] = []
    unseen = []
    async with connect.connected(address) as admin:
        if topic is not None:
            await connect.existing_topic(admin, topic)
        for name, where in (await chosen(admin, broker)).items():
            here, is_all = await of_broker(admin, name, where, connect.clock.wall(), LOOKED_AT)
            found += [each for each in here if topic in (None, each.topic)]
            if not is_all:
                unseen.append(name)
    return sorted(found, key=lambda each: each.due or 0), unseen


def _row(each: Waiting) -> dict[str, Any]:
    from aerobee.protocol.properties import RESERVED

    message = each.message
    return {
        "msgId": message.message_id,
        "topic": each.topic,
        "brokerName": message.broker_name,
        "dueTimestamp": each.due,
        "by": each.by,
        "tags": message.tags,
        "keys": message.keys,
        **output.body_row(message.body),
        "bornTimestamp": message.born_timestamp,
        "recallHandle": each.handle or None,
        "properties": {name: value for name, value in message.properties.items() if name not in RESERVED},
    }


def _readable(row: dict[str, Any], each: Waiting, now: int) -> dict[str, Any]:
    return {
        **row,
        "due": None if each.due is None else output.local_time(each.due),
        "in": None if each.due is None else output.age(each.due - now) if each.due > now else "now",
        "body": output.shown_body(each.message.body, 40),
    }
