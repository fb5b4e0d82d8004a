# SPDX-License-Identifier: Apache-2.0
"""What the HTTP port serves: health, metrics, the API, and the console on everything else."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from aerobee.fronts.http.bounds import BodyBound, KnownHost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute


def make_app(
    routes: Sequence[BaseRoute],
    console: Starlette | None,
    *,
    max_body: int,
    hosts: Sequence[str] | None,
) -> Starlette:
    """`hosts` are the names browsers may use for this server; None for any."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        if console is None:
            yield
        else:
            async with console.router.lifespan_context(console):
                yield

    async def index(request: Request) -> PlainTextResponse:
        return PlainTextResponse(
            "Aerobee. /healthz and /readyz say how it is, /metrics what it does, /api answers in JSON.\n"
        )

    rest: BaseRoute = Route("/", index) if console is None else Mount("/", console)
    middleware = [Middleware(BodyBound, max_body=max_body)]
    if hosts is not None:
        middleware.append(Middleware(KnownHost, hosts=hosts))
    return Starlette(routes=[*routes, rest], middleware=middleware, lifespan=lifespan)
