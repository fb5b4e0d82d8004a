# SPDX-License-Identifier: Apache-2.0
"""Where topics are: the name server's answers, and what brokers register with it."""

from __future__ import annotations

from typing import Any

from msgspec import field

from aerobee.protocol.bodies.topics import TopicConfigs
from aerobee.protocol.bodies.values import Body
from aerobee.protocol.java_json import Dialect

STANDARD_JSON_SINCE = 401  # 4.9.4; older peers expect bare integer keys
MASTER_ID = 0


class QueueData(Body):
    broker_name: str = ""
    perm: int = 6
    read_queue_nums: int = 0
    topic_sys_flag: int = 0
    write_queue_nums: int = 0


class BrokerData(Body):
    broker_addrs: dict[int, str] = field(default_factory=dict)
    broker_name: str = ""
    cluster: str = ""
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def master(self) -> str | None:
        return self.broker_addrs.get(MASTER_ID)


class TopicRoute(Body):
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    topic_queue_mapping_by_broker: dict[str, Any] | None = None


def route_dialect(version: int, accept_standard: bool | None = None) -> Dialect:  # noqa: FBT001 the request's field
    """How the requester of a route reads integer keys."""
    return Dialect.STANDARD if accept_standard or version >= STANDARD_JSON_SINCE else Dialect.JAVA


class ClusterInfo(Body):
    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


class GoneBroker(Body):
    """A broker that went without a goodbye."""

    broker_addr: str = ""
    broker_id: int = 0
    broker_name: str = ""
    cluster: str = ""
    since: int = 0  # by the wall clock of the name server
    why: str = ""


class GoneBrokers(Body):
    gone_brokers: list[GoneBroker] = field(default_factory=list)


class MemberGroup(Body):
    broker_addrs: dict[int, str] = field(default_factory=dict)
    broker_name: str = ""
    cluster: str = ""


class MemberGroupAnswer(Body):
    broker_member_group: MemberGroup = field(default_factory=MemberGroup)


class RegisterBrokerBody(Body):
    filter_server_list: list[str] = field(default_factory=list)
    topic_config_serialize_wrapper: TopicConfigs = field(default_factory=TopicConfigs)
