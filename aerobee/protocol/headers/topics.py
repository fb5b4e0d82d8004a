# SPDX-License-Identifier: Apache-2.0
"""Topics of a broker: creating, deleting, describing."""

from __future__ import annotations

from msgspec import field

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Header


class CreateTopic(Header):
    code = RequestCode.UPDATE_AND_CREATE_TOPIC
    topic: str
    default_topic: str = "TBW102"
    read_queue_nums: int = 8
    write_queue_nums: int = 8
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


class CreateStaticTopic(CreateTopic):
    code = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC


class CreateTopicList(Header):
    """No fields; the body is `bodies.TopicConfigList`."""

    code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST


class DeleteTopic(Header):
    code = RequestCode.DELETE_TOPIC_IN_BROKER
    topic: str


class GetTopicConfig(Header):
    code = RequestCode.GET_TOPIC_CONFIG
    topic: str
    logical: bool | None = field(default=None, name="lo")


class AllTopicConfigs(Header):
    code = RequestCode.GET_ALL_TOPIC_CONFIG
    topic_seq: int | None = None
    max_topic_num: int | None = None
    data_version: str | None = None


class AllTopicConfigsResult(Header):
    """Without the count: everything is in the body."""

    total_topic_num: int | None = None


class TopicStatsQuery(Header):
    code = RequestCode.GET_TOPIC_STATS_INFO
    topic: str


class TopicGroups(Header):
    """Which groups consume the topic."""

    code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    topic: str


class BrokerSystemTopics(Header):
    code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
