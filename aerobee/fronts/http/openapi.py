# SPDX-License-Identifier: Apache-2.0
"""The API described: for programs as OpenAPI, for people as a page."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, JSONResponse

from aerobee import __version__

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from aerobee.fronts.http.api import Entry

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code{font-size:.95em}td{padding:.3rem .8rem .3rem 0;vertical-align:top}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}"
)
_SECURE = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}


def document(entries: Sequence[Entry]) -> Callable[[Request], Awaitable[Response]]:
    async def serve(request: Request) -> Response:
        return JSONResponse(described(entries))

    return serve


def described(entries: Sequence[Entry]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for entry in entries:
        paths.setdefault(f"/api{entry.path}", {})[entry.method.lower()] = _operation(entry)
    return {
        "openapi": "3.0.3",
        "info": {"title": "Aerobee", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": {"account": {"type": "http", "scheme": "basic"}}},
        "security": [{}, {"account": []}],
    }


def _operation(entry: Entry) -> dict[str, Any]:
    text = {"type": "string"}
    said: dict[str, Any] = {
        "summary": entry.about,
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": text}
            for name in re.findall(r"{(\w+)}", entry.path)
        ],
        "responses": {
            "200": {
                "description": "as asked",
                "content": {"application/json": {"schema": {"type": "object"}}},
            },
            "default": {"description": "refused: `error` says why"},
        },
    }
    if entry.method == "GET":
        said["parameters"] += [
            {"name": name, "in": "query", "description": about, "schema": text}
            for name, about in entry.takes.items()
        ]
        return said
    properties = {name: {"description": about} for name, about in entry.takes.items()}
    schema = {"type": "object", "properties": properties}
    said["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return said


def page(entries: Sequence[Entry]) -> Callable[[Request], Awaitable[Response]]:
    rows = "".join(
        f"<tr><td><code>{entry.method}</code><td><code>/api{html.escape(entry.path)}</code>"
        f"<td>{html.escape(entry.about)}<br>{_parameters(entry)}"
        for entry in entries
    )
    text = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Aerobee API</title><style>{_STYLE}</style><h1>API</h1><p>GET looks, POST acts and takes a JSON "
        "object. Where access control is on, both need an account (HTTP Basic) with the rights that the same needs "
        f"elsewhere. As <a href='/api/openapi.json'>OpenAPI</a>.</p><table>{rows}</table></html>"
    )

    async def serve(request: Request) -> Response:
        return HTMLResponse(text, headers=_SECURE)

    return serve


def _parameters(entry: Entry) -> str:
    return "; ".join(
        f"<code>{html.escape(name)}</code>: {html.escape(about)}" for name, about in entry.takes.items()
    )
