# SPDX-License-Identifier: Apache-2.0
"""Every call of the gRPC port goes through a channel; a call without an exchange fails."""

from __future__ import annotations

import pytest

from aerobee.fronts.grpc.routes import ROUTES
from tests.wire.grpc_calls import EXCHANGES, line

CALLS = [*ROUTES, "Telemetry"]  # which is a stream both ways and has no route


def test_every_route_has_an_exchange_and_every_exchange_a_route() -> None:
    assert sorted(EXCHANGES) == sorted(CALLS)


@pytest.mark.parametrize("name", CALLS)
async def test_exchange(name: str) -> None:
    assert name in EXCHANGES, (
        f"no exchange in tests/wire calls {name}: write one, with every field of its answer"
    )
    async with line() as here:
        await EXCHANGES[name](here)
        assert name in here.calls, f"the exchange for {name} calls something else"
