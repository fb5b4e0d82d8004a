# SPDX-License-Identifier: Apache-2.0
"""A message of the API to the record that is stored, and back. The same records as every other front's."""

from __future__ import annotations

import hashlib
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from aerobee.errors import ProtocolError
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.limits import INTERNAL, LAST_SECOND, milliseconds
from aerobee.fronts.grpc.status import Refused
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.compression import COMPRESSED, decompress, inflate
from aerobee.protocol.message import MAX_BODY, Record, host_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_LAST_MOMENT = LAST_SECOND * 1000 + 999
host_of = lru_cache(4_096)(host_text)  # a client's is that of all its messages
_TYPES = {"FIFO": pb.FIFO, "DELAY": pb.DELAY, "TRANSACTION": pb.TRANSACTION, "NORMAL": pb.NORMAL}


def to_record(message: Any, topic: str, born_host: bytes, now: int) -> Record:
    """The record to store; queue -1 lets the broker choose."""
    system = message.system_properties
    properties = {name: value for name, value in message.user_properties.items() if value}
    properties[props.UNIQ_KEY] = system.message_id
    properties[props.WAIT] = "true"
    if system.tag:
        properties[props.TAGS] = system.tag
    if system.keys:
        properties[props.KEYS] = " ".join(system.keys)
    if system.HasField("message_group"):
        properties[props.SHARDING_KEY] = system.message_group
    if system.HasField("delivery_timestamp"):
        properties[props.TIMER_DELIVER_MS] = str(milliseconds(system.delivery_timestamp))
    if system.HasField("trace_context") and system.trace_context:
        properties["TRACE_CONTEXT"] = system.trace_context
    if message_type(system) == pb.TRANSACTION:
        properties[props.TRAN_MSG] = "true"
        properties[props.PGROUP] = topic
        recovery = system.orphaned_transaction_recovery_duration.seconds
        if recovery:
            properties[props.CHECK_IMMUNITY_SECONDS] = str(recovery)
    body, sys_flag = _stored_body(message)
    born = milliseconds(system.born_timestamp) if system.HasField("born_timestamp") else now
    return Record(
        topic,
        body,
        props.render(properties),
        queue_id=-1,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=born_host,
    )


def _stored_body(message: Any) -> tuple[bytes, int]:
    """GZIP is stored as zlib, which remoting clients can read; the proxy leaves gzip to break them."""
    if message.system_properties.body_encoding != pb.GZIP:
        return message.body, 0
    try:
        plain = inflate(message.body, 4 * MAX_BODY)
    except ProtocolError as error:
        raise Refused(pb.MESSAGE_CORRUPTED, f"the body says gzip and is not: {error}") from None
    return zlib.compress(plain, 5), COMPRESSED | 0x300


def message_type(system: Any) -> Any:
    """By what the message carries; a declared type only decides for transactions."""
    if system.message_type == pb.TRANSACTION:
        return pb.TRANSACTION
    if system.HasField("delivery_timestamp"):
        return pb.DELAY
    if system.HasField("message_group"):
        return pb.FIFO
    return pb.NORMAL


def type_of(properties: Mapping[str, str]) -> Any:
    if properties.get(props.TRAN_MSG) == "true":
        return pb.TRANSACTION
    if (
        props.DELAY in properties
        or props.TIMER_DELIVER_MS in properties
        or props.TIMER_DELAY_SEC in properties
    ):
        return pb.DELAY
    return pb.FIFO if props.SHARDING_KEY in properties else pb.NORMAL


def from_record(record: Record, topic: str, receipt: str | None, attempt: int) -> Any:
    """What a consumer gets: the body plain, its MD5 in upper case, reserved properties left out."""
    properties = record.properties
    try:
        body = decompress(record.body, record.sys_flag)
    except ProtocolError:
        body = record.body
    message = pb.Message(body=body)
    message.topic.name = topic
    for name, value in properties.items():
        if name not in INTERNAL and not name.startswith("__"):
            message.user_properties[name] = value
    system = message.system_properties
    _identity(system, record, properties)
    system.body_digest.type = pb.MD5
    system.body_digest.checksum = checksum_of(body)
    system.body_encoding = pb.IDENTITY
    system.delivery_attempt = attempt
    if receipt is not None:
        system.receipt_handle = receipt
    return message


def checksum_of(body: bytes) -> str:
    """Upper case: the Python client takes lower case for a corrupted body."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest().upper()


def within_time(ms: int) -> int:
    """As near as can be told: a producer may say anything of its message's birth."""
    return ms if 0 <= ms <= _LAST_MOMENT else min(max(ms, 0), _LAST_MOMENT)


def set_time(moment: Any, ms: int) -> None:
    """Several times as fast as protobuf's own way."""
    ms = within_time(ms)
    moment.seconds = ms // 1000
    moment.nanos = ms % 1000 * 1_000_000


def _identity(system: Any, record: Record, properties: Mapping[str, str]) -> None:
    if tag := properties.get(props.TAGS):
        system.tag = tag
    if keys := properties.get(props.KEYS):
        system.keys.extend(keys.split(" "))
    system.message_id = properties.get(props.UNIQ_KEY) or record.offset_id
    system.message_type = type_of(properties)
    set_time(system.born_timestamp, record.born_timestamp)
    system.born_host = host_of(record.born_host)
    set_time(system.store_timestamp, record.store_timestamp)
    system.store_host = host_of(record.store_host)
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    if group := properties.get(props.SHARDING_KEY):
        system.message_group = group
    if due := properties.get(props.TIMER_DELIVER_MS):
        set_time(system.delivery_timestamp, props.whole_number(due, 0, _LAST_MOMENT) or 0)
    if trace := properties.get("TRACE_CONTEXT"):
        system.trace_context = trace
    if names.is_dead_letter(record.topic) or props.DLQ_ORIGIN_TOPIC in properties:
        system.dead_letter_queue.topic = properties.get(props.DLQ_ORIGIN_TOPIC) or properties.get(
            props.RETRY_TOPIC, ""
        )
        system.dead_letter_queue.message_id = properties.get(props.DLQ_ORIGIN_MESSAGE_ID) or properties.get(
            props.ORIGIN_MESSAGE_ID, ""
        )
