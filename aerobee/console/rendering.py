# SPDX-License-Identifier: Apache-2.0
"""Templates, and how values are written in them. Everything is escaped unless it was made as markup."""

from __future__ import annotations

import shlex
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from aerobee.console.menu import MENU
from aerobee.console.writing import age, number, percent, rate, size


def render(template: str, **values: Any) -> str:
    return environment().get_template(template).render(**values)


def prepare() -> None:
    """Compiles every template: some ten milliseconds each, which no visitor should wait for and no loop be held by."""
    for name in environment().list_templates(extensions=["html"]):
        environment().get_template(name)


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("aerobee.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        number=number,
        rate=rate,
        age=age,
        when=when,
        moment=moment,
        size=size,
        percent=percent,
        word=shlex.quote,  # of a command that is shown
    )
    made.globals.update(menu=MENU)
    return made


def when(timestamp_ms: int | None) -> Markup:
    """Where the console runs; the whole of it, with the zone, for who points at it."""
    if not timestamp_ms or timestamp_ms <= 0:
        return Markup("–")
    at = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    whole = escape(at.isoformat(" ", "milliseconds"))
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        at.isoformat(), whole, at.strftime("%Y-%m-%d %H:%M:%S")
    )


def moment(timestamp_ms: int, beside_ms: int) -> Markup:
    """To the millisecond, for what happens shortly one after the other; without the day where that is the same."""
    at, beside = (datetime.fromtimestamp(each / 1000).astimezone() for each in (timestamp_ms, beside_ms))
    day = "" if at.date() == beside.date() else f"{at:%Y-%m-%d} "
    shown = f"{day}{at:%H:%M:%S}.{timestamp_ms % 1000:03d}"
    whole = at.isoformat(" ", "milliseconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(), whole, shown)


def drawn(chart: str) -> Markup:
    """A chart of `aerobee.charts`, which escapes what it is given."""
    return Markup(chart)
