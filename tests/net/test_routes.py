# SPDX-License-Identifier: Apache-2.0
"""Tables of routes: each request has one adapter, whoever adds another is told at import."""

from __future__ import annotations

import pytest

from aerobee.fronts.remoting.routes import ROUTES as BROKER
from aerobee.namesrv.handlers import ROUTES as NAME_SERVER
from aerobee.net.connection import Reply
from aerobee.net.routes import Request, Route, route, table
from aerobee.protocol.command import Header
from aerobee.protocol.headers.consume import PullMessage
from aerobee.protocol.headers.produce import SendMessage


def serve(request: Request, header: Header, parts: object) -> Reply:
    return Reply()


class PullAgain(Header):
    code = PullMessage.code


def test_a_code_with_two_routes_is_an_error() -> None:
    with pytest.raises(ValueError, match="code 11 has two routes, PullMessage and PullAgain"):
        table(route(PullMessage, serve), route(SendMessage, serve), route(PullAgain, serve))


@pytest.mark.parametrize("routes", [BROKER, NAME_SERVER], ids=["broker", "name server"])
def test_a_route_is_found_by_the_code_of_its_header(routes: dict[int, Route]) -> None:
    assert {code: each.header.code for code, each in routes.items()} == {code: code for code in routes}
