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
from aerobee.protocol.headers import cluster as hc
from aerobee.protocol.headers import groups as hg
from aerobee.protocol.headers import offsets as ho
from aerobee.protocol.headers import topics as ht

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Request
    from aerobee.protocol.command import Header
    from aerobee.protocol.headers.consume import ConsumeDirectly


MAX_LISTED = 1_000  # topics or groups made by one request


def _json(body: object) -> Reply:
    return Reply(body=bodies.encode(body))


# -- topics ----------------------------------------------------------------------------------------------


async def put_topic(request: Request, header: ht.CreateTopic, broker: Broker) -> Answer:
    await topics.put_topic(_config(header), header.attributes or "", broker)
    return Reply()


async def put_static_topic(request: Request, header: ht.CreateStaticTopic, broker: Broker) -> Answer:
    mapping = bodies.decode_request(request.command.body, bodies.QueueMapping)
    await static_topics.put_static_topic(_config(header), mapping, broker)
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


async def put_topics(request: Request, header: Header, broker: Broker) -> Answer:
    configs = bodies.decode_request(request.command.body, bodies.TopicConfigList).topic_config_list
    checks.at_most(MAX_LISTED, len(configs), "topics")
    await topics.put_topics(configs, broker)
    return Reply()


async def delete_topic(request: Request, header: ht.DeleteTopic, broker: Broker) -> Answer:
    await topics.delete_topic(header.topic, broker)
    return Reply()


def topic_config(request: Request, header: ht.GetTopicConfig, broker: Broker) -> Answer:
    config, mapping = broker.topics.require(header.topic), broker.topics.static.get(header.topic)
    if mapping is None or not header.logical:
        return _json(config)
    return _json(bodies.StaticTopicConfig(**msgspec.structs.asdict(config), mapping_detail=mapping))


def all_topics(request: Request, header: Header, broker: Broker) -> Answer:
    return _json(topics.all_topics(broker))


def topic_stats(request: Request, header: ht.TopicStatsQuery, broker: Broker) -> Answer:
    return _json(topics.topic_stats(header.topic, broker))


def groups_of_topic(request: Request, header: ht.TopicGroups, broker: Broker) -> Answer:
    return _json(bodies.GroupList(group_list=topics.groups_of(header.topic, broker)))


def system_topics(request: Request, header: Header, broker: Broker) -> Answer:
    found = topics.system_topics(broker)
    return _json(bodies.TopicList(broker_addr=progress.address(broker), topic_list=found))


# -- groups ----------------------------------------------------------------------------------------------


async def put_group(request: Request, header: Header, broker: Broker) -> Answer:
    await groups.put_groups([bodies.decode_request(request.command.body, bodies.GroupConfig)], broker)
    return Reply()


async def put_groups(request: Request, header: Header, broker: Broker) -> Answer:
    configs = bodies.decode_request(request.command.body, bodies.GroupConfigList).group_config_list
    checks.at_most(MAX_LISTED, len(configs), "groups")
    await groups.put_groups(configs, broker)
    return Reply()


def all_groups(request: Request, header: Header, broker: Broker) -> Answer:
    return _json(groups.all_groups(broker))


def group_config(request: Request, header: hg.GetGroupConfig, broker: Broker) -> Answer:
    return _json(groups.group_config(header.group, broker))


async def delete_group(request: Request, header: hg.DeleteGroup, broker: Broker) -> Answer:
    await groups.delete_group(header.group_name, broker, clean_offsets=bool(header.clean_offset))
    return Reply()


async def forbid(request: Request, header: hg.ForbidGroup, broker: Broker) -> Answer:
    readable = await groups.forbid(header.group, header.topic, header.readable, broker)
    return _json(bodies.GroupForbidden(group=header.group, readable=readable, topic=header.topic))


def consumer_connection(request: Request, header: hg.ConsumerConnections, broker: Broker) -> Answer:
    return _json(groups.consumer_connection(header.consumer_group, broker))


def producer_connection(request: Request, header: hg.ProducerConnections, broker: Broker) -> Answer:
    return _json(groups.producer_connection(header.producer_group, broker))


def all_producers(request: Request, header: Header, broker: Broker) -> Answer:
    return _json(groups.all_producers(broker))


def topics_of_group(request: Request, header: hg.GroupTopics, broker: Broker) -> Answer:
    found = groups.topics_of(header.group, broker)
    return _json(bodies.TopicList(broker_addr=progress.address(broker), topic_list=found))


def subscription(request: Request, header: hg.GroupSubscription, broker: Broker) -> Answer:
    return _json(groups.subscription(header.group, header.topic, broker))


