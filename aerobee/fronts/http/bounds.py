# SPDX-License-Identifier: Apache-2.0
"""What a request may be before anybody looks at what it asks for: so large, and meant for this server."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Asked by programs that name a server as they like; they tell a browser's visitor nothing worth a trick.
_ANY_HOST = ("/healthz", "/readyz", "/metrics")


class _TooLarge(Exception):
    pass


class BodyBound:
    """Refuses a body over `max_body` by its stated length, or as soon as so much of it has come. A peer that leaves in
    the middle of its own is no news."""

    def __init__(self, app: ASGIApp, max_body: int) -> None:
        self._app = app
        self._max = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        stated = Headers(scope=scope).get("content-length", "0")
        if not stated.isdecimal() or int(stated) > self._max:
            await self._refuse(scope, receive, send)
            return
        came, answering = 0, False

        async def bounded() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > self._max:
                raise _TooLarge
            return message

        async def watched(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        try:
            await self._app(scope, bounded, watched)
        except _TooLarge:
            if not answering:
                await self._refuse(scope, receive, send)
        except ClientDisconnect:
            pass  # nobody is left to be told, and it is no failure of ours

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Closed after it: what still comes of the body would be read as the next request.
        answer = JSONResponse(
            {"error": f"a body of more than {self._max} bytes"}, 413, headers={"connection": "close"}
        )
        await answer(scope, receive, send)


class KnownHost:
    """A page of a stranger may give its name this machine's address, and so make a browser behind the loopback talk to
    the server as if it were the page's own. The browser says under which name: only known ones are served."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self._app = app
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in _ANY_HOST:
            said = Headers(scope=scope).get("host", "")
            host = _name_of(said)
            if not (host in self._hosts or is_loopback(host)):
                answer = JSONResponse(
                    {"error": f"host {said[:100]!r} is not served here; setting http_hosts names more"}, 421
                )
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _name_of(host_header: str) -> str:
    """Without the port, and without the brackets of an IPv6 address."""
    try:
        return urlsplit(f"//{host_header}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
