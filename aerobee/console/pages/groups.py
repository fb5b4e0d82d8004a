# SPDX-License-Identifier: Apache-2.0
"""All groups: what each has not finished, and whether anybody is at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aerobee.console.pages.listing import page_of, sought
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.client.admin import GroupLag
    from aerobee.console.visit import Visit

SORTED_BY_FIGURES = 500


class Row(NamedTuple):
    group: str
    lag: GroupLag | None
    rate: float | None


SORTS = {
    "name": lambda row: row.group,
    "lag": lambda row: -(row.lag.lag if row.lag else 0),
    "in_flight": lambda row: -(row.lag.in_flight if row.lag else 0),
    "dead": lambda row: -(row.lag.dead if row.lag else 0),
    "oldest": lambda row: -(row.lag.oldest_ms if row.lag else 0),
}


async def show(visit: Visit) -> Response:
    view = visit.desk.view
    known = list(await view.groups())
    found = sought(known, visit.query("q"))
    sort = visit.query("sort", "name")
    too_many = sort != "name" and len(found) > SORTED_BY_FIGURES
    if sort not in SORTS or sort == "name" or too_many:
        listing = page_of(visit, found, "name")
        rows = await _rows(visit, list(listing.rows))
    else:
        every = sorted(await _rows(visit, found), key=SORTS[sort])
        listing = page_of(visit, [row.group for row in every], sort)
        by_name = {row.group: row for row in every}
        rows = [by_name[group] for group in listing.rows]
    return visit.render(
        "groups.html",
        title=visit.words("Groups"),
        listing=listing,
        rows=rows,
        known=len(known),
        too_many=too_many,
        limit=SORTED_BY_FIGURES,
        exact=all(row.lag is None or row.lag.exact for row in rows),
    )


async def _rows(visit: Visit, groups: list[str]) -> list[Row]:
    history = visit.desk.history
    lags = await visit.desk.view.each(groups, visit.desk.view.lag)
    return [
        Row(group, None if isinstance(lag, AerobeeError) else lag, history.done_rate(group))
        for group, lag in lags.items()
    ]
