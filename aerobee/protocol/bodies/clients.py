# SPDX-License-Identifier: Apache-2.0
"""Clients: heartbeats, connections, what a consumer says about itself."""

from __future__ import annotations

from msgspec import field

from aerobee.protocol.bodies.values import Body, ConsumeFromWhere, ConsumeType, MessageModel, MessageQueue
from aerobee.protocol.filters.tags import ALL, TAG


class SubscriptionData(Body):
    class_filter_mode: bool = False
    code_set: list[int] = field(default_factory=list)
    expression_type: str = TAG
    sub_string: str = ALL
    sub_version: int = 0
    tags_set: list[str] = field(default_factory=list)
    topic: str = ""


class ConsumerData(Body):
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    group_name: str = ""
    message_model: MessageModel = MessageModel.CLUSTERING
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class ProducerData(Body):
    group_name: str = ""


class Heartbeat(Body):
    client_id: str = field(default="", name="clientID")
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int = 0
    producer_data_set: list[ProducerData] = field(default_factory=list)
    without_sub: bool = False


class CheckClient(Body):
    """Asked before subscribing by SQL92."""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: SubscriptionData = field(default_factory=SubscriptionData)


class Connection(Body):
    client_addr: str = ""
    client_id: str = ""
    language: str = "JAVA"
    version: int = 0


class ConsumerConnection(Body):
    connection_set: list[Connection] = field(default_factory=list)
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)


class ProducerConnection(Body):
    connection_set: list[Connection] = field(default_factory=list)


class ProducerInfo(Body):
    client_id: str = ""
    language: str = "JAVA"
    last_update_timestamp: int = 0
    remote_ip: str = field(default="", name="remoteIP")
    version: int = 0


class ProducerTable(Body):
    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


class GroupSubscriptionBody(Body):
    """Code 345."""

    group: str = ""
    subscription_data: SubscriptionData | None = None
    topic: str = ""


# -- a consumer about itself (code 307) -------------------------------------------------------------


class ProcessQueueInfo(Body):
    cached_msg_count: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_size_in_mi_b: int = field(default=0, name="cachedMsgSizeInMiB")
    commit_offset: int = 0
    dropped: bool = field(default=False, name="droped")  # spelled so on the wire
    last_consume_timestamp: int = 0
    last_lock_timestamp: int = 0
    last_pull_timestamp: int = 0
    locked: bool = False
    transaction_msg_count: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_min_offset: int = 0
    try_unlock_times: int = 0


class PopQueueInfo(Body):
    dropped: bool = field(default=False, name="droped")
    last_pop_timestamp: int = 0
    wait_ack_count: int = 0


class ConsumeStatus(Body):
    consume_failed_msgs: int = 0
    consume_failed_tps: float = field(default=0.0, name="consumeFailedTPS")
    consume_ok_tps: float = field(default=0.0, name="consumeOKTPS")
    consume_rt: float = field(default=0.0, name="consumeRT")
    pull_rt: float = field(default=0.0, name="pullRT")
    pull_tps: float = field(default=0.0, name="pullTPS")


class ConsumerRunningInfo(Body):
    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, PopQueueInfo] = field(default_factory=dict)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    user_consumer_info: dict[str, str] = field(default_factory=dict)


class ConsumeDirectlyResult(Body):
    auto_commit: bool = True
    consume_result: str = "CR_SUCCESS"
    order: bool = False
    remark: str | None = None
    spent_time_mills: int = 0
