# SPDX-License-Identifier: Apache-2.0
"""All that POP remembers: leases and their renewals, ordered batches, held requests, modes of topics and groups."""

from __future__ import annotations

import logging
from random import randrange
from typing import TYPE_CHECKING

from aerobee.broker.pop import orders as order_info
from aerobee.broker.pop.held_pops import ParkedPops
from aerobee.broker.pop.late import LatePops
from aerobee.broker.pop.leases import Leases
from aerobee.broker.pop.modes import Modes
from aerobee.broker.pop.orders import Orders
from aerobee.broker.pop.renewals import Renewals
from aerobee.broker.pop.revive_log import ReviveLog
from aerobee.broker.state.skipped import Skipped
from aerobee.protocol import names
from aerobee.store.metadata import JsonFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aerobee.broker.state.offsets import Offsets
    from aerobee.broker.state.routes import Routes
    from aerobee.clock import Clock, Timer
    from aerobee.protocol.receipt import Receipt
    from aerobee.settings import BrokerConfig, InForce
    from aerobee.store.message_store import MessageStore

log = logging.getLogger("aerobee.pop")

READ_AT_ONCE = 10_000


class Pops:
    def __init__(
        self,
        settings: InForce[BrokerConfig],
        clock: Clock,
        store: MessageStore,
        offsets: Offsets,
        directory: Path,
        skipped: Skipped | None = None,
    ) -> None:
        self._clock = clock
        config = settings.value  # of these what does not change while it runs
        skipped = skipped or Skipped()
        revive_log = ReviveLog(store, offsets, (config.cluster, config.name), config.revive_queues, skipped)
        self.leases = Leases(settings, revive_log, offsets, clock, skipped)
        self.modes = Modes(directory)
        self.parked = ParkedPops(clock, settings)
        self.notices = ParkedPops(clock, settings)
        self.orders = Orders(JsonFile(directory / "consumerOrderInfo.json", order_info.decode))
        self.renewals = Renewals()
        self.late = LatePops()
        self._releases: dict[order_info.Key, tuple[int, Timer]] = {}
        self._pops = 0
        self._revive_queues = config.revive_queues
        self.draw: Callable[[], int] = lambda: randrange(100)
        self.routes: Routes | None = None  # set when there are name servers to ask
        store.listeners.extend((self.parked, self.notices))
        clock.on_jump.append(self.orders.moved)
        self._restore()

    def _restore(self) -> None:
        read = 0
        while count := self.leases.absorb(READ_AT_ONCE):
            read += count
        if read:
            self.leases.pass_restored()
            log.info("restored in_flight=%d revive_log_messages=%d", self.leases.in_flight.messages, read)

    def next_revive_queue(self) -> int:
        """One choice per request, in turn."""
        self._pops += 1
        return self._pops % self._revive_queues

    # -- wake-ups ----------------------------------------------------------------------------------------

    def wake(self, topic: str, group: str, queue_id: int) -> None:
        """The queue can be read again: by requests for any queue and by those for this one."""
        self.parked.wake_queue(topic, group, queue_id)
        self.notices.wake_queue(topic, group, queue_id)

    def release_at(self, key: order_info.Key, when: int) -> None:
        """An ordered queue stops being blocked at `when` by the wall clock: wake its readers then, exactly."""
        when -= self._clock.ahead
        planned = self._releases.get(key)
        if planned is not None:
            if planned[0] == when:
                return
            planned[1].cancel()
        self._releases[key] = (when, self._clock.call_at(when, lambda: self._release(key)))

    def _release(self, key: order_info.Key) -> None:
        del self._releases[key]
        self.wake(*key)

    def is_leased(self, topic: str, group: str, receipt: Receipt) -> bool:
        """Whether a receipt still holds its message, whatever the clock, which may have been set, says of its time."""
        place = (topic, group, receipt.queue_id)
        if receipt.is_orderly:
            info = self.orders.get(*place)
            return (
                info is not None and info.pop_time == receipt.pop_time and info.free_at() > self._clock.wall()
            )
        lane = self.leases.in_flight.lanes.get(place)
        return lane is not None and self.leases.in_flight.known(lane, receipt.start_offset, receipt.pop_time)

    # -- the life of topics and groups -------------------------------------------------------------------

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """The group goes on at `offset`: ordered batches and leases from there on are void, now and after a restart."""
        self.orders.clear((topic, group, queue_id))
        lane = self.leases.in_flight.lanes.get((topic, group, queue_id))
        if lane is not None:
            self.leases.reset(lane, offset, self._clock.now())

    def remove_topic(self, topic: str) -> None:
        """Its leases, batches and modes go; one created again under the name starts clean."""
        self._forget(topic, None)
        self.parked.wake_topic(topic)  # to be told that it is gone
        self.notices.wake_topic(topic)

    def remove_group(self, group: str) -> None:
        self._forget(None, group)

    def _forget(self, topic: str | None, group: str | None) -> None:
        self.leases.forget(topic, group, self._clock.now())
        self.orders.forget(topic, group)
        self.modes.forget(topic, group)
        for key in [k for k in self._releases if topic in (None, k[0]) and group in (None, k[1])]:
            self._releases.pop(key)[1].cancel()
        written = self.leases.log.written
        for place in [k for k in written if group in (None, k[0]) and topic in (None, k[1])]:
            del written[place]

    # -- the end ----------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Answer all that is held; write what is leased, so that the next start delivers none of it early."""
        if self.orders.moved in self._clock.on_jump:
            self._clock.on_jump.remove(self.orders.moved)
        self.parked.stop()
        self.notices.stop()
        for _, timer in self._releases.values():
            timer.cancel()
        self._releases.clear()
        self.leases.journal_all(None, self._clock.now())
        self.leases.log.commit()


def retry_topics(topic: str, group: str) -> tuple[str, str]:
    """Both names a group's retries of a topic may be under."""
    return names.pop_retry_topic(topic, group), names.pop_retry_topic_v2(topic, group)
