# SPDX-License-Identifier: Apache-2.0
"""`aerobee messages`: find them by id, key, offset or time; look through queues."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import complete, connect, output, times
from aerobee.cli.delayed import delayed
from aerobee.cli.message_trace import trace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee.client.admin import Admin
    from aerobee.client.message import ReceivedMessage
    from aerobee.console.whereabouts import Track
    from aerobee.protocol.bodies import MessageQueue

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Find messages by id, key, offset or time; browse queues; what waits for its time; what happened to one.",
)
app.command()(trace)
app.command()(delayed)

Topic = Annotated[str, typer.Argument(help="topic", autocompletion=complete.topics)]
Limit = Annotated[int, typer.Option("--limit", "-l", "--count", "-c", help="at most so many", min=1)]
Broker = Annotated[
    str | None, typer.Option("--broker", "-b", help="broker name, where several have the topic")
]
Begin = Annotated[str, typer.Option("--begin", help=f"not before: {times.EXAMPLES}")]
End = Annotated[str, typer.Option("--end", help="not after")]

COLUMNS = {
    "msgId": "message", "brokerName": "broker", "queueId": "queue", "queueOffset": "offset", "tags": "tags",
    "keys": "keys", "stored": "stored", "body": "body",
}  # fmt: skip


@app.command()
def get(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="the producer's id, or the broker's")],
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="its topic: quicker than to ask every one")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="only the body, byte by byte")] = False,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """One message by its id, with what each group of its topic made of it.

    aerobee messages get 7F0000010A2B3C4D5E6F00000000
    """
    connect.run(_get(connect.address_of(namesrv), message_id, topic, raw=raw, json=json))


async def _get(address: str, message_id: str, topic: str | None, *, raw: bool, json: bool) -> None:
    from aerobee.errors import QueryNotFound

    async with connect.connected(address) as admin:
        if topic is not None:
            await connect.existing_topic(admin, topic)
        else:
            await admin.cluster()
        try:
            message = await admin.message_by_id(message_id, topic)
        except QueryNotFound as error:
            waiting = await _among_delayed(admin, message_id)
            if waiting is None:
                raise connect.Failed(error.remark) from None
            message, tracks = waiting, {}
        else:
            tracks = await track(admin, message)
    show(message, tracks, raw=raw, json=json)


async def _among_delayed(admin: Admin, message_id: str) -> ReceivedMessage | None:
    from aerobee.client.admin.waiting import of_all

    for each in await of_all(admin, None, connect.clock.wall()):
        if message_id in (each.message.message_id, each.message.offset_id):
            until = "" if each.due is None else f" until {output.local_time(each.due)}"
            output.note(
                f"it waits{until} to go to {each.topic}; `aerobee messages delayed {shlex.quote(each.topic)}` lists them"
            )
            return each.message
    return None


async def track(admin: Admin, message: ReceivedMessage) -> dict[str, str]:
    """By group of the topic: 'consumed', 'handed out', 'in flight', 'waiting', 'failed', 'dead', each with what is known
    besides. What no broker tells is left out."""
    from aerobee.console.cluster_view import ClusterView
    from aerobee.console.whereabouts import UNKNOWN, whereabouts

    found = await whereabouts(ClusterView(admin, connect.clock), message)
    return {track.group: _told(track) for track in found.tracks if track.place != UNKNOWN}


def _told(track: Track) -> str:
    from aerobee.console.whereabouts import DEAD, DELAYED
    from aerobee.protocol.bodies.figures import Place

    if track.place == DEAD:
        return f"dead: failed as often as allowed, see `aerobee groups dead {shlex.quote(track.group)}`"
    if track.place == DELAYED:
        until = f" at {output.local_time(track.until)}" if track.until else ""
        return f"failed, the next attempt is{until or ' yet to come'}"
    if track.place == Place.LEASED:
        return f"in flight until {output.local_time(track.until)}"
    if track.place == Place.WAITING:
        again = "failed, waiting for its next attempt" if track.copy is not None else "waiting"
        return again if track.is_online else f"{again}, nobody consumes"
    return "consumed" if track.place == Place.DONE else str(track.place)


def show(message: ReceivedMessage, tracks: dict[str, str], *, raw: bool, json: bool) -> None:
    if raw:
        output.write(message.body)
        return
    if output.wants_json(json):
        output.line(output.pretty_json({**output.message_row(message), "groups": tracks}))
        return
    output.facts(
        {
            "topic": message.topic,
            "message id": message.message_id,
            "offset id": message.offset_id,
            "queue": f"{message.broker_name} {message.queue_id}, offset {message.queue_offset}",
            "tags": message.tags,
            "keys": message.keys,
            "attempts": message.attempt,
            "born": f"{output.local_time(message.born_timestamp)} by {message.born_address}",
            "stored": output.local_time(message.store_timestamp),
            "properties": message.properties,
            "groups": tracks,
            "size": f"{len(message.body):,} bytes",
            "body": output.shown_body(message.body, 2_000),
        }
    )


@app.command("by-key")
def by_key(
    topic: Topic,
    key: Annotated[str, typer.Argument(help="one of the message's keys")],
    limit: Limit = 64,
    begin: Begin = "0",
    end: End = "now",
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Messages with a key.

    aerobee messages by-key orders o-7
    """
    now = connect.clock.now()
    span = (times.parse_time(begin, now), times.parse_time(end, now + 60_000))
    connect.run(_by_key(connect.address_of(namesrv), topic, key, limit, span, json=json))


