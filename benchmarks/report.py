# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.compare` measured, as RESULTS.md (ratios first) and plot.svg."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import spark_report

if TYPE_CHECKING:
    from pathlib import Path

Results = dict[str, Any]

LANE_MARK = "## The compiled lane\n"


class Goal(NamedTuple):
    """A budget of docs/performance.md. `better` turns a figure of both into "times better than RocketMQ"."""

    name: str
    figure: str  # rate, p99, or the name of a fact
    least: float  # times better


GOALS = [
    Goal("send 128 B, 1 outstanding", "rate", 0),
    Goal("send 128 B, 64 outstanding", "rate", 1.0),
    Goal("send 128 B, 256 outstanding", "rate", 0),
    Goal("send 1024 B, 1 outstanding", "rate", 0),
    Goal("send 1024 B, 64 outstanding", "rate", 1.0),
    Goal("send 1024 B, 256 outstanding", "rate", 0),
    Goal("batch of 16, 128 B", "rate", 1.5),
    Goal("batch of 64, 128 B", "rate", 1.5),
    Goal("pull, 32 a request", "rate", 1.5),
    Goal("POP + ack", "rate", 1.5),
    Goal("send to receive", "p50", 0),
    Goal("send to receive", "p99", 1.0),
    Goal("start to first send, s", "fact", 5.0),
    Goal("anonymous idle, MiB", "fact", 0),
    Goal("anonymous with messages, MiB", "fact", 5.0),
    Goal("rss idle, MiB", "fact", 0),
    Goal("rss with messages, MiB", "fact", 5.0),
    Goal("send 128 B to 1 topics", "rate", 0),
    Goal("send 128 B to 100 topics", "rate", 0),
    Goal("send 128 B to 10,000 topics", "rate", 0),
    Goal("send 128 B, 64 outstanding, sync flush", "rate", 0),
    Goal("Java client: send 128 B, 64 threads", "rate", 0),
    Goal("Java client: batch of 16, 8 threads", "rate", 0),
    Goal("Java client: push consume", "rate", 0),
]


def _values(results: Results, goal: Goal, kind: str) -> list[float]:
    if goal.figure == "fact":
        return list(results["facts"].get(goal.name, {}).get(kind, []))
    samples = results["loads"].get(goal.name, {}).get(kind, [])
    return [sample[goal.figure] for sample in samples if goal.figure in sample]


def _better(goal: Goal, aerobee: float, rocketmq: float) -> float:
    if not aerobee or not rocketmq:
        return 0.0
    return aerobee / rocketmq if goal.figure == "rate" else rocketmq / aerobee


def _label(goal: Goal) -> str:
    return f"{goal.name}, {goal.figure}" if goal.figure.startswith("p") else goal.name


def rows(results: Results) -> list[tuple[Goal, float, float, float, float, float]]:
    """Goal, medians of both, times better, and the least and the most of single rounds."""
    found = []
    for goal in GOALS:
        ours, theirs = _values(results, goal, "aerobee"), _values(results, goal, "rocketmq")
        if not ours or not theirs:
            continue
        a, r = statistics.median(ours), statistics.median(theirs)
        each = [_better(goal, x, y) for x, y in zip(ours, theirs, strict=False)]
        found.append((goal, a, r, _better(goal, a, r), min(each), max(each)))
    return found


def ratios(results: Results) -> list[tuple[str, float]]:
    return [(_label(row[0]), row[3]) for row in rows(results)]


# -- text --------------------------------------------------------------------------------------------------------


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def _median(results: Results, name: str, kind: str, figure: str) -> str:
    samples = results["loads"].get(name, {}).get(kind, [])
    values = [sample[figure] for sample in samples if figure in sample]
    return _number(statistics.median(values)) if values else "-"


def _ratio_table(results: Results) -> list[str]:
    lines = [
        "| what | times better | single rounds | goal | | Aerobee | RocketMQ |",
        "|---|--:|--:|--:|---|--:|--:|",
    ]
    for goal, ours, theirs, better, least, most in rows(results):
        verdict = "" if not goal.least else "met" if better >= goal.least else "**missed**"
        wanted = f"{goal.least:g}" if goal.least else ""
        lines.append(
            f"| {_label(goal)} | {better:.2f} | {least:.2f}-{most:.2f} | {wanted} | {verdict} "
            f"| {_number(ours)} | {_number(theirs)} |"
        )
    return lines


