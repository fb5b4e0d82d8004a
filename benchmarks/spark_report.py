# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.spark` measured, as the "Spark" part at the end of RESULTS.md; `make bench` leaves it there."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
MARK = "\n## Spark\n"


class Sample(NamedTuple):
    rate: float  # rows a second
    cpu_us: float  # CPU microseconds a row, of all processes together


class _Goal(NamedTuple):
    what: str
    ours: str
    theirs: str
    least: float


def kept(folder: Path) -> str:
    """The part as it is in RESULTS.md now, for those who write the rest of the file."""
    path = folder / "RESULTS.md"
    text = path.read_text() if path.exists() else ""
    return text[text.index(MARK) :] if MARK in text else ""


def save(results: dict[str, Any]) -> None:
    text = RESULTS.read_text() if RESULTS.exists() else ""
    before = text.partition(MARK)[0].rstrip("\n")
    RESULTS.write_text(before + "\n" + MARK + "\n" + "\n".join(lines(results)) + "\n")


def lines(results: dict[str, Any]) -> list[str]:
    after = f", after {results['load_after']:.1f}" if "load_after" in results else ""
    return [
        f"Written by `{results['command'].strip()} `. {results['date']}, {results['machine']}; load average before "
        f"{results['load_before']:.1f}{after}; `local[2]`, {results['messages']:,} messages, medians of "
        f"{results['rounds']} rounds in which all took turns, of the reads so many in each of {results['jvms']} JVMs. "
        "Goals: docs/performance.md.",
        "",
        "| what | ratio | single rounds | by CPU | goal | |",
        "|---|--:|--:|--:|--:|---|",
        *_ratios(results),
        "",
        "Ratio of rows a second, and `by CPU` of rows a CPU second of all processes (Spark, its workers, the broker):",
        "the second holds also when other programs run beside. A load average well above 2 means that they did.",
        "",
        "| | rows/s | CPU us a row |",
        "|---|--:|--:|",
        *_rates(results),
        "",
        *_stream(results),
        *_memory(results),
    ]


def _ratios(results: dict[str, Any]) -> list[str]:
    found = []
    for size, rates in results["read"].items():
        to_parquet = 0.95 if size >= 1024 else 0.7
        goals = (
            _Goal("store scan / Parquet", "store scan", "Parquet", to_parquet),
            _Goal("no decoding / Parquet", "no decoding", "Parquet", 0),
            _Goal("store scan / tuples", "store scan", "tuples", 3.0),
            _Goal("store scan / plain decoder", "store scan", "plain decoder to Arrow", 0),
            _Goal("over the wire / store scan", "over the wire", "store scan", 0.7),
        )
        found += [_ratio(f"{g.what}, {size} B", rates[g.ours], rates[g.theirs], g.least) for g in goals]
    if "sink" in results:
        sink = results["sink"]
        found.append(
            _ratio(
                "Arrow sink / row sink, a peer that only answers", sink["Arrow sink"], sink["row sink"], 2.5
            )
        )
        ours, theirs = sink["Arrow sink, real broker"], sink["row sink, real broker"]
        found.append(_ratio("Arrow sink / row sink, real broker", ours, theirs, 0))
    return found


def _ratio(what: str, ours: list[Sample], theirs: list[Sample], least: float) -> str:
    value = _median(ours).rate / _median(theirs).rate
    by_cpu = _median(theirs).cpu_us / _median(ours).cpu_us
    each = [a.rate / b.rate for a, b in zip(ours, theirs, strict=True)]
    verdict = "" if not least else "met" if value >= least else "**missed**"
    wanted = f"{least:g}" if least else ""
    return f"| {what} | {value:.2f} | {min(each):.2f}-{max(each):.2f} | {by_cpu:.2f} | {wanted} | {verdict} |"


def _median(samples: list[Sample]) -> Sample:
    return Sample(statistics.median(s.rate for s in samples), statistics.median(s.cpu_us for s in samples))


def _rates(results: dict[str, Any]) -> list[str]:
    named = {
        f"read, {size} B, {n}": each for size, rates in results["read"].items() for n, each in rates.items()
    }
    named |= {f"write, 128 B, {name}": each for name, each in results.get("sink", {}).items()}
    return [f"| {n} | {_median(e).rate:,.0f} | {_median(e).cpu_us:.2f} |" for n, e in named.items()]


def _stream(results: dict[str, Any]) -> list[str]:
    if "stream" not in results:
        return []
    young, said, ahead = (results["stream"][name] for name in ("young", "plain", "async"))
    met = "met" if said["p50"] <= 120 else "**missed**"
    return [
        "Stream, 200 messages a second, one task, noop sink, after two minutes: stored to committed p50 "
        f"{said['p50']:.0f} ms (goal 120: {met}), p99 {said['p99']:.0f} ms, {said['messages']:,} messages; a "
        f"micro-batch takes {said['trigger']:.0f} ms. After the first ten seconds it was p50 {young['p50']:.0f} ms, a "
        f"micro-batch {young['trigger']:.0f} ms: Spark's driver was still being compiled. "
        f"With Spark's `asyncProgressTrackingEnabled`: p50 "
        f"{ahead['p50']:.0f} ms, p99 {ahead['p99']:.0f} ms, a micro-batch {ahead['trigger']:.0f} ms.",
        "",
    ]


def _memory(results: dict[str, Any]) -> list[str]:
    if "memory" not in results:
        return []
    said = results["memory"]
    shown = ", ".join(f"{mib:.0f}" for mib in said["tenths"])
    return [
        f"Anonymous memory of the largest Python worker over a scan of {said['messages']:,} messages in two tasks, MiB "
        f"in each tenth of its {said['took']:.0f} s: {shown}."
    ]
