# SPDX-License-Identifier: Apache-2.0
"""Templates, and how values are written in them. Everything is escaped unless it was made as markup."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from aerobee.console.menu import MENU


def render(template: str, **values: Any) -> str:
    return environment().get_template(template).render(**values)


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("aerobee.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(number=number, rate=rate, age=age, when=when, size=size, percent=percent)
    made.globals.update(menu=MENU)
    return made


def number(value: float | None) -> str:
    """12,345; a dash where it is not known."""
    return "–" if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """A second."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.0f} %"


def size(count: float | None) -> str:
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def age(ms: int | None) -> str:
    """`350 ms`, `12 s`, `3 m 20 s`, `2 h 5 m`, `4 d 1 h`; a dash for none."""
    if not ms or ms <= 0:
        return "–"
    if ms < 1_000:
        return f"{ms} ms"
    seconds = ms // 1000
    for unit, name, below, below_name in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if seconds >= unit:
            return f"{seconds // unit} {name} {seconds % unit // below} {below_name}"
    return f"{seconds} s"


def when(timestamp_ms: int | None) -> Markup:
    """Where the console runs; the whole of it, with the zone, for who points at it."""
    if not timestamp_ms or timestamp_ms <= 0:
        return Markup("–")
    at = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    whole = escape(at.isoformat(" ", "milliseconds"))
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), whole, at.strftime("%Y-%m-%d %H:%M:%S")
    )


def drawn(chart: str) -> Markup:
    """A chart of `aerobee.charts`, which escapes what it is given."""
    return Markup(chart)
