# SPDX-License-Identifier: Apache-2.0
"""Curves over the last minutes, as pages show them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from markupsafe import Markup

from aerobee import charts
from aerobee.console.rendering import drawn
from aerobee.console.writing import age

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aerobee.console.words import Words

T = TypeVar("T")

SHORTEST_MS = 2_000
POINTS = 120  # as many as one sees


def thinned(values: Sequence[T]) -> list[T]:
    """Every n-th, the last one always."""
    step = max(1, -(-len(values) // POINTS))
    return list(values[::-1][::step])[::-1]


def curve(
    series: Mapping[str, Sequence[tuple[int, float]]], t: Words, *, title: str, unit: str = ""
) -> Markup:
    """Times are the history's; marks say how long ago."""
    every = [at for points in series.values() for at, _ in points]
    if len(every) < 2 or max(every) - min(every) < SHORTEST_MS:
        return Markup('<p class="none">{}</p>').format(t("The curve begins with the next looks."))
    low, high = min(every), max(every)
    marks = [low + (high - low) * step // 4 for step in range(5)]
    labels = [(float(at), t("now") if at == high else f"−{age(high - at)}") for at in marks]
    lines = [
        charts.Series(name, [(float(at), float(value)) for at, value in thinned(points)])
        for name, points in series.items()
    ]
    return drawn(charts.lines(lines, unit=unit, labels=labels, title=title))
