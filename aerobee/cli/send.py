# SPDX-License-Identifier: Apache-2.0
"""`aerobee send`: one message, many, or the lines of stdin."""

from __future__ import annotations

import asyncio
import base64
import sys
import threading
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from aerobee.cli import complete, connect, counted, output, profiles, times
from aerobee.cli.pairs import pairs_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from aerobee.client.message import Message, SendResult
    from aerobee.client.produce.producer import Producer

GROUP = "aerobee-send"
AT_ONCE = 256
READ_BYTES = 1 << 16
# What a line of --jsonl may hold: the columns of Spark's sink.
FIELDS = frozenset(
    {"body", "bodyBase64", "tags", "keys", "properties", "shardingKey", "delayLevel", "deliverAt", "topic"}
)


class Wanted(msgspec.Struct, frozen=True):
    """What every message of this command gets."""

    topic: str
    tags: str | None
    keys: list[str]
    properties: dict[str, str]
    delay_level: int
    deliver_at: int | None
    delay_ms: int | None
    sharding_key: str | None

    def message(self, body: bytes, line: Mapping[str, Any] | None = None) -> Message:
        from aerobee.client.message import Message

        line = line or {}
        return Message(
            self.topic,
            body,
            tags=line.get("tags") or self.tags,
            keys=line.get("keys") or self.keys,
            properties={**self.properties, **(line.get("properties") or {})} or None,
            delay_level=line.get("delayLevel") or self.delay_level,
            deliver_at=line.get("deliverAt") or self.deliver_at,
            delay_ms=self.delay_ms,
            sharding_key=line.get("shardingKey") or self.sharding_key,
        )


def send(
    topic: Annotated[str, typer.Argument(help="topic to send to", autocompletion=complete.topics)],
    body: Annotated[str | None, typer.Argument(help="the message [the lines of stdin]")] = None,
    tags: Annotated[str | None, typer.Option("--tags", help="tag that consumers filter by")] = None,
    keys: Annotated[list[str] | None, typer.Option("--keys", help="key to find it by; repeatable")] = None,
    delay_level: Annotated[
        int, typer.Option("--delay-level", help="RocketMQ's delay levels, 1 (1 s) to 18 (2 h)", min=0, max=18)
    ] = 0,
    deliver_at: Annotated[
        str | None, typer.Option("--deliver-at", help=f"deliver then: {times.EXAMPLES}")
    ] = None,
    delay_ms: Annotated[
        int | None, typer.Option("--delay-ms", help="deliver in so many milliseconds", min=1)
    ] = None,
    sharding_key: Annotated[
        str | None, typer.Option("--sharding-key", help="same key, same queue, in order")
    ] = None,
    property_: Annotated[
        list[str] | None, typer.Option("--property", "-p", help="as name=value; repeatable")
    ] = None,
    count: counted.Count = None,
    size: Annotated[int | None, typer.Option("--size", help="bytes of each generated body", min=1)] = None,
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl",
            help='stdin lines are JSON, as `consume --json` prints: {"body": "...", "tags": "paid", "keys": ["o-7"]}',
        ),
    ] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", help="try a message for so long, while its broker is away: 3s, 2m")
    ] = "3s",
    namesrv: counted.Server = None,
    json: output.Json = False,
) -> None:
    """Send messages: one, many, or one per line of stdin.

    aerobee send orders '{"id": 7}' --tags paid --keys o-7

    aerobee send orders -c 100000 --size 128

    tail -f app.log | aerobee send logs
    """
    number, server = counted.split(namesrv, count)
    address = connect.address_of(server)
    wanted = Wanted(
        topic,
        tags,
        [key for text in keys or () for key in text.split()],
        pairs_of(property_, "--property"),
        delay_level,
        times.parse_time(deliver_at, connect.clock.now()) if deliver_at else None,
        delay_ms,
        sharding_key,
    )
    wanted.message(b"checked before anything is sent")
    bodies = _generated(body, number, size) if body is not None or number or size else None
    if bodies is not None and jsonl:
        raise typer.BadParameter("--jsonl reads stdin; leave out the body, --count and --size")
    patience_ms = times.parse_duration(timeout)
    connect.run(_send(address, wanted, bodies, number, patience_ms=patience_ms, jsonl=jsonl, json=json))


