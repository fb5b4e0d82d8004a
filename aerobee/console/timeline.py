# SPDX-License-Identifier: Apache-2.0
"""What happened to a message, in its order: by what brokers keep of it, and by the traces of clients that write them.

Brokers keep when it was sent and stored, and every copy that a failing group caused. Who handled it, how long that took
and how it ended only clients know; RocketMQ's have a trace for it, which is off unless somebody turns it on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from aerobee.errors import AerobeeError, NoPermission
from aerobee.protocol import names
from aerobee.protocol import properties as props

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aerobee.client.message import ReceivedMessage
    from aerobee.client.trace_records import Traced, TraceRecord
    from aerobee.console.cluster_view import ClusterView
    from aerobee.console.whereabouts import Track

SENT, STORED, HANDLED, RETURNED, DELAYED, DIED, TRANSACTION = (
    "sent",
    "stored",
    "handled",
    "returned",
    "delayed",
    "died",
    "transaction",
)
SHORTEST = 2.0  # of a bar, in percent: one that took no time is seen too


@dataclass
class Happened:
    at: int
    what: str
    group: str = ""
    attempt: int | None = None
    by: str = ""  # the address of a client, or the place it was put
    took_ms: int | None = None
    result: str = ""  # "ok", "failed", a transaction's state; empty where nobody has said yet
    reason: str = ""
    is_traced: bool = False
    begins: float = 0.0  # of the whole line, in percent
    lasts: float = SHORTEST

    @property
    def ends_at(self) -> int:
        return self.at + (self.took_ms or 0)


class Timeline(NamedTuple):
    happened: list[Happened]
    told_by_producer: bool
    told_by_consumers: bool
    is_allowed: bool  # to read traces


async def timeline(view: ClusterView, message: ReceivedMessage, tracks: Iterable[Track]) -> Timeline:
    is_allowed, traces = True, []
    try:
        traces = await view.once(("trace", message.message_id), lambda: view.admin.trace(message.message_id))
    except NoPermission:
        is_allowed = False
    except AerobeeError:
        pass  # the line is drawn without
    handled = attempts(traces)
    sends = [_sent(each) for each in traces if each.record.kind == "Pub"]
    others = [_ended(each) for each in traces if each.record.kind == "EndTransaction"]
    line = [*(sends or [born(message)]), *kept(message, tracks), *handled, *others]
    line.sort(key=lambda each: (each.at, each.what != SENT))
    _draw(line)
    return Timeline(line, bool(sends), bool(handled), is_allowed)


def attempts(traces: list[Traced]) -> list[Happened]:
    """The records before and after each delivery as one; of one without the second nobody knows how it ended."""
    found: list[Happened] = []
    running: dict[tuple[str, str], Happened] = {}
    for record, by in traces:
        key = (record.request, by)
        if record.kind == "SubBefore":
            begun = Happened(record.at, HANDLED, record.group, record.attempt, by, is_traced=True)
            running[key] = begun
            found.append(begun)
        elif record.kind == "SubAfter":
            ended = running.pop(key, None)
            if ended is None:  # what came before it was dropped, or is not read
                ended = Happened(
                    record.at - (record.took_ms or 0), HANDLED, record.group, by=by, is_traced=True
                )
                found.append(ended)
            ended.took_ms, ended.result = record.took_ms, record.result
            ended.group = ended.group or record.group
    return found


def _sent(traced: Traced) -> Happened:
    record: TraceRecord = traced.record
    return Happened(
        record.at,
        SENT,
        record.group,
        by=traced.by,
        took_ms=record.took_ms,
        result=record.result,
        is_traced=True,
    )


def _ended(traced: Traced) -> Happened:
    record = traced.record
    return Happened(record.at, TRANSACTION, record.group, by=traced.by, result=record.result, is_traced=True)


def born(message: ReceivedMessage) -> Happened:
    return Happened(message.born_timestamp, SENT, by=message.born_address)


def kept(message: ReceivedMessage, tracks: Iterable[Track]) -> list[Happened]:
    """What brokers have of it: the message, and the copies of groups that failed."""
    copies = [each for track in tracks for each in _of_copies(track)]
    # A retry or a dead letter is one of the copies.
    if names.is_retry(message.topic) or names.is_dead_letter(message.topic):
        return copies
    return [_stored(message), *copies]


def _stored(message: ReceivedMessage) -> Happened:
    return Happened(message.store_timestamp, STORED, by=f"{message.broker_name}/{message.queue_id}")


def _of_copies(track: Track) -> list[Happened]:
    found = []
    for copy in track.copies:
        what = RETURNED
        if names.is_dead_letter(copy.topic):
            what = DIED
        elif copy.topic == names.SCHEDULE_TOPIC:
            what = DELAYED
        reason = copy.property(props.LAST_ERROR) or ""
        found.append(Happened(copy.store_timestamp, what, track.group, copy.reconsume_times, reason=reason))
    return found


def _draw(line: list[Happened]) -> None:
    """Where each bar begins and how long it is, in percent of the whole."""
    first = min(each.at for each in line)
    whole = max(1, max(each.ends_at for each in line) - first)
    for each in line:
        each.lasts = max(SHORTEST, 100 * (each.took_ms or 0) / whole)
        each.begins = min(100 - each.lasts, 100 * (each.at - first) / whole)
