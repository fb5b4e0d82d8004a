# SPDX-License-Identifier: Apache-2.0
"""MACHINE_ROOM and MACHINE_ROOM_NEARBY: queues go to clients by where they stand."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from aerobee.client.consume.rebalance.strategy import Strategy, checked, position
from aerobee.protocol.allocation import average

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from aerobee.protocol.bodies import MessageQueue

T = TypeVar("T")


def machine_room(rooms: Collection[str]) -> Strategy:
    """Only queues of brokers named `room@name` with a room of `rooms`: equal blocks, then the rest one each."""
    wanted = frozenset(rooms)

    def divide(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        index = position(client_id, queues, clients)
        if index is None:
            return []
        near = [queue for queue in queues if _room_of_broker(queue.broker_name) in wanted]
        each, rest = divmod(len(near), len(clients))
        own = near[each * index : each * (index + 1)]
        return own + near[each * len(clients) + index :][:1] if index < rest else own

    return Strategy("MACHINE_ROOM", divide)


def _room_of_broker(broker_name: str) -> str | None:
    room, separator, name = broker_name.partition("@")
    return room if separator and "@" not in name else None


def machine_room_nearby(
    room_of_queue: Callable[[MessageQueue], str],
    room_of_client: Callable[[str], str],
    inner: Strategy | None = None,
) -> Strategy:
    """Queues of a room are shared by the room's clients; rooms without clients are shared by all."""
    inner = inner or Strategy("AVG", checked(average))

    def divide(client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]) -> list[MessageQueue]:
        if position(client_id, queues, clients) is None:
            return []
        queues_in = _by_room(queues, room_of_queue)
        clients_in = _by_room(clients, room_of_client)
        own_room = room_of_client(client_id)
        own: list[MessageQueue] = []
        if own_room in queues_in:
            own += inner.divide(client_id, queues_in[own_room], clients_in[own_room])
        for room in sorted(queues_in.keys() - clients_in.keys()):
            own += inner.divide(client_id, queues_in[room], clients)
        return own

    return Strategy(f"MACHINE_ROOM_NEARBY-{inner.name}", divide)


def _by_room(things: Sequence[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = defaultdict(list)
    for thing in things:
        room = room_of(thing)
        if not room:
            raise ValueError(f"no machine room is known for {thing!r}")
        found[room].append(thing)
    return found
