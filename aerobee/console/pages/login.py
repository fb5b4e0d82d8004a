# SPDX-License-Identifier: Apache-2.0
"""Who it is to the cluster, and which language it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from aerobee.console.security import LANGUAGE_COOKIE
from aerobee.console.words import LANGUAGES
from aerobee.errors import AclDenied, NoPermission

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.visit import Visit

YEAR_S = 365 * 86_400


async def show(visit: Visit) -> Response:
    return visit.render("login.html", title=visit.words("Log in"), next=_own(visit.query("next")), refused="")


async def log_in(visit: Visit) -> Response:
    name, password = visit.field("name"), visit.form.get("password", [""])[0]
    place = _own(visit.field("next"))
    refused = visit.words("Give a name and a password.")
    if name and password:
        try:
            account = await visit.console.desks.log_in(name, password)
        except (NoPermission, AclDenied) as error:
            refused = str(error)
        else:
            visit.console.browsers.renew(visit.browser)
            visit.browser.account = account
            return visit.go(place or visit.link(""))
    return visit.render("login.html", title=visit.words("Log in"), status=403, next=place, refused=refused)


async def log_out(visit: Visit) -> Response:
    await visit.console.desks.log_out(visit.browser.account)
    visit.browser.account = ""
    return visit.go(visit.link("login"))


async def choose_language(visit: Visit) -> Response:
    code = visit.field("language")
    response = RedirectResponse(_own(visit.field("next")) or visit.link(""), 303)
    if code in LANGUAGES:
        response.set_cookie(LANGUAGE_COOKIE, code, max_age=YEAR_S, httponly=True, samesite="lax")
    return response


def _own(link: str) -> str:
    """A place of this console, and of no other site."""
    return link if link.startswith("/") and not link.startswith(("//", "/\\")) else ""
