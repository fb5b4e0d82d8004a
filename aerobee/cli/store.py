# SPDX-License-Identifier: Apache-2.0
"""`aerobee store`: looking after the files of a broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from aerobee.cli import output
from aerobee.clock import SystemClock
from aerobee.errors import StoreError
from aerobee.settings import load
from aerobee.store.check import StoreCheck, StoreReport
from aerobee.store.repair import repair as repaired

if TYPE_CHECKING:
    from aerobee.settings import StoreConfig

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Check the files of a stopped broker, and repair them."
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="data directory, or the store in it")]
Repair = Annotated[bool, typer.Option("--repair", help="make queues and index again from the log")]
Config = Annotated[
    Path | None, typer.Option("--config", help="the broker's settings, where sizes are not the usual")
]

_NOT_CLEAN = "not clean, or still running: what follows the checkpoint is made again at the next start"
_SHOWN = 20  # damaged queues and stretches in a table; --json has all


@app.callback()
def store(json: output.Json = False) -> None:
    output.remember_json(json)


@app.command()
def check(
    directory: Directory, repair: Repair = False, config: Config = None, json: output.Json = False
) -> None:
    """Compare every message with its check, its queue and its keys; exit code 1 when something is damaged; --repair.

    The store may be RocketMQ's, a backup, or in use by a broker that runs; nothing is changed without --repair.

    aerobee store check data

    aerobee store check --repair data
    """
    root = store_root(directory)
    sizes = load(config, os.environ).store
    report, was_repaired = checked(root, sizes), False
    # A torn end and what a broker had in memory only are put in order by opening the store, too.
    if repair and not (report.rest_is_sound and report.was_clean):
        output.note(f"repairing {root}")
        repaired(root, sizes, SystemClock(), report)
        report, was_repaired = checked(root, sizes), True
    if output.wants_json(json):
        output.line(
            output.pretty_json(
                {**msgspec.to_builtins(report), "repaired": was_repaired, "sound": report.is_sound}
            )
        )
    else:
        show(report, was_repaired)
    raise typer.Exit(0 if report.is_sound else 1)


def store_root(directory: Path) -> Path:
    for candidate in (directory, directory / "store"):
        if (candidate / "commitlog").is_dir():
            return candidate
    several = sorted(each.parent for each in directory.glob("brokers/*/store"))
    if several:
        raise StoreError(
            f"{directory} is of several brokers, each with a store: check {', '.join(map(str, several))} one by one"
        )
    raise StoreError(
        f"{directory} holds no store: neither it nor {directory / 'store'} has a directory 'commitlog'"
    )


def checked(root: Path, config: StoreConfig) -> StoreReport:
    looking = StoreCheck(root, config)
    with output.progress("bytes of the log", looking.size_bytes) as tell:
        return looking.run(tell)


def show(report: StoreReport, was_repaired: bool) -> None:
    log, queues, index = report.log, report.queues, report.index
    output.facts(
        {
            "store": report.root,
            "last stop": "clean" if report.was_clean else _NOT_CLEAN,
            "commit log": f"{log.messages} messages in {log.files} files, {log.size_bytes} bytes",
            "damaged": f"{len(log.damaged)} places, {log.lost_messages} messages lost, {log.torn_bytes} bytes torn",
            "queues": f"{queues.queues} with {queues.units} units compared, {len(queues.damaged)} damaged",
            "index": f"{index.entries} entries in {index.files} files, {index.missing} missing, {index.wrong} wrong",
            "checkpoint": report.checkpoint,
            "result": _result(report, was_repaired),
        }
    )
    rows: list[dict[str, Any]] = [msgspec.to_builtins(each) for each in queues.damaged[:_SHOWN]]
    if rows:
        columns = {
            "topic": "topic", "queue": "queue", "first_offset": "from offset",
            "missing": "missing", "wrong": "wrong", "surplus": "surplus",
        }  # fmt: skip
        output.table(rows, columns, title="Damaged queues")
    rows = [msgspec.to_builtins(each) for each in log.damaged[:_SHOWN]]
    if rows:
        output.table(
            rows,
            {"file": "file", "physical_offset": "offset", "size_bytes": "bytes"},
            title="Damaged bytes of the log",
        )
    for what, names in (
        ("shorter than they were", log.short_files),
        ("left aside for their size", index.left_aside),
    ):
        if names:
            output.note(f"files {what}: {', '.join(names[:_SHOWN])}")


def _result(report: StoreReport, was_repaired: bool) -> str:
    if report.is_sound:
        return "repaired" if was_repaired else "sound"
    if report.rest_is_sound:
        return "the log is damaged; what it lost cannot be made again"
    return "damaged" if was_repaired else "damaged; --repair makes queues and index again"
