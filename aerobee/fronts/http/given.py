# SPDX-License-Identifier: Apache-2.0
"""What a request of the API brings, read with care: numbers are numbers, and a mistake is told by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

MAX_BODY = 256 * 1024


class Given:
    """Path, query and JSON body as one table of names; the path wins."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = dict(values)

    def text(self, name: str, default: str | None = None) -> str:
        value = self.values.get(name, default)
        if not isinstance(value, str) or (not value and default is None):
            raise InvalidParameter(f"'{name}' is {value!r}; a text is wanted")
        return value

    def number(self, name: str, default: int, low: int = 0, high: int = 2**63 - 1) -> int:
        value = self.values.get(name, default)
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                value = None
        if type(value) is not int or not low <= value <= high:
            raise InvalidParameter(
                f"'{name}' is {self.values.get(name)!r}; a whole number from {low} to {high} is wanted"
            )
        return value

    def table(self, name: str) -> dict[str, str]:
        value = self.values.get(name) or {}
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise InvalidParameter(f"'{name}' is {value!r}; an object of texts is wanted")
        return value


async def read(request: Request) -> Given:
    """Of a GET its query, of a POST its JSON object too."""
    values: dict[str, Any] = dict(request.query_params)
    if request.method == "POST":
        values.update(await _document(request))
    values.update(request.path_params)
    return Given(values)


async def _document(request: Request) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a form of another site's page cannot say this without being asked back
        raise InvalidParameter(f"the content type is {kind!r}; send a JSON object as application/json")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            raise InvalidParameter(f"a body of more than {MAX_BODY} bytes")
    try:
        document = msgspec.json.decode(bytes(body or b"{}"))
    except (msgspec.DecodeError, UnicodeError):
        raise InvalidParameter("the body is no JSON") from None
    if not isinstance(document, dict):
        raise InvalidParameter("the body is no JSON object")
    return document
