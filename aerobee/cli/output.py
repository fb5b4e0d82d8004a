# SPDX-License-Identifier: Apache-2.0
"""What commands print: tables for people, plain columns for pipes, JSON for programs, bars for long work."""

from __future__ import annotations

import base64
import json as json_text
import os
import select
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from aerobee.clock import SystemClock
from aerobee.protocol.durations import in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console

    from aerobee.client.message import ReceivedMessage
    from aerobee.clock import Clock

Json = Annotated[bool, typer.Option("--json", help="JSON instead of a table")]

# `aerobee topics --json list` means the same as `aerobee topics list --json`.
_json_given: ContextVar[bool] = ContextVar("json_given", default=False)

Row = dict[str, Any]
LINE_EVERY_MS = 10_000  # about long work, where nobody sees a bar
UNBROKEN = {"message", "client", "address", "stored", "body"}  # what one copies, and what is only a glimpse


def remember_json(given: bool) -> None:
    _json_given.set(given)


def wants_json(given: bool) -> bool:
    return given or _json_given.get()


# -- writing ---------------------------------------------------------------------------------------------


# Where lines go instead, while a command's output is kept as values.
_kept: ContextVar[Callable[[str], None] | None] = ContextVar("lines_kept", default=None)


def keep_lines(keep: Callable[[str], None] | None) -> None:
    _kept.set(keep)


def line(text: str = "") -> None:
    if (keep := _kept.get()) is not None:
        keep(text)
    else:
        write(text.encode() + b"\n")


def write(data: bytes) -> None:
    """To stdout, at once. A reader that has gone (`| head`) ends the command, and that is no failure."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        forget_stdout()
        raise typer.Exit(0) from None


def forget_stdout() -> None:
    """Nobody reads any more: what Python still flushes at exit must not fail too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reader_gone() -> bool:
    """Whether whoever read our stdout has closed it, which writing would only tell with the next message."""
    try:
        waiting = select.poll()
        waiting.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in waiting.poll(0))
    except (OSError, ValueError, AttributeError):
        return False  # no file behind it, or a system without poll


def note(text: str) -> None:
    """To stderr: what a person wants to know and a pipe must not see."""
    print(text, file=sys.stderr)  # noqa: T201


def on_terminal() -> bool:
    return sys.stdout.isatty()


def to_json(value: Any) -> str:
    return json_text.dumps(msgspec.to_builtins(value, str_keys=True), ensure_ascii=False)


def pretty_json(value: Any) -> str:
    return json_text.dumps(msgspec.to_builtins(value, str_keys=True), ensure_ascii=False, indent=2)


# -- tables ----------------------------------------------------------------------------------------------


def table(rows: Sequence[Row], columns: Mapping[str, str], *, title: str = "") -> None:
    """Rows of plain values. `columns`: key in the row -> heading; numbers stand to the right."""
    texts = [[cell(row.get(key)) for key in columns] for row in rows]
    right = [all(_is_number(row.get(key)) for row in rows) for key in columns]
    if on_terminal():
        _rich_table(texts, list(columns.values()), right, title)
    else:
        _plain_table(texts, list(columns.values()), right)


def _rich_table(texts: list[list[str]], headings: list[str], right: list[bool], title: str) -> None:
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=title or None, title_justify="left", header_style="bold", box=_box())
    for heading, numbers in zip(headings, right, strict=True):
        drawn.add_column(
            heading,
            justify="right" if numbers else "left",
            overflow="ellipsis" if heading == "body" else "fold",
            no_wrap=heading in UNBROKEN,
        )
    for row in texts:
        drawn.add_row(*(Text(text) for text in row))
    console().print(drawn)


def _box() -> Any:
    from rich import box

    return box.SIMPLE_HEAD


def _plain_table(texts: list[list[str]], headings: list[str], right: list[bool]) -> None:
    head = [heading.upper().replace(" ", "_") for heading in headings]
    widths = [max(len(row[at]) for row in [head, *texts]) for at in range(len(head))]
    lines = []
    for row in [head, *texts]:
        cells = [
            text.rjust(width) if numbers else text.ljust(width)
            for text, width, numbers in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    line("\n".join(lines))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def cell(value: Any) -> str:
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value) if not on_terminal() else f"{value:,}"
        case float():
            return f"{value:.2f}"
        case list() | tuple() | set() | frozenset():
            return ", ".join(cell(each) for each in value) or "-"
        case dict():
            return ", ".join(f"{name}={cell(each)}" for name, each in value.items()) or "-"
    return str(value)


def facts(pairs: Mapping[str, Any]) -> None:
    """`name: value` lines, aligned."""
    width = max((len(name) for name in pairs), default=0)
    line("\n".join(f"{name.ljust(width)}  {cell(value)}" for name, value in pairs.items()))


def console() -> Console:
    from rich.console import Console

    return Console(soft_wrap=False)


# -- values ----------------------------------------------------------------------------------------------


def local_time(timestamp_ms: int) -> str:
    """`2026-08-01 12:30:00.123` where this machine is; '-' for never."""
    if timestamp_ms <= 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / 1000).isoformat(" ", "milliseconds")


def age(ms: int) -> str:
    """How long ago, or for how long; '-' for never."""
    return in_words(ms) or "-"


def message_row(message: ReceivedMessage) -> Row:
    """With the names of the Spark columns, so that what works on one works on the other."""
    return {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.message_id,
        "tags": message.tags,
        "keys": message.keys,
        **body_row(message.body),
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "reconsumeTimes": message.reconsume_times,
        "properties": message.properties,
    }


def body_row(body: bytes) -> Row:
    """Text where it is text; else `bodyBase64`, for JSON has no bytes."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}


def shown_body(body: bytes, limit: int = 60) -> str:
    """One line for a table."""
    text = body[: limit * 4].decode(errors="replace")
    text = "".join(sign if sign.isprintable() else "." for sign in text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


# -- long work -------------------------------------------------------------------------------------------


class NowAndThen:
    """How far long work is, for a log: a line every ten seconds."""

    def __init__(self, label: str, total: int | None, clock: Clock) -> None:
        self._label = label
        self._of = "" if total is None else f" of {total}"
        self._clock = clock
        self._next = clock.now() + LINE_EVERY_MS

    def tell(self, done: int) -> None:
        now = self._clock.now()
        if now >= self._next:
            self._next = now + LINE_EVERY_MS
            note(f"{done}{self._of} {self._label}")


@contextmanager
def progress(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Gives a function to call with how many are done: a bar on a terminal's stderr, a line now and then elsewhere."""
    if total is not None and total < 100:
        yield lambda done: None
        return
    if not sys.stderr.isatty():
        yield NowAndThen(label, total, SystemClock()).tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(label, total=total)
        yield lambda done: bars.update(task, completed=done)


def confirmed(question: str, yes: bool) -> None:
    """Ask on a terminal; elsewhere only --yes says yes."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} Say so with --yes.")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


def many(count: int, noun: str) -> str:
    """`1 message`, `1,013 messages`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
