# SPDX-License-Identifier: Apache-2.0
"""Who is connected: every client, and what one of them says of itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.console.connected import GROUPS_ASKED, connected
from aerobee.console.pages.listing import page_of
from aerobee.errors import QueryNotFound

if TYPE_CHECKING:
    from starlette.responses import Response

    from aerobee.console.visit import Visit


async def show(visit: Visit) -> Response:
    online = await connected(visit.desk.view)
    words = visit.query("q").lower().split()
    kind = visit.query("kind")
    found = [
        client
        for client in online.clients
        if (kind != "consumers" or client.consumes_in)
        and (kind != "producers" or client.produces_in)
        and all(word in client.text.lower() for word in words)
    ]
    return visit.render(
        "clients.html",
        title=visit.words("Clients"),
        online=online,
        known=len(online.clients),
        limit=GROUPS_ASKED,
        listing=page_of(visit, found),
    )


async def one(visit: Visit) -> Response:
    """Its id is in the query: it may hold anything, slashes too."""
    client_id, view = visit.query("id"), visit.desk.view
    online = await connected(view)
    client = next((each for each in online.clients if each.client_id == client_id), None)
    if client is None:
        raise QueryNotFound(visit.words("No client {client} is connected now.", client=client_id[:200]))
    told = await view.each(client.consumes_in, lambda group: view.running(group, client_id))
    return visit.render("client.html", title=client_id, client=client, told=told)
