# SPDX-License-Identifier: Apache-2.0
"""Every route of the broker's port is asked over the wire, in both header forms; a route without an exchange fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.fronts.remoting.routes import ROUTES
from tests.wire import clients, messages, plain_acl, popping, progress, settings, users
from tests.wire.peer import BINARY, JSON, LARGEST_BINARY_CODE
from tests.wire.scene import scene

if TYPE_CHECKING:
    from tests.wire.scene import Exchange

EXCHANGES: dict[int, Exchange] = {}
for theme in (messages, popping, clients, progress, settings, users, plain_acl):
    EXCHANGES.update(theme.EXCHANGES)

FORMS = {JSON: "json", BINARY: "binary"}
ASKED = [(code, form) for code in ROUTES for form in FORMS if form == JSON or code <= LARGEST_BINARY_CODE]


def test_every_route_has_an_exchange_and_every_exchange_a_route() -> None:
    assert sorted(EXCHANGES) == sorted(ROUTES)


@pytest.mark.parametrize(
    ("code", "form"), ASKED, ids=[f"{ROUTES[code].header.__name__}-{FORMS[form]}" for code, form in ASKED]
)
async def test_exchange(code: int, form: int) -> None:
    assert code in EXCHANGES, (
        f"no exchange in tests/wire asks {code}: write one, with every field of its answer"
    )
    async with scene(form) as here:
        await EXCHANGES[code](here)
        assert code in here.peer.codes, f"the exchange for {code} asks something else"
