# SPDX-License-Identifier: Apache-2.0
"""A response body to messages, in one pass: what a fast consumer spends its time on.

Plain records (IPv4 hosts, short topic, not compressed) are cut with one unpack, or in runs by the compiled lane where
it is built; anything else takes `message.decode`, which also says what is wrong with a bad one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from aerobee import native
from aerobee.client.message import Origin, ReceivedMessage
from aerobee.errors import ProtocolError
from aerobee.protocol import batch
from aerobee.protocol import message as codec
from aerobee.protocol.codes import SysFlag
from aerobee.protocol.compression import decompress
from aerobee.protocol.filters.tags import TAG

if TYPE_CHECKING:
    from aerobee.protocol.filters.tags import Subscription
    from aerobee.protocol.headers.consume import PullResult
    from aerobee.protocol.message import Record

if native.is_on:
    from aerobee.native.client_records import take

_unpack = codec.HEAD_V4.unpack_from
_FIXED = codec.HEAD_V4_SIZE
_SPECIAL = int(
    SysFlag.COMPRESSED
    | SysFlag.BORN_HOST_V6
    | SysFlag.STORE_HOST_V6
    | SysFlag.NEED_UNWRAP
    | SysFlag.INNER_BATCH
)
_V1 = codec.MAGIC_V1


def decode_messages(data: bytes, origin: Origin) -> list[ReceivedMessage]:
    """All messages of a pull or pop answer. ProtocolError when the bytes are no records."""
    try:
        return _decode(data, origin)
    except (UnicodeDecodeError, IndexError) as error:
        raise ProtocolError(f"record: {error}") from None


def decode_pulled(
    data: bytes, broker_name: str, result: PullResult, subscription: Subscription
) -> list[ReceivedMessage]:
    """Those of a pull's answer that are subscribed to."""
    messages = decode_messages(data, Origin(broker_name, result.min_offset, result.max_offset))
    return wanted(messages, subscription)


def wanted(messages: list[ReceivedMessage], subscription: Subscription) -> list[ReceivedMessage]:
    """The broker compared hashes of tags; here the tags themselves are compared."""
    if subscription.kind != TAG or not subscription.tags:
        return messages
    return [message for message in messages if message.tags in subscription.tags]


def _decode(data: bytes, origin: Origin) -> list[ReceivedMessage]:
    found: list[ReceivedMessage] = []
    topics: dict[bytes, str] = {}
    at, end = 0, len(data)
    while at + _FIXED < end:
        if native.is_on:
            at = take(data, at, ReceivedMessage, origin, _SPECIAL, found)
            if at + _FIXED >= end:
                break
        (
            size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born, born_host,
            stored, store_host, reconsumed, prepared, body_size,
        ) = _unpack(data, at)  # fmt: skip
        body_end = at + _FIXED + body_size
        stop = at + size
        if magic != _V1 or sys_flag & _SPECIAL or body_size < 0 or body_end + 3 > stop or stop > end:
            record = codec.decode(data, at)
            found += _special(record, origin)
            at += record.size
            continue
        text_at = body_end + 1 + data[body_end]
        name = data[body_end + 1 : text_at]
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = name.decode()
        text_end = text_at + 2 + (data[text_at] << 8 | data[text_at + 1])
        if text_end > stop:
            raise ProtocolError(f"record properties pass the record's end by {text_end - stop} bytes")
        found.append(
            ReceivedMessage(
                topic,
                data[at + _FIXED : body_end],
                data[text_at + 2 : text_end].decode(),
                queue_id,
                queue_offset,
                physical,
                flag,
                sys_flag,
                born,
                born_host,
                stored,
                store_host,
                reconsumed,
                prepared,
                crc,
                size,
                origin,
            )
        )
        at = stop
    if at != end:
        raise ProtocolError(f"{end - at} bytes after the last record")
    return found


def received(record: Record, origin: Origin) -> ReceivedMessage:
    """One record as a consumer sees it."""
    body = decompress(record.body, record.sys_flag)
    return ReceivedMessage(
        record.topic, body, record.properties_text, record.queue_id, record.queue_offset, record.physical_offset,
        record.flag, record.sys_flag & ~SysFlag.COMPRESSED, record.born_timestamp, record.born_host,
        record.store_timestamp, record.store_host, record.reconsume_times, record.prepared_offset, record.body_crc,
        record.size, origin,
    )  # fmt: skip


def _special(record: Record, origin: Origin) -> list[ReceivedMessage]:
    message = received(record, origin)
    # A batch stored as one record becomes its messages, of the same type as the record given.
    return [cast("ReceivedMessage", inner) for inner in batch.unwrap(message)]
