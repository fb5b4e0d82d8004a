# SPDX-License-Identifier: Apache-2.0
"""Leases of gRPC consumers: changed on request, kept alive for push clients, given back when a client is gone."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aerobee.broker.operations.change_invisible import Change, change_invisible
from aerobee.broker.operations.receive import dead_letter
from aerobee.errors import AerobeeError, NoMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.broker import Broker
    from aerobee.broker.delivery.keeping import Unkept
    from aerobee.protocol.receipt import Receipt

log = logging.getLogger("aerobee.pop")

GIVE_BACK_MS = 1_000


def take_over(group: str, topic: str, receipt: Receipt, broker: Broker) -> Receipt:
    """The newest receipt for one a client presents, which from now on decides itself: nothing renews it any more.

    Raises NoMessage for a receipt that is of no use: expired, or of another broker.
    """
    newest = broker.pops.renewals.release(group, topic, receipt)
    real = newest.real_topic(topic, group)
    if newest.expired(broker.clock.wall()) and not broker.pops.is_leased(real, group, newest):
        raise NoMessage("the invisible duration is over: the message may be someone else's now")
    if newest.broker_name != broker.config.name:
        raise NoMessage(f"the handle is of broker {newest.broker_name!r}, this is {broker.config.name!r}")
    return newest


def extend(group: str, topic: str, receipt: Receipt, invisible_ms: int, broker: Broker) -> Receipt:
    """Change the lease; every field of the new receipt is its own (apache/rocketmq#9583)."""
    real = receipt.real_topic(topic, group)
    now = change_invisible(
        Change(group, real, receipt.queue_id, receipt.offset, receipt, invisible_ms), broker
    )
    if receipt.is_orderly:
        return receipt._replace(invisible_time=now.invisible_ms)
    return receipt._replace(
        start_offset=receipt.offset,
        pop_time=now.pop_time,
        invisible_time=now.invisible_ms,
        revive_qid=now.revive_queue,
    )


def keep_alive(client_id: str, group: str, topic: str, receipt: Receipt, broker: Broker) -> None:
    """From now on the broker renews the lease, as long as the client lives."""
    broker.pops.renewals.hold(group, topic, client_id, receipt)


def renew_due(wall: int, alive: Callable[[str], bool], broker: Broker) -> None:
    """Extend what ends soon, for clients that are alive. By the clock that receipts are stamped with."""
    renewals = broker.pops.renewals
    for lease in renewals.due(wall):
        longer = renewals.extension(lease, wall)
        if longer is None or not alive(lease.client_id):
            renewals.drop(lease)
            continue
        try:
            fresh = extend(lease.key.group, lease.key.topic, lease.receipt, longer, broker)
            renewals.renewed(lease, fresh)
        except AerobeeError as error:
            log.info("group=%s offset=%d not renewed: %s", lease.key.group, lease.key.offset, error)
            renewals.drop(lease)


def give_back_all(client_id: str, broker: Broker) -> None:
    """The client is gone: what it holds comes back soon."""
    for lease in broker.pops.renewals.of_client(client_id):
        broker.pops.renewals.drop(lease)
        _visible_soon(lease.key.group, lease.key.topic, lease.receipt, broker)


def give_up(group: str, topic: str, receipt: Receipt, broker: Broker) -> Unkept | None:
    """To the dead letters, also by an expired handle: a client that is refused here tries for ever, and its ordered
    queue stands still. Returns what the answer waits for."""
    return dead_letter(group, topic, broker.pops.renewals.release(group, topic, receipt), broker)


def give_back(group: str, topic: str, receipt: Receipt, broker: Broker) -> None:
    """A message did not reach its client."""
    _visible_soon(group, topic, broker.pops.renewals.release(group, topic, receipt), broker)


def _visible_soon(group: str, topic: str, receipt: Receipt, broker: Broker) -> None:
    """A handle that is of no use any more is nobody's problem."""
    try:
        extend(group, topic, receipt, GIVE_BACK_MS, broker)
    except AerobeeError as error:
        log.debug("group=%s topic=%s offset=%d not given back: %s", group, topic, receipt.offset, error)