def _generated(body: str | None, number: int | None, size: int | None) -> bytes:
    if body is not None and size:
        raise typer.BadParameter("give a body or --size, not both")
    if body is not None:
        return body.encode()
    return (b"aerobee " * ((size or 128) // 8 + 1))[: size or 128]


async def _send(
    address: str,
    wanted: Wanted,
    body: bytes | None,
    number: int | None,
    *,
    patience_ms: int,
    jsonl: bool,
    json: bool,
) -> None:
    from aerobee.client.options import ProducerOptions
    from aerobee.client.produce.producer import Producer

    options = profiles.options(ProducerOptions, send_timeout_ms=patience_ms)
    async with connect.connected(address, options) as admin:
        await admin.cluster()  # a wrong address fails here, and says what to do
        async with Producer(admin.session, group=GROUP) as producer:
            sending = Sending(producer, wanted, None if body is None else number or 1, json=json)
            if body is None:
                await sending.send_all(_from_stdin(wanted, jsonl=jsonl))
            else:
                await sending.send_all(_repeated(wanted, body, number or 1))
            sending.finished()


async def _repeated(wanted: Wanted, body: bytes, number: int) -> AsyncIterator[Message]:
    for _ in range(number):
        yield wanted.message(body)


class Sending:
    """Many sends under way at once; one after another where order was asked for."""

    def __init__(self, producer: Producer, wanted: Wanted, total: int | None, *, json: bool) -> None:
        self._producer = producer
        self._room = asyncio.Semaphore(1 if wanted.sharding_key else AT_ONCE)
        self._total = total
        self._json = json
        self._done = 0
        self._first: SendResult | None = None
        self._last: SendResult | None = None
        self._began = connect.clock.now()

    async def send_all(self, messages: AsyncIterator[Message]) -> None:
        with output.progress("sending", self._total) as shown:
            try:
                async with asyncio.TaskGroup() as tasks:
                    async for message in messages:
                        await self._room.acquire()
                        tasks.create_task(self._send(message))
                        if self._done % 100 == 0:
                            shown(self._done)
            except ExceptionGroup as failures:
                # Not except*: Python 3.11.2 wraps what that raises in a group again
                self._tell_so_far()
                raise self._named(failures.exceptions[0]) from None
            except asyncio.CancelledError:
                self._tell_so_far()
                raise

    def _named(self, error: Exception) -> Exception:
        """By the names that this command has."""
        text = str(error).replace("send_timeout_ms", "--timeout")
        return error if text == str(error) else connect.Failed(text)

    def _tell_so_far(self) -> None:
        if self._total != 1:
            of = "" if self._total is None else f" of {self._total:,}"
            output.note(f"{self._done:,}{of} messages were acknowledged; others may have arrived, too")

    async def _send(self, message: Message) -> None:
        try:
            self._last = sent = await self._producer.send(message)
            self._first = self._first or sent
        finally:
            self._room.release()
        self._done += 1
        if self._json:
            output.line(output.to_json(_row(sent)))

    def finished(self) -> None:
        if self._json:
            return
        if self._total == 1 and self._last is not None:
            output.line(_place(self._last))
            return
        if self._total is not None and self._first is not None and self._last is not None:
            output.line(f"first {_place(self._first)}\nlast  {_place(self._last)}")
        took_ms = max(1, connect.clock.now() - self._began)
        output.note(
            f"sent {self._done:,} messages in {took_ms / 1000:.2f} s, {self._done * 1000 // took_ms:,} a second"
        )


def _place(sent: SendResult) -> str:
    """By which it is found again: `aerobee messages get` takes the id."""
    row = _row(sent)
    return f"{row['msgId']} {row['brokerName']} queue {row['queueId']} offset {row['queueOffset']}"


def _row(sent: SendResult) -> dict[str, Any]:
    return {
        "topic": sent.queue.topic,
        "brokerName": sent.queue.broker_name,
        "queueId": sent.queue.queue_id,
        "queueOffset": sent.queue_offset,
        "msgId": sent.message_id,
        "offsetMsgId": sent.offset_id,
        "status": sent.status.value,
    }


# -- stdin -------------------------------------------------------------------------------------------------


async def _from_stdin(wanted: Wanted, *, jsonl: bool) -> AsyncIterator[Message]:
    if sys.stdin.isatty():
        output.note("one message per line; end with Ctrl-D")
    number = 0
    async for line in _lines():
        number += 1
        if not line:
            continue  # a message cannot be empty
        yield _from_json(wanted, line, number) if jsonl else wanted.message(line)


def _from_json(wanted: Wanted, line: bytes, number: int) -> Message:
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"line {number} of stdin is no JSON: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("body", found.get("bodyBase64")), str):
        raise typer.BadParameter(f"line {number} of stdin: expected an object with a text 'body'")
    body = base64.b64decode(found["bodyBase64"]) if "bodyBase64" in found else found["body"].encode()
    own = {name: value for name, value in found.items() if name in FIELDS}
    own["properties"] = _own_properties(own.get("properties"))
    return wanted.message(body, own)


def _own_properties(found: Any) -> dict[str, str]:
    from aerobee.protocol import properties

    return {name: str(value) for name, value in (found or {}).items() if name not in properties.RESERVED}


async def _lines() -> AsyncIterator[bytes]:
    """Lines as they come, also of a slow pipe. The reading thread is a daemon: Ctrl-C need not wait for it."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(16)

    def read() -> None:
        source: Any = sys.stdin.buffer
        while True:
            room.acquire()
            chunk = source.read1(READ_BYTES)
            loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            if not chunk:
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    rest = b""
    while chunk := await chunks.get():
        room.release()
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest
