# SPDX-License-Identifier: Apache-2.0
"""The broker is its parts, and nothing more: operations are given them, parts never see each other through this."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from aerobee.broker.access.opening import open_access
from aerobee.broker.access.pointed import Pointed
from aerobee.broker.operations.heartbeat import notice
from aerobee.broker.pop.pops import Pops
from aerobee.broker.state.clients import Clients
from aerobee.broker.state.groups import Groups
from aerobee.broker.state.half_messages import HalfMessages
from aerobee.broker.state.offsets import Offsets
from aerobee.broker.state.parked_reads import ParkedReads
from aerobee.broker.state.queue_locks import QueueLocks
from aerobee.broker.state.stats import Stats
from aerobee.broker.state.topics import INHERIT, READ_WRITE, Topics
from aerobee.protocol import names
from aerobee.settings.in_force import InForce
from aerobee.store.message_store import MessageStore

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.broker.access.access import Access
    from aerobee.broker.access.plain_acl import PlainAcl
    from aerobee.clock import Clock
    from aerobee.settings import BrokerConfig, StoreConfig

log = logging.getLogger("aerobee.broker")


@dataclass(frozen=True)
class Broker:
    settings: InForce[BrokerConfig]
    clock: Clock
    store: MessageStore
    topics: Topics
    groups: Groups
    offsets: Offsets
    clients: Clients
    parked: ParkedReads  # held pulls
    locks: QueueLocks
    pops: Pops
    transactions: HalfMessages
    stats: Stats
    access: Access

    @property
    def guard(self) -> Access | PlainAcl | None:
        """What the gates of access control ask; None leaves every port open."""
        return self.access.guard

    @property
    def config(self) -> BrokerConfig:
        """The settings in force now. What runs for every message reads `settings.value`, a call cheaper."""
        return self.settings.value


def assemble(config: BrokerConfig, store_config: StoreConfig, data_dir: Path, clock: Clock) -> Broker:
    """Open what is on disk and put the parts together. Raises StoreInUse when the directory is taken."""
    settings = InForce(config)
    store_config = msgspec.structs.replace(store_config, data=str(data_dir))
    store = MessageStore.open(data_dir / "store", store_config, clock)
    directory = data_dir / "store" / "config"
    try:
        topics = Topics(directory, clock)
        _create_system_topics(topics, config, len(store.delays))
        _adopt_orphans(topics, store, config.default_queues)
        topics.save()
        parked = ParkedReads(clock, store.max_offset, settings)
        store.listeners.append(parked)
        offsets = Offsets(directory, clock, store.log_on_disk)
        groups = Groups(directory, clock, settings)
        clients = Clients(settings)
        clients.on_change = notice(groups)
        stats = Stats(clock.now())
        return Broker(
            settings=settings,
            clock=clock,
            store=store,
            topics=topics,
            groups=groups,
            offsets=offsets,
            clients=clients,
            parked=parked,
            locks=QueueLocks(settings),
            pops=Pops(settings, clock, store, offsets, directory, stats.skipped),
            transactions=HalfMessages(),
            stats=stats,
            access=open_access(config, data_dir, Pointed(store, groups, topics)),
        )
    except BaseException:
        store.close()  # or the directory stays locked
        raise


def _create_system_topics(topics: Topics, config: BrokerConfig, delay_levels: int) -> None:
    """Those of a RocketMQ broker. mqadmin finds it through the topics named after cluster and broker."""
    inherited = READ_WRITE | INHERIT
    if config.auto_create_topics:
        topics.ensure(names.DEFAULT_TOPIC, config.default_queues, inherited)
    elif (model := topics.get(names.DEFAULT_TOPIC)) is not None:  # of a time when it was allowed
        topics.put(msgspec.structs.replace(model, perm=READ_WRITE))
    if not config.auto_create_topics:
        topics.ensure(names.TRACE_TOPIC, 1)  # which no client can create
    topics.ensure(names.SELF_TEST_TOPIC)
    topics.ensure(names.BENCHMARK_TOPIC, 1024)
    topics.ensure(config.cluster, 16, inherited)
    topics.ensure(config.name, 1, inherited)
    topics.ensure(names.OFFSET_MOVED_TOPIC)
    topics.ensure(names.SCHEDULE_TOPIC, delay_levels)
    topics.ensure(names.reply_topic(config.cluster))
    topics.ensure(names.revive_topic(config.cluster), config.revive_queues)
    topics.ensure(names.broker_member_topic(config.name), 1, INHERIT)
    topics.ensure(names.HALF_TOPIC)
    topics.ensure(names.OP_TOPIC)
    topics.ensure(names.TIMER_TOPIC)


def _adopt_orphans(topics: Topics, store: MessageStore, usual: int) -> None:
    """Messages without settings: made by the broker itself just before a crash, or topics.json is lost. As many queues
    as it has on disk, and as a new topic gets, for producers may know more than have had messages."""
    for name in store.topics():
        if topics.get(name) is None:
            queues = min(1 + max(store.queue_ids(name), default=0), names.MAX_QUEUES)
            if not (names.is_system_topic(name) or names.is_retry(name) or names.is_dead_letter(name)):
                queues = max(queues, usual)
            log.warning("topic=%s has messages but no settings: created with queues=%d", name, queues)
            topics.ensure(name, queues)
