# SPDX-License-Identifier: Apache-2.0
"""Every route of the name server's port is asked over the wire; a route without an exchange fails."""

from __future__ import annotations

import pytest

from aerobee.namesrv.handlers import ROUTES
from tests.wire.name_server import BROKER_A, EXCHANGES, VERSION, A, B, desk
from tests.wire.peer import BINARY, JSON

FORMS = {JSON: "json", BINARY: "binary"}
ASKED = [(code, form) for code in ROUTES for form in FORMS]


def test_every_route_has_an_exchange_and_every_exchange_a_route() -> None:
    assert sorted(EXCHANGES) == sorted(ROUTES)


@pytest.mark.parametrize(
    ("code", "form"), ASKED, ids=[f"{ROUTES[code].header.__name__}-{FORMS[form]}" for code, form in ASKED]
)
async def test_exchange(code: int, form: int) -> None:
    assert code in EXCHANGES, (
        f"no exchange in tests/wire asks {code}: write one, with every field of its answer"
    )
    async with desk(form) as here:
        await EXCHANGES[code](here)
        assert code in here.codes, f"the exchange for {code} asks something else"


async def test_a_broker_that_only_asks_for_its_data_version_stays_registered() -> None:
    async with desk(JSON) as here:
        await here.register()
        for _ in range(3):
            here.clock.advance(59_000)
            assert (await here.ask(322, BROKER_A, b'{"counter":7,"stateVersion":1}')).code == 0
            assert len(await here.topics()) == 4
        here.clock.advance(70_000)
        here.peer = await here.dial()  # the silent broker's was closed
        assert await here.topics() == []


@pytest.mark.parametrize(
    ("state", "address"), [(0, A), (1, B), (2, B)], ids=["an older state", "an equal one", "a newer one"]
)
async def test_a_broker_restarted_at_a_new_address_replaces_the_old_one(state: int, address: str) -> None:
    """Unless the one that is known has a newer state."""
    async with desk(JSON) as here:
        await here.register()
        await here.register({**VERSION, "stateVersion": state}, brokerAddr=B)
        found = await here.json(105, {"topic": "t"})
        assert [broker["brokerAddrs"] for broker in found["brokerDatas"]] == [{"0": address}]
