# SPDX-License-Identifier: Apache-2.0
"""Offsets of groups and queues, and looking messages up."""

from __future__ import annotations

from msgspec import field

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Header


class QueryConsumerOffset(Header):
    code = RequestCode.QUERY_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: int
    set_zero_if_not_found: bool | None = None


class UpdateConsumerOffset(Header):
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    consumer_group: str
    topic: str
    queue_id: int
    commit_offset: int


class SearchOffset(Header):
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    topic: str
    queue_id: int
    timestamp: int
    boundary_type: str | None = None  # LOWER (the default) or UPPER


class GetMaxOffset(Header):
    code = RequestCode.GET_MAX_OFFSET
    topic: str
    queue_id: int
    committed: bool | None = None


class GetMinOffset(Header):
    code = RequestCode.GET_MIN_OFFSET
    topic: str
    queue_id: int


class OffsetResult(Header):
    """The answer to each of the five above but the update, which has none."""

    offset: int


class EarliestStoreTime(Header):
    code = RequestCode.GET_EARLIEST_MSG_STORETIME
    topic: str
    queue_id: int


class EarliestStoreTimeResult(Header):
    timestamp: int


class ViewMessage(Header):
    code = RequestCode.VIEW_MESSAGE_BY_ID
    offset: int
    topic: str | None = None


class QueryMessage(Header):
    code = RequestCode.QUERY_MESSAGE
    topic: str
    key: str
    max_num: int = 32
    begin_timestamp: int = 0
    end_timestamp: int = 2**63 - 1
    unique_key: bool | None = field(default=None, name="_UNIQUE_KEY_QUERY")
    index_type: str | None = None
    last_key: str | None = None


class QueryMessageResult(Header):
    index_last_update_timestamp: int = 0
    index_last_update_phyoffset: int = 0


class ConsumeTimeSpanQuery(Header):
    code = RequestCode.QUERY_CONSUME_TIME_SPAN
    topic: str
    group: str


class CorrectionOffset(Header, kw_only=True):
    code = RequestCode.QUERY_CORRECTION_OFFSET
    filter_groups: str | None = None
    compare_group: str
    topic: str


class CloneGroupOffset(Header):
    code = RequestCode.CLONE_GROUP_OFFSET
    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool | None = None


class QueryConsumeQueue(Header):
    code = RequestCode.QUERY_CONSUME_QUEUE
    topic: str
    queue_id: int = 0
    index: int = 0
    count: int = 10
    consumer_group: str | None = None


class AllConsumerOffsets(Header):
    code = RequestCode.GET_ALL_CONSUMER_OFFSET


class AllDelayOffsets(Header):
    code = RequestCode.GET_ALL_DELAY_OFFSET


class ResetOffset(Header):
    """Admin to broker. `queue_id` -1: all queues; `offset` -1 or absent: by timestamp."""

    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    topic: str
    group: str
    timestamp: int = -1
    is_force: bool = True
    queue_id: int | None = None
    offset: int | None = None


class ResetClientOffset(Header):
    """Broker to client."""

    code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    topic: str
    group: str
    timestamp: int = -1
    is_force: bool = True
    queue_id: int | None = None
    offset: int | None = None


class ConsumerStatus(Header):
    """Admin to broker: the offsets of the group's clients, as they see them."""

    code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    topic: str
    group: str
    client_addr: str | None = None


class ClientConsumerStatus(Header):
    """Broker to client."""

    code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    topic: str
    group: str
    client_addr: str | None = None
