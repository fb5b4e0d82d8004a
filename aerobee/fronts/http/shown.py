# SPDX-License-Identifier: Apache-2.0
"""What the API answers: the broker's values as plain objects, under the names its other tools use."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee import __version__
from aerobee.broker.operations.admin import cluster as operations
from aerobee.broker.operations.admin import progress
from aerobee.broker.operations.admin import topics as topic_operations
from aerobee.errors import AerobeeError
from aerobee.protocol import bodies, compression, names
from aerobee.protocol import message as wire
from aerobee.protocol import properties as props

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.fronts.http.given import Given

MAX_LISTED = 1_000


def plain(body: object) -> Any:
    """As RocketMQ's JSON names its fields."""
    return msgspec.json.decode(bodies.encode(body))


def cluster(broker: Broker) -> dict[str, Any]:
    config = broker.config
    return {
        "cluster": config.cluster,
        "broker": config.name,
        "address": progress.address(broker),
        "version": __version__,
        "topics": len(broker.topics.all()),
        "groups": len(broker.groups.all()),
        "runtime": operations.runtime_info(broker),
    }


def page(found: list[str], given: Given) -> tuple[list[str], dict[str, Any]]:
    """So many of them from one on; what of the list that is."""
    wanted = given.text("contains", "").lower()
    matching = [name for name in sorted(found) if wanted in name.lower()] if wanted else sorted(found)
    start, limit = given.number("start", 0), given.number("limit", 100, 1, MAX_LISTED)
    return matching[start : start + limit], {"total": len(matching), "start": start}


async def topics(given: Given, broker: Broker) -> dict[str, Any]:
    """One in a turn: each has queues to be looked at."""
    shown, of = page(list(broker.topics.all()), given)
    rows = []
    for name in shown:
        if broker.topics.get(name) is not None:  # not deleted since
            rows.append(_topic(name, broker))
        await asyncio.sleep(0)
    return {**of, "topics": rows}


def _topic(name: str, broker: Broker) -> dict[str, Any]:
    config, store = broker.topics.require(name), broker.store
    queues = range(config.read_queue_nums)
    return {
        "topic": name,
        "readQueues": config.read_queue_nums,
        "writeQueues": config.write_queue_nums,
        "perm": config.perm,
        "order": config.order,
        "attributes": config.attributes,
        "isSystem": topic_operations.is_system(name, broker),
        "messages": sum(store.max_offset(name, q) - store.min_offset(name, q) for q in queues),
        "sentPerSecond": round(broker.stats.send_rate(name), 2),
    }


def topic(name: str, broker: Broker) -> dict[str, Any]:
    stats = topic_operations.topic_stats(name, broker).offset_table
    queues = [
        {"queueId": queue.queue_id, **plain(found)}
        for queue, found in sorted(stats.items(), key=lambda each: each[0].queue_id)
    ]
    return {**_topic(name, broker), "groups": topic_operations.groups_of(name, broker), "queues": queues}


def groups(given: Given, broker: Broker) -> dict[str, Any]:
    shown, of = page(list(broker.groups.all()), given)
    rows = []
    for name in shown:
        online = broker.clients.group(name)
        rows.append({"group": name, "members": 0 if online is None else len(online.members)})
    return {**of, "groups": rows}


def clients(broker: Broker) -> dict[str, Any]:
    def rows(table: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {
                "group": group,
                "clientId": member.client_id,
                "address": member.link.remote_text,
                "language": member.language,
                "version": member.version,
                "lastSeen": member.last_seen,
            }
            for group, members in table.items()
            for member in members.values()
        ][:MAX_LISTED]

    consumers = {name: group.members for name, group in broker.clients.groups().items()}
    return {"producers": rows(broker.clients.producer_groups()), "consumers": rows(consumers)}


def message(raw: bytes) -> dict[str, Any]:
    """The body as base64, and as text where it is one."""
    record = wire.decode(raw)
    try:
        body = compression.decompress(record.body, record.sys_flag)
    except AerobeeError:
        body = record.body
    try:
        text: str | None = body.decode()
    except UnicodeDecodeError:
        text = None
    return {
        "messageId": record.message_id,
        "offsetId": record.offset_id,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "bornTimestamp": record.born_timestamp,
        "storeTimestamp": record.store_timestamp,
        "reconsumeTimes": record.reconsume_times,
        "tags": record.tags,
        "keys": (record.properties.get(props.KEYS) or "").split(),
        "properties": record.properties,
        "bodyBase64": base64.b64encode(body).decode(),
        "bodyText": text,
        "isRetry": names.is_retry(record.topic),
    }
