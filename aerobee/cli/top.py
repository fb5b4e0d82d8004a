# SPDX-License-Identifier: Apache-2.0
"""`aerobee top`: the cluster's figures live in the terminal; plain lines where there is none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import connect, output
from aerobee.cli.keys import pressed
from aerobee.cli.top_views import (
    COLUMNS,
    KEYS,
    next_sort,
    ordered,
    rows_of,
    summary,
    summary_line,
    usual_sort,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from aerobee.cli.top_views import Row
    from aerobee.client.admin import Admin

HELP = "g groups   t topics   c clients   s next order   r turn it round   q quit"
SHOWN_PROBLEMS = 3
EVERY_S = 2.0
TONES = {"bad": "bold red", "warn": "yellow"}


def top(
    by: Annotated[str, typer.Option("--by", help="groups, topics or clients")] = "groups",
    sort: Annotated[str | None, typer.Option("--sort", help="a column, such as ready or inRate")] = None,
    every: Annotated[float | None, typer.Option("--every", help="seconds between looks [2]", min=0.2)] = None,
    count: Annotated[int | None, typer.Option("--count", "-l", help="so many looks [no end]", min=1)] = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Rates, lag and what is wrong, live: by group, topic or client. Keys: g t c s r q.

    Where stdout is no terminal, and with --json, each look is printed by itself. Into a file or a pipe it is one look,
    unless --count or --every ask for more.

    aerobee top

    aerobee top --by topics --sort messages --count 1
    """
    if by not in COLUMNS:
        raise typer.BadParameter(f"--by {by!r}: it is {', '.join(COLUMNS)}")
    if sort is not None and sort not in COLUMNS[by]:
        raise typer.BadParameter(f"--sort {sort!r}: {by} have {', '.join(COLUMNS[by])}")
    if every is None and count is None and not output.on_terminal():
        count = 1
    screen = Screen(by, sort or usual_sort(by), round((every or EVERY_S) * 1000), count)
    connect.run(_top(connect.address_of(namesrv), screen, json=json))


class Screen:
    """What is shown, and in which order; keys change it."""

    def __init__(self, view: str, sort: str, every_ms: int, count: int | None) -> None:
        self.view = view
        self.sort = sort
        self.every_ms = every_ms
        self.looks_left = count
        self.turned = False
        self.changed = asyncio.Event()
        self.is_over = False

    def press(self, key: str) -> None:
        match key:
            case "g" | "t" | "c":
                self.view = KEYS[key]
                self.sort = usual_sort(self.view)
            case "s":
                self.sort = next_sort(self.view, self.sort)
            case "r":
                self.turned = not self.turned
            case "q" | "\x1b" | "\x03":
                self.is_over = True
            case _:
                return
        self.changed.set()

    def looked(self) -> None:
        if self.looks_left is not None:
            self.looks_left -= 1
            self.is_over = self.is_over or self.looks_left <= 0

    def arranged(self, rows: list[Row]) -> list[Row]:
        found = ordered(rows, self.view, self.sort)
        return found[::-1] if self.turned else found


async def _top(address: str, screen: Screen, *, json: bool) -> None:
    async with connect.connected(address) as admin:
        if json or not output.on_terminal():
            await _lines(admin, screen, json=json)
        else:
            await _live(admin, screen)


async def _looks(admin: Admin, screen: Screen) -> Any:
    """One look after the other; a key shortens the wait."""
    from aerobee.console.cluster_view import ClusterView
    from aerobee.console.sampler import Sampler

    view = ClusterView(admin, connect.clock)
    sampler = Sampler(view, connect.clock)
    try:
        while not screen.is_over:
            if not screen.changed.is_set():
                await sampler.look()
                screen.looked()
            screen.changed.clear()
            yield sampler.history, await rows_of(screen.view, view, sampler.history)
            if not screen.is_over:
                await _wait(screen)
    finally:
        await view.stop()


async def _wait(screen: Screen) -> None:
    try:
        async with asyncio.timeout(screen.every_ms / 1000):
            await screen.changed.wait()
    except TimeoutError:
        return


async def _lines(admin: Admin, screen: Screen, *, json: bool) -> None:
    async for history, rows in _looks(admin, screen):
        found = screen.arranged(rows)
        columns, wrong = COLUMNS[screen.view], said(history)
        if json:
            told = [{"tone": tone, "text": text} for tone, text in wrong]
            output.line(output.to_json({"cluster": summary(history), "wrong": told, screen.view: found}))
            continue
        output.line(summary_line(summary(history)))
        for _, text in wrong:
            output.line(text)
        aged = [
            {**row, "oldestMs": output.age(row["oldestMs"] or 0)} if "oldestMs" in row else row
            for row in found
        ]
        output.table(aged, {name: heading for name, (heading, _) in columns.items()})


def said(history: Any) -> list[tuple[str, str]]:
    """What is wrong right now: how bad it is, and a sentence; the worst first."""
    from aerobee.console.problems import problems

    return [(each.tone, each.said(str.format)) for each in problems(history)]


async def _live(admin: Admin, screen: Screen) -> None:
    from rich.live import Live

    with pressed(screen.press), Live(screen=True, auto_refresh=False, console=output.console()) as live:
        async for history, rows in _looks(admin, screen):
            live.update(
                drawn(screen, history, rows, admin.session.namesrv, live.console.height), refresh=True
            )


def drawn(screen: Screen, history: Any, rows: list[Row], namesrv: str, height: int) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    wrong = [Text(text, TONES[tone], no_wrap=True) for tone, text in said(history)[:SHOWN_PROBLEMS]]
    table = Table(box=None, header_style="bold", expand=True)
    for name, (heading, write) in COLUMNS[screen.view].items():
        mark = ("▲" if screen.turned else "▼") if name == screen.sort else ""
        table.add_column(f"{heading} {mark}".strip(), justify="left" if write is str else "right")
    room = max(1, height - len(wrong) - 5)
    for row in screen.arranged(rows)[:room]:
        cells = [(row.get(name), write) for name, (_, write) in COLUMNS[screen.view].items()]
        table.add_row(*(Text("–" if value is None else write(value), no_wrap=True) for value, write in cells))
    head = Text(f"aerobee top  {namesrv}  {summary_line(summary(history))}", "reverse", no_wrap=True)
    foot = Text(f"{len(rows)} {screen.view}   {HELP}", "dim", no_wrap=True)
    return Group(head, *wrong, table, foot)
