# SPDX-License-Identifier: Apache-2.0
"""The tables of `aerobee top`: rows of plain values by topic, group or client, and their orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.console.writing import age, number, percent, rate
from aerobee.errors import AerobeeError
from aerobee.protocol.versions import version_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.console.cluster_view import ClusterView
    from aerobee.console.history import History

Row = dict[str, Any]
ASKED = 200  # topics, and groups whose members are listed, at most

# View -> column -> (heading, how it is written). The first column is a name and sorts upwards, the others downwards.
COLUMNS: dict[str, dict[str, tuple[str, Callable[[Any], str]]]] = {
    "groups": {
        "group": ("group", str),
        "done": ("done/s", rate),
        "ready": ("ready", number),
        "inFlight": ("in flight", number),
        "retrying": ("retrying+delayed", number),
        "dead": ("dead", number),
        "oldestMs": ("oldest", age),
        "online": ("online", lambda value: "yes" if value else "no"),
    },
    "topics": {
        "topic": ("topic", str),
        "inRate": ("in/s", rate),
        "messages": ("messages", number),
        "queues": ("queues", number),
    },
    "clients": {
        "client": ("client", str),
        "group": ("group", str),
        "held": ("holds", number),
        "queues": ("queues", number),
        "address": ("address", str),
        "language": ("language", str),
        "version": ("version", str),
    },
}
KEYS = {"g": "groups", "t": "topics", "c": "clients"}


def ordered(rows: list[Row], view: str, sort: str) -> list[Row]:
    """By a column: names from A on, figures from the largest down; what is not known comes last."""
    if any(isinstance(row.get(sort), str) for row in rows):
        return sorted(rows, key=lambda row: str(row.get(sort)))
    first = next(iter(COLUMNS[view]))
    return sorted(rows, key=lambda row: (-(row.get(sort) or 0), str(row[first])))


def next_sort(view: str, sort: str) -> str:
    names = list(COLUMNS[view])
    return names[(names.index(sort) + 1) % len(names)]


def usual_sort(view: str) -> str:
    return {"groups": "ready", "topics": "inRate", "clients": "held"}[view]


async def rows_of(name: str, view: ClusterView, history: History) -> list[Row]:
    match name:
        case "topics":
            return await _topics(view)
        case "clients":
            return await _clients(view, history)
    return _groups(history)


def _groups(history: History) -> list[Row]:
    seen = history.latest.groups.values() if history.latest else ()
    return [
        {"group": each.group, "done": history.done_rate(each.group), "ready": each.ready,
         "inFlight": each.in_flight, "retrying": each.retrying, "dead": each.dead, "oldestMs": each.oldest_ms,
         "online": each.online}
        for each in seen
    ]  # fmt: skip


async def _topics(view: ClusterView) -> list[Row]:
    async def row(topic: str) -> Row:
        stats = await view.topic_stats(topic)
        kept = sum(entry.max_offset - entry.min_offset for entry in stats.values())
        in_rate = await view.rate("TOPIC_PUT_NUMS", topic)
        return {"topic": topic, "inRate": in_rate, "messages": kept, "queues": len(stats)}

    found = await view.each((await view.topics())[:ASKED], row)
    return [each for each in found.values() if not isinstance(each, AerobeeError)]


async def _clients(view: ClusterView, history: History) -> list[Row]:
    online = [each.group for each in history.latest.groups.values() if each.online] if history.latest else []
    members = await view.each(online[:ASKED], view.members)
    places = [
        (group, each)
        for group, found in members.items()
        if found is not None and not isinstance(found, AerobeeError)
        for each in found.connection_set
    ]
    told = await view.each(
        [(group, each.client_id) for group, each in places], lambda place: view.running(*place)
    )
    rows = []
    for group, each in places:
        row: Row = {"client": each.client_id, "group": group, "address": each.client_addr,
                    "language": each.language, "version": version_text(each.version)}  # fmt: skip
        info = told[group, each.client_id]
        if not isinstance(info, AerobeeError):
            row["queues"] = len(info.mq_table) + len(info.mq_pop_table)
            row["held"] = await view.held(group, each.client_id)
        rows.append(row)
    return rows


def summary(history: History) -> Row:
    """The whole cluster in one row."""
    total, rates = history.totals[-1], history.rates()
    return {
        "inRate": rates[-1].came if rates else None,
        "outRate": rates[-1].went if rates else None,
        "ready": total.ready,
        "inFlight": total.in_flight,
        "retrying": total.retrying,
        "dead": total.dead,
        "disk": total.disk,
        "lateMs": total.late_ms,
    }


def summary_line(row: Row) -> str:
    late = "–" if row["lateMs"] is None else f"{row['lateMs']} ms"
    return (
        f"in {rate(row['inRate'])}/s  out {rate(row['outRate'])}/s  ready {number(row['ready'])}  "
        f"in flight {number(row['inFlight'])}  retrying+delayed {number(row['retrying'])}  dead {number(row['dead'])}  "
        f"disk {percent(row['disk'])}  late {late}"
    )
