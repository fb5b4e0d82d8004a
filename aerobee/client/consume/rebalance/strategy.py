# SPDX-License-Identifier: Apache-2.0
"""What every way of dividing queues among the clients of a group has in common.

A strategy is a pure function of (own client id, all queues sorted, all client ids sorted). Every client of the
group runs it on the same input, so no two of them may disagree: the result must not depend on anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from aerobee.protocol.bodies import MessageQueue

Divide = Callable[[str, "Sequence[MessageQueue]", "Sequence[str]"], "list[MessageQueue]"]


class Strategy(msgspec.Struct, frozen=True):
    """A named division; the name is what a broker is asked for (QUERY_ASSIGNMENT)."""

    name: str
    divide: Divide


def position(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> int | None:
    """The client's place among the clients; None when the group does not know it (yet)."""
    if not client_id:
        raise ValueError("client id is empty")
    if not queues:
        raise ValueError("no queues to divide")
    if not clients:
        raise ValueError("no clients to divide queues among")
    try:
        return clients.index(client_id)
    except ValueError:
        return None


def checked(divide: Divide) -> Divide:
    """A division both sides know, with the checks a client makes before it."""

    def checking(
        client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        return [] if position(client_id, queues, clients) is None else divide(client_id, queues, clients)

    return checking
