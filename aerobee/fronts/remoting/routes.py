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
    from importlib import import_module

    table: dict[int, Adapter] = {}
    for name in ("admin", "clients", "consume", "offsets", "pop", "produce", "transactions"):
        try:
            module = import_module(f"aerobee.fronts.remoting.{name}")
        except ModuleNotFoundError as error:  # until all helpers are done
            if not (error.name or "").startswith("aerobee."):
                raise
            continue
        table.update(module.ROUTES)
    return table
