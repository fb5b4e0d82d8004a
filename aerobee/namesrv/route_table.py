# SPDX-License-Identifier: Apache-2.0
"""Who hosts which topic. Told `now`; owns no clock, no task, no socket.

A broker name has one address per broker id (0 = master); what one address registers stands until it
unregisters, its connection closes, or it is silent for its timeout. Topics stay known while any broker that
registered them does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from aerobee.errors import SystemFailure
from aerobee.namesrv.gone_brokers import Gone, GoneBrokers, Who
from aerobee.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    MemberGroup,
    QueueData,
    TopicConfig,
    TopicConfigs,
    TopicRoute,
)
from aerobee.protocol.codes import Perm
from aerobee.protocol.headers.route import RegisterBrokerResult
from aerobee.settings import InForce, NamesrvConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aerobee.protocol.bodies import RegisterBrokerBody
    from aerobee.protocol.headers.route import RegisterBroker, UnregisterBroker

log = logging.getLogger("aerobee.namesrv")

MASTER_ID = 0
READ_WRITE = Perm.READ | Perm.WRITE
UNIT, UNIT_SUBSCRIPTION = 1, 2  # bits of topicSysFlag

Address = tuple[str, str]  # cluster, broker address


class Link(Protocol):
    """A broker's connection."""

    def close(self) -> None: ...


class Live(msgspec.Struct):
    """One address that registered, and is thought to be alive."""

    name: str
    timeout_ms: int
    last_heard: int
    data_version: DataVersion
    ha_address: str
    filter_servers: list[str]
    link: Link | None  # its connection; None for a broker in this process


