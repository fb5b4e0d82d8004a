# SPDX-License-Identifier: Apache-2.0
"""What a name server is asked: one function a request code, all in the table at the end."""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aerobee.errors import AccessDenied, QueryNotFound, SystemFailure, TopicNotFound
from aerobee.namesrv.route_table import UNIT, UNIT_SUBSCRIPTION
from aerobee.net.connection import Reply
from aerobee.net.routes import Request, route, table
from aerobee.protocol import names
from aerobee.protocol.bodies import (
    DataVersion,
    GoneBroker,
    GoneBrokers,
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
from aerobee.protocol.headers import route as headers
from aerobee.settings.running import change, official_text

if TYPE_CHECKING:
    from aerobee.clock import Clock
    from aerobee.fronts.gates.guard import Guard
    from aerobee.namesrv.key_values import KeyValues
    from aerobee.namesrv.route_table import RouteTable
    from aerobee.protocol.command import Command, Header
    from aerobee.settings import InForce, NamesrvConfig

log = logging.getLogger("aerobee.namesrv")


@dataclass
class Parts:
    routes: RouteTable
    key_values: KeyValues
    settings: InForce[NamesrvConfig]
    clock: Clock
    guard: Guard | None = None  # what the gates of access control ask


# -- clients and tools -------------------------------------------------------------------------------------


def get_route(request: Request, header: headers.GetRoute, parts: Parts) -> Reply:
    route = parts.routes.route(header.topic)
    if route is None:
        raise TopicNotFound(f"No topic route info in name server for the topic: {header.topic}")
    route.order_topic_conf = parts.key_values.get(names.ORDER_TOPIC_NAMESPACE, header.topic)
    return Reply(body=encode(route, route_dialect(request.command.version, header.accept_standard_json_only)))


def get_cluster_info(request: Request, header: Header, parts: Parts) -> Reply:
    return Reply(body=encode(parts.routes.cluster_info()))


def get_gone_brokers(request: Request, header: Header, parts: Parts) -> Reply:
    """Aerobee's own (20007): whoever reads it has a clock on the wall."""
    gone = [
        GoneBroker(
            cluster=who.cluster, broker_name=who.name, broker_id=who.broker_id, broker_addr=each.address,
            since=each.since + parts.clock.ahead, why=each.why,
        )
        for who, each in parts.routes.gone(parts.clock.now()).items()
    ]  # fmt: skip
    return Reply(body=encode(GoneBrokers(gone_brokers=gone)))


def get_topics(request: Request, header: Header, parts: Parts) -> Reply:
    return _topic_list(parts.routes.topics())


def get_topics_by_cluster(request: Request, header: headers.TopicsByCluster, parts: Parts) -> Reply:
    return _topic_list(parts.routes.topics_of_cluster(header.cluster))


def get_system_topics(request: Request, header: Header, parts: Parts) -> Reply:
    found = TopicList(broker_addr=parts.routes.any_address(), topic_list=parts.routes.own_names())
    return Reply(body=encode(found))


def get_unit_topics(request: Request, header: Header, parts: Parts) -> Reply:
    return _topic_list(parts.routes.topics_with_flags(UNIT))


def get_unit_subscription_topics(request: Request, header: Header, parts: Parts) -> Reply:
    return _topic_list(parts.routes.topics_with_flags(UNIT_SUBSCRIPTION))


def get_unit_subscription_plain_topics(request: Request, header: Header, parts: Parts) -> Reply:
    return _topic_list(parts.routes.topics_with_flags(UNIT_SUBSCRIPTION, UNIT))


def _topic_list(topics: list[str]) -> Reply:
    return Reply(body=encode(TopicList(topic_list=topics)))


def register_topic(request: Request, header: headers.RegisterTopicRoute, parts: Parts) -> Reply:
    if request.command.body:
        parts.routes.register_topic(
            header.topic, decode_request(request.command.body, TopicRoute).queue_datas
        )
    return Reply()


def delete_topic(request: Request, header: headers.DeleteTopicRoute, parts: Parts) -> Reply:
    parts.routes.delete_topic(header.topic, header.cluster_name or None)
    log.info(
        "deleted topic=%s cluster=%s by=%s", header.topic, header.cluster_name, request.connection.remote_text
    )
    return Reply()


def wipe_write_perm(request: Request, header: headers.WipeWritePerm, parts: Parts) -> Reply:
    broker = header.broker_name
    count = parts.routes.wipe_write_perm(broker)
    log.info(
        "wiped write permission broker=%s topics=%d by=%s", broker, count, request.connection.remote_text
    )
    return Reply(header=headers.WipeWritePermResult(wipe_topic_count=count))


def add_write_perm(request: Request, header: headers.AddWritePerm, parts: Parts) -> Reply:
    broker = header.broker_name
    count = parts.routes.add_write_perm(broker)
    log.info("gave write permission broker=%s topics=%d by=%s", broker, count, request.connection.remote_text)
    return Reply(header=headers.AddWritePermResult(add_topic_count=count))


# -- brokers -----------------------------------------------------------------------------------------------


def register_broker(request: Request, header: headers.RegisterBroker, parts: Parts) -> Reply:
    if header.body_crc32 and header.body_crc32 != zlib.crc32(request.command.body) & 0x7FFFFFFF:
        raise SystemFailure(f"broker '{header.broker_name}': crc32 not match, its body came damaged")
    _check_cluster(request, header, parts)
    result = parts.routes.register(
        header, _registration(header, request.command), parts.clock.now(), request.connection
    )
    ordered = parts.key_values.namespace(names.ORDER_TOPIC_NAMESPACE)
    return Reply(header=result, body=encode(KVTable(table=ordered)) if ordered else b"")


def _check_cluster(
    request: Request, header: headers.RegisterBroker | headers.UnregisterBroker, parts: Parts
) -> None:
    """The gates asked for a right to the cluster that the request names; but routes are by the broker's name alone."""
    guard, known = parts.guard, parts.routes.cluster_of(header.broker_name)
    if guard is None or not guard.checks_rights or known in (None, header.cluster_name):
        return
    if request.user is not None and not guard.may_everything(request.user):
        raise AccessDenied(f"broker '{header.broker_name}' is of cluster '{known}'")


def _registration(asked: headers.RegisterBroker, command: Command) -> RegisterBrokerBody:
    if command.body and asked.compressed:
        return decompress_registration(command.body)
    return decode_registration(command.body, command.version)


def unregister_broker(request: Request, header: headers.UnregisterBroker, parts: Parts) -> Reply:
    _check_cluster(request, header, parts)
    parts.routes.unregister(header)
    return Reply()


def query_data_version(request: Request, header: headers.QueryDataVersion, parts: Parts) -> Reply:
    stored = parts.routes.data_version(header.cluster_name, header.broker_addr)
    parts.routes.heard(header.cluster_name, header.broker_addr, parts.clock.now())
    changed = stored is None or stored != decode_request(request.command.body, DataVersion)
    body = encode(stored) if stored else b""
    return Reply(header=headers.QueryDataVersionResult(changed=changed), body=body)


def broker_heartbeat(request: Request, header: headers.BrokerHeartbeat, parts: Parts) -> Reply:
    parts.routes.heard(header.cluster_name, header.broker_addr, parts.clock.now())
    return Reply()


def get_member_group(request: Request, header: headers.GetMemberGroup, parts: Parts) -> Reply:
    group = parts.routes.member_group(header.cluster_name, header.broker_name)
    return Reply(body=encode(MemberGroupAnswer(broker_member_group=group)))


# -- settings ----------------------------------------------------------------------------------------------


async def put_kv(request: Request, header: headers.PutKV, parts: Parts) -> Reply:
    parts.key_values.put(header.namespace, header.key, header.value)
    await parts.key_values.saved()
    return Reply()


def get_kv(request: Request, header: headers.GetKV, parts: Parts) -> Reply:
    value = parts.key_values.get(header.namespace, header.key)
    if value is None:
        raise QueryNotFound(f"No config item, Namespace: {header.namespace} Key: {header.key}")
    return Reply(header=headers.GetKVResult(value=value))


async def delete_kv(request: Request, header: headers.DeleteKV, parts: Parts) -> Reply:
    parts.key_values.delete(header.namespace, header.key)
    await parts.key_values.saved()
    return Reply()


def get_kv_list(request: Request, header: headers.GetKVList, parts: Parts) -> Reply:
    namespace = header.namespace
    table = parts.key_values.namespace(namespace)
    if table is None:
        raise QueryNotFound(f"No config item, Namespace: {namespace}")
    return Reply(body=encode(KVTable(table=table)))


def get_config(request: Request, header: Header, parts: Parts) -> Reply:
    return Reply(body=official_text(parts.settings.value).encode())


def update_config(request: Request, header: Header, parts: Parts) -> Reply:
    change(request.command.body.decode(errors="replace"), {"namesrv": parts.settings})
    return Reply()


ROUTES = table(
    route(headers.PutKV, put_kv),
    route(headers.GetKV, get_kv),
    route(headers.DeleteKV, delete_kv),
    route(headers.GetKVList, get_kv_list),
    route(headers.RegisterBroker, register_broker),
    route(headers.UnregisterBroker, unregister_broker),
    route(headers.QueryDataVersion, query_data_version),
    route(headers.BrokerHeartbeat, broker_heartbeat),
    route(headers.GetMemberGroup, get_member_group),
    route(headers.GetRoute, get_route),
    route(headers.GetClusterInfo, get_cluster_info),
    route(headers.GetGoneBrokers, get_gone_brokers),  # Aerobee's own
    route(headers.WipeWritePerm, wipe_write_perm),
    route(headers.AddWritePerm, add_write_perm),
    route(headers.AllTopics, get_topics),
    route(headers.TopicsByCluster, get_topics_by_cluster),
    route(headers.SystemTopics, get_system_topics),
    route(headers.UnitTopics, get_unit_topics),
    route(headers.UnitSubscriptionTopics, get_unit_subscription_topics),
    route(headers.UnitSubscriptionNonUnitTopics, get_unit_subscription_plain_topics),
    route(headers.RegisterTopicRoute, register_topic),
    route(headers.DeleteTopicRoute, delete_topic),
    route(headers.GetNamesrvConfig, get_config),
    route(headers.UpdateNamesrvConfig, update_config),
)
