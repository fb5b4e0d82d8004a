# SPDX-License-Identifier: Apache-2.0
"""Who serves which remoting request: one literal table a port, each code named once, by the header that has it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import msgspec

from aerobee.net.connection import Answer, Connection
from aerobee.protocol.command import Command, Header

Later = Coroutine[Any, Any, Answer]
H = TypeVar("H", bound=Header)


class Request(msgspec.Struct, gc=False):
    """What an adapter may need beside the header's fields: who asks, and the frame as it came."""

    connection: Connection
    command: Command
    # Who signed it; empty where nobody looked, None when its address alone is trusted.
    user: str | None = ""


# Of what came, its header's fields, and the parts of the server that works on it.
Adapter = Callable[[Request, Any, Any], Answer | Later]


class Route(NamedTuple):
    header: type[Header]
    adapter: Adapter


def route(header: type[H], adapter: Callable[[Request, H, Any], Answer | Later]) -> Route:
    """A function, so that the type checker holds the adapter against the header."""
    return Route(header, adapter)


def table(*routes: Route) -> dict[int, Route]:
    found: dict[int, Route] = {}
    for each in routes:
        first = found.setdefault(each.header.code, each)
        if first is not each:
            raise ValueError(
                f"code {each.header.code} has two routes, {first.header.__name__} and {each.header.__name__}: "
                "a request has one adapter"
            )
    return found