class RouteTable:
    def __init__(self, settings: InForce[NamesrvConfig] | None = None) -> None:
        self._settings = settings or InForce(NamesrvConfig())
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, dict[str, None]] = {}  # cluster -> its broker names, in order
        self._topics: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> its queues
        self._mappings: dict[str, dict[str, Any]] = {}  # static topic -> broker name -> its logic queues
        self._live: dict[Address, Live] = {}
        self._gone = GoneBrokers()

    def cluster_of(self, broker_name: str) -> str | None:
        known = self._brokers.get(broker_name)
        return None if known is None else known.cluster

    # -- brokers come and go -------------------------------------------------------------------------------

    def register(
        self, request: RegisterBroker, body: RegisterBrokerBody, now: int, link: Link | None
    ) -> RegisterBrokerResult:
        """Take what a broker says of itself. Raises SystemFailure when it must not be believed."""
        configs = body.topic_config_serialize_wrapper
        key = request.cluster_name, request.broker_addr
        live = self._live.get(key)
        if live is not None and live.name != request.broker_name:
            self._drop(key, live.name, f"its address is now that of '{request.broker_name}'")
            live = None
        known = self._brokers.get(request.broker_name)
        former = known.broker_addrs.get(request.broker_id) if known else None
        self._refuse_lone_topic(request, former, len(configs.topic_config_table))
        if former is not None and self._is_outdated(request, former, configs.data_version):
            self._live.pop(key, None)
            return RegisterBrokerResult()
        broker = self._enlist(request, known)
        if _speaks_for_the_queues(request, broker):
            changed = former is None or live is None or live.data_version != configs.data_version
            # A broker of this process tells of one topic at a time, and says which are gone.
            forgets = self._settings.value.delete_topic_with_broker_registration
            if forgets and link is not None and not configs.topic_queue_mapping_info_map:
                self._forget(self._topics.keys() - configs.topic_config_table.keys(), [request.broker_name])
            self._take_topics(request, configs, changed=changed)
        if live is None:
            self._gone.registered(request, now)
        self._live[key] = Live(
            request.broker_name,
            request.heartbeat_timeout_millis or self._settings.value.broker_expiry_ms,
            now,
            configs.data_version,
            request.ha_server_addr,
            body.filter_server_list,
            link,
        )
        return self._master_of(request, broker)

    def _refuse_lone_topic(self, request: RegisterBroker, former: str | None, topics: int) -> None:
        # A broker that lost its registration and reports one changed topic would look as if it had only
        # that one; refused, it registers in full at its next turn.
        if former is None and topics == 1:
            raise SystemFailure(
                f"broker '{request.broker_name}' id {request.broker_id} is not registered: "
                "register all its topics first"
            )

    def _is_outdated(self, request: RegisterBroker, former: str, version: DataVersion) -> bool:
        """Another address holds this id with a later state (after a change of master)."""
        live = self._live.get((request.cluster_name, former))
        if former == request.broker_addr or live is None:
            return False
        if live.data_version.state_version <= version.state_version:
            return False
        log.warning(
            "ignored broker=%s address=%s: %s has a newer state", live.name, request.broker_addr, former
        )
        return True

    def _enlist(self, request: RegisterBroker, known: BrokerData | None) -> BrokerData:
        if known is None:
            known = BrokerData(broker_name=request.broker_name, cluster=request.cluster_name)
            self._brokers[request.broker_name] = known
        self._clusters.setdefault(request.cluster_name, {})[request.broker_name] = None
        known.enable_acting_master = bool(request.enable_acting_master)
        # An address has one role: a slave that became master registers under a new id.
        others = {i: a for i, a in known.broker_addrs.items() if a != request.broker_addr}
        known.broker_addrs = {**others, request.broker_id: request.broker_addr}
        return known

    def _take_topics(self, request: RegisterBroker, registered: TopicConfigs, *, changed: bool) -> None:
        configs, mappings = registered.topic_config_table, registered.topic_queue_mapping_info_map or {}
        name = request.broker_name
        acting = request.broker_id != MASTER_ID and request.enable_acting_master
        for topic, config in configs.items():
            hosts = self._topics.setdefault(topic, {})
            if changed or name not in hosts:
                hosts[name] = queues = _queue_data(name, config)
                if acting:  # it stands in for reads only
                    queues.perm &= ~Perm.WRITE
        for topic, mapping in mappings.items():
            self._mappings.setdefault(topic, {})[name] = mapping

    def _master_of(self, request: RegisterBroker, broker: BrokerData) -> RegisterBrokerResult:
        master = broker.broker_addrs.get(MASTER_ID)
        if request.broker_id == MASTER_ID or master is None:
            return RegisterBrokerResult()
        live = self._live.get((request.cluster_name, master))
        if live is None:
            return RegisterBrokerResult()
        return RegisterBrokerResult(ha_server_addr=live.ha_address, master_addr=master)

    def unregister(self, request: UnregisterBroker) -> None:
        self._gone.said_goodbye(request)
        self._drop((request.cluster_name, request.broker_addr), request.broker_name, "unregistered")

    def closed(self, link: Link, now: int) -> None:
        """Its connection is gone: whatever it registered is."""
        for key, live in list(self._live.items()):
            if live.link is link:
                self._lose(key, live, now, "connection closed")

    def expire(self, now: int) -> list[Link]:
        """Drop the silent ones; returns their connections, to be closed."""
        silent = [(key, live) for key, live in self._live.items() if live.last_heard + live.timeout_ms < now]
        for key, live in silent:
            self._lose(key, live, live.last_heard, f"silent for {now - live.last_heard} ms")
        return [live.link for _, live in silent if live.link is not None]

    def _lose(self, key: Address, live: Live, since: int, why: str) -> None:
        cluster, address = key
        broker = self._brokers.get(live.name)
        ids = [i for i, a in broker.broker_addrs.items() if a == address] if broker else []
        if ids:  # none where another address has taken its place already
            del self._live[key]
        self._drop(key, live.name, why)
        for broker_id in ids:
            self._gone.went(Who(cluster, live.name, broker_id), Gone(address, since, why))

    def _drop(self, key: Address, name: str, why: str) -> None:
        cluster, address = key
        if self._live.pop(key, None) is not None:
            log.info("dropped broker=%s address=%s: %s", name, address, why)
        broker = self._brokers.get(name)
        if broker is None:
            return
        broker.broker_addrs = {i: a for i, a in broker.broker_addrs.items() if a != address}
        if broker.broker_addrs:
            return
        del self._brokers[name]
        names = self._clusters.get(cluster, {})
        names.pop(name, None)
        if not names:
            self._clusters.pop(cluster, None)
        self._forget(list(self._topics), [name])

    def heard(self, cluster: str, address: str, now: int) -> None:
        """A sign of life other than a registration."""
        live = self._live.get((cluster, address))
        if live is not None:
            live.last_heard = now

    def data_version(self, cluster: str, address: str) -> DataVersion | None:
        live = self._live.get((cluster, address))
        return live.data_version if live else None

    # -- topics --------------------------------------------------------------------------------------------

    def register_topic(self, topic: str, queues: list[QueueData]) -> None:
        """An operator's word; nothing happens when it names a broker nobody knows."""
        if all(each.broker_name in self._brokers for each in queues):
            hosts = self._topics.setdefault(topic, {})
            hosts.update({each.broker_name: each for each in queues})

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        if cluster is None:
            self._forget([topic], list(self._topics.get(topic, ())))
        else:
            self._forget([topic], self._clusters.get(cluster, ()))

    def withdraw(self, broker_name: str, topics: Iterable[str]) -> None:
        """A broker no longer has these topics."""
        self._forget(topics, [broker_name])

    def _forget(self, topics: Iterable[str], broker_names: Iterable[str]) -> None:
        for topic in topics:
            hosts = self._topics.get(topic, {})
            mappings = self._mappings.get(topic, {})
            for name in broker_names:
                hosts.pop(name, None)
                mappings.pop(name, None)
            if not hosts:
                self._topics.pop(topic, None)
            if not mappings:
                self._mappings.pop(topic, None)

    def wipe_write_perm(self, broker_name: str) -> int:
        """So that producers turn away before maintenance; returns how many topics it changed."""
        return self._set_perm(broker_name, lambda perm: perm & ~Perm.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        return self._set_perm(broker_name, lambda perm: int(READ_WRITE))

    def _set_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        touched = [hosts[broker_name] for hosts in self._topics.values() if broker_name in hosts]
        for queues in touched:
            queues.perm = change(queues.perm)
        return len(touched)

    # -- questions -----------------------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRoute | None:
        """None when no broker that is known has the topic."""
        hosts = self._topics.get(topic)
        if not hosts:
            return None
        brokers = [self._brokers[name] for name in hosts if name in self._brokers]
        if not brokers:
            return None
        filters = {
            address: live.filter_servers
            for broker in brokers
            for address in broker.broker_addrs.values()
            if (live := self._live.get((broker.cluster, address))) and live.filter_servers
        }
        return TopicRoute(
            broker_datas=brokers,
            queue_datas=list(hosts.values()),
            filter_server_table=filters,
            topic_queue_mapping_by_broker=self._mappings.get(topic),
        )

    def cluster_info(self) -> ClusterInfo:
        clusters = {cluster: list(names) for cluster, names in self._clusters.items()}
        return ClusterInfo(broker_addr_table=self._brokers, cluster_addr_table=clusters)

    def gone(self, now: int) -> dict[Who, Gone]:
        """Brokers that are missing; the one gone longest first."""
        return self._gone.known(now)

    def member_group(self, cluster: str, broker_name: str) -> MemberGroup:
        broker = self._brokers.get(broker_name)
        addresses = broker.broker_addrs if broker and broker.cluster == cluster else {}
        return MemberGroup(broker_addrs=addresses, broker_name=broker_name, cluster=cluster)

    def topics(self) -> list[str]:
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        names = self._clusters.get(cluster, {}).keys()
        return [topic for topic, hosts in self._topics.items() if names & hosts.keys()]

    def topics_with_flags(self, wanted: int, unwanted: int = 0) -> list[str]:
        """Topics whose system flag has the bits `wanted` and none of `unwanted`."""

        def matches(hosts: dict[str, QueueData]) -> bool:
            flag = next(iter(hosts.values())).topic_sys_flag
            return flag & wanted == wanted and not flag & unwanted

        return [topic for topic, hosts in self._topics.items() if hosts and matches(hosts)]

    def own_names(self) -> list[str]:
        """Clusters and brokers: each is also the name of a topic."""
        return [*self._clusters, *self._brokers]

    def any_address(self) -> str | None:
        return next((a for broker in self._brokers.values() for a in broker.broker_addrs.values()), None)


def _speaks_for_the_queues(request: RegisterBroker, broker: BrokerData) -> bool:
    """The master, or the first of the slaves of a broker from 5.0 on (older ones do not send the field)."""
    if request.broker_id == MASTER_ID:
        return True
    return request.enable_acting_master is not None and request.broker_id == min(broker.broker_addrs)


def _queue_data(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        perm=config.perm,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        topic_sys_flag=config.topic_sys_flag,
    )
