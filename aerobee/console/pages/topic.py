# SPDX-License-Identifier: Apache-2.0
"""One topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.visit import Visit


async def show(visit: Visit) -> Response:
    return visit.render("topic.html", title=visit.name("topic"))
