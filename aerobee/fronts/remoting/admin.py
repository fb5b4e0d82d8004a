# SPDX-License-Identifier: Apache-2.0
"""Requests of operators and their tools, one adapter each; the work is in `broker/operations/admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from aerobee.broker import checks
from aerobee.broker.operations import query
from aerobee.broker.operations.admin import (
    ask_client,
    cluster,
    groups,
    progress,
    settings,
    static_topics,
    topics,
)
from aerobee.errors import InvalidParameter
from aerobee.net.connection import Reply
from aerobee.protocol import bodies
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers import cluster as hc
from aerobee.protocol.headers import groups as hg
from aerobee.protocol.headers import offsets as ho
from aerobee.protocol.headers import topics as ht
from aerobee.protocol.headers.consume import ConsumeDirectly

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.fronts.remoting.routes import Adapter
    from aerobee.net.connection import Answer, Connection
    from aerobee.protocol.command import Command


MAX_LISTED = 1_000  # topics or groups made by one request
MAX_SETTINGS_BYTES = 64 * 1024


def _json(body: object) -> Reply:
    return Reply(body=bodies.encode(body))


# -- topics ----------------------------------------------------------------------------------------------


async def put_topic(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(ht.CreateTopic)
    await topics.put_topic(_config(header), header.attributes or "", broker)
    return Reply()


async def put_static_topic(connection: Connection, command: Command, broker: Broker) -> Answer:
    mapping = bodies.decode_request(command.body, bodies.QueueMapping)
    await static_topics.put_static_topic(_config(command.fields(ht.CreateStaticTopic)), mapping, broker)
    return Reply()


def _config(header: ht.CreateTopic) -> bodies.TopicConfig:
    return bodies.TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=header.topic_filter_type,
        topic_sys_flag=header.topic_sys_flag or 0,
        order=header.order,
    )


async def put_topics(connection: Connection, command: Command, broker: Broker) -> Answer:
    configs = bodies.decode_request(command.body, bodies.TopicConfigList).topic_config_list
    checks.at_most(MAX_LISTED, len(configs), "topics")
    await topics.put_topics(configs, broker)
    return Reply()


async def delete_topic(connection: Connection, command: Command, broker: Broker) -> Answer:
    await topics.delete_topic(command.fields(ht.DeleteTopic).topic, broker)
    return Reply()


def topic_config(connection: Connection, command: Command, broker: Broker) -> Answer:
    asked = command.fields(ht.GetTopicConfig)
    config, mapping = broker.topics.require(asked.topic), broker.topics.static.get(asked.topic)
    if mapping is None or not asked.logical:
        return _json(config)
    return _json(bodies.StaticTopicConfig(**msgspec.structs.asdict(config), mapping_detail=mapping))


def all_topics(connection: Connection, command: Command, broker: Broker) -> Answer:
    return _json(topics.all_topics(broker))


def topic_stats(connection: Connection, command: Command, broker: Broker) -> Answer:
    return _json(topics.topic_stats(command.fields(ht.TopicStatsQuery).topic, broker))


def groups_of_topic(connection: Connection, command: Command, broker: Broker) -> Answer:
    return _json(bodies.GroupList(group_list=topics.groups_of(command.fields(ht.TopicGroups).topic, broker)))


def system_topics(connection: Connection, command: Command, broker: Broker) -> Answer:
    found = topics.system_topics(broker)
    return _json(bodies.TopicList(broker_addr=progress.address(broker), topic_list=found))


# -- groups ----------------------------------------------------------------------------------------------


async def put_group(connection: Connection, command: Command, broker: Broker) -> Answer:
    await groups.put_groups([bodies.decode_request(command.body, bodies.GroupConfig)], broker)
    return Reply()


async def put_groups(connection: Connection, command: Command, broker: Broker) -> Answer:
    configs = bodies.decode_request(command.body, bodies.GroupConfigList).group_config_list
    checks.at_most(MAX_LISTED, len(configs), "groups")
    await groups.put_groups(configs, broker)
    return Reply()


def all_groups(connection: Connection, command: Command, broker: Broker) -> Answer:
    return _json(groups.all_groups(broker))


def group_config(connection: Connection, command: Command, broker: Broker) -> Answer:
    return _json(groups.group_config(command.fields(hg.GetGroupConfig).group, broker))


async def delete_group(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(hg.DeleteGroup)
    await groups.delete_group(header.group_name, broker, clean_offsets=bool(header.clean_offset))
    return Reply()


async def forbid(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(hg.ForbidGroup)
    readable = await groups.forbid(header.group, header.topic, header.readable, broker)
    return _json(bodies.GroupForbidden(group=header.group, readable=readable, topic=header.topic))


def consumer_connection(connection: Connection, command: Command, broker: Broker) -> Answer:
    return _json(groups.consumer_connection(command.fields(hg.ConsumerConnections).consumer_group, broker))


def producer_connection(connection: Connection, command: Command, broker: Broker) -> Answer:
    return _json(groups.producer_connection(command.fields(hg.ProducerConnections).producer_group, broker))


def all_producers(connection: Connection, command: Command, broker: Broker) -> Answer:
    return _json(groups.all_producers(broker))


def topics_of_group(connection: Connection, command: Command, broker: Broker) -> Answer:
    found = groups.topics_of(command.fields(hg.GroupTopics).group, broker)
    return _json(bodies.TopicList(broker_addr=progress.address(broker), topic_list=found))


def subscription(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(hg.GroupSubscription)
    return _json(groups.subscription(header.group, header.topic, broker))


# -- progress --------------------------------------------------------------------------------------------


def consume_stats(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(hg.ConsumeStatsQuery)
    listed = (header.topic_list or "").split(";")
    return _json(progress.consume_stats(header.consumer_group, header.topic, listed, broker))


def broker_consume_stats(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(hc.BrokerConsumeStats)
    return _json(progress.broker_consume_stats(broker, ordered_only=header.is_order))


def time_spans(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(ho.ConsumeTimeSpanQuery)
    return _json(progress.time_spans(header.group, header.topic, broker))


def correction(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(ho.CorrectionOffset)
    table = progress.correction_offsets(
        header.filter_groups or "", header.compare_group, header.topic, broker
    )
    return _json(bodies.CorrectionOffsets(correction_offsets=table))


async def clone_offsets(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(ho.CloneGroupOffset)
    await progress.clone_offsets(
        header.src_group, header.dest_group, header.topic, broker, offline=bool(header.offline)
    )
    return Reply()


def delay_offsets(connection: Connection, command: Command, broker: Broker) -> Answer:
    return _json(cluster.delay_offsets(broker))


# -- messages --------------------------------------------------------------------------------------------


def view_message(connection: Connection, command: Command, broker: Broker) -> Answer:
    return Reply(body=query.view_message(command.fields(ho.ViewMessage).offset, broker))


def query_message(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(ho.QueryMessage)
    unique = bool(header.unique_key)
    wanted = query.KeyQuery(
        header.topic, header.key, header.max_num, header.begin_timestamp, header.end_timestamp, unique
    )
    found = query.query_by_key(wanted, broker)
    result = ho.QueryMessageResult(
        index_last_update_timestamp=found.index_time, index_last_update_phyoffset=found.index_offset
    )
    return Reply(header=result, body=b"".join(found.messages))


def query_queue(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(ho.QueryConsumeQueue)
    return _json(
        query.query_queue(
            header.topic, header.queue_id, header.index, header.count, header.consumer_group or "", broker
        )
    )


# -- questions to clients --------------------------------------------------------------------------------


async def running_info(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(hg.RunningInfo)
    jstack = bool(header.jstack_enable)
    return Reply(
        body=await ask_client.running_info(header.consumer_group, header.client_id, broker, jstack=jstack)
    )


async def consume_directly(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(ConsumeDirectly)
    result = await ask_client.consume_directly(
        header.consumer_group, header.client_id or "", header.msg_id or "", header.topic, broker
    )
    return Reply(body=result)


async def consumer_status(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(ho.ConsumerStatus)
    return _json(await ask_client.consumer_status(header.group, header.topic, header.client_addr, broker))


# -- the broker itself -----------------------------------------------------------------------------------


def runtime_info(connection: Connection, command: Command, broker: Broker) -> Answer:
    return _json(bodies.KVTable(table=cluster.runtime_info(broker)))


def get_settings(connection: Connection, command: Command, broker: Broker) -> Answer:
    version = bodies.DataVersion(timestamp=broker.stats.started_at)
    header = hc.BrokerConfigResult(version=bodies.encode(version).decode())
    return Reply(header=header, body=settings.settings(broker).encode())


def change_settings(connection: Connection, command: Command, broker: Broker) -> Answer:
    if len(command.body) > MAX_SETTINGS_BYTES:
        raise InvalidParameter(f"settings of {len(command.body)} bytes, limit {MAX_SETTINGS_BYTES}")
    try:
        text = command.body.decode()
    except UnicodeDecodeError:
        raise InvalidParameter("the settings are not UTF-8 text") from None
    settings.change_settings(text, broker)
    return Reply()


def stats(connection: Connection, command: Command, broker: Broker) -> Answer:
    header = command.fields(hc.BrokerStats)
    return _json(cluster.stats(header.stats_name, header.stats_key, broker))


def high_availability(connection: Connection, command: Command, broker: Broker) -> Answer:
    return Reply(body=msgspec.json.encode(cluster.high_availability(broker)))


def clean_up(connection: Connection, command: Command, broker: Broker) -> Answer:
    cluster.clean_up(broker)
    return Reply()


ROUTES: dict[int, Adapter] = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: put_topic,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: put_topics,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: put_static_topic,
    RequestCode.DELETE_TOPIC_IN_BROKER: delete_topic,
    RequestCode.GET_TOPIC_CONFIG: topic_config,
    RequestCode.GET_ALL_TOPIC_CONFIG: all_topics,
    RequestCode.GET_TOPIC_STATS_INFO: topic_stats,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: groups_of_topic,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: system_topics,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: put_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: put_groups,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: all_groups,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: group_config,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: delete_group,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: forbid,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: consumer_connection,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: producer_connection,
    RequestCode.GET_ALL_PRODUCER_INFO: all_producers,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: topics_of_group,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: subscription,
    RequestCode.GET_CONSUME_STATS: consume_stats,
    RequestCode.GET_BROKER_CONSUME_STATS: broker_consume_stats,
    RequestCode.QUERY_CONSUME_TIME_SPAN: time_spans,
    RequestCode.QUERY_CORRECTION_OFFSET: correction,
    RequestCode.CLONE_GROUP_OFFSET: clone_offsets,
    RequestCode.GET_ALL_DELAY_OFFSET: delay_offsets,
    RequestCode.VIEW_MESSAGE_BY_ID: view_message,
    RequestCode.QUERY_MESSAGE: query_message,
    RequestCode.QUERY_CONSUME_QUEUE: query_queue,
    RequestCode.GET_CONSUMER_RUNNING_INFO: running_info,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: consume_directly,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: consumer_status,
    RequestCode.GET_BROKER_RUNTIME_INFO: runtime_info,
    RequestCode.GET_BROKER_CONFIG: get_settings,
    RequestCode.UPDATE_BROKER_CONFIG: change_settings,
    RequestCode.VIEW_BROKER_STATS_DATA: stats,
    RequestCode.GET_BROKER_HA_STATUS: high_availability,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: clean_up,
    RequestCode.CLEAN_UNUSED_TOPIC: clean_up,
    RequestCode.DELETE_EXPIRED_COMMITLOG: clean_up,
}
