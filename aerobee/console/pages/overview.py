# SPDX-License-Identifier: Apache-2.0
"""The whole cluster at a glance, and what is wrong with it right now."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.visit import Visit


async def show(visit: Visit) -> Response:
    history = visit.desk.history
    if history.latest is None:
        await visit.desk.sampler.look()
    return visit.render("overview.html", title=visit.words("Overview"), latest=history.latest)
