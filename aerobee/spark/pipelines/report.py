# SPDX-License-Identifier: Apache-2.0
"""A page from the ledger: one self-contained HTML file, and the same numbers for the terminal.

Spark aggregates; what reaches the driver is a few hundred rows whatever the size of the topics.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee import charts
from aerobee.spark.pipelines.ledger import STATES, summary
from aerobee.spark.pipelines.totals import PLACE, WORST_FIRST, missing, per_message, whose

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS = 60
DEAD = ("group", "topic", "msgId", "keys", "attempts", "storedAt", "lastError", "replayedAs", "now")
DEAD_SHOWN = 20


class Figures(NamedTuple):
    """Everything the page and the terminal show."""

    messages: dict[str, int]  # each once, however many groups it has
    groups: list[dict[str, Any]]
    latency: list[dict[str, Any]]
    throughput: list[dict[str, Any]]
    lag: dict[str, list[tuple[float, float]]]
    keys: list[tuple[str, int]]
    queues: list[tuple[str, int]]
    stuck: list[dict[str, Any]]
    dead: list[dict[str, Any]]
    span: tuple[float, float]

    @property
    def lost(self) -> int:
        return self.messages["lost"]

    @property
    def missing(self) -> list[str]:
        return missing(self.groups)


def report(book: DataFrame, path: str | Path, *, title: str = "Aerobee report") -> Figures:
    """Write the page and return its figures.

    >>> figures = report(ledger(spark, ["orders"], namesrv="127.0.0.1:9876"), "report.html")      # doctest: +SKIP
    >>> figures.lost                                                                              # doctest: +SKIP
    0
    """
    book = book.persist()
    try:
        figures = _figures(book)
    finally:
        book.unpersist()
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_page(title, figures), encoding="utf-8")
    return figures


def _figures(book: DataFrame) -> Figures:
    from pyspark.sql import functions as f

    groups = [row.asDict() for row in summary(book).collect()]
    edges = book.agg(
        f.min(f.unix_millis("storedAt")),
        f.greatest(
            f.max(f.unix_millis("storedAt")),
            f.max(f.unix_millis("finishedAt")),
            f.max(f.when(f.col("state") == "dead", f.unix_millis("lastCopyAt"))),
        ),
    ).first()
    low, high = ((edges[0] or 0) / 1000, (edges[1] or edges[0] or 0) / 1000) if edges else (0.0, 0.0)
    step = max((high - low) / BUCKETS, 0.001)
    return Figures(
        per_message(book),
        groups,
        _latency(book),
        _throughput(book, low, step),
        _lag(book, low, high, step),
        _hot_keys(book),
        _queues(book),
        _stuck(book),
        _dead(book),
        (low, high),
    )


def _latency(book: DataFrame) -> list[dict[str, Any]]:
    """Stored to first delivered and to finished, where traces tell; percentiles in milliseconds."""
    from pyspark.sql import functions as f

    def since(column: str) -> Any:
        return f.unix_millis(column) - f.unix_millis("storedAt")

    shares = [0.5, 0.9, 0.99, 1.0]
    rows = book.groupBy("group").agg(
        f.percentile_approx(since("firstDeliveredAt"), shares).alias("delivered"),
        f.percentile_approx(since("finishedAt"), shares).alias("finished"),
    )
    return [row.asDict() for row in rows.orderBy("group").collect() if row.delivered or row.finished]


def _bucket(column: str, low: float, step: float) -> Any:
    from pyspark.sql import functions as f

    return f.floor((f.unix_millis(column) / 1000 - f.lit(low)) / f.lit(step)).alias("bucket")


def _throughput(book: DataFrame, low: float, step: float) -> list[dict[str, Any]]:
    """Messages a second over time: stored (once, not per group) and finished per group."""
    from pyspark.sql import functions as f

    unique = book.dropDuplicates(list(PLACE))
    stored = unique.groupBy(f.lit("stored").alias("name"), _bucket("storedAt", low, step)).count()
    grouped = book.where("finishedAt IS NOT NULL").groupBy(
        f.concat(f.lit("finished by "), "group").alias("name"), _bucket("finishedAt", low, step)
    )
    rows = stored.unionByName(grouped.count()).where("bucket IS NOT NULL").orderBy("name", "bucket").collect()
    return [{"name": r.name, "at": low + (r.bucket + 0.5) * step, "rate": r["count"] / step} for r in rows]


def _lag(book: DataFrame, low: float, high: float, step: float) -> dict[str, list[tuple[float, float]]]:
    """Messages stored and not finished, over time; each curve ends with those that are open now.

    A message leaves it when it is finished, as traces tell, or dead. One that is done, nobody knows when, is left out:
    of a group without traces the curve is what is open now, by the time it was stored.
    """
    from pyspark.sql import functions as f

    left = f.when(f.col("state") == "acked", f.col("finishedAt")).when(
        f.col("state") == "dead", f.col("lastCopyAt")
    )
    known = book.withColumn("left", left).where(f.col("left").isNotNull() | f.expr(WORST_FIRST["open"]))
    came = known.groupBy("group", _bucket("storedAt", low, step)).agg(f.count("*").alias("change"))
    went = known.where("left IS NOT NULL").groupBy("group", _bucket("left", low, step))
    changes = came.unionByName(went.agg((-f.count("*")).alias("change"))).where("bucket IS NOT NULL")
    rows = (
        changes.groupBy("group", "bucket")
        .agg(f.sum("change").alias("change"))
        .orderBy("group", "bucket")
        .collect()
    )
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        curve = found.setdefault(row.group, [])
        curve.append((low + (row.bucket + 1) * step, (curve[-1][1] if curve else 0) + row.change))
    for curve in found.values():
        if curve[-1][0] < high:
            curve.append((high, curve[-1][1]))
    return {group: [(at, max(0, value)) for at, value in curve] for group, curve in found.items()}


def _hot_keys(book: DataFrame) -> list[tuple[str, int]]:
    from pyspark.sql import functions as f

    unique = book.dropDuplicates(list(PLACE)).where("keys IS NOT NULL")
    counted = unique.groupBy("keys").count().where("count > 1").orderBy(f.desc("count"), "keys").limit(10)
    return [(row["keys"], row["count"]) for row in counted.collect()]


def _queues(book: DataFrame) -> list[tuple[str, int]]:
    unique = book.dropDuplicates(list(PLACE))
    rows = (
        unique.groupBy("topic", "brokerName", "queueId")
        .count()
        .orderBy("topic", "brokerName", "queueId")
        .limit(64)
    )
    return [(f"{row.topic}/{row.brokerName}/{row.queueId}", row["count"]) for row in rows.collect()]


def _stuck(book: DataFrame) -> list[dict[str, Any]]:
    """Queues whose oldest unfinished message waits; the first place to look for a hung consumer."""
    from pyspark.sql import functions as f

    unfinished = book.where(WORST_FIRST["open"])
    rows = unfinished.groupBy("group", "topic", "queueId").agg(
        f.count("*").alias("open"), f.min("storedAt").alias("oldest")
    )
    return [row.asDict() for row in rows.orderBy("oldest").limit(20).collect()]


def _dead(book: DataFrame) -> list[dict[str, Any]]:
    """The oldest dead letters, and what became of those that a replay has sent again."""
    from pyspark.sql import functions as f

    oldest = book.where("state = 'dead'").orderBy("storedAt").limit(DEAD_SHOWN)
    again = book.where("replayOf IS NOT NULL").select(
        "group", f.col("msgId").alias("replayedAs"), f.col("state").alias("now")
    )
    rows = oldest.join(again, ["group", "replayedAs"], "left").orderBy("storedAt")
    return [row.asDict() for row in rows.select(*DEAD).collect()]


# -- the page ------------------------------------------------------------------------------------------

_STYLE = """
:root{color-scheme:light dark;--ink:#1d2733;--soft:#5b6b7a;--line:#dfe5ea;--paper:#fff;--card:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf0;--soft:#9fb0bf;--line:#2c3844;--paper:#141b22;--card:#1b242d}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1040px;padding:20px 16px 60px;
background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:26px;margin:0 0 4px}h2{font-size:18px;margin:34px 0 8px}p{margin:6px 0}.sub{color:var(--soft)}
.verdict{margin:18px 0;padding:14px 18px;border-radius:10px;font-size:18px;font-weight:600;color:#fff;background:#2f8a5b}
.verdict.bad{background:#b5462f}.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(116px,1fr));gap:10px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 12px}
.card b{display:block;font-size:22px}.card span{color:var(--soft);font-size:13px}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}
th,td{text-align:left;padding:5px 8px;border-bottom:1px solid var(--line);white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
.bars th{font-weight:400;width:1%;color:var(--soft)}.bars td.bar{width:auto;padding-right:0}
.bars td.bar svg{display:block}
.bars td:last-child{width:1%;text-align:right}svg.chart{width:100%;min-width:560px;height:auto;display:block}
svg text{fill:var(--soft);font-size:11px}.grid{stroke:var(--line)}
.legend span{display:inline-block;margin-right:16px;font-size:13px}
.legend svg{margin-right:5px}.none{color:var(--soft)}
"""


def _page(title: str, figures: Figures) -> str:
    verdict = (
        '<div class="verdict">Nothing was lost.</div>'
        if figures.lost == 0
        else f'<div class="verdict bad">{figures.lost:,} messages are lost.</div>'
    )
    sections = [
        ("Groups", _group_table(figures)),
        ("How each group's messages stand", _states(figures)),
        ("Throughput, messages a second", _throughput_chart(figures)),
        ("Lag: stored and not finished", _lag_chart(figures)),
        ("Latency, milliseconds from stored", _latency_table(figures)),
        ("Messages per queue", charts.bars([(n, float(v)) for n, v in figures.queues])),
        ("Hot keys", charts.bars([(n, float(v)) for n, v in figures.keys])),
        ("Open longest", _table(figures.stuck, ["group", "topic", "queueId", "open", "oldest"])),
        ("Dead letters", _dead_table(figures)),
    ]
    body = "".join(f"<h2>{escape(name)}</h2><div class=scroll>{content}</div>" for name, content in sections)
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1><p class=sub>{_span(figures.span)}</p>{verdict}{_cards(figures)}{body}</body></html>"
    )


def _span(span: tuple[float, float]) -> str:
    from datetime import UTC, datetime

    if not span[0]:
        return "no messages"
    first, last = (datetime.fromtimestamp(at, UTC) for at in span)
    return f"messages stored {first:%Y-%m-%d %H:%M:%S} to {last:%H:%M:%S} UTC, {span[1] - span[0]:.0f} s"


def _cards(figures: Figures) -> str:
    """Of messages, not of deliveries: what three groups have to read is still one message."""
    who = whose(figures.groups)
    where = "a group" if who == "every group" else who
    said = {"done": f"done by {who}", "open": f"open in {where}", "dead": f"dead in {where}"}
    cards = "".join(
        f"<div class=card><b>{count:,}</b><span>{escape(said.get(name, name))}</span></div>"
        for name, count in figures.messages.items()
    )
    return f'<div class="cards">{cards}</div>'


def _group_table(figures: Figures) -> str:
    table = _table(
        figures.groups, ["group", "topic", "sent", *STATES, "retried", "replayed", "delivered", "duplicates"]
    )
    return table + "".join(f"<p class=none>{escape(line)}</p>" for line in figures.missing)


def _dead_table(figures: Figures) -> str:
    """A letter is of one group: what is dead in two has two."""
    letters = sum(row["dead"] for row in figures.groups)
    left = letters - len(figures.dead)
    said = f"<p class=none>the oldest {len(figures.dead)} of {letters:,}</p>" if left > 0 else ""
    return said + _table(figures.dead, list(DEAD))


def _states(figures: Figures) -> str:
    rows = [
        (f"{row['group']} / {row['topic']}", {s: float(row[s]) for s in STATES}) for row in figures.groups
    ]
    return charts.stacked(rows, list(STATES))


def _throughput_chart(figures: Figures) -> str:
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in figures.throughput:
        curves.setdefault(row["name"], []).append((row["at"], row["rate"]))
    return charts.lines(
        [charts.Series(n, p) for n, p in curves.items()], unit="/s", labels=_ticks(figures.span)
    )


def _lag_chart(figures: Figures) -> str:
    series = [charts.Series(group, points) for group, points in figures.lag.items()]
    if not series:
        return '<p class="none">no message is open; how far behind the groups were, only traces tell</p>'
    traced = {row["group"] for row in figures.groups if row["traced"]}
    untold = [
        f"<p class=none>{escape(group)}: without traces only what is open now is known, by the time it was stored</p>"
        for group in figures.lag
        if group not in traced
    ]
    return charts.lines(series, labels=_ticks(figures.span)) + "".join(untold)


def _ticks(span: tuple[float, float]) -> list[tuple[float, str]]:
    low, high = span
    digits = 0 if high - low >= 10 else 1 if high - low >= 2 else 2  # five marks that all differ
    return [(low + (high - low) * i / 4, f"{(high - low) * i / 4:.{digits}f} s") for i in range(5)]


def _latency_table(figures: Figures) -> str:
    rows = []
    for row in figures.latency:
        for what in ("delivered", "finished"):
            if row[what]:
                values = dict(zip(("p50", "p90", "p99", "max"), row[what], strict=True))
                rows.append({"group": row["group"], "to": what, **values})
    return (
        _table(rows, ["group", "to", "p50", "p90", "p99", "max"]) if rows else '<p class="none">no traces</p>'
    )


def _table(rows: list[dict[str, Any]], names: list[str]) -> str:
    if not rows:
        return '<p class="none">none</p>'
    head = "".join(f"<th{_align(rows[0].get(n))}>{escape(n)}</th>" for n in names)
    body = "".join(
        "<tr>" + "".join(f"<td{_align(row.get(n))}>{_cell(row.get(n))}</td>" for n in names) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _align(value: Any) -> str:
    return " class=n" if isinstance(value, (int, float)) else ""


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, (int, float)):
        return f"{value:,.0f}"
    return escape(f"{value:%Y-%m-%d %H:%M:%S}" if hasattr(value, "strftime") else str(value))