# -- progress --------------------------------------------------------------------------------------------


def consume_stats(request: Request, header: hg.ConsumeStatsQuery, broker: Broker) -> Answer:
    listed = (header.topic_list or "").split(";")
    return _json(progress.consume_stats(header.consumer_group, header.topic, listed, broker))


def broker_consume_stats(request: Request, header: hc.BrokerConsumeStats, broker: Broker) -> Answer:
    return _json(progress.broker_consume_stats(broker, ordered_only=header.is_order))


def time_spans(request: Request, header: ho.ConsumeTimeSpanQuery, broker: Broker) -> Answer:
    return _json(progress.time_spans(header.group, header.topic, broker))


def correction(request: Request, header: ho.CorrectionOffset, broker: Broker) -> Answer:
    table = progress.correction_offsets(
        header.filter_groups or "", header.compare_group, header.topic, broker
    )
    return _json(bodies.CorrectionOffsets(correction_offsets=table))


async def clone_offsets(request: Request, header: ho.CloneGroupOffset, broker: Broker) -> Answer:
    await progress.clone_offsets(
        header.src_group, header.dest_group, header.topic, broker, offline=bool(header.offline)
    )
    return Reply()


def delay_offsets(request: Request, header: Header, broker: Broker) -> Answer:
    return _json(cluster.delay_offsets(broker))


def timer_counts(request: Request, header: Header, broker: Broker) -> Answer:
    return _json(cluster.timer_counts(broker))


# -- messages --------------------------------------------------------------------------------------------


def view_message(request: Request, header: ho.ViewMessage, broker: Broker) -> Answer:
    return Reply(body=query.view_message(header.offset, broker))


def query_message(request: Request, header: ho.QueryMessage, broker: Broker) -> Answer:
    unique = bool(header.unique_key)
    wanted = query.KeyQuery(
        header.topic, header.key, header.max_num, header.begin_timestamp, header.end_timestamp, unique
    )
    found = query.query_by_key(wanted, broker)
    result = ho.QueryMessageResult(
        index_last_update_timestamp=found.index_time, index_last_update_phyoffset=found.index_offset
    )
    return Reply(header=result, body=b"".join(found.messages))


def query_queue(request: Request, header: ho.QueryConsumeQueue, broker: Broker) -> Answer:
    return _json(
        query.query_queue(
            header.topic, header.queue_id, header.index, header.count, header.consumer_group or "", broker
        )
    )


# -- questions to clients --------------------------------------------------------------------------------


async def running_info(request: Request, header: hg.RunningInfo, broker: Broker) -> Answer:
    jstack = bool(header.jstack_enable)
    return Reply(
        body=await ask_client.running_info(header.consumer_group, header.client_id, broker, jstack=jstack)
    )


async def consume_directly(request: Request, header: ConsumeDirectly, broker: Broker) -> Answer:
    result = await ask_client.consume_directly(
        header.consumer_group, header.client_id or "", header.msg_id or "", header.topic, broker
    )
    return Reply(body=result)


async def consumer_status(request: Request, header: ho.ConsumerStatus, broker: Broker) -> Answer:
    return _json(await ask_client.consumer_status(header.group, header.topic, header.client_addr, broker))


# -- the broker itself -----------------------------------------------------------------------------------


def runtime_info(request: Request, header: Header, broker: Broker) -> Answer:
    return _json(bodies.KVTable(table=cluster.runtime_info(broker)))


def get_settings(request: Request, header: Header, broker: Broker) -> Answer:
    version = bodies.DataVersion(timestamp=broker.stats.started_at)
    header = hc.BrokerConfigResult(
        version=bodies.encode(version).decode(), changed=",".join(settings.changed_settings(broker)) or None
    )
    return Reply(header=header, body=settings.settings(broker).encode())


def change_settings(request: Request, header: Header, broker: Broker) -> Answer:
    try:
        text = request.command.body.decode()
    except UnicodeDecodeError:
        raise InvalidParameter("the settings are not UTF-8 text") from None
    settings.change_settings(text, broker)
    return Reply()


def stats(request: Request, header: hc.BrokerStats, broker: Broker) -> Answer:
    return _json(cluster.stats(header.stats_name, header.stats_key, broker))


def high_availability(request: Request, header: Header, broker: Broker) -> Answer:
    return Reply(body=msgspec.json.encode(cluster.high_availability(broker)))


def clean_up(request: Request, header: Header, broker: Broker) -> Answer:
    cluster.clean_up(broker)
    return Reply()
