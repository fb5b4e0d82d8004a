# SPDX-License-Identifier: Apache-2.0
"""Requests about offsets: query, update, max, min, by time, earliest, reset, all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.operations import offsets as op
from aerobee.broker.operations.reset_offset import Reset, offsets_body, reset_offset
from aerobee.errors import QueryNotFound
from aerobee.net.connection import Reply
from aerobee.protocol.headers import offsets as h
from aerobee.store.results import Boundary

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.net.connection import Answer
    from aerobee.net.routes import Request
    from aerobee.protocol.command import Header


def query(request: Request, header: h.QueryConsumerOffset, broker: Broker) -> Answer:
    offset = op.query_offset(header.consumer_group, header.topic, header.queue_id, broker)
    if offset < 0:
        if header.set_zero_if_not_found is False:
            raise QueryNotFound(
                f"group '{header.consumer_group}' has no offset on topic '{header.topic}' yet"
            )
        offset = op.first_offset(header.topic, header.queue_id, broker)
    return Reply(header=h.OffsetResult(offset=offset))


def update(request: Request, header: h.UpdateConsumerOffset, broker: Broker) -> Answer:
    op.update_offset(header.consumer_group, header.topic, header.queue_id, header.commit_offset, broker)
    return Reply()


def max_offset(request: Request, header: h.GetMaxOffset, broker: Broker) -> Answer:
    return Reply(header=h.OffsetResult(offset=broker.store.max_offset(header.topic, header.queue_id)))


def min_offset(request: Request, header: h.GetMinOffset, broker: Broker) -> Answer:
    return Reply(header=h.OffsetResult(offset=broker.store.min_offset(header.topic, header.queue_id)))


def search(request: Request, header: h.SearchOffset, broker: Broker) -> Answer:
    boundary = Boundary.UPPER if (header.boundary_type or "").upper() == "UPPER" else Boundary.LOWER
    offset = op.search_offset(header.topic, header.queue_id, header.timestamp, boundary, broker)
    return Reply(header=h.OffsetResult(offset=offset))


def earliest(request: Request, header: h.EarliestStoreTime, broker: Broker) -> Answer:
    return Reply(
        header=h.EarliestStoreTimeResult(
            timestamp=op.earliest_store_time(header.topic, header.queue_id, broker)
        )
    )


async def reset(request: Request, header: h.ResetOffset, broker: Broker) -> Answer:
    queue_id = -1 if header.queue_id is None else header.queue_id
    offset = -1 if header.offset is None else header.offset
    wanted = Reset(header.group, header.topic, header.timestamp, queue_id, offset, header.is_force)
    table = await reset_offset(wanted, broker)
    # The list form for C++ belongs to the client-pushed mode; mqadmin -c asks in C++'s name there too.
    language = "JAVA" if broker.config.server_side_reset else request.command.language
    return Reply(body=offsets_body(table, language))


def all_offsets(request: Request, header: Header, broker: Broker) -> Answer:
    return Reply(body=broker.offsets.document())
