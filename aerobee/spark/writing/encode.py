# SPDX-License-Identifier: Apache-2.0
"""Rows to batch-send bodies, vectorised: the reverse of `columns`.

    batch entry: total size 4 | magic 0 4 | crc 0 4 | flag 4 | body size 4 | body | properties size 2 | properties

`binary_join_element_wise` writes header, body and properties of all rows in C++; the value buffer of its result *is*
the concatenated batch and is cut at row boundaries without copying.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aerobee.protocol import properties as props
from aerobee.protocol.message import MAX_BODY, MAX_PROPERTIES
from aerobee.spark.options import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.spark.options import Write

SINK_COLUMNS = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "value": ("binary", "string"),
    "tags": ("string",),
    "keys": ("string", "array<string>"),
    "properties": ("map<string,string>",),
    "shardingKey": ("string",),
    "key": ("string", "binary"),  # the same, as Kafka's sink calls it
    "queueId": ("int", "bigint"),
    "brokerName": ("string",),  # of that queue
    "delayLevel": ("int", "bigint", "smallint", "tinyint"),
    "deliverAt": ("timestamp", "bigint"),
}


def check_columns(types: dict[str, str], options: Write) -> None:
    """Refuse rows that are no messages before a task starts."""
    for name, kind in types.items():
        allowed = SINK_COLUMNS.get(name)
        if allowed is None:
            raise OptionError(
                f"column {name!r} has no meaning for the sink; known: {', '.join(SINK_COLUMNS)}"
            )
        if kind not in allowed:
            raise OptionError(f"column {name!r} is {kind}, expected {' or '.join(allowed)}")
    if "key" in types and "shardingKey" in types:
        raise OptionError("columns 'key' and 'shardingKey' mean the same: give one (message keys are 'keys')")
    if "brokerName" in types and "queueId" not in types:
        raise OptionError("column 'brokerName' names the broker of a queue: give 'queueId' too")
    if "body" not in types and "value" not in types:
        raise OptionError("no column 'body': a message needs one (string or binary)")
    if "topic" not in types and not options.topic:
        raise OptionError("no topic: give the option 'topic' or a column 'topic'")


def with_sharding_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its column `key`, if it has one, under our name for it."""
    names = batch.schema.names
    if "key" not in names:
        return batch
    at = names.index("key")
    return batch.set_column(at, "shardingKey", batch.column(at).cast(pa.string()))


class Chunk(NamedTuple):
    """Some consecutive rows of an Arrow batch as one batch body."""

    body: memoryview
    first: int
    rows: int


_WRITTEN = {
    "tags": props.TAGS,
    "shardingKey": props.SHARDING_KEY,
    "keys": props.KEYS,
    "delayLevel": props.DELAY,
    "deliverAt": props.TIMER_DELIVER_MS,
}


def properties_text(batch: pa.RecordBatch, unique_ids: list[str]) -> pa.Array:
    """Each row's properties as wire text. A name that has a column here, or is the sink's own, is taken from there: rows
    that were read with their properties may be written with them."""
    written = {column: name for column, name in _WRITTEN.items() if column in batch.schema.names}
    parts = [
        _pair(props.UNIQ_KEY, pa.array(unique_ids, pa.string())),
        _pair(props.WAIT, _constant("true", batch.num_rows)),
        *(_pair(name, _as_text(column, batch.column(column))) for column, name in written.items()),
    ]
    if "properties" in batch.schema.names:
        own = [props.UNIQ_KEY, props.WAIT, *written.values()]
        parts.append(_user_properties(batch.column("properties"), own))
    return pc.binary_join_element_wise(*parts, "")


def _as_text(column: str, values: pa.Array) -> pa.Array:
    if column == "deliverAt":
        return _millis(values)
    if pa.types.is_list(values.type):  # of keys
        return pc.binary_join(values.cast(pa.list_(pa.string())), " ")
    return values.cast(pa.string())


def _pair(name: str, values: pa.Array) -> pa.Array:
    """`name 0x01 value 0x02`, and nothing where the value is null or empty."""
    text = pc.binary_join_element_wise(f"{name}\x01", values, "\x02", "")
    empty = pc.or_kleene(pc.is_null(values), pc.equal(values, ""))
    return pc.if_else(pc.fill_null(empty, True), "", text)


def _constant(text: str, n: int) -> pa.Array:
    return pa.array([text], pa.string()).take(pa.array(np.zeros(n, np.int32)))


def _millis(values: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(values.type):
        values = pc.cast(values, pa.timestamp("ms", tz=values.type.tz), safe=False).cast(pa.int64())
    return values.cast(pa.string())


def _user_properties(maps: pa.Array, own: list[str]) -> pa.Array:
    is_own = pc.is_in(maps.keys, value_set=pa.array(own, maps.keys.type))
    flat = pc.if_else(is_own, "", _pair_text(maps.keys, maps.items))
    offsets = maps.offsets
    lists = pa.ListArray.from_arrays(offsets, flat)
    return pc.fill_null(pc.binary_join(lists, ""), "")


def _pair_text(names: pa.Array, values: pa.Array) -> pa.Array:
    text = pc.binary_join_element_wise(names, "\x01", values, "\x02", "")
    return pc.fill_null(text, "")


def entries(batch: pa.RecordBatch, text: pa.Array) -> pa.Array:
    """Each row as a batch entry; ValueError names the first row that no broker would take."""
    body = batch.column("body" if "body" in batch.schema.names else "value").cast(pa.binary())
    body = pc.fill_null(body, b"")
    text = text.cast(pa.binary())
    body_size = pc.binary_length(body).to_numpy(zero_copy_only=False)
    text_size = pc.binary_length(text).to_numpy(zero_copy_only=False)
    _check_sizes(body_size, text_size)
    head = np.zeros((len(body_size), 5), ">i4")
    head[:, 0] = 20 + body_size + 2 + text_size
    head[:, 4] = body_size
    heads = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(20), len(head), [None, pa.py_buffer(head.tobytes())]
    )
    sizes = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(2), len(head), [None, pa.py_buffer(text_size.astype(">u2").tobytes())]
    )
    return pc.binary_join_element_wise(heads.cast(pa.binary()), body, sizes.cast(pa.binary()), text, b"")


def _check_sizes(body: Any, text: Any) -> None:
    if len(body) and body.min() == 0:
        raise ValueError(
            f"row {int(np.argmin(body))} of the batch has no body; brokers refuse empty messages"
        )
    if len(body) and body.max() > MAX_BODY:
        raise ValueError(
            f"row {int(np.argmax(body))} of the batch has a body of {body.max()} bytes, limit {MAX_BODY}"
        )
    if len(text) and text.max() > MAX_PROPERTIES - 100:
        raise ValueError(f"row {int(np.argmax(text))} of the batch has {text.max()} bytes of properties")


def chunks(rows: pa.Array, max_bytes: int) -> Iterator[Chunk]:
    """Consecutive rows as batch bodies of at most `max_bytes` (one row may be larger)."""
    n = len(rows)
    if not n:
        return
    offsets = np.frombuffer(rows.buffers()[1], np.int32, n + 1, rows.offset * 4).astype(np.int64)
    data = memoryview(rows.buffers()[2])
    first = 0
    while first < n:
        last = int(np.searchsorted(offsets, offsets[first] + max_bytes, side="right")) - 1
        last = min(max(last, first + 1), n)
        yield Chunk(data[offsets[first] : offsets[last]], first, last - first)
        first = last
