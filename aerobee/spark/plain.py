# SPDX-License-Identifier: Apache-2.0
"""Records to Arrow one by one: what `columns` must equal, and its road for the unusual ones."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from aerobee.errors import ProtocolError
from aerobee.protocol import message
from aerobee.protocol.batch import decode_batch
from aerobee.protocol.compression import decompress
from aerobee.spark.columns import BadRecord, Decoded
from aerobee.spark.schema import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

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
            record = message.decode(view, int(position))
        except ProtocolError as error:
            bad.append(BadRecord(int(position), str(error)))
            continue
        rows += [_row(part, columns, broker_name) for part in _unwrapped(record)]
    return Decoded(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(columns)), bad)


def _unwrapped(record: Record) -> Iterator[Record]:
    if record.sys_flag & _INNER_BATCH != _INNER_BATCH:
        yield record
        return
    for i, (flag, body, text) in enumerate(decode_batch(_body(record))):
        yield msgspec.structs.replace(
            record,
            body=body,
            flag=flag,
            properties_text=text,
            queue_offset=record.queue_offset + i,
            body_crc=zlib.crc32(body) & 0x7FFFFFFF,
            sys_flag=record.sys_flag & ~(_INNER_BATCH | 1),
        )


def _body(record: Record) -> bytes:
    if record.sys_flag & 1:
        try:
            return decompress(record.body, record.sys_flag)
        except ProtocolError:
            return record.body
    return record.body


def _row(record: Record, columns: tuple[str, ...], broker_name: str) -> dict[str, Any]:
    properties = record.properties
    values = {
        "topic": lambda: record.topic,
        "brokerName": lambda: broker_name,
        "queueId": lambda: record.queue_id,
        "queueOffset": lambda: record.queue_offset,
        "msgId": lambda: properties.get("UNIQ_KEY") or record.offset_id,
        "tags": lambda: properties.get("TAGS"),
        "keys": lambda: properties.get("KEYS"),
        "body": lambda: _body(record),
        "bornTimestamp": lambda: record.born_timestamp * 1000,
        "storeTimestamp": lambda: record.store_timestamp * 1000,
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
