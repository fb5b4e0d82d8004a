# SPDX-License-Identifier: Apache-2.0
"""The whole surface of the remoting front: which request code goes to which adapter."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from aerobee.net.connection import Answer, Connection
from aerobee.protocol.command import Command

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker

Later = Coroutine[Any, Any, Answer]
Adapter = Callable[[Connection, Command, "Broker"], Answer | Later]


def routes() -> dict[int, Adapter]:
    # Imported here: the adapters' modules name this one's types.
    from aerobee.fronts.remoting import (
        admin,
        bulk,
        clients,
        consume,
        lone_broker,
        offsets,
        pop,
        produce,
        transactions,
    )

    return {
        **produce.ROUTES,
        **consume.ROUTES,
        **bulk.ROUTES,
        **offsets.ROUTES,
        **clients.ROUTES,
        **pop.ROUTES,
        **transactions.ROUTES,
        **admin.ROUTES,
        **lone_broker.ROUTES,
    }
