# SPDX-License-Identifier: Apache-2.0
"""The two busiest calls at their plainest: a send of one message, an ack of one.

The compiled lane (`native/grpc_calls.pyx`) reads and answers what needs no question; `produce.py` and `receive.py` are
the reference, and get all that it does not understand. Each function says by None that it has done nothing. No gate has
a say in them, but for the bound on a request's entries, which one entry keeps to.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from aerobee.broker.operations.send import PlainOrigin, send
from aerobee.errors import AerobeeError
from aerobee.fronts.grpc import limits
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.receive import acknowledge_one
from aerobee.fronts.grpc.route import accepted_types
from aerobee.fronts.grpc.status import OK, Refused, common, status_of
from aerobee.native import grpc_calls
from aerobee.protocol import properties as props
from aerobee.protocol.message import Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.broker import Broker
    from aerobee.fronts.grpc.telemetry import Peer

_OK: bytes = OK.SerializeToString()
_WAITS = f"\x02{props.WAIT}\x01true\x02"
_origin = lru_cache(4_096)(PlainOrigin)


def send_plain(data: bytes, peer: Callable[[], Peer], broker: Broker) -> bytes | None:
    found = grpc_calls.sending(data)
    if found is None:
        return None
    topic, body, message_id, tag, keys, born = found
    config = broker.topics.plain(topic)
    if (
        config is None
        or topic in broker.topics.unsaved
        or broker.store.needs_sync  # the answer waits
        or len(body) > broker.store.config.max_message_bytes
        or not limits.is_topic(topic)
        or pb.NORMAL not in accepted_types(config)
    ):
        return None
    text = f"{props.UNIQ_KEY}\x01{message_id}{_WAITS}"
    if tag:
        text += f"{props.TAGS}\x01{tag}\x02"
    if keys:
        text += f"{props.KEYS}\x01{keys}\x02"
    born_host = peer().host
    if born < 0:
        born = broker.clock.wall()
    record = Record(topic, body, text, queue_id=-1, born_timestamp=born, born_host=born_host)
    sent = send(record, _origin(topic), broker)
    return grpc_calls.sent(_OK, message_id, sent.queue_offset)


def acknowledge_plain(data: bytes, peer: Callable[[], Peer], broker: Broker) -> bytes | None:
    found = grpc_calls.acking(data)
    if found is None:
        return None
    group, topic, message_id, handle = found
    if not limits.is_topic(topic) or not limits.is_group(group):
        return None
    peer()
    try:
        acknowledge_one(group, topic, handle, broker)
    except (AerobeeError, Refused) as error:
        entry = pb.AckMessageResultEntry(
            message_id=message_id, receipt_handle=handle, status=status_of(error)
        )
        refused: bytes = pb.AckMessageResponse(
            status=common([entry.status]), entries=[entry]
        ).SerializeToString()
        return refused
    return grpc_calls.acked(_OK, message_id, handle)
