# SPDX-License-Identifier: Apache-2.0
"""From a route to queues, from a key to a queue, from several name servers to the one to ask: what every producer and
consumer must decide alike, whatever it is written in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import Perm
from aerobee.protocol.properties import java_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aerobee.protocol.bodies import TopicRoute

MASTER = 0


class TopicQueues(msgspec.Struct, frozen=True):
    """One topic's route, unfolded."""

    route: TopicRoute
    readable: tuple[MessageQueue, ...]
    writable: tuple[MessageQueue, ...]
    ordered: bool
    masters: dict[str, str]  # broker name -> address

    @property
    def is_closed(self) -> bool:
        """To sends, by what its brokers say; not for want of a master that may come back."""
        datas = self.route.queue_datas
        return bool(datas) and not any(each.perm & Perm.WRITE and each.write_queue_nums for each in datas)


def unfold(topic: str, route: TopicRoute) -> TopicQueues:
    """Queues one by one. Writable are only those of brokers with a master; an ordered topic names its own."""
    masters = {data.broker_name: data.master for data in route.broker_datas if data.master}
    readable, writable = [], []
    for data in sorted(route.queue_datas, key=lambda data: data.broker_name):
        if data.perm & Perm.READ:
            readable += [MessageQueue(data.broker_name, i, topic) for i in range(data.read_queue_nums)]
        if data.perm & Perm.WRITE and data.broker_name in masters:
            writable += [MessageQueue(data.broker_name, i, topic) for i in range(data.write_queue_nums)]
    ordered = _ordered_queues(topic, route.order_topic_conf)
    return TopicQueues(route, tuple(readable), tuple(ordered or writable), bool(ordered), masters)


def _ordered_queues(topic: str, conf: str | None) -> list[MessageQueue]:
    """`broker-a:4;broker-b:4`: a fixed queue list, so that keys keep their queue while a broker is away."""
    queues = []
    for part in (conf or "").split(";"):
        broker, colon, count = part.partition(":")
        if colon and count.isascii() and count.isdigit() and len(count) <= 5:
            queues += [MessageQueue(broker, i, topic) for i in range(int(count))]
    return queues


def limited(route: TopicRoute, queues: int) -> TopicRoute:
    """The route a topic made after `route` will have: at most `queues` queues, no inheritance further on."""
    cut = [
        msgspec.structs.replace(
            data,
            perm=data.perm & ~Perm.INHERIT,
            read_queue_nums=min(queues, data.read_queue_nums),
            write_queue_nums=min(queues, data.write_queue_nums),
        )
        for data in route.queue_datas
    ]
    return msgspec.structs.replace(route, queue_datas=cut)


def place_of_key(key: str, queues: int) -> int:
    """Which of `queues` queues a sharding key belongs to. The hash is Java's, so producers of all kinds agree."""
    return abs(java_hash(key)) % queues


class NameServers:
    """Whom to ask, in which order: the one in use until it fails, then the next one."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = list(addresses)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._addresses))

    def failed(self, address: str) -> None:
        """It is asked last from now on."""
        self._addresses.remove(address)
        self._addresses.append(address)
