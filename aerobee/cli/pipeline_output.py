# SPDX-License-Identifier: Apache-2.0
"""What the pipelines' commands show: progress while they run, tables when they are done."""

from __future__ import annotations

import json as json_text
import sys
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from aerobee.cli import output
from aerobee.protocol.failure_text import alike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

SHOWN = 200  # rows of messages
PIPE = 80  # columns, where nobody says how many there are
# Not FORCE_COLOR, which notebooks set, but whether somebody looks: frames of a spinner are no lines of a log.
console = Console(stderr=True, force_terminal=sys.stderr.isatty())


class Batches:
    """What a pipeline says of its batches as it finishes them. Spark's own count is of rows read: a batch that was read
    twice, as after a lost executor, counts twice there."""

    def __init__(self) -> None:
        self._told: dict[int, Any] = {}
        self._counted: dict[int, int] = {}

    def take(self, told: Any) -> None:
        self._told[told.batch] = told

    def count(self, batch: int, rows: int) -> int:
        """The rows of a batch: the pipeline's word, else Spark's `rows`. Through Spark Connect batches run beside the
        server, and there is nobody to tell."""
        self._counted[batch] = self._told[batch].rows if batch in self._told else rows
        return self._counted[batch]

    @property
    def rows(self) -> int:
        return sum({**self._counted, **{batch: told.rows for batch, told in self._told.items()}}.values())

    @property
    def are_known(self) -> bool:
        """Whether the pipeline told of each batch, not Spark alone."""
        return self._counted.keys() <= self._told.keys()

    def total(self, field: str) -> int:
        return sum(int(getattr(told, field)) for told in self._told.values())

    def names(self, field: str) -> list[str]:
        return list(dict.fromkeys(name for told in self._told.values() for name in getattr(told, field)))


class Reasons:
    """Why messages failed, and how often; those that differ by an id or a number are one. There may be as many reasons
    as messages: when there are too many, those that came least often are forgotten."""

    MOST = 1_000

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def take(self, counted: Iterable[tuple[str, int]]) -> None:
        for reason, count in counted:
            self._counts[alike(reason)] += count
            self._first.setdefault(alike(reason), reason)
        if len(self._counts) > self.MOST:
            self._counts = Counter(dict(self._counts.most_common(self.MOST // 2)))
            self._first = {kind: self._first[kind] for kind in self._counts}

    def most(self, number: int) -> list[tuple[str, int]]:
        """One of each kind, and how many there were of it."""
        return [
            (
                f"{self._first[kind]}{', or the like' if count > 1 and self._first[kind] != kind else ''}",
                count,
            )
            for kind, count in self._counts.most_common(number)
        ]


def watch(query: StreamingQuery, name: str, batches: Batches) -> None:
    """Follow a stream until it ends or Ctrl-C; a live count on a terminal, a line per batch elsewhere."""
    from aerobee.spark.stream_figures import figures_of

    seen, rows = -1, 0
    with console.status(f"{name}: starting") as status:
        try:
            while True:
                ended = query.awaitTermination(1) if query.isActive else True
                for progress in query.recentProgress:
                    batch = figures_of(progress)
                    if batch.batch > seen and batch.rows:
                        seen = batch.batch
                        rows += (fresh := batches.count(seen, batch.rows))
                        speed = 1000 * fresh / max(1, batch.batch_ms)
                        said = f"{name}: batch {seen}, {rows:,} messages, {speed:,.0f}/s, {batch.behind_told}"
                        status.update(said)
                        if not console.is_terminal:
                            say(said)
                if ended:
                    break
        except KeyboardInterrupt:
            query.stop()
    if (error := query.exception()) is not None:
        raise error


def say(text: str) -> None:
    """A line for people, on stderr, never broken: whoever greps a log wants its numbers whole."""
    console.print(text, soft_wrap=True, markup=False)  # what a handler raised may hold brackets


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
            say(f"{self._name}: {done:,} of {total:,}")


def show(frame: DataFrame, *, as_json: bool) -> bool:
    """The first rows; that there are more is said, on stderr, where it disturbs no program that reads the JSON. False
    when there is none, of which the caller tells."""
    rows = [row.asDict() for row in frame.limit(SHOWN + 1).collect()]
    if rows or as_json:
        print_rows(rows[:SHOWN], "Messages", as_json=as_json)
    if len(rows) > SHOWN:
        say(f"there are more: only {SHOWN} rows are shown; --out DIR writes all of them as Parquet")
    return bool(rows)


def print_rows(rows: list[dict[str, Any]], title: str, *, as_json: bool) -> None:
    if as_json:
        output.line(json_text.dumps(rows, default=str, ensure_ascii=False))
    elif not rows:
        say("nothing found")
    else:
        width = console.width if output.on_terminal() else PIPE
        wide = sum(max(len(name), *(len(output.cell(row[name])) for row in rows)) + 3 for name in rows[0])
        if wide <= width:
            output.table(rows, {name: name for name in rows[0]}, title=title)
        else:
            for block in turned(rows, width):
                output.line(block)


def turned(rows: list[dict[str, Any]], width: int) -> Iterator[str]:
    """A row as a column, with as many beside each other as `width` holds; no value is ever cut or broken."""
    names = list(rows[0])
    head = max(map(len, names))
    columns = [[output.cell(row[name]) for name in names] for row in rows]
    while columns:
        widths = [max(map(len, column)) for column in columns]
        fit = max(1, sum(head + total <= width for total in accumulate(each + 2 for each in widths)))
        shown, columns = columns[:fit], columns[fit:]
        lines = [
            "  ".join(
                [name.ljust(head), *(cells[i].rjust(w) for cells, w in zip(shown, widths, strict=False))]
            )
            for i, name in enumerate(names)
        ]
        yield "\n".join(line.rstrip() for line in lines) + ("\n" if columns else "")
