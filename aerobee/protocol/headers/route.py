# SPDX-License-Identifier: Apache-2.0
"""The name server: routes, registration, key-value settings."""

from __future__ import annotations

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Header

# -- asked by clients and tools ---------------------------------------------------------------------


class GetRoute(Header):
    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
    topic: str
    accept_standard_json_only: bool | None = None


class GetClusterInfo(Header):
    code = RequestCode.GET_BROKER_CLUSTER_INFO


class GetGoneBrokers(Header):
    """Aerobee's own; the answer's body is `bodies.GoneBrokers`."""

    code = RequestCode.AEROBEE_GONE_BROKERS


class AllTopics(Header):
    code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


class TopicsByCluster(Header):
    code = RequestCode.GET_TOPICS_BY_CLUSTER
    cluster: str


class SystemTopics(Header):
    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


class UnitTopics(Header):
    code = RequestCode.GET_UNIT_TOPIC_LIST


class UnitSubscriptionTopics(Header):
    code = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST


class UnitSubscriptionNonUnitTopics(Header):
    code = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST


class DeleteTopicRoute(Header):
    code = RequestCode.DELETE_TOPIC_IN_NAMESRV
    topic: str
    cluster_name: str | None = None


class RegisterTopicRoute(Header):
    """The body is `bodies.TopicRoute`."""

    code = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    topic: str


class WipeWritePerm(Header):
    code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    broker_name: str


class WipeWritePermResult(Header):
    wipe_topic_count: int = 0


class AddWritePerm(Header):
    code = RequestCode.ADD_WRITE_PERM_OF_BROKER
    broker_name: str


class AddWritePermResult(Header):
    add_topic_count: int = 0


# -- asked by brokers -------------------------------------------------------------------------------


class RegisterBroker(Header):
    code = RequestCode.REGISTER_BROKER
    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str = ""
    broker_id: int = 0
    heartbeat_timeout_millis: int | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: int = 0


class RegisterBrokerResult(Header):
    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBroker(Header):
    code = RequestCode.UNREGISTER_BROKER
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int = 0


class QueryDataVersion(Header):
    """The body is `bodies.DataVersion`."""

    code = RequestCode.QUERY_DATA_VERSION
    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: int = 0


class QueryDataVersionResult(Header):
    changed: bool


class BrokerHeartbeat(Header):
    code = RequestCode.BROKER_HEARTBEAT
    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: int | None = None
    epoch: int | None = None
    max_offset: int | None = None
    confirm_offset: int | None = None
    heartbeat_timeout_mills: int | None = None  # spelled so on the wire
    election_priority: int | None = None


class GetMemberGroup(Header):
    code = RequestCode.GET_BROKER_MEMBER_GROUP
    cluster_name: str
    broker_name: str


# -- key-value settings -----------------------------------------------------------------------------


class PutKV(Header):
    code = RequestCode.PUT_KV_CONFIG
    namespace: str
    key: str
    value: str


class GetKV(Header):
    code = RequestCode.GET_KV_CONFIG
    namespace: str
    key: str


class GetKVResult(Header):
    value: str | None = None


class DeleteKV(Header):
    code = RequestCode.DELETE_KV_CONFIG
    namespace: str
    key: str


class GetKVList(Header):
    code = RequestCode.GET_KVLIST_BY_NAMESPACE
    namespace: str


class UpdateNamesrvConfig(Header):
    """No fields; the body is `key=value` lines."""

    code = RequestCode.UPDATE_NAMESRV_CONFIG


class GetNamesrvConfig(Header):
    code = RequestCode.GET_NAMESRV_CONFIG
