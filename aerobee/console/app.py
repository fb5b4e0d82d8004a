# SPDX-License-Identifier: Apache-2.0
"""The console as an ASGI app: who may come in, which page is meant, and what a failure looks like."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from aerobee.clock import SystemClock
from aerobee.console import security
from aerobee.console.desk import Desks
from aerobee.console.faults import fault_of
from aerobee.console.pages import missing
from aerobee.console.rendering import prepare
from aerobee.console.routes import ROUTES, Act, Page
from aerobee.console.visit import Console, Visit
from aerobee.console.words import language_of
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from aerobee.client.options import SessionOptions
    from aerobee.clock import Clock

log = logging.getLogger("aerobee.console")

STATIC = Path(__file__).parent / "static"


def make_app(  # noqa: PLR0913 - each is a real setting of the whole
    namesrv: str,
    *,
    options: SessionOptions | None = None,
    read_only: bool = False,
    base_path: str = "",
    hosts: Sequence[str] = (),
    knows_accounts: bool = False,
    clock: Clock | None = None,
) -> Starlette:
    """The console of the cluster behind `namesrv`.

    `options` are those of the admin client; with an account in them everybody who reaches the port acts as that
    account, without one the console asks for an account where the cluster does. `base_path` stands before every link,
    for a proxy that takes it away (a Starlette `Mount` says so itself). `hosts` are names, beside addresses and
    localhost, under which browsers may call it. Of a cluster that `knows_accounts` nothing is asked without one, not
    even whether it does.

    A server that mounts it runs its lifespan, or calls `app.state.console.desks.stop()` at the end.
    """
    console = Console(
        desks=Desks(namesrv, options, clock or SystemClock(), knows_accounts=knows_accounts),
        browsers=security.Browsers(),
        namesrv=namesrv,
        may_change=not read_only,
        base_path=base_path.rstrip("/"),
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await asyncio.to_thread(prepare)
        await console.desks.begin()
        try:
            yield
        finally:
            await console.desks.stop()

    app = Starlette(
        routes=[*(_route(console, each) for each in ROUTES), Mount("/static", StaticFiles(directory=STATIC))],
        middleware=[Middleware(Guard, hosts=frozenset(hosts))],
        exception_handlers={404: _answered(console, Page("", missing.show))},
        lifespan=lifespan,
    )
    app.state.console = console
    return app


class Guard:
    """Every answer has the headers that keep a browser from being turned against us; a wrong Host gets no page."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *security.HEADERS]
            await send(message)

        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if security.host_is_ours(host, self._hosts):
            await self._app(scope, receive, guarded)
        else:
            refused = PlainTextResponse(f"no console is called {host!r} here\n", status_code=421)
            await refused(scope, receive, guarded)


def _route(console: Console, each: Page | Act) -> Route:
    methods = ["POST"] if isinstance(each, Act) else ["GET"]
    return Route(each.path, _answered(console, each), methods=methods)


def _answered(console: Console, each: Page | Act) -> Callable[..., Awaitable[Response]]:
    async def answer(request: Request, _: Any = None) -> Response:
        visit = Visit(
            console=console,
            request=request,
            words=language_of(request),
            browser=console.browsers.of(request),
        )
        try:
            response = await _shown(visit, each)
        except (AerobeeError, OSError, ValueError) as error:
            fault = fault_of(error, visit.words)
            response = visit.render("fault.html", status=fault.status, title=fault.title, fault=fault)
        console.browsers.remember(visit.browser, request, response)
        return response

    return answer


async def _shown(visit: Visit, each: Page | Act) -> Response:
    if isinstance(each, Act):
        visit.form = await security.form_of(visit.request)
        visit.console.browsers.check(visit.browser, visit.form)
        if each.changes and not visit.console.may_change:
            raise security.ReadOnly(visit.words("this console is read-only; nothing was changed"))
    if each.needs_account:
        desk = await visit.console.desks.of(visit.browser.account)
        if desk is None:
            return visit.to_login()
        visit.desk = desk
    return await each.answer(visit)
