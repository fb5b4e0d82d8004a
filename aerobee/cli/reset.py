# SPDX-License-Identifier: Apache-2.0
"""`aerobee groups reset`: what moving a group means, in messages, before it is done."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import complete, connect, output, times

if TYPE_CHECKING:
    from aerobee.client.admin.progress import ResetStep

COLUMNS = {
    "topic": "topic", "brokerName": "broker", "queueId": "queue", "from": "from", "offset": "to",
    "again": "again", "skipped": "skipped",
}  # fmt: skip


def reset(
    group: Annotated[str, typer.Argument(help="consumer group", autocompletion=complete.groups)],
    topic: Annotated[str, typer.Option("--topic", "-t", help="topic", autocompletion=complete.topics)],
    to: Annotated[str, typer.Option("--to", help=f"first, last, or {times.EXAMPLES}")] = "last",
    queue: Annotated[int | None, typer.Option("--queue", "-q", help="only this queue", min=0)] = None,
    offset: Annotated[int | None, typer.Option("--offset", "-o", help="with --queue: there", min=0)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show what it would do")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Move a group, running or not, to another place of a topic.

    Shows how many messages come again and how many are skipped, and asks; where nobody can be asked, --yes says yes.

    aerobee groups reset billing -t orders --to '-10m' --dry-run

    aerobee groups reset billing -t orders --queue 3 --offset 1200
    """
    if (offset is not None) and queue is None:
        raise typer.BadParameter("--offset needs --queue: offsets of different queues have nothing in common")
    place = times.parse_start(to, connect.clock.now()) if offset is None else offset
    address = connect.address_of(namesrv)
    rows = connect.run(_plan(address, group, topic, place, queue, offset))
    again, skipped = (sum(row[name] for row in rows) for name in ("again", "skipped"))
    meant = f"{output.many(again, 'message')} again, {skipped:,} skipped"
    if dry_run:
        _show(rows, json=json)
        _say(f"would move group {group} in {topic}: {meant}", json=json)
        return
    if not yes:
        if sys.stdin.isatty():
            _show(rows, json=False)
        output.confirmed(
            f"Move group {group!r}: {again:,} messages come again, {skipped:,} are skipped?", yes
        )
    moved = connect.run(_move(address, group, topic, place, queue, rows))
    if yes or output.wants_json(json):
        _show([{**row, "offset": moved[row["brokerName"], row["queueId"]]} for row in rows], json=json)
    _say(f"moved group {group} in {topic}: {meant}", json=json)


def _say(text: str, *, json: bool) -> None:
    if not output.wants_json(json):
        output.line(text)


def _show(rows: list[dict[str, Any]], *, json: bool) -> None:
    if output.wants_json(json):
        output.line(output.pretty_json(rows))
    else:
        output.table(rows, COLUMNS)


async def _plan(
    address: str, group: str, topic: str, place: str | int, queue_id: int | None, offset: int | None
) -> list[dict[str, Any]]:
    """By queue: where the group stands, where it would go, how many messages lie between."""
    async with connect.connected(address) as admin:
        await connect.existing_topic(admin, topic)
        await connect.existing_group(admin, group)
        steps = await admin.plan_reset(
            group, topic, place, queue_id=-1 if queue_id is None else queue_id, offset=offset
        )
    if not steps:
        raise connect.Failed(
            f"topic {topic!r} has no queue {queue_id}; `aerobee topics show {shlex.quote(topic)}` lists them"
        )
    return [_row(step) for step in steps]


def _row(step: ResetStep) -> dict[str, Any]:
    return {
        "topic": step.queue.topic, "brokerName": step.queue.broker_name, "queueId": step.queue.queue_id,
        "from": step.stands_at, "offset": step.goes_to, "again": step.again, "skipped": step.skipped,
    }  # fmt: skip


async def _move(
    address: str, group: str, topic: str, place: str | int, queue_id: int | None, rows: list[dict[str, Any]]
) -> dict[tuple[str, int], int]:
    """Where each queue stands now; what the plan shows when the broker does not say."""
    if queue_id is not None:
        place = rows[0]["offset"]
    async with connect.connected(address) as admin:
        moved = await admin.reset_offsets(group, topic, place, queue_id=-1 if queue_id is None else queue_id)
    planned = {(row["brokerName"], row["queueId"]): row["offset"] for row in rows}
    return planned | {(queue.broker_name, queue.queue_id): at for queue, at in moved.items()}