async def _by_key(
    address: str, topic: str, key: str, limit: int, span: tuple[int, int], *, json: bool
) -> None:
    async with connect.connected(address) as admin:
        await connect.existing_topic(admin, topic)
        found = await admin.messages_by_key(
            topic, key, max_messages=min(64, limit), begin=span[0], end=span[1]
        )
    if not found:
        raise connect.Failed(f"topic {topic!r} has no message with key {key!r}")
    _print(found[:limit], json=json)


def _print(found: list[ReceivedMessage], *, json: bool) -> None:
    rows = [output.message_row(message) for message in found]
    if output.wants_json(json):
        output.line(output.pretty_json(rows))
        return
    output.table([_short(message) for message in found], COLUMNS)


def _short(message: ReceivedMessage) -> dict[str, Any]:
    return {
        **output.message_row(message),
        "stored": output.local_time(message.store_timestamp),
        "body": output.shown_body(message.body),
    }


@app.command()
def at(
    topic: Topic,
    queue: Annotated[int, typer.Option("--queue", "-q", help="queue", min=0)],
    offset: Annotated[int, typer.Option("--offset", "-o", help="offset in the queue", min=0)],
    broker: Broker = None,
    raw: Annotated[bool, typer.Option("--raw", help="only the body, byte by byte")] = False,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """The message at an offset of a queue.

    aerobee messages at orders --queue 3 --offset 120
    """
    connect.run(_at(connect.address_of(namesrv), topic, (broker, queue), offset, raw=raw, json=json))


async def _at(
    address: str, topic: str, place: tuple[str | None, int], offset: int, *, raw: bool, json: bool
) -> None:
    from aerobee.errors import QueryNotFound

    async with connect.connected(address) as admin:
        found = await queues_of(admin, topic, place[0], place[1])
        try:
            message = await admin.message_at(found[0], offset)
        except QueryNotFound:
            low, high = await admin.offset_range(found[0])
            raise connect.Failed(
                f"queue {found[0]} has no message at offset {offset}; it has {low} to {high - 1}"
                if high > low
                else f"queue {found[0]} is empty"
            ) from None
        tracks = await track(admin, message)
    show(message, tracks, raw=raw, json=json)


async def queues_of(admin: Admin, topic: str, broker: str | None, queue_id: int | None) -> list[MessageQueue]:
    """The queues meant; Failed, naming those there are, when there is none."""
    await connect.existing_topic(admin, topic)
    every = sorted((await admin.route(topic)).readable)
    found = [
        queue for queue in every if broker in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
    ]
    if not found:
        brokers = sorted({queue.broker_name for queue in every})
        wanted = " ".join(str(part) for part in (broker, queue_id) if part is not None)
        raise connect.Failed(
            f"topic {topic!r} has no queue {wanted}; it has {len(every)} queues on {', '.join(brokers)}"
        )
    return found


@app.command()
def browse(
    topic: Topic,
    queue: Annotated[int | None, typer.Option("--queue", "-q", help="only this queue", min=0)] = None,
    broker: Broker = None,
    start: Annotated[str, typer.Option("--from", help=f"first, last, or {times.EXAMPLES}")] = "first",
    end: Annotated[str | None, typer.Option("--until", help="up to this time")] = None,
    tags: Annotated[str | None, typer.Option("--tags", help="only these: 'paid||void'")] = None,
    limit: Limit = 100,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Look through a topic without consuming it: no group, no progress.

    `--from last` shows the last ones of each queue. With --json, one message per line.

    aerobee messages browse orders --from -5m --tags paid
    """
    now = connect.clock.now()
    begin = times.parse_start(start, now)
    until = None if end is None else times.parse_time(end, now)
    wanted = None if tags in (None, "*") else {tag.strip() for tag in str(tags).split("||")}
    work = _browse(
        connect.address_of(namesrv), topic, (broker, queue), (begin, until), wanted, limit, json=json
    )
    connect.run(work)


async def _browse(
    address: str,
    topic: str,
    place: tuple[str | None, int | None],
    span: tuple[str | int, int | None],
    tags: set[str] | None,
    limit: int,
    *,
    json: bool,
) -> None:
    found: list[ReceivedMessage] = []
    async with connect.connected(address) as admin:
        queues = await queues_of(admin, topic, *place)
        for queue in queues:
            async for message in _messages(admin, queue, span, limit):
                if tags is not None and message.tags not in tags:
                    continue
                if output.wants_json(json):
                    output.line(output.to_json(output.message_row(message)))
                found.append(message)
                if len(found) >= limit:
                    break
            if len(found) >= limit:
                break
    if not output.wants_json(json):
        output.table([_short(message) for message in found], COLUMNS)
        if len(found) >= limit:
            output.note(f"the first {limit}; --limit shows more")


async def _messages(
    admin: Admin, queue: MessageQueue, span: tuple[str | int, int | None], limit: int
) -> AsyncIterator[ReceivedMessage]:
    low, high = await admin.offset_range(queue)
    begin, until = span
    if begin == "first":
        first = low
    elif begin == "last":
        first = max(low, high - limit)
    else:
        first = await admin.offset_at(queue, int(begin))
    async for message in admin.browse(queue, first, high):
        if until is not None and message.store_timestamp > until:
            return
        yield message
