# SPDX-License-Identifier: Apache-2.0
"""`aerobee messages trace`: what happened to a message, as brokers keep it and as its producer and consumers wrote it
down: the console's timeline in lines."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import connect, output
from aerobee.errors import BrokerError
from aerobee.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from aerobee.client.admin import Admin
    from aerobee.client.trace_records import Traced, TraceRecord
    from aerobee.console.timeline import Happened

WHAT = {"Pub": "sent", "SubBefore": "given", "SubAfter": "handled", "EndTransaction": "transaction"}
COLUMNS = {
    "time": "time", "what": "what", "group": "group", "attempt": "attempt", "tookMs": "took ms", "result": "result",
    "by": "by", "why": "why",
}  # fmt: skip
_MUST_TRACE = "its clients must trace, ProducerOptions(trace=True) or PushOptions(trace=True)"


def trace(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="the producer's id, as `send` prints it")],
    trace_topic: Annotated[str, typer.Option("--trace-topic", help="where traces are")] = TRACE_TOPIC,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """What happened to a message: sent, stored, given to whom, how each attempt ended, given back, died.

    To whom it was given and how that ended only clients that trace tell: ProducerOptions(trace=True),
    PushOptions(trace=True), Java's enableMsgTrace. The rest brokers keep.

    aerobee messages trace 7F0000010A2B3C4D5E6F00000000
    """
    rows = connect.run(_trace(connect.address_of(namesrv), message_id, trace_topic))
    if output.wants_json(json):
        output.line(output.pretty_json(rows))
    else:
        output.table([{**row, "time": output.local_time(row["at"])} for row in rows], COLUMNS)


async def _trace(address: str, message_id: str, topic: str) -> list[dict[str, Any]]:
    async with connect.connected(address) as admin:
        await admin.cluster()
        traced = await admin.trace(message_id, topic) if await admin.topic_exists(topic) else []
        kept = await _kept(admin, message_id)
    if not traced and not kept:
        raise connect.Failed(
            f"no trace of {message_id} in {topic}, and no message of that id in any topic that you may look at: "
            f"{_MUST_TRACE}; `aerobee messages get {shlex.quote(message_id)}` finds what waits for its time"
        )
    if not traced:
        output.note(f"who was given it and how that ended is not known: {_MUST_TRACE}")
    is_told = any(record.kind == "Pub" for record, _ in traced)
    rows = [each for each in kept if each["what"] != "sent" or not is_told] + _rows(traced)
    return sorted(rows, key=lambda row: (row["at"], row["what"] != "sent"))


def _rows(traced: list[Traced]) -> list[dict[str, Any]]:
    attempts = {record.request: record.attempt for record, _ in traced if record.attempt is not None}
    return [_row(record, by, attempts) for record, by in traced]


async def _kept(admin: Admin, message_id: str) -> list[dict[str, Any]]:
    """As brokers have it; nothing of a message that is not there, or that this account may not look at."""
    from aerobee.console.cluster_view import ClusterView
    from aerobee.console.timeline import born, kept
    from aerobee.console.whereabouts import whereabouts

    try:
        message = await admin.message_by_id(message_id)
        where = await whereabouts(ClusterView(admin, connect.clock), message)
    except BrokerError:
        return []
    return [_kept_row(each) for each in (born(message), *kept(message, where.tracks))]


def _kept_row(happened: Happened) -> dict[str, Any]:
    return {
        "at": happened.at,
        "what": happened.what,
        "group": happened.group or None,
        "attempt": happened.attempt,
        "tookMs": None,
        "result": None,
        "by": happened.by or None,
        "why": happened.reason or None,
    }


def _row(record: TraceRecord, by: str, attempts: dict[str, int]) -> dict[str, Any]:
    return {
        "at": record.at,
        "what": WHAT[record.kind],
        "group": record.group,
        "attempt": attempts.get(record.request) if record.request else None,
        "tookMs": record.took_ms,
        "result": record.result or None,
        "by": by,
        "why": None,
    }
