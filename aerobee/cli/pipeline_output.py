# SPDX-License-Identifier: Apache-2.0
"""What the pipelines' commands show: progress while they run, tables when they are done."""

from __future__ import annotations

import json as json_text
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

console = Console(stderr=True)


def watch(query: StreamingQuery, name: str) -> int:
    """Follow a stream until it ends or Ctrl-C; a live count on a terminal, a line per batch elsewhere."""
    from aerobee.spark.stream_figures import figures_of

    seen, rows = -1, 0
    with console.status(f"{name}: starting") as status:
        try:
            while True:
                ended = query.awaitTermination(1) if query.isActive else True
                for progress in query.recentProgress:
                    if progress["batchId"] > seen and progress["numInputRows"]:
                        batch = figures_of(progress)
                        seen, rows = batch.batch, rows + batch.rows
                        speed = f"{batch.rows_per_second:,.0f}/s, {batch.behind:,} behind"
                        said = f"{name}: batch {seen}, {rows:,} messages, {speed}"
                        status.update(said)
                        if not console.is_terminal:
                            console.print(said)
                if ended:
                    break
        except KeyboardInterrupt:
            query.stop()
    if (error := query.exception()) is not None:
        raise error
    return rows


class Bar:
    """A bar on a terminal, a line per step elsewhere."""

    def __init__(self, name: str) -> None:
        columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task(name, total=None)
        self._name = name

    def __enter__(self) -> Callable[[int, int], None]:
        self._bar.start()
        return self._advance

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def _advance(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)
        if not console.is_terminal:
            console.print(f"{self._name}: {done:,} of {total:,}")


def show(frame: DataFrame, *, as_json: bool) -> None:
    print_rows([row.asDict() for row in frame.collect()], "Messages", as_json=as_json)


def print_rows(rows: list[dict[str, Any]], title: str, *, as_json: bool) -> None:
    if as_json:
        print(json_text.dumps(rows, default=str, ensure_ascii=False))  # noqa: T201 - the command's output
        return
    if not rows:
        console.print("nothing found")
        return
    table = Table(title=title)
    for name, value in rows[0].items():
        table.add_column(name, justify="right" if isinstance(value, int) else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    Console().print(table)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
