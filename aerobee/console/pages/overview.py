# SPDX-License-Identifier: Apache-2.0
"""The whole cluster at a glance, and what is wrong with it right now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee import charts
from aerobee.console.pages.curves import curve, thinned
from aerobee.console.problems import problems
from aerobee.console.rendering import drawn

if TYPE_CHECKING:
    from markupsafe import Markup
    from starlette.responses import Response

    from aerobee.console.history import History
    from aerobee.console.visit import Visit
    from aerobee.console.words import Words

SHOWN_PROBLEMS = 12
SHOWN_GROUPS = 8


async def show(visit: Visit) -> Response:
    history = visit.desk.history
    if history.latest is None:  # the first visitor does not wait for the next sample
        await visit.desk.sampler.look()
    latest = history.latest
    assert latest is not None
    found = problems(history)
    rates = history.rates()
    busiest = sorted(latest.groups.values(), key=lambda seen: -seen.unfinished)[:SHOWN_GROUPS]
    return visit.render(
        "overview.html",
        title=visit.words("Overview"),
        latest=latest,
        total=history.totals[-1],
        rate=rates[-1] if rates else None,
        problems=found[:SHOWN_PROBLEMS],
        more_problems=max(0, len(found) - SHOWN_PROBLEMS),
        traffic=_traffic(history, visit.words),
        unfinished=_unfinished(history, visit.words),
        sparks={
            "in": drawn(charts.spark([rate.came for rate in thinned(rates)])),
            "out": drawn(charts.spark([rate.went for rate in thinned(rates)])),
        },
        busiest=[(seen, history.done_rate(seen.group)) for seen in busiest],
        topics=len(await visit.desk.view.topics()),
        now=visit.desk.clock.wall(),
    )


def _traffic(history: History, t: Words) -> Markup:
    rates = history.rates()
    came = [(rate.at, rate.came) for rate in rates]
    went = [(rate.at, rate.went) for rate in rates]
    return curve({t("in"): came, t("out"): went}, t, title=t("Messages a second"), unit="/s")


def _unfinished(history: History, t: Words) -> Markup:
    totals = list(history.totals)
    return curve(
        {
            t("ready"): [(total.at, total.ready) for total in totals],
            t("in flight"): [(total.at, total.in_flight) for total in totals],
            t("retrying"): [(total.at, total.retrying) for total in totals],
        },
        t,
        title=t("Not finished"),
    )
