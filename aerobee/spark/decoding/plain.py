# SPDX-License-Identifier: Apache-2.0
"""Records to Arrow one by one: what `columns` must equal, and its road for the unusual ones."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from aerobee.errors import ProtocolError
from aerobee.protocol import message
from aerobee.protocol.batch import unwrap
from aerobee.protocol.compression import decompress
from aerobee.spark.decoding.columns import BadRecord, Decoded
from aerobee.spark.schema import MAX_MILLIS, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.protocol.message import Record

_INNER_BATCH = 0xC0


def decode_plain(
    data: bytes | memoryview | pa.Buffer, positions: Any, columns: tuple[str, ...], broker_name: str
) -> Decoded:
    view = memoryview(data)
    rows: list[dict[str, Any]] = []
    bad: list[BadRecord] = []
    for position in positions:
        try:
            parts = _parts(message.decode(view, int(position)))
        except ProtocolError as error:
            bad.append(BadRecord(int(position), str(error)))
            continue
        rows += [_row(part, columns, broker_name) for part in parts]
    return Decoded(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(columns)), bad)


def _parts(record: Record) -> list[Record]:
    """The record, or the messages of an inner batch, each with a CRC of its own."""
    if record.sys_flag & _INNER_BATCH != _INNER_BATCH:
        return [record]
    record.body, record.sys_flag = _body(record), record.sys_flag & ~1
    parts = unwrap(record)
    if not parts:  # no producer sends that: a flag was damaged
        raise ProtocolError("an inner batch without a message")
    for part in parts:
        part.body_crc = zlib.crc32(part.body) & 0x7FFFFFFF
    return parts


def _body(record: Record) -> bytes:
    if record.sys_flag & 1:
        try:
            return decompress(record.body, record.sys_flag)
        except ProtocolError:
            return record.body
    return record.body


def _row(record: Record, columns: tuple[str, ...], broker_name: str) -> dict[str, Any]:
    properties = record.properties
    values: dict[str, Callable[[], Any]] = {
        "topic": lambda: record.topic,
        "brokerName": lambda: broker_name,
        "queueId": lambda: record.queue_id,
        "queueOffset": lambda: record.queue_offset,
        "msgId": lambda: properties.get("UNIQ_KEY") or record.offset_id,
        "tags": lambda: properties.get("TAGS"),
        "keys": lambda: properties.get("KEYS"),
        "body": lambda: _body(record),
        "bornTimestamp": lambda: micros(record.born_timestamp),
        "storeTimestamp": lambda: micros(record.store_timestamp),
        "reconsumeTimes": lambda: record.reconsume_times,
        "properties": lambda: list(properties.items()),
        "flag": lambda: record.flag,
        "sysFlag": lambda: record.sys_flag,
        "bornHost": lambda: message.host_text(record.born_host),
        "storeHost": lambda: message.host_text(record.store_host),
        "physicalOffset": lambda: record.physical_offset,
        "storeSize": lambda: record.size,
        "bodyCrc": lambda: record.body_crc,
        "bodyCrcOk": lambda: zlib.crc32(record.body) & 0x7FFFFFFF == record.body_crc,
        "preparedTransactionOffset": lambda: record.prepared_offset,
    }
    return {name: values[name]() for name in columns}


def micros(milliseconds: int) -> int:
    return max(-MAX_MILLIS, min(milliseconds, MAX_MILLIS)) * 1000
