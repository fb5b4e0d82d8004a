# SPDX-License-Identifier: Apache-2.0
"""Sending, sending back, replying and recalling."""

from __future__ import annotations

from msgspec import field

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Header

DEFAULT_TOPIC = "TBW102"


class SendMessage(Header, kw_only=True):
    """Only the topic is insisted on: the rest has the value Java's decoder leaves when it is missing."""

    code = RequestCode.SEND_MESSAGE
    producer_group: str = ""
    topic: str
    default_topic: str = DEFAULT_TOPIC
    default_topic_queue_nums: int = 4
    queue_id: int = -1
    sys_flag: int = 0
    born_timestamp: int = 0
    flag: int = 0
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    batch: bool | None = None
    broker_name: str | None = field(default=None, name="bname")


class SendMessageV2(Header, kw_only=True):
    """`SendMessage` under one-letter names; the same Python names, so one adapter serves both."""

    code = RequestCode.SEND_MESSAGE_V2
    producer_group: str = field(default="", name="a")
    topic: str = field(name="b")
    default_topic: str = field(default=DEFAULT_TOPIC, name="c")
    default_topic_queue_nums: int = field(default=4, name="d")
    queue_id: int = field(default=-1, name="e")
    sys_flag: int = field(default=0, name="f")
    born_timestamp: int = field(default=0, name="g")
    flag: int = field(default=0, name="h")
    properties: str | None = field(default=None, name="i")
    reconsume_times: int | None = field(default=None, name="j")
    unit_mode: bool | None = field(default=None, name="k")
    max_reconsume_times: int | None = field(default=None, name="l")
    batch: bool | None = field(default=None, name="m")
    broker_name: str | None = field(default=None, name="n")


class SendBatch(SendMessageV2):
    code = RequestCode.SEND_BATCH_MESSAGE


class SendReply(SendMessage):
    code = RequestCode.SEND_REPLY_MESSAGE


class SendReplyV2(SendMessageV2):
    code = RequestCode.SEND_REPLY_MESSAGE_V2


class SendResult(Header):
    """`msg_id` is the offset id, comma-joined for a batch; `queue_offset` the first offset of a batch."""

    msg_id: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region: str | None = field(default=None, name="MSG_REGION")
    trace_on: bool | None = field(default=None, name="TRACE_ON")


class SendBack(Header):
    code = RequestCode.CONSUMER_SEND_MSG_BACK
    offset: int
    group: str
    delay_level: int = 0
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: int | None = None
    broker_name: str | None = field(default=None, name="bname")
    failure: str | None = field(default=None, name="aerobeeFailure")  # unknown to RocketMQ's brokers


class PushReply(Header, kw_only=True):
    """Broker to the client that waits for a reply."""

    code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    producer_group: str = ""
    topic: str
    default_topic: str = DEFAULT_TOPIC
    default_topic_queue_nums: int = 4
    queue_id: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    flag: int = 0
    properties: str | None = None
    reconsume_times: int | None = None
    unit_mode: bool | None = None
    born_host: str = ""
    store_host: str = ""
    store_timestamp: int = 0


class RecallMessage(Header, kw_only=True):
    code = RequestCode.RECALL_MESSAGE
    producer_group: str | None = None
    topic: str
    recall_handle: str
    broker_name: str | None = field(default=None, name="bname")


class RecallResult(Header):
    msg_id: str
