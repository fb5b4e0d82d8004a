# SPDX-License-Identifier: Apache-2.0
"""A delivered message at its plainest, written by the compiled lane (`native/grpc_messages.pyx`).

Plain: not compressed, no user properties, nothing but tag, keys and id to tell. `convert.from_record` is the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.fronts.grpc.convert import checksum_of, host_of, within_time
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.native.grpc_messages import Messages
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.compression import COMPRESSED

if TYPE_CHECKING:
    from aerobee.broker.operations.receive import Delivery

_PLAIN = frozenset(
    {
        props.UNIQ_KEY,
        props.WAIT,
        props.TAGS,
        props.KEYS,
        props.MSG_REGION,
        props.TRACE_ON,
        props.CLUSTER,
    }
)
_written = Messages().delivered


def delivered(delivery: Delivery, topic: str) -> bytes | None:
    """The answer that brings it; None when it is not plain."""
    record = delivery.record
    properties, body = record.properties, record.body
    if (
        not properties.keys() <= _PLAIN
        or record.sys_flag & COMPRESSED
        or names.is_dead_letter(record.topic)
        or record.queue_id < 0
        or record.queue_offset < 0
    ):
        return None
    keys = properties.get(props.KEYS)
    return _written(
        topic,
        body,
        (
            properties.get(props.TAGS, ""),
            properties.get(props.UNIQ_KEY) or record.offset_id,
            checksum_of(body),
            host_of(record.born_host),
            host_of(record.store_host),
            delivery.receipt.text,
        ),
        keys.split(" ") if keys else [],
        (
            pb.MD5,
            pb.IDENTITY,
            pb.NORMAL,
            within_time(record.born_timestamp),
            within_time(record.store_timestamp),
            record.queue_id,
            record.queue_offset,
            delivery.attempt,
        ),
    )
