# SPDX-License-Identifier: Apache-2.0
"""One request as a page sees it: who asks, the cluster to ask, the words to answer in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from starlette.responses import HTMLResponse, RedirectResponse

from aerobee.console.rendering import render

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from aerobee.console.desk import Desk, Desks
    from aerobee.console.security import Browser, Browsers
    from aerobee.console.words import Words

SEE_OTHER = 303


@dataclass(frozen=True)
class Console:
    """What all requests share."""

    desks: Desks
    browsers: Browsers
    namesrv: str
    may_change: bool
    base_path: str


@dataclass
class Visit:
    """`desk` is there for every page but those of the login."""

    console: Console
    request: Request
    words: Words
    browser: Browser
    form: dict[str, list[str]] = field(default_factory=dict)
    desk: Desk = field(init=False)

    # -- what was asked ----------------------------------------------------------------------------------

    def name(self, parameter: str) -> str:
        """A part of the path, such as the topic."""
        return str(self.request.path_params[parameter])

    def query(self, name: str, default: str = "") -> str:
        return self.request.query_params.get(name, default).strip()

    def number(self, name: str, default: int) -> int:
        text = self.query(name)
        return int(text) if text.lstrip("-").isdigit() and len(text) < 20 else default

    def field(self, name: str, default: str = "") -> str:
        """Of the form that was sent."""
        return self.form.get(name, [default])[0].strip()

    # -- what is answered --------------------------------------------------------------------------------

    @property
    def base(self) -> str:
        return self.request.scope.get("root_path") or self.console.base_path

    def link(self, *parts: str, **query: Any) -> str:
        """`link("topics", "orders", tab="queues")`; nothing in it needs escaping, empty values are left out."""
        path = "/".join(quote(part, safe="") for part in parts)
        asked = urlencode({name: value for name, value in query.items() if value not in (None, "")})
        return f"{self.base}/{path}" + (f"?{asked}" if asked else "")

    def here(self, **changed: Any) -> str:
        """This page with other values in its query."""
        query = {**self.request.query_params, **changed}
        path = quote(self.request.scope["path"].removeprefix(self.request.scope.get("root_path", "")))
        asked = urlencode({name: value for name, value in query.items() if value not in (None, "")})
        return f"{self.base}{path}" + (f"?{asked}" if asked else "")

    def render(self, template: str, *, title: str, status: int = 200, **values: Any) -> Response:
        said, self.browser.said = self.browser.said, ""
        page = render(template, visit=self, t=self.words, title=title, said=said, **values)
        return HTMLResponse(page, status, headers={"cache-control": "no-store"})

    def go(self, link: str, said: str = "") -> Response:
        """To another page after something was done, which it says once."""
        self.browser.said = said
        return RedirectResponse(link, SEE_OTHER)

    def to_login(self) -> Response:
        return RedirectResponse(self.link("login", next=self.here() if not self.form else None), SEE_OTHER)

    @property
    def token(self) -> str:
        return self.console.browsers.token(self.browser)

    @property
    def may_change(self) -> bool:
        return self.console.may_change