def _cost_table(results: Results) -> list[str]:
    lines = [
        "| load | Aerobee msg/s | RocketMQ msg/s | Aerobee us | RocketMQ us | ratio of us | refused A / R |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, kinds in results["loads"].items():
        cost = [
            statistics.median([s["cpu_us"] for s in kinds.get(kind, []) if "cpu_us" in s] or [0.0])
            for kind in ("aerobee", "rocketmq")
        ]
        ratio = f"{cost[0] / cost[1]:.2f}" if all(cost) else "-"
        refused = " / ".join(
            str(sum(s["refused"] for s in kinds.get(kind, []))) for kind in ("aerobee", "rocketmq")
        )
        rates = [_median(results, name, kind, "rate") for kind in ("aerobee", "rocketmq")]
        lines.append(
            f"| {name} | {rates[0]} | {rates[1]} | {cost[0]:.1f} | {cost[1]:.1f} | {ratio} | {refused} |"
        )
    return lines


def _fact_table(results: Results) -> list[str]:
    lines = ["| fact | Aerobee | RocketMQ |", "|---|--:|--:|"]
    for name, kinds in results["facts"].items():
        shown = [
            _number(statistics.median(kinds[kind])) if kinds.get(kind) else "-"
            for kind in ("aerobee", "rocketmq")
        ]
        lines.append(f"| {name} | {shown[0]} | {shown[1]} |")
    return lines


def text(results: Results) -> str:
    unfinished = "" if "load_after" in results else " (unfinished: stages are missing below)"
    loaded = f"load average before {results['load_before']:.1f}"
    if "load_after" in results:
        loaded += f", after {results['load_after']:.1f}"
    parts = [
        "# Aerobee beside Apache RocketMQ 5.3.3",
        "",
        f"Written by `make bench`{unfinished}. {results['date']}, {results['machine']}; {loaded}; "
        f"`{results['command'].strip()}`: {results['rounds_done']} rounds, {results['seconds']} s a load, "
        f"{results['took_s']:.0f} s in all.",
        "",
        "Times better than RocketMQ: rate / rate, or its cost / ours for times and memory; above 1 Aerobee is better. "
        "Medians of the rounds; single rounds beside. Goals: docs/performance.md. A load average well above 2 before or "
        "after means that other programs ran too: such a run shows the direction, not the second digit.",
        "",
        "![times better](plot.svg)",
        "",
        *_ratio_table(results),
        "",
        "Rates are messages a second, latencies milliseconds. `rss` counts mapped store files, which are the system's "
        "page cache and leave when it needs the room; `anonymous` is what the process itself holds. Aerobee's process "
        "is name server and broker, RocketMQ's the broker alone.",
        "",
        "## Rate and broker CPU a message",
        "",
        *_cost_table(results),
        "",
        "CPU is the broker process's, user and system, from /proc, over the load. Loads: `benchmarks/load.py`, one "
        "connection (the Java client rows: `benchmarks/java/ClientLoad.java`, for rocketmq-example is in no registry).",
        "",
        "## Start, memory, topics",
        "",
        *_fact_table(results),
    ]
    if results.get("failures"):
        parts += ["", "Failed:", *(f"- {failure}" for failure in results["failures"])]
    return "\n".join(parts) + "\n"


# -- plot --------------------------------------------------------------------------------------------------------

_LEFT, _WIDTH, _ROW, _TOP = 270, 520, 22, 56
_LOW, _HIGH = 0.25, 16.0


def _x(value: float) -> float:
    value = min(max(value, _LOW), _HIGH)
    return _LEFT + _WIDTH * math.log(value / _LOW) / math.log(_HIGH / _LOW)


def plot(results: Results) -> str:
    """Bars from 1, to the right where Aerobee is better; a black tick is the goal, a thin line the rounds' range."""
    shown = rows(results)
    height = _TOP + _ROW * len(shown) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _WIDTH + 70} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="{height}" fill="#fff"/>',
        '<text x="10" y="20" font-size="15" font-weight="bold">Aerobee: times better than RocketMQ 5.3.3</text>',
        f'<text x="10" y="38" fill="#666">{results["date"]}; medians; black tick = goal; log scale</text>',
    ]
    for mark in (0.25, 0.5, 1, 2, 4, 8, 16):
        x = _x(mark)
        stroke = "#333" if mark == 1 else "#ddd"
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{height - 24}" stroke="{stroke}"/>'
        )
        parts.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle" fill="#666">{mark:g}x</text>')
    for number, (goal, _, _, better, least, most) in enumerate(shown):
        y, one, end = _TOP + _ROW * number, _x(1), _x(better)
        colour = "#4a78b5" if not goal.least else "#3a9a5b" if better >= goal.least else "#d9822b"
        parts += [
            f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{_label(goal)}</text>',
            f'<rect x="{min(one, end):.1f}" y="{y + 2}" width="{abs(end - one):.1f}" height="{_ROW - 8}" '
            f'fill="{colour}"/>',
            f'<line x1="{_x(least):.1f}" x2="{_x(most):.1f}" y1="{y + 9}" y2="{y + 9}" stroke="#222" '
            'stroke-opacity="0.5"/>',
            f'<text x="{_LEFT + _WIDTH + 10}" y="{y + 13}">{better:.2f}</text>',
        ]
        if goal.least:
            x = _x(goal.least)
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y - 1}" y2="{y + _ROW - 3}" stroke="#000" stroke-width="2"/>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def write(results: Results, folder: Path) -> None:
    """All of RESULTS.md but the parts that other programs write."""
    (folder / "RESULTS.md").write_text(text(results) + lane_part(folder) + spark_report.kept(folder))
    (folder / "plot.svg").write_text(plot(results))


def lane_part(folder: Path) -> str:
    """The part of the compiled lane, as it is now."""
    path = folder / "RESULTS.md"
    found = path.read_text() if path.exists() else ""
    after = found.partition(LANE_MARK)[2].partition(spark_report.MARK)[0]
    return "\n" + LANE_MARK + after.rstrip("\n") + "\n" if after else ""


def put_part(folder: Path, mark: str, lines: list[str]) -> None:
    """That part anew, between the others."""
    path = folder / "RESULTS.md"
    found = path.read_text() if path.exists() else ""
    before = found.partition(spark_report.MARK)[0].partition(mark)[0].rstrip("\n")
    path.write_text(before + "\n\n" + mark + "\n" + "\n".join(lines) + "\n" + spark_report.kept(folder))
