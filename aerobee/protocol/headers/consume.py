# SPDX-License-Identifier: Apache-2.0
"""Reading: pull, pop and what goes with them; heartbeats, queue locks and assignment."""

from __future__ import annotations

from msgspec import field

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Header

# -- pull -------------------------------------------------------------------------------------------


class PullMessage(Header):
    code = RequestCode.PULL_MESSAGE
    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int = 32
    sys_flag: int = 0
    commit_offset: int = 0
    suspend_timeout_millis: int = 0
    subscription: str | None = None
    sub_version: int = 0
    expression_type: str | None = None
    max_msg_bytes: int | None = None
    request_source: int | None = None
    proxy_froward_client_id: str | None = None  # spelled so on the wire
    broker_name: str | None = field(default=None, name="bname")
    # Aerobee's own, other brokers ignore them.
    bulk: bool | None = None  # answers far beyond what ordinary consumers get
    as_stored: bool | None = None  # the same, records unchecked, their queue units before them


class LitePullMessage(PullMessage):
    code = RequestCode.LITE_PULL_MESSAGE


class PullResult(Header, kw_only=True):
    suggest_which_broker_id: int = 0
    next_begin_offset: int
    min_offset: int
    max_offset: int
    offset_delta: int | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None
    forbidden_type: int | None = None
    record_count: int | None = None  # of queue units before the records, where `as_stored` is known


class ReadUnits(Header):
    """Aerobee's own: queue units as stored, those of [offset, offset + count) that there are; or every `step`th."""

    code = RequestCode.AEROBEE_READ_UNITS
    topic: str
    queue_id: int
    offset: int
    count: int
    step: int = 1


class UnitsRead(Header):
    """With the units: the offset of the first of them."""

    offset: int


class ReadLog(Header):
    """Aerobee's own: the bytes of the commit log from `position` on, whatever messages they belong to."""

    code = RequestCode.AEROBEE_READ_LOG
    position: int
    size: int


class LogBounds(Header):
    """With the bytes: where the log begins and ends by now."""

    min_position: int
    max_position: int


class ReadHeads(Header):
    """Aerobee's own: where queues begin and end. The body is a JSON list of topics, all of whose queues are told;
    without it, those queues of every topic that moved since the answer with the stamp `since`."""

    code = RequestCode.AEROBEE_READ_HEADS
    since: str = ""


class HeadsRead(Header):
    """With the heads (`bodies.QueueHeads`): what to ask with next time; and the stamp they go on from, where what did
    not move is left out. Without that, a topic that was named and is not told is not to be read here."""

    stamp: str
    since: str | None = None


class ConsumeDirectly(Header):
    """Admin to broker (which loads the message) and broker to client (message in the body)."""

    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


# -- members of a group -----------------------------------------------------------------------------


class SendHeartbeat(Header):
    """No fields; the body is `bodies.Heartbeat`."""

    code = RequestCode.HEART_BEAT


class HeartbeatResult(Header):
    support_v2: bool = field(default=False, name="IS_SUPPORT_HEART_BEAT_V2")
    subscription_changed: bool = field(default=False, name="IS_SUB_CHANGE")


class Unregister(Header):
    code = RequestCode.UNREGISTER_CLIENT
    client_id: str = field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class CheckClientConfig(Header):
    """No fields; the body is `bodies.CheckClient`."""

    code = RequestCode.CHECK_CLIENT_CONFIG


class ConsumerList(Header):
    code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    consumer_group: str


class NotifyIdsChanged(Header):
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    consumer_group: str


class LockQueues(Header):
    """No fields; the body is `bodies.LockBatch`."""

    code = RequestCode.LOCK_BATCH_MQ


class UnlockQueues(Header):
    code = RequestCode.UNLOCK_BATCH_MQ


class QueryAssignment(Header):
    """No fields; the body is `bodies.AssignmentQuery`."""

    code = RequestCode.QUERY_ASSIGNMENT


class SetRequestMode(Header):
    """No fields; the body is `bodies.RequestMode`."""

    code = RequestCode.SET_MESSAGE_REQUEST_MODE


class GetRequestModes(Header):
    code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE


# -- pop --------------------------------------------------------------------------------------------


class PopMessage(Header):
    code = RequestCode.POP_MESSAGE
    consumer_group: str
    topic: str
    queue_id: int = -1
    max_msg_nums: int = 32
    invisible_time: int = 0
    poll_time: int = 0
    born_time: int = 0
    init_mode: int = 0
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class PopResult(Header):
    pop_time: int = 0
    invisible_time: int = 0
    revive_qid: int = 0
    rest_num: int = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


class AckMessage(Header):
    code = RequestCode.ACK_MESSAGE
    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    lite_topic: str | None = None
    broker_name: str | None = field(default=None, name="bname")


class BatchAckMessage(Header):
    """No fields; the body is `bodies.BatchAck`."""

    code = RequestCode.BATCH_ACK_MESSAGE


class ChangeInvisible(Header):
    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    consumer_group: str
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    invisible_time: int
    lite_topic: str | None = None
    broker_name: str | None = field(default=None, name="bname")
    failure: str | None = field(default=None, name="aerobeeFailure")  # unknown to RocketMQ's brokers


class ChangeInvisibleResult(Header):
    pop_time: int = 0
    invisible_time: int = 0
    revive_qid: int = 0


class PeekMessage(Header):
    code = RequestCode.PEEK_MESSAGE
    consumer_group: str
    topic: str
    queue_id: int = -1
    max_msg_nums: int = 32


class Notification(Header):
    code = RequestCode.NOTIFICATION
    consumer_group: str
    topic: str
    queue_id: int = -1
    poll_time: int = 0
    born_time: int = 0
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class NotificationResult(Header):
    has_msg: bool = False
    polling_full: bool = False


class PollingInfo(Header):
    code = RequestCode.POLLING_INFO
    consumer_group: str
    topic: str
    queue_id: int = -1


class PollingInfoResult(Header):
    polling_num: int = 0
