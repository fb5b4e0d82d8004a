# SPDX-License-Identifier: Apache-2.0
"""What each request needs: every code of the broker and the name server, every call of gRPC, in one table each.

A need is one of some actions on one resource; a request has several, looked at in the order written. A request that is
in no table is refused to all but super users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.fronts.gates import needs as of
from aerobee.fronts.gates.call import Port
from aerobee.fronts.gates.needs import CREATE, DELETE, GET, PUB, SUB, UPDATE
from aerobee.protocol.access import Kind
from aerobee.protocol.codes import RequestCode as Code

if TYPE_CHECKING:
    from aerobee.fronts.gates.call import Place
    from aerobee.fronts.gates.needs import Needs


def needs_at(place: Place) -> Needs | None:
    """None for a request that nobody listed."""
    if place.port is Port.GRPC:
        return GRPC.get(place.route)
    table = NAMESRV if place.port is Port.NAMESRV else BROKER
    return None if place.code is None else table.get(place.code)


BROKER: dict[int, Needs] = {
    # messages come
    Code.SEND_MESSAGE: of.send,
    Code.SEND_MESSAGE_V2: of.send,
    Code.SEND_BATCH_MESSAGE: of.send,
    Code.SEND_REPLY_MESSAGE: of.reply,
    Code.SEND_REPLY_MESSAGE_V2: of.reply,
    Code.CONSUMER_SEND_MSG_BACK: of.send_back,
    Code.END_TRANSACTION: of.end_transaction,
    Code.RESUME_CHECK_HALF_MESSAGE: of.resume_check,
    Code.RECALL_MESSAGE: of.recall,
    # messages go
    Code.PULL_MESSAGE: of.pull,
    Code.LITE_PULL_MESSAGE: of.pull,
    Code.AEROBEE_READ_UNITS: of.topic(SUB),
    Code.AEROBEE_READ_LOG: of.every(Kind.TOPIC, action=SUB),
    Code.AEROBEE_READ_HEADS: of.heads,
    Code.QUERY_MESSAGE: of.topic(SUB, GET),
    Code.VIEW_MESSAGE_BY_ID: of.view_message,
    Code.QUERY_CONSUME_QUEUE: of.query_queue,
    Code.CONSUME_MESSAGE_DIRECTLY: of.consume_directly,
    Code.POP_MESSAGE: of.group_and_topic(SUB),
    Code.ACK_MESSAGE: of.group_and_topic(SUB),
    Code.BATCH_ACK_MESSAGE: of.batch_ack,
    Code.CHANGE_MESSAGE_INVISIBLETIME: of.group_and_topic(SUB),
    Code.PEEK_MESSAGE: of.topic_and_group(SUB),
    Code.NOTIFICATION: of.group_and_topic(SUB),
    Code.POLLING_INFO: of.group_and_topic(GET),
    Code.QUERY_ASSIGNMENT: of.query_assignment,
    Code.SET_MESSAGE_REQUEST_MODE: of.set_request_mode,
    Code.GET_ALL_MESSAGE_REQUEST_MODE: of.every(Kind.TOPIC, Kind.GROUP),
    Code.AEROBEE_GROUP_FIGURES: of.group_figures,
    Code.AEROBEE_MESSAGE_STATE: of.group_and_topic(GET),
    # offsets
    Code.QUERY_CONSUMER_OFFSET: of.topic_and_group(SUB, GET),
    Code.UPDATE_CONSUMER_OFFSET: of.topic_and_group(SUB, UPDATE),
    # A consumer that begins at the end, or at a time, asks for these: who may read a topic may ask.
    Code.SEARCH_OFFSET_BY_TIMESTAMP: of.topic(GET, SUB),
    Code.GET_MAX_OFFSET: of.topic(GET, SUB),
    Code.GET_MIN_OFFSET: of.topic(GET, SUB),
    Code.GET_EARLIEST_MSG_STORETIME: of.topic(GET, SUB),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: of.group_and_topic(UPDATE, field="group"),
    Code.CLONE_GROUP_OFFSET: of.clone_offsets,
    Code.QUERY_CORRECTION_OFFSET: of.correct_offsets,
    Code.GET_ALL_CONSUMER_OFFSET: of.cluster(GET),
    Code.GET_ALL_DELAY_OFFSET: of.cluster(GET),
    Code.GET_TIMER_METRICS: of.cluster(GET),
    # clients about themselves
    Code.HEART_BEAT: of.heartbeat,
    Code.UNREGISTER_CLIENT: of.unregister,
    Code.GET_CONSUMER_LIST_BY_GROUP: of.group(SUB, GET),
    Code.CHECK_CLIENT_CONFIG: of.check_client,
    Code.LOCK_BATCH_MQ: of.lock,
    Code.UNLOCK_BATCH_MQ: of.lock,
    # topics
    Code.UPDATE_AND_CREATE_TOPIC: of.topic(CREATE),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: of.create_topics,
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: of.topic(CREATE),
    Code.DELETE_TOPIC_IN_BROKER: of.topic(DELETE),
    Code.GET_TOPIC_CONFIG: of.topic(GET),
    Code.GET_ALL_TOPIC_CONFIG: of.every(Kind.TOPIC),
    Code.GET_TOPIC_STATS_INFO: of.topic(GET),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: of.topic(GET),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: of.every(Kind.TOPIC),
    # groups
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: of.create_group,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: of.create_groups,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: of.every(Kind.GROUP),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: of.group(GET, field="group"),
    Code.DELETE_SUBSCRIPTIONGROUP: of.group(DELETE, field="group_name"),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: of.group_and_topic(UPDATE, field="group"),
    Code.GET_CONSUMER_CONNECTION_LIST: of.group(GET),
    Code.QUERY_TOPICS_BY_CONSUMER: of.group(GET, field="group"),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: of.group_and_topic(GET, field="group"),
    Code.GET_CONSUME_STATS: of.group_and_topic_if_named(GET),
    Code.QUERY_CONSUME_TIME_SPAN: of.topic_and_group(GET, field="group"),
    Code.GET_CONSUMER_RUNNING_INFO: of.group(GET),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: of.topic_and_group(GET, field="group"),
    # the broker
    Code.GET_PRODUCER_CONNECTION_LIST: of.cluster(GET),
    Code.GET_ALL_PRODUCER_INFO: of.cluster(GET),
    Code.GET_BROKER_CONSUME_STATS: of.cluster(GET),
    Code.GET_BROKER_RUNTIME_INFO: of.cluster(GET),
    Code.GET_BROKER_CONFIG: of.cluster(GET),
    Code.UPDATE_BROKER_CONFIG: of.cluster(UPDATE),
    Code.VIEW_BROKER_STATS_DATA: of.cluster(GET),
    Code.GET_BROKER_HA_STATUS: of.cluster(GET),
    Code.GET_BROKER_EPOCH_CACHE: of.cluster(GET),
    Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: of.cluster(GET),
    Code.RESET_MASTER_FLUSH_OFFSET: of.cluster(UPDATE),
    Code.POP_ROLLBACK: of.cluster(UPDATE),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: of.cluster(UPDATE),
    Code.CLEAN_UNUSED_TOPIC: of.cluster(UPDATE),
    Code.DELETE_EXPIRED_COMMITLOG: of.cluster(UPDATE),
    # users and policies
    Code.AUTH_CREATE_USER: of.cluster(UPDATE),
    Code.AUTH_UPDATE_USER: of.cluster(UPDATE),
    Code.AUTH_DELETE_USER: of.cluster(UPDATE),
    Code.AUTH_GET_USER: of.cluster(GET),
    Code.AUTH_LIST_USER: of.cluster(GET),
    Code.AUTH_CREATE_ACL: of.cluster(UPDATE),
    Code.AUTH_UPDATE_ACL: of.cluster(UPDATE),
    Code.AUTH_DELETE_ACL: of.cluster(UPDATE),
    Code.AUTH_GET_ACL: of.cluster(GET),
    Code.AUTH_LIST_ACL: of.cluster(GET),
    # Of operators who change things, also to look at: who did what, and the secrets of plain_acl.yml.
    Code.AEROBEE_READ_AUDIT: of.cluster(UPDATE),
    Code.UPDATE_AND_CREATE_ACL_CONFIG: of.cluster(UPDATE),
    Code.DELETE_ACL_CONFIG: of.cluster(UPDATE),
    Code.GET_BROKER_CLUSTER_ACL_INFO: of.cluster(UPDATE),
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: of.cluster(UPDATE),
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: of.cluster(UPDATE),
}

# Routes and the list of brokers are open there: see accounts.py.
NAMESRV: dict[int, Needs] = {
    Code.PUT_KV_CONFIG: of.cluster(UPDATE),
    Code.GET_KV_CONFIG: of.cluster(GET),
    Code.DELETE_KV_CONFIG: of.cluster(UPDATE),
    Code.GET_KVLIST_BY_NAMESPACE: of.cluster(GET),
    Code.REGISTER_BROKER: of.named_cluster(UPDATE),
    Code.UNREGISTER_BROKER: of.named_cluster(UPDATE),
    Code.BROKER_HEARTBEAT: of.named_cluster(UPDATE),
    Code.QUERY_DATA_VERSION: of.named_cluster(GET),
    Code.GET_BROKER_MEMBER_GROUP: of.named_cluster(GET),
    Code.GET_ROUTEINFO_BY_TOPIC: of.topic(PUB, SUB, GET),
    Code.GET_BROKER_CLUSTER_INFO: of.cluster(GET),
    Code.AEROBEE_GONE_BROKERS: of.cluster(GET),
    Code.WIPE_WRITE_PERM_OF_BROKER: of.cluster(UPDATE),
    Code.ADD_WRITE_PERM_OF_BROKER: of.cluster(UPDATE),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: of.every(Kind.TOPIC),
    Code.GET_TOPICS_BY_CLUSTER: of.every(Kind.TOPIC),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: of.every(Kind.TOPIC),
    Code.GET_UNIT_TOPIC_LIST: of.every(Kind.TOPIC),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: of.every(Kind.TOPIC),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: of.every(Kind.TOPIC),
    Code.REGISTER_TOPIC_IN_NAMESRV: of.cluster(UPDATE),
    Code.DELETE_TOPIC_IN_NAMESRV: of.named_cluster(UPDATE),
    Code.GET_NAMESRV_CONFIG: of.cluster(GET),
    Code.UPDATE_NAMESRV_CONFIG: of.cluster(UPDATE),
}

GRPC: dict[str, Needs] = {
    "QueryRoute": of.grpc_topic(PUB, SUB),
    "QueryAssignment": of.grpc_group_and_topic(SUB),
    "Heartbeat": of.grpc_named_group,
    "NotifyClientTermination": of.grpc_named_group,
    "Telemetry": of.grpc_telemetry,
    "SendMessage": of.grpc_send,
    "EndTransaction": of.grpc_end_transaction,
    "RecallMessage": of.grpc_publish,
    "ReceiveMessage": of.grpc_group_and_queue(SUB),
    "AckMessage": of.grpc_group_and_topic(SUB),
    "ChangeInvisibleDuration": of.grpc_group_and_topic(SUB),
    "ForwardMessageToDeadLetterQueue": of.grpc_group_and_topic(SUB),
    "PullMessage": of.grpc_group_and_queue(SUB),
    "UpdateOffset": of.grpc_group_and_queue(SUB, UPDATE),
    "GetOffset": of.grpc_group_and_queue(SUB, GET),
    "QueryOffset": of.grpc_queue(GET, SUB),
}
