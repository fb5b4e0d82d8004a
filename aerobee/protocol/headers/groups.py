# SPDX-License-Identifier: Apache-2.0
"""Groups of a broker: settings, members, progress."""

from __future__ import annotations

from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Header


class CreateGroup(Header):
    """No fields; the body is `bodies.GroupConfig`."""

    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP


class CreateGroupList(Header):
    """No fields; the body is `bodies.GroupConfigList`."""

    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST


class AllGroupConfigs(Header):
    code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    group_seq: int | None = None
    max_group_num: int | None = None
    data_version: str | None = None


class AllGroupConfigsResult(Header):
    total_group_num: int | None = None


class GetGroupConfig(Header):
    code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    group: str


class DeleteGroup(Header):
    code = RequestCode.DELETE_SUBSCRIPTIONGROUP
    group_name: str
    clean_offset: bool | None = None


class ForbidGroup(Header):
    """`readable` absent: only ask."""

    code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    group: str
    topic: str
    readable: bool | None = None


class ConsumeStatsQuery(Header):
    code = RequestCode.GET_CONSUME_STATS
    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None  # separated by ;


class ConsumerConnections(Header):
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    consumer_group: str


class ProducerConnections(Header):
    code = RequestCode.GET_PRODUCER_CONNECTION_LIST
    producer_group: str


class AllProducers(Header):
    code = RequestCode.GET_ALL_PRODUCER_INFO


class GroupTopics(Header):
    """Which topics the group has offsets for."""

    code = RequestCode.QUERY_TOPICS_BY_CONSUMER
    group: str


class GroupSubscription(Header):
    code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    group: str
    topic: str


class RunningInfo(Header):
    """Admin to broker, which forwards it to the client named."""

    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    consumer_group: str
    client_id: str
    jstack_enable: bool | None = None


class GroupFigures(Header):
    """Aerobee's own: exact figures of a group on a topic."""

    code = RequestCode.AEROBEE_GROUP_FIGURES
    consumer_group: str | None = None
    group: str | None = None  # the same by its other name
    topic: str | None = None


class FindMessage(Header):
    """Aerobee's own: where one message is for a group. The topic is the one it is kept in, maybe a retry topic."""

    code = RequestCode.AEROBEE_MESSAGE_STATE
    consumer_group: str
    topic: str
    queue_id: int
    offset: int
