# SPDX-License-Identifier: Apache-2.0
"""The ledger's totals: each message once, however many groups it has; and which evidence is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLACE = ("topic", "brokerName", "queueId", "queueOffset")
# A message counts once, as the worst that became of it in any of the groups.
WORST_FIRST = {
    "lost": "state = 'lost'",
    "dead": "state = 'dead'",
    "open": "state IN ('waiting', 'retrying', 'in_flight')",
}


def per_message(book: DataFrame) -> dict[str, int]:
    """How many messages there are, and of these: done by every group, open in some, dead in some, lost."""
    from pyspark.sql import functions as f

    worst = f.lit(len(WORST_FIRST))
    for rank, condition in reversed(list(enumerate(WORST_FIRST.values()))):
        worst = f.when(f.expr(condition), rank).otherwise(worst)
    each = book.groupBy(*PLACE).agg(f.min(worst).alias("worst"))
    counted = {row.worst: row["count"] for row in each.groupBy("worst").count().collect()}
    found = {name: counted.get(rank, 0) for rank, name in enumerate([*WORST_FIRST, "done"])}
    return {
        "messages": sum(found.values()),
        **{name: found[name] for name in ("done", "open", "dead", "lost")},
    }


def whose(groups: list[dict[str, Any]]) -> str:
    """Who has done what is done: the rows of `summary` name the groups that were looked at."""
    names = sorted({row["group"] for row in groups})
    return names[0] if len(names) == 1 else "every group"


def told(totals: dict[str, int], groups: list[dict[str, Any]]) -> str:
    """One line. `groups` are the rows of `summary`."""
    return (
        f"{totals['messages']:,} messages: {totals['done']:,} done by {whose(groups)}, {totals['open']:,} open, "
        f"{totals['dead']:,} dead, {totals['lost']:,} lost"
    )


def missing(groups: list[dict[str, Any]]) -> list[str]:
    """What the rows of `summary` cannot say, and how to have it next time."""
    lines = []
    for row in groups:
        given = row["sent"] - row["waiting"] - row["lost"]
        if not given or row["traced"] >= given:
            continue
        name = f"{row['group']} on {row['topic']}"
        if row["traced"]:
            lines.append(
                f"{name}: traces tell of {row['traced']:,} of {given:,} messages given to it;"
                " delivered and duplicates count these only"
            )
        else:
            lines.append(
                f"{name}: no traces, so delivered, duplicates and latency are unknown. Have its consumers write them:"
                " PushOptions(trace=True), in Java new DefaultMQPushConsumer(group, true); aerobee pipeline consume"
                " writes none"
            )
    return lines
