# SPDX-License-Identifier: Apache-2.0
"""`/metrics`: every metric of the broker, for whoever scrapes it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from aerobee.errors import AerobeeError
from aerobee.fronts.http import exposition
from aerobee.fronts.http.call import HttpCall, refusal
from aerobee.protocol.headers.cluster import BrokerRuntime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from aerobee.broker.metrics.collect import Metrics
    from aerobee.broker.metrics.family import Labels
    from aerobee.fronts.http.call import HttpPath
    from aerobee.settings import BrokerConfig

PIECE_CHARS = 64 * 1024
AT_ONCE = 16  # slow readers each hold what they have not read yet
SCOPE = ("otel_scope_name", "broker-meter")


def common_labels(config: BrokerConfig) -> Labels:
    """Those of RocketMQ's exporter, after what the settings add."""
    return (SCOPE, *node_labels(config))


def node_labels(config: BrokerConfig) -> Labels:
    given = (pair.partition(":") for pair in config.metrics_label.split(",") if pair)
    own = {name.strip(): value.strip() for name, _, value in given}
    own.update(cluster=config.cluster, node_type="broker", node_id=config.name)
    return tuple(own.items())


def route(metrics: Metrics, config: Callable[[], BrokerConfig], path: HttpPath) -> Route:
    """Where access control is on it needs the right to look at the broker, unless the settings open it."""

    writing: set[object] = set()

    async def scrape(request: Request) -> Response:
        if not config().open_metrics:
            call = HttpCall(request, BrokerRuntime(), b"")
            try:
                await path.through(call, lambda: None)
            except AerobeeError as error:
                return refusal(error, call)
        if len(writing) >= AT_ONCE:
            said = {"error": f"{AT_ONCE} scrapes are being read already"}
            return JSONResponse(said, 503, headers={"retry-after": "1"})
        form = exposition.form_of(request.headers.get("accept", ""))
        text = _counted(written(metrics, config(), form), writing)
        return StreamingResponse(text, headers={"content-type": form.value, "cache-control": "no-store"})

    return Route("/metrics", scrape, name="metrics")


async def _counted(pieces: AsyncIterator[str], writing: set[object]) -> AsyncIterator[str]:
    """Among those that are being read, until the last piece was taken or its reader has left."""
    writing.add(pieces)
    try:
        async for piece in pieces:
            yield piece
    finally:
        writing.discard(pieces)


async def written(metrics: Metrics, config: BrokerConfig, form: exposition.Form) -> AsyncIterator[str]:
    """Piece by piece, with a turn for others between them: it may be megabytes."""
    found = await metrics.scrape()
    pieces: list[str] = []
    for piece in exposition.lines(found, common_labels(config), form):
        pieces.append(piece)
        if sum(map(len, pieces)) > PIECE_CHARS:
            yield "".join(pieces)
            pieces = []
            await asyncio.sleep(0)
    yield "".join(pieces)
