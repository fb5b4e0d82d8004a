# SPDX-License-Identifier: Apache-2.0
"""The broker balances: which queues a client consumes, and whether by pull or by pop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from aerobee.errors import InvalidParameter, NoPermission, TopicNotFound
from aerobee.protocol import names
from aerobee.protocol.allocation import STRATEGIES
from aerobee.protocol.bodies import AssignedQueue, MessageModel, MessageQueue, Mode, RequestMode
from aerobee.protocol.codes import Perm
from aerobee.store.saved_table import all_saved

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from aerobee.broker.broker import Broker
    from aerobee.protocol.bodies import AssignmentQuery

    Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]

log = logging.getLogger("aerobee.pop")

ANY_QUEUE = -1


async def set_mode(mode: RequestMode, broker: Broker) -> None:
    """Switch a group's consumption of a topic between PULL and POP; kept over restarts."""
    if names.is_retry(mode.topic):
        raise NoPermission(f"retry topic '{mode.topic}' is always pulled; set the mode of the topic itself")
    if broker.topics.get(mode.topic) is None:
        raise TopicNotFound(f"topic '{mode.topic}' does not exist; create it first")
    broker.groups.require(
        mode.consumer_group
    )  # made when allowed: the mode is set before the first consumer starts
    if mode.pop_share_queue_num < ANY_QUEUE:
        raise InvalidParameter(
            f"popShareQueueNum {mode.pop_share_queue_num}: 0 shares all queues, n shares each with n more consumers"
        )
    broker.pops.modes.put(mode)
    await all_saved(broker.groups, broker.pops.modes)


def query_assignment(query: AssignmentQuery, broker: Broker) -> list[AssignedQueue] | None:
    """The client's queues. None: nothing is known, change nothing. Empty: drop all.

    The topic's route must be at hand: see `route_of`.
    """
    mode = broker.pops.modes.get(query.topic, query.consumer_group)
    queues = _assign(query, mode, broker)
    if queues is None:
        return None
    return [AssignedQueue(message_queue=queue, mode=mode.mode) for queue in sorted(queues)]


def _assign(query: AssignmentQuery, mode: RequestMode, broker: Broker) -> set[MessageQueue] | None:
    queues = _queues(query.topic, broker)
    if queues is None:
        if query.message_model is MessageModel.BROADCASTING or not names.is_retry(query.topic):
            log.warning("no assignment group=%s: no route of topic=%s", query.consumer_group, query.topic)
        return None
    if query.message_model is MessageModel.BROADCASTING or not broker.config.server_balances:
        return set(queues)
    group = broker.clients.group(query.consumer_group)
    if group is None:
        log.warning("no assignment group=%s topic=%s: no member is known", query.consumer_group, query.topic)
        return None
    strategy = STRATEGIES.get(query.strategy_name)
    if strategy is None:
        log.warning("no assignment group=%s: unknown strategy=%r", query.consumer_group, query.strategy_name)
        return None
    clients = sorted(group.members)
    if mode.mode is Mode.POP:
        return set(share(query.client_id, sorted(queues), clients, mode.pop_share_queue_num, strategy))
    return set(strategy(query.client_id, sorted(queues), clients))


def route_of(topic: str, broker: Broker) -> Coroutine[Any, Any, None] | None:
    """To be awaited before the assignment when the topic's queues on other brokers are not known yet."""
    routes = broker.pops.routes
    if routes is None or names.is_light_queue(topic) or routes.known(topic) is not None:
        return None
    return routes.look_up(topic)


def _queues(topic: str, broker: Broker) -> list[MessageQueue] | None:
    """The topic's queues on this broker and on every other that the name servers know."""
    name, routes = broker.config.name, broker.pops.routes
    if names.is_light_queue(topic):
        return [MessageQueue(topic=topic, broker_name=name, queue_id=0)]
    known = () if routes is None else routes.known(topic)
    if known is None:
        return None  # with this broker's alone, clients would drop all others
    elsewhere = [
        MessageQueue(topic=topic, broker_name=other.broker_name, queue_id=queue_id)
        for other in known
        if other.perm & Perm.READ
        for queue_id in range(other.read_queues)
    ]
    config = broker.topics.get(topic)
    count = (
        config.read_queue_nums if config is not None and config.perm & broker.config.perm & Perm.READ else 0
    )
    if config is None and not elsewhere:
        return None
    return [*(MessageQueue(topic=topic, broker_name=name, queue_id=i) for i in range(count)), *elsewhere]


def share(
    client_id: str, queues: list[MessageQueue], clients: list[str], extra: int, strategy: Strategy
) -> list[MessageQueue]:
    """POP lets several consumers share a queue; `extra` is with how many more.

    No bound, or one that covers everybody: each pops every queue of a broker, queue id -1. Otherwise a
    client has its own share and those of the `extra` clients after it. With more clients than queues nobody
    is left idle.
    """
    if extra <= 0 or extra >= len(clients) - 1:
        brokers = dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        return [MessageQueue(topic=topic, broker_name=name, queue_id=ANY_QUEUE) for topic, name in brokers]
    if client_id not in clients:
        return []
    index = clients.index(client_id)
    if len(clients) > len(queues):
        return [queues[index % len(queues)]] if queues else []
    ring = [clients[(index + i) % len(clients)] for i in range(extra + 1)]
    return [queue for other in ring for queue in strategy(other, queues, clients)]
