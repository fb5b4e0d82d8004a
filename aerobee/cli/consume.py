# SPDX-License-Identifier: Apache-2.0
"""`aerobee consume`: messages on stdout, as a consumer of a group."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from aerobee.cli import complete, connect, counted, output, profiles, times

if TYPE_CHECKING:
    from aerobee.client.admin import Admin
    from aerobee.client.consume.subscriptions import Expression
    from aerobee.client.message import ReceivedMessage

MOST_AT_ONCE = 32
LOOK_MS = 1_000


class Fetch(StrEnum):
    PUSH = "push"
    PULL = "pull"
    POP = "pop"


class Wanted(msgspec.Struct, frozen=True):
    topic: str
    group: str
    expression: Expression
    start: str | int
    count: int | None
    idle_ms: int | None
    invisible_ms: int
    ordered: bool


def consume(
    topic: Annotated[str, typer.Argument(help="topic to consume", autocompletion=complete.topics)],
    group: Annotated[
        str,
        typer.Option(
            "--group", "-g", help="consumer group; it keeps the progress", autocompletion=complete.groups
        ),
    ],
    mode: Annotated[
        Fetch, typer.Option("--mode", help="push: pull or POP, as the broker says; pull; pop: ack each one")
    ] = Fetch.PUSH,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            help=f"where a new group begins: first, last, or {times.EXAMPLES}; last and a time begin with the first "
            "message of a topic that still has it in memory, as RocketMQ's clients do",
        ),
    ] = "first",
    tags: Annotated[str | None, typer.Option("--tags", help="only these: 'paid||void'")] = None,
    sql: Annotated[
        str | None, typer.Option("--sql", help="only where this holds: \"amount > 100 AND region = 'EU'\"")
    ] = None,
    count: counted.Count = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", help="stop when nothing came for so long: 5s, 2m")
    ] = None,
    invisible: Annotated[str, typer.Option("--invisible", help="pop: time to finish a message")] = "30s",
    ordered: Annotated[
        bool, typer.Option("--ordered", help="push: each queue one message at a time")
    ] = False,
    namesrv: counted.Server = None,
    json: output.Json = False,
) -> None:
    """Print messages as a consumer of the group; Ctrl-C ends it, and the group knows how far it was.

    A message counts as consumed when it was written to stdout. A group that has been here before
    goes on where it stopped; `aerobee groups reset` moves it.

    aerobee consume orders -g billing --tags 'paid||void'

    aerobee consume orders -g audit --mode pop -c 10 --json | jq .body
    """
    number, server = counted.split(namesrv, count)
    if tags is not None and sql is not None:
        raise typer.BadParameter("give --tags or --sql, not both")
    begin = times.parse_start(start, connect.clock.now())
    if mode is Fetch.POP and isinstance(begin, int):
        raise typer.BadParameter("--mode pop begins at first or last; a time needs --mode push or pull")
    wanted = Wanted(
        topic=topic,
        group=group,
        expression=_expression(tags, sql),
        start=begin,
        count=number,
        idle_ms=times.parse_duration(timeout) if timeout else None,
        invisible_ms=max(1, times.parse_duration(invisible)),
        ordered=ordered,
    )
    printed = Printed(wanted.count, wanted.idle_ms, json=json)
    connect.run(_consume(connect.address_of(server), mode, wanted, printed))
    printed.finished()


def _expression(tags: str | None, sql: str | None) -> Expression:
    if sql is None:
        return tags or "*"
    from aerobee.client.consume.subscriptions import Sql

    return Sql(sql)


class Printed:
    """What was written so far, and whether that is enough."""

    def __init__(self, count: int | None, idle_ms: int | None, *, json: bool) -> None:
        self._wanted = count
        self._idle_ms = idle_ms
        self._json = json
        self._number = 0
        self._last_at: int | None = None
        self._exit: typer.Exit | None = None
        self.ended = asyncio.Event()

    @property
    def left(self) -> int:
        return MOST_AT_ONCE if self._wanted is None else self._wanted - self._number

    def write(self, message: ReceivedMessage) -> bool:
        """False: it was not written, for there is enough, or nobody to read it."""
        if self.ended.is_set():
            return False
        text = output.to_json(output.message_row(message)).encode() if self._json else message.body
        try:
            output.write(text + b"\n")
        except typer.Exit as gone:
            self._exit = gone
            self.ended.set()
            return False
        self._number += 1
        self._last_at = connect.clock.now()
        if self.left <= 0:
            self.ended.set()
        return True

    @property
    def wait_ms(self) -> int:
        """How long to look for the next one before asking again whether to go on."""
        if output.reader_gone():
            output.forget_stdout()
            self._exit = typer.Exit(0)
            self.ended.set()
        if self._idle_ms is None:
            return LOOK_MS
        now = connect.clock.now()
        if self._last_at is None:
            self._last_at = now  # from here on, not while it connected
        left_ms = self._last_at + self._idle_ms - now
        if left_ms <= 0:
            self.ended.set()
        return max(0, min(LOOK_MS, left_ms))

    def finished(self) -> None:
        if self._exit is not None:
            raise self._exit
        if self._wanted is not None and self._number < self._wanted:
            raise connect.Failed(
                f"{self._number} of {self._wanted} messages came, then none within the timeout"
            )


async def _consume(address: str, mode: Fetch, wanted: Wanted, printed: Printed) -> None:
    ways = {Fetch.PUSH: _push, Fetch.PULL: _pull, Fetch.POP: _pop}
    async with connect.connected(address) as admin:
        await connect.existing_topic(admin, wanted.topic)
        await ways[mode](admin, wanted, printed)


async def _push(admin: Admin, wanted: Wanted, printed: Printed) -> None:
    from aerobee.client.consume.push_consumer import PushConsumer
    from aerobee.client.options import Options

    async def handle(message: ReceivedMessage) -> None:
        if not printed.write(message):
            await asyncio.Event().wait()  # not consumed: it stays the group's next message

    # One at a time, in the order of stdout; the message beyond the last one is not waited for at the end.
    options = profiles.options(Options, concurrency=1, stop_wait_ms=200)
    async with PushConsumer(
        admin.session.namesrv,
        group=wanted.group,
        topics={wanted.topic: wanted.expression},
        handler=handle,
        ordered=wanted.ordered,
        start=wanted.start,
        options=options,
    ) as consumer:
        while not printed.ended.is_set():
            await _rung(printed.ended, printed.wait_ms)
            if consumer.refused is not None:
                raise consumer.refused


async def _rung(event: asyncio.Event, ms: int) -> None:
    try:
        async with asyncio.timeout(ms / 1000):
            await event.wait()
    except TimeoutError:
        pass


async def _pull(admin: Admin, wanted: Wanted, printed: Printed) -> None:
    from aerobee.client.consume.pull_consumer import PullConsumer

    async with PullConsumer(
        admin.session, group=wanted.group, topics={wanted.topic: wanted.expression}, start=wanted.start
    ) as consumer:
        while not printed.ended.is_set():
            number = min(printed.left, MOST_AT_ONCE)
            for message in await consumer.poll(number, printed.wait_ms):
                if not printed.write(message):
                    await consumer.commit({message.queue: message.queue_offset})
                    return


async def _pop(admin: Admin, wanted: Wanted, printed: Printed) -> None:
    from aerobee.client.consume.simple_consumer import SimpleConsumer

    topics: dict[str, Any] = {wanted.topic: wanted.expression}
    async with SimpleConsumer(
        admin.session, group=wanted.group, topics=topics, ordered=wanted.ordered, start=wanted.start
    ) as consumer:
        while not printed.ended.is_set():
            number = min(printed.left, MOST_AT_ONCE)
            for message in await consumer.receive(number, wanted.invisible_ms, printed.wait_ms):
                if printed.write(message):
                    await message.ack()
                else:
                    await message.nack()
