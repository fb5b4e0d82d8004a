# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's trace records read: who sent a message, who was given it, and how that ended.

    Pub             time region group topic msgId tags keys storeHost size cost type offsetMsgId success clientHost
    SubBefore       time region group requestId msgId retryTimes keys
    SubAfter        requestId msgId cost success keys contextCode time group
    EndTransaction  time region group topic msgId tags keys storeHost type transactionId state fromCheck

Fields are separated by 0x01, records by 0x02; older clients leave out trailing fields. `client/trace.py` writes them.
"""

from __future__ import annotations

from typing import NamedTuple

from aerobee.client.trace import FIELD, RECORD
from aerobee.protocol.properties import whole_number

# By kind: where the time, the group, the message's id and the time it took stand; -1 where a kind has it not.
_PLACES = {
    "Pub": (1, 3, 5, 10),
    "SubBefore": (1, 3, 5, -1),
    "SubAfter": (7, 8, 2, 3),
    "EndTransaction": (1, 3, 5, -1),
}
_SUCCESS = {"Pub": 13, "SubAfter": 4}
_ATTEMPT = 6
_REQUEST = {"SubBefore": 4, "SubAfter": 1}
_STATE = 11


class TraceRecord(NamedTuple):
    kind: str
    at: int  # epoch milliseconds; 0 where an old client did not say
    group: str
    message_id: str
    took_ms: int | None
    result: str  # "ok", "failed", a transaction's state, or empty while it is not known
    attempt: int | None
    request: str  # what ties the records before and after one delivery together


class Traced(NamedTuple):
    """A record, and the address that its trace message came from: records do not say by whom they are."""

    record: TraceRecord
    by: str


def parse(body: bytes) -> list[TraceRecord]:
    """Of one trace message; kinds that are not known are left out."""
    texts = body.decode(errors="replace").split(RECORD)
    return [record for text in texts if (record := _record(text.split(FIELD))) is not None]


def _record(fields: list[str]) -> TraceRecord | None:
    kind = fields[0].strip()
    if kind not in _PLACES:
        return None

    def field(place: int) -> str:
        return fields[place] if 0 <= place < len(fields) else ""

    at, group, message_id, took = map(field, _PLACES[kind])
    retries = whole_number(field(_ATTEMPT)) if kind == "SubBefore" else None
    return TraceRecord(
        kind=kind,
        at=whole_number(at) or 0,
        group=group,
        message_id=message_id,
        took_ms=whole_number(took),
        result=field(_STATE) if kind == "EndTransaction" else _result(field(_SUCCESS.get(kind, -1))),
        attempt=None if retries is None else retries + 1,
        request=field(_REQUEST.get(kind, -1)),
    )


def _result(text: str) -> str:
    return {"true": "ok", "false": "failed"}.get(text, "")
