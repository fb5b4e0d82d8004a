# SPDX-License-Identifier: Apache-2.0
"""What a name server is asked: one function a request code, all in the table at the end."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aerobee.errors import InvalidParameter, QueryNotFound, SystemFailure, TopicNotFound
from aerobee.namesrv.route_table import UNIT, UNIT_SUBSCRIPTION
from aerobee.net.connection import Connection, Reply
from aerobee.protocol import names
from aerobee.protocol.bodies import (
    DataVersion,
    KVTable,
    MemberGroupAnswer,
    RegisterBrokerBody,
    TopicList,
    TopicRoute,
    decode_registration,
    decode_request,
    decompress_registration,
    encode,
    route_dialect,
)
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command
from aerobee.protocol.headers import route as headers
from aerobee.settings.running import change, official_text

if TYPE_CHECKING:
    from aerobee.clock import Clock
    from aerobee.namesrv.key_values import KeyValues
    from aerobee.namesrv.route_table import RouteTable
    from aerobee.settings import InForce, NamesrvConfig

log = logging.getLogger("aerobee.namesrv")

MAX_SETTINGS_BYTES = 64 * 1024


@dataclass
class Parts:
    routes: RouteTable
    key_values: KeyValues
    settings: InForce[NamesrvConfig]
    clock: Clock


Answer = Callable[[Parts, Connection, Command], Reply | Coroutine[Any, Any, Reply]]


# -- clients and tools -------------------------------------------------------------------------------------


def get_route(parts: Parts, connection: Connection, command: Command) -> Reply:
    asked = command.fields(headers.GetRoute)
    route = parts.routes.route(asked.topic)
    if route is None:
        raise TopicNotFound(f"No topic route info in name server for the topic: {asked.topic}")
    route.order_topic_conf = parts.key_values.get(names.ORDER_TOPIC_NAMESPACE, asked.topic)
    return Reply(body=encode(route, route_dialect(command.version, asked.accept_standard_json_only)))


def get_cluster_info(parts: Parts, connection: Connection, command: Command) -> Reply:
    return Reply(body=encode(parts.routes.cluster_info()))


def get_topics(parts: Parts, connection: Connection, command: Command) -> Reply:
    return _topic_list(parts.routes.topics())


def get_topics_by_cluster(parts: Parts, connection: Connection, command: Command) -> Reply:
    return _topic_list(parts.routes.topics_of_cluster(command.fields(headers.TopicsByCluster).cluster))


def get_system_topics(parts: Parts, connection: Connection, command: Command) -> Reply:
    found = TopicList(broker_addr=parts.routes.any_address(), topic_list=parts.routes.own_names())
    return Reply(body=encode(found))


def get_unit_topics(parts: Parts, connection: Connection, command: Command) -> Reply:
    return _topic_list(parts.routes.topics_with_flags(UNIT))


def get_unit_subscription_topics(parts: Parts, connection: Connection, command: Command) -> Reply:
    return _topic_list(parts.routes.topics_with_flags(UNIT_SUBSCRIPTION))


def get_unit_subscription_plain_topics(parts: Parts, connection: Connection, command: Command) -> Reply:
    return _topic_list(parts.routes.topics_with_flags(UNIT_SUBSCRIPTION, UNIT))


def _topic_list(topics: list[str]) -> Reply:
    return Reply(body=encode(TopicList(topic_list=topics)))


def register_topic(parts: Parts, connection: Connection, command: Command) -> Reply:
    topic = command.fields(headers.RegisterTopicRoute).topic
    if command.body:
        parts.routes.register_topic(topic, decode_request(command.body, TopicRoute).queue_datas)
    return Reply()


def delete_topic(parts: Parts, connection: Connection, command: Command) -> Reply:
    asked = command.fields(headers.DeleteTopicRoute)
    parts.routes.delete_topic(asked.topic, asked.cluster_name or None)
    log.info("deleted topic=%s cluster=%s by=%s", asked.topic, asked.cluster_name, connection.remote_text)
    return Reply()


def wipe_write_perm(parts: Parts, connection: Connection, command: Command) -> Reply:
    broker = command.fields(headers.WipeWritePerm).broker_name
    count = parts.routes.wipe_write_perm(broker)
    log.info("wiped write permission broker=%s topics=%d by=%s", broker, count, connection.remote_text)
    return Reply(header=headers.WipeWritePermResult(wipe_topic_count=count))


def add_write_perm(parts: Parts, connection: Connection, command: Command) -> Reply:
    broker = command.fields(headers.AddWritePerm).broker_name
    count = parts.routes.add_write_perm(broker)
    log.info("gave write permission broker=%s topics=%d by=%s", broker, count, connection.remote_text)
    return Reply(header=headers.AddWritePermResult(add_topic_count=count))


# -- brokers -----------------------------------------------------------------------------------------------


def register_broker(parts: Parts, connection: Connection, command: Command) -> Reply:
    asked = command.fields(headers.RegisterBroker)
    if asked.body_crc32 and asked.body_crc32 != zlib.crc32(command.body) & 0x7FFFFFFF:
        raise SystemFailure(f"broker '{asked.broker_name}': crc32 not match, its body came damaged")
    result = parts.routes.register(asked, _registration(asked, command), parts.clock.now(), connection)
    ordered = parts.key_values.namespace(names.ORDER_TOPIC_NAMESPACE)
    return Reply(header=result, body=encode(KVTable(table=ordered)) if ordered else b"")


def _registration(asked: headers.RegisterBroker, command: Command) -> RegisterBrokerBody:
    if command.body and asked.compressed:
        return decompress_registration(command.body)
    return decode_registration(command.body, command.version)


def unregister_broker(parts: Parts, connection: Connection, command: Command) -> Reply:
    parts.routes.unregister(command.fields(headers.UnregisterBroker))
    return Reply()


def query_data_version(parts: Parts, connection: Connection, command: Command) -> Reply:
    asked = command.fields(headers.QueryDataVersion)
    stored = parts.routes.data_version(asked.cluster_name, asked.broker_addr)
    parts.routes.heard(asked.cluster_name, asked.broker_addr, parts.clock.now())
    changed = stored is None or stored != decode_request(command.body, DataVersion)
    body = encode(stored) if stored else b""
    return Reply(header=headers.QueryDataVersionResult(changed=changed), body=body)


def broker_heartbeat(parts: Parts, connection: Connection, command: Command) -> Reply:
    asked = command.fields(headers.BrokerHeartbeat)
    parts.routes.heard(asked.cluster_name, asked.broker_addr, parts.clock.now())
    return Reply()


def get_member_group(parts: Parts, connection: Connection, command: Command) -> Reply:
    asked = command.fields(headers.GetMemberGroup)
    group = parts.routes.member_group(asked.cluster_name, asked.broker_name)
    return Reply(body=encode(MemberGroupAnswer(broker_member_group=group)))


# -- settings ----------------------------------------------------------------------------------------------


async def put_kv(parts: Parts, connection: Connection, command: Command) -> Reply:
    asked = command.fields(headers.PutKV)
    parts.key_values.put(asked.namespace, asked.key, asked.value)
    await parts.key_values.saved()
    return Reply()


def get_kv(parts: Parts, connection: Connection, command: Command) -> Reply:
    asked = command.fields(headers.GetKV)
    value = parts.key_values.get(asked.namespace, asked.key)
    if value is None:
        raise QueryNotFound(f"No config item, Namespace: {asked.namespace} Key: {asked.key}")
    return Reply(header=headers.GetKVResult(value=value))


async def delete_kv(parts: Parts, connection: Connection, command: Command) -> Reply:
    asked = command.fields(headers.DeleteKV)
    parts.key_values.delete(asked.namespace, asked.key)
    await parts.key_values.saved()
    return Reply()


def get_kv_list(parts: Parts, connection: Connection, command: Command) -> Reply:
    namespace = command.fields(headers.GetKVList).namespace
    table = parts.key_values.namespace(namespace)
    if table is None:
        raise QueryNotFound(f"No config item, Namespace: {namespace}")
    return Reply(body=encode(KVTable(table=table)))


def get_config(parts: Parts, connection: Connection, command: Command) -> Reply:
    return Reply(body=official_text(parts.settings.value).encode())


def update_config(parts: Parts, connection: Connection, command: Command) -> Reply:
    if len(command.body) > MAX_SETTINGS_BYTES:
        raise InvalidParameter(f"settings of {len(command.body)} bytes, limit {MAX_SETTINGS_BYTES}")
    change(command.body.decode(errors="replace"), {"namesrv": parts.settings})
    return Reply()


ROUTES: dict[int, Answer] = {
    RequestCode.PUT_KV_CONFIG: put_kv,
    RequestCode.GET_KV_CONFIG: get_kv,
    RequestCode.DELETE_KV_CONFIG: delete_kv,
    RequestCode.GET_KVLIST_BY_NAMESPACE: get_kv_list,
    RequestCode.REGISTER_BROKER: register_broker,
    RequestCode.UNREGISTER_BROKER: unregister_broker,
    RequestCode.QUERY_DATA_VERSION: query_data_version,
    RequestCode.BROKER_HEARTBEAT: broker_heartbeat,
    RequestCode.GET_BROKER_MEMBER_GROUP: get_member_group,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: get_route,
    RequestCode.GET_BROKER_CLUSTER_INFO: get_cluster_info,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: wipe_write_perm,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: add_write_perm,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: get_topics,
    RequestCode.GET_TOPICS_BY_CLUSTER: get_topics_by_cluster,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: get_system_topics,
    RequestCode.GET_UNIT_TOPIC_LIST: get_unit_topics,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: get_unit_subscription_topics,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: get_unit_subscription_plain_topics,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: register_topic,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: delete_topic,
    RequestCode.GET_NAMESRV_CONFIG: get_config,
    RequestCode.UPDATE_NAMESRV_CONFIG: update_config,
}
