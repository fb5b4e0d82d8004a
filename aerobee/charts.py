# SPDX-License-Identifier: Apache-2.0
"""Small inline SVG charts: no library, no network, sharp on a phone. Values in, markup out.

Shared by the report and the console. A console page may hold no style of its own, so widths and colours are attributes
of SVG.
"""

from __future__ import annotations

import math
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 14, 30
COLOURS = ("#2f6db5", "#d9822b", "#3a9b6c", "#b5462f", "#7d58b0", "#5b6b7a")


class Series(NamedTuple):
    name: str
    points: list[tuple[float, float]]


def nice(value: float) -> str:
    """1234567 -> 1.2 M; at most three digits and a unit. For the marks of an axis: a count is written out."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.1f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{value:.0f}" if abs(value) >= 10 or value == int(value) else f"{value:.2g}"


def round_top(value: float) -> float:
    """The end of an axis of four equal steps with short numbers: 4, 8, 10, 20, 40, 80, 100 ..."""
    if value <= 0:
        return 4.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * step for step in (1, 2, 4, 8, 10, 20) if value <= size * step)


def lines(
    series: list[Series],
    *,
    unit: str = "",
    labels: list[tuple[float, str]] | None = None,
    title: str = "",
) -> str:
    """Curves over a common x axis; `labels` are (x, text) marks below it. `title` is read to who cannot see it."""
    points = [p for one in series for p in one.points]
    if not points:
        return _empty()
    low_x, high_x = min(x for x, _ in points), max(x for x, _ in points)
    high_y = round_top(max(y for _, y in points))
    drawn = [_frame(high_y, unit)]
    for i, one in enumerate(series):
        path = " ".join(f"{_x(x, low_x, high_x):.1f},{_y(y, high_y):.1f}" for x, y in one.points)
        colour = COLOURS[i % len(COLOURS)]
        drawn.append(
            f'<polyline class="line-{i % len(COLOURS)}" points="{path}" fill="none" stroke="{colour}"'
            ' stroke-width="2" stroke-linejoin="round"/>'
        )
        if len(one.points) == 1:
            (x, y), *_ = one.points
            drawn.append(
                f'<circle cx="{_x(x, low_x, high_x):.1f}" cy="{_y(y, high_y):.1f}" r="3" fill="{colour}"/>'
            )
    drawn += [
        f'<text x="{_x(x, low_x, high_x):.1f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(text)}</text>'
        for x, text in labels or []
    ]
    return _svg("".join(drawn), title) + _legend([one.name for one in series])


def bars(values: list[tuple[str, float]], *, unit: str = "") -> str:
    """Horizontal bars with their counts written out, largest first as given."""
    if not values:
        return _empty()
    top = max(max(v for _, v in values), 1e-9)
    rows = []
    for name, value in values:
        share = max(0.5, 100 * value / top) if value > 0 else 0
        bar = _bar([(0, share, COLOURS[0], "")])
        rows.append(f"<tr><th>{escape(name)}</th>{bar}<td>{value:,.0f}{escape(unit)}</td></tr>")
    return f'<table class="bars">{"".join(rows)}</table>'


def stacked(rows: list[tuple[str, dict[str, float]]], parts: list[str]) -> str:
    """One bar per row, split into parts; for states of a group's messages."""
    if not rows:
        return _empty()
    body = []
    for name, values in rows:
        total = sum(values.get(part, 0) for part in parts)
        pieces, at = [], 0.0
        for i, part in enumerate(parts):
            if value := values.get(part, 0):
                width = 100 * value / total
                pieces.append((at, width, COLOURS[i % len(COLOURS)], f"{part}: {value:,.0f}"))
                at += width
        body.append(f"<tr><th>{escape(name)}</th>{_bar(pieces)}<td>{total:,.0f}</td></tr>")
    return f'<table class="bars">{"".join(body)}</table>' + _legend(parts)


def spark(values: list[float]) -> str:
    """A curve without axes, the size of a word: beside a figure, for which way it goes."""
    if len(values) < 2:
        return ""
    top, step = max(*values, 1e-9), 100 / (len(values) - 1)
    points = " ".join(f"{i * step:.1f},{23 - 21 * value / top:.1f}" for i, value in enumerate(values))
    return (
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"'
        ' vector-effect="non-scaling-stroke"/></svg>'
    )


def _bar(pieces: list[tuple[float, float, str, str]]) -> str:
    """(from, width) in hundredths, colour, what it says when pointed at."""
    drawn = "".join(
        f'<rect x="{at:.2f}%" width="{width:.2f}%" height="14" fill="{colour}">'
        + (f"<title>{escape(said)}</title>" if said else "")
        + "</rect>"
        for at, width, colour, said in pieces
    )
    return f'<td class="bar"><svg class="bar" width="100%" height="14">{drawn}</svg></td>'


def _x(x: float, low: float, high: float) -> float:
    return _LEFT + (x - low) / ((high - low) or 1) * (WIDTH - _LEFT - _RIGHT)


def _y(y: float, high: float) -> float:
    return HEIGHT - _BOTTOM - y / high * (HEIGHT - _TOP - _BOTTOM)


def _frame(high: float, unit: str) -> str:
    grid = []
    for i in range(5):
        value = high * i / 4
        at = _y(value, high)
        grid.append(f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}" class="grid"/>')
        grid.append(
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{nice(value)}{escape(unit)}</text>'
        )
    return "".join(grid)


def _svg(inside: str, title: str) -> str:
    label = f' aria-label="{escape(title)}"' if title else ""
    return f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"{label}>{inside}</svg>'


def _legend(names: list[str]) -> str:
    items = "".join(
        f'<span><svg class="key" width="11" height="11" aria-hidden="true">'
        f'<rect class="fill-{i % len(COLOURS)}" width="11" height="11" rx="2"'
        f' fill="{COLOURS[i % len(COLOURS)]}"/></svg>{escape(name)}</span>'
        for i, name in enumerate(names)
    )
    return f'<p class="legend">{items}</p>'


def _empty() -> str:
    return '<p class="none">nothing to show</p>'
