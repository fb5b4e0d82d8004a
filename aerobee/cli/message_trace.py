# SPDX-License-Identifier: Apache-2.0
"""`aerobee messages trace`: what happened to a message, as its producer and consumers wrote it down."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import connect, output
from aerobee.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from aerobee.client.admin import Admin
    from aerobee.client.trace_records import TraceRecord

WHAT = {"Pub": "sent", "SubBefore": "given", "SubAfter": "handled", "EndTransaction": "transaction"}
COLUMNS = {
    "time": "time", "what": "what", "group": "group", "attempt": "attempt", "tookMs": "took ms", "result": "result",
    "by": "by",
}  # fmt: skip


def trace(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="the producer's id, as `send` prints it")],
    trace_topic: Annotated[str, typer.Option("--trace-topic", help="where traces are")] = TRACE_TOPIC,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """What happened to a message: sent, given to whom, how each attempt ended.

    Only clients that trace tell it: ProducerOptions(trace=True), PushOptions(trace=True), Java's enableMsgTrace.

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
        rows = await _rows(admin, message_id, topic) if await admin.topic_exists(topic) else []
        if not rows:
            raise connect.Failed(
                f"no trace of {message_id} in {topic}: its clients must trace, ProducerOptions(trace=True) or "
                f"PushOptions(trace=True); `aerobee messages get {shlex.quote(message_id)}` tells where it is now"
            )
    return rows


async def _rows(admin: Admin, message_id: str, topic: str) -> list[dict[str, Any]]:
    found = await admin.trace(message_id, topic)
    attempts = {record.request: record.attempt for record, _ in found if record.attempt is not None}
    return [_row(record, by, attempts) for record, by in found]


def _row(record: TraceRecord, by: str, attempts: dict[str, int]) -> dict[str, Any]:
    return {
        "at": record.at,
        "what": WHAT[record.kind],
        "group": record.group,
        "attempt": attempts.get(record.request) if record.request else None,
        "tookMs": record.took_ms,
        "result": record.result or None,
        "by": by,
    }
