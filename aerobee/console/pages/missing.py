# SPDX-License-Identifier: Apache-2.0
"""An address that no page has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.console.faults import Fault

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.visit import Visit


async def show(visit: Visit) -> Response:
    t = visit.words
    fault = Fault(404, t("No such page"), visit.request.url.path, t("The menu has those there are."))
    return visit.render("fault.html", status=404, title=fault.title, fault=fault)
