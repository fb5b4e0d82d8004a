# SPDX-License-Identifier: Apache-2.0
"""All groups: what each has not finished, and whether anybody is at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.console.pages.listing import SORTED_BY_FIGURES, page_with_figures, sought, too_many
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.client.admin import GroupLag
    from aerobee.console.visit import Visit


class Row(NamedTuple):
    group: str
    lag: GroupLag | None
    rate: float | None


SORTS = {
    "lag": lambda row: -(row.lag.lag if row.lag else 0),
    "in_flight": lambda row: -(row.lag.in_flight if row.lag else 0),
    "dead": lambda row: -(row.lag.dead if row.lag else 0),
    "oldest": lambda row: -(row.lag.oldest_ms if row.lag else 0),
}


async def show(visit: Visit) -> Response:
    view = visit.desk.view
    known = list(await view.groups())
    found = sought(known, visit.query("q"))
    listing = await page_with_figures(visit, found, lambda groups: _rows(visit, groups), SORTS)
    return visit.render(
        "groups.html",
        title=visit.words("Groups"),
        listing=listing,
        rows=listing.rows,
        known=len(known),
        too_many=too_many(visit, found),
        limit=SORTED_BY_FIGURES,
        exact=all(row.lag is None or row.lag.exact for row in listing.rows),
    )


async def _rows(visit: Visit, groups: list[str]) -> list[Row]:
    history = visit.desk.history
    lags = await visit.desk.view.each(groups, visit.desk.view.lag)
    return [
        Row(group, None if isinstance(lag, AerobeeError) else lag, history.done_rate(group))
        for group, lag in lags.items()
    ]
