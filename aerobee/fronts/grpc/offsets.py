# SPDX-License-Identifier: Apache-2.0
"""PullMessage, UpdateOffset, GetOffset, QueryOffset: reading by offset, which the reference proxy leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.broker import checks
from aerobee.broker.operations.offsets import first_offset, query_offset, search_offset, update_offset
from aerobee.broker.operations.pull import Pull, pull
from aerobee.fronts.grpc import convert, limits
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import OK, Refused
from aerobee.protocol import message as records
from aerobee.protocol.filters.tags import SQL92, TAG
from aerobee.store.results import Boundary, Found, ReadStatus

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee.broker.broker import Broker
    from aerobee.fronts.grpc.caller import Caller


async def pull_message(caller: Caller, request: Any, broker: Broker) -> AsyncIterator[Any]:
    queue = request.message_queue
    topic, group = limits.topic_name(queue.topic), limits.group_name(request.group)
    wanted = request.filter_expression
    found = pull(
        Pull(
            group,
            topic,
            queue.id,
            request.offset,
            min(max(request.batch_size, 1), limits.MAX_BATCH),
            hold_ms=limits.milliseconds(request.long_polling_timeout),
            expression=wanted.expression or "*",
            expression_type=SQL92 if wanted.type == pb.SQL else TAG,
        ),
        broker,
    )
    if not isinstance(found, Found):
        found = await found
    if found.status is ReadStatus.FOUND:
        yield pb.PullMessageResponse(status=OK)
        for raw in found.messages:
            record = records.decode(raw)
            yield pb.PullMessageResponse(
                message=convert.from_record(record, topic, None, record.reconsume_times + 1)
            )
    else:
        yield pb.PullMessageResponse(status=pb.Status(code=_code(found.status), message=found.status.name))
    yield pb.PullMessageResponse(next_offset=found.next_offset)


def _code(status: ReadStatus) -> Any:
    illegal = (ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY, ReadStatus.OFFSET_RESET)
    return pb.ILLEGAL_OFFSET if status in illegal else pb.MESSAGE_NOT_FOUND


def update(caller: Caller, request: Any, broker: Broker) -> Any:
    queue = request.message_queue
    topic, group = limits.topic_name(queue.topic), limits.group_name(request.group)
    if request.offset < 0:
        raise Refused(pb.ILLEGAL_OFFSET, f"offset {request.offset} is negative")
    update_offset(group, topic, queue.id, request.offset, broker)
    return pb.UpdateOffsetResponse(status=OK)


def get(caller: Caller, request: Any, broker: Broker) -> Any:
    queue = request.message_queue
    topic, group = limits.topic_name(queue.topic), limits.group_name(request.group)
    offset = query_offset(group, topic, queue.id, broker)
    if offset < 0:
        offset = first_offset(topic, queue.id, broker)
    return pb.GetOffsetResponse(status=OK, offset=offset)


def query(caller: Caller, request: Any, broker: Broker) -> Any:
    queue = request.message_queue
    topic = limits.topic_name(queue.topic)
    checks.readable_queue(broker.topics, topic, queue.id)
    if request.query_offset_policy == pb.BEGINNING:
        offset = broker.store.min_offset(topic, queue.id)
    elif request.query_offset_policy == pb.END:
        offset = broker.store.max_offset(topic, queue.id)
    else:
        if not request.HasField("timestamp"):
            raise Refused(pb.BAD_REQUEST, "policy TIMESTAMP needs a timestamp")
        moment = limits.milliseconds(request.timestamp)
        offset = search_offset(topic, queue.id, moment, Boundary.LOWER, broker)
    return pb.QueryOffsetResponse(status=OK, offset=offset)
