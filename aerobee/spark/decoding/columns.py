# SPDX-License-Identifier: Apache-2.0
"""Message records to Arrow columns, without Python work per message.

Theory of operation. A buffer (a pull response, or a mapped commit-log file) and the positions of the records in it
come in; one Arrow record batch of the asked columns goes out. Fixed fields: numpy gathers the first 88 bytes of every
record through an overlapping view (stride 1) and reads them as one big-endian struct array. Variable-length fields:
copied range by range in C++ or numpy (`spans`). Properties: the positions of 0x02 in the gathered text split all pairs
of all rows at once; `tags`, `keys`, `msgId` and the map are look-ups in that split (`pairs`).

Records that are not as simple as that take a slower road and join again in order: IPv6 hosts (fields shift),
compressed bodies (inflated one by one), inner batches (unwrapped by the plain decoder). Bytes that are no record are
left out and reported, never raised.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aerobee.errors import ProtocolError
from aerobee.protocol import message
from aerobee.protocol.compression import decompress
from aerobee.spark.decoding.pairs import Pairs
from aerobee.spark.decoding.spans import constant, gather, valid_text
from aerobee.spark.schema import COLUMNS, MAX_MILLIS, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from aerobee.spark.decoding.spans import Ints

_HEAD = np.dtype(
    [
        ("size", ">i4"), ("magic", "<u4"), ("crc", ">i4"), ("queue_id", ">i4"), ("flag", ">i4"),
        ("queue_offset", ">i8"), ("physical", ">i8"), ("sys_flag", ">i4"), ("born", ">i8"), ("born_host", "V8"),
        ("stored", ">i8"), ("store_host", "V8"), ("reconsume", ">i4"), ("prepared", ">i8"), ("body_size", ">i4"),
    ]
)  # fmt: skip
_HEAD_SIZE = _HEAD.itemsize  # 88
_size_at = struct.Struct(">i").unpack_from
_MAGIC_V1, _MAGIC_V2 = (  # as they look unswapped
    np.uint32(int.from_bytes(magic.to_bytes(4, "big", signed=True), "little"))
    for magic in (message.MAGIC_V1, message.MAGIC_V2)
)
_V6 = 0x30
_INNER_BATCH = 0xC0
_COMPRESSED = 0x1
_SPECIAL_TEXT = {"tags": b"TAGS", "keys": b"KEYS", "msgId": b"UNIQ_KEY"}


class BadRecord(NamedTuple):
    position: int
    reason: str


class Decoded(NamedTuple):
    batch: pa.RecordBatch
    bad: list[BadRecord]


def positions_of(data: bytes | memoryview) -> Ints:
    """Where the records of a response body start. The one loop over messages: three steps of plain Python each,
    since each size is needed to find the next; searching the magic by numpy is slower but for the smallest."""
    found = []
    at, last = 0, len(data) - 4
    while at <= last:
        found.append(at)
        (size,) = _size_at(data, at)
        if size <= 0:
            break
        at += size
    return np.array(found, dtype=np.int64)


def decode(
    data: bytes | memoryview | pa.Buffer, positions: Ints, columns: tuple[str, ...], broker_name: str
) -> Decoded:
    """One record batch of `columns` for the records at `positions` (ascending)."""
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    rows = _Rows(buffer, positions)
    if rows.needs_plain_road:
        return _decode_mixed(rows, columns, broker_name)
    arrays = [_BUILDERS[name](rows, broker_name) for name in columns]
    return Decoded(pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns)), rows.bad)


class _Rows:
    """The records' fixed fields and the ranges of their variable ones; bad records already left out.

    Every check looks first whether anything is wrong at all, which costs one pass; only then at what is.
    """

    def __init__(self, buffer: pa.Buffer, positions: Ints) -> None:
        self.buffer = buffer
        self.bytes = np.frombuffer(buffer, np.uint8)
        self.bad: list[BadRecord] = []
        self.position = self._complete(positions)
        self.head = self._heads(self.position)
        self.flags = self.head["sys_flag"].astype(np.int32)
        self.end = self.position + self.head["size"]
        self._wide = False
        if not (self.head["magic"] == _MAGIC_V1).all():
            self._check_magic()
        if len(self) and (
            int(self.end.max()) > len(self.bytes) or self.head["size"].min() < message.MIN_RECORD
        ):
            too_small = self.end - self.position < message.MIN_RECORD
            self._drop(too_small | (self.end > len(self.bytes)), "size passes the end of the data")
        self.needs_plain_road = self.any_flag(_V6 | _INNER_BATCH) and bool(self.special.any())
        if not self.needs_plain_road:
            self._find_ranges()
        self._pairs: Pairs | None = None

    def __len__(self) -> int:
        return len(self.position)

    def _complete(self, positions: Ints) -> Ints:
        last = len(self.bytes) - message.MIN_RECORD
        if not len(positions) or (positions[0] >= 0 and positions[-1] <= last):
            return positions
        fits = (positions >= 0) & (positions <= last)
        self.bad += [BadRecord(int(p), "cut off") for p in positions[~fits]]
        return positions[fits]

    def _heads(self, positions: Ints) -> npt.NDArray[Any]:
        if not len(positions):
            return np.empty(0, _HEAD)
        view = np.ndarray(
            (len(self.bytes) - _HEAD_SIZE + 1,), f"V{_HEAD_SIZE}", buffer=self.bytes, strides=(1,)
        )
        return view[positions].view(_HEAD)

    def _check_magic(self) -> None:
        wide = self.head["magic"] == _MAGIC_V2
        self._drop(~wide & (self.head["magic"] != _MAGIC_V1), "no record magic")
        self._wide = bool(wide.any())

    def any_flag(self, bits: int) -> bool:
        return bool(np.bitwise_or.reduce(self.flags) & bits)

    @property
    def special(self) -> npt.NDArray[np.bool_]:
        """Which records take the plain road."""
        inner = (self.flags & _INNER_BATCH) == _INNER_BATCH
        return np.asarray(inner | ((self.flags & _V6) != 0), np.bool_)

    def _drop(self, wrong: npt.NDArray[np.bool_], reason: str) -> None:
        if wrong.any():
            self.bad += [BadRecord(int(p), reason) for p in self.position[wrong]]
            right = ~wrong
            self.head, self.flags = self.head[right], self.flags[right]
            self.position, self.end = self.position[right], self.end[right]

    def _find_ranges(self) -> None:
        body = self.position + _HEAD_SIZE
        body_size = self.head["body_size"].astype(np.int64)
        topic = body + body_size
        wrong = (body_size < 0) | (topic + 3 > self.end)
        if wrong.any():
            self._drop(wrong, "body passes the end of the record")
            return self._find_ranges()
        topic_size = self.bytes[topic].astype(np.int64)
        if self._wide:  # two bytes for the topic's length
            wide = self.head["magic"] == _MAGIC_V2
            topic_size = np.where(wide, topic_size << 8 | self.bytes[topic + 1], topic_size)
            topic = topic + wide
        topic += 1
        text = topic + topic_size
        wrong = text + 2 > self.end
        if wrong.any():  # keep the next look inside the record; the row is dropped below
            text = np.where(wrong, topic, text)
        text_size = self._shorts(text)
        text += 2
        wrong |= text + text_size > self.end
        if wrong.any():
            self._drop(wrong, "topic or properties pass the end of the record")
            return self._find_ranges()
        self.body = (body, body_size)
        self.topic = (topic, topic_size)
        self.text = (text, text_size)
        return None

    def _shorts(self, at: Ints) -> Ints:
        view = np.ndarray((max(0, len(self.bytes) - 1),), ">u2", buffer=self.bytes, strides=(1,))
        return view[at].astype(np.int64)

    def gather(self, start: Ints, size: Ints) -> pa.Array:
        return gather(self.buffer, start, size)

    @property
    def pairs(self) -> Pairs:
        if self._pairs is None:
            self._pairs = Pairs(self.gather(*self.text))
        return self._pairs


# -- one builder per column --------------------------------------------------------------------------


def _fixed(field: str, kind: pa.DataType) -> Callable[[_Rows, str], pa.Array]:
    native = kind.to_pandas_dtype()

    def build(rows: _Rows, _: str) -> pa.Array:
        return pa.array(rows.head[field].astype(native), kind)

    return build


def _time(field: str) -> Callable[[_Rows, str], pa.Array]:
    def build(rows: _Rows, _: str) -> pa.Array:
        millis = rows.head[field].astype(np.int64)
        if len(millis) and (millis.max() > MAX_MILLIS or millis.min() < -MAX_MILLIS):
            millis = np.clip(millis, -MAX_MILLIS, MAX_MILLIS)
        micros = pa.py_buffer(millis * 1000)
        return pa.Array.from_buffers(COLUMNS["storeTimestamp"].arrow, len(millis), [None, micros])

    return build


def _host(field: str) -> Callable[[_Rows, str], pa.Array]:
    def build(rows: _Rows, _: str) -> pa.Array:
        # Few distinct hosts per batch: name each once.
        distinct, index = np.unique(rows.head[field].copy().view("V8"), return_inverse=True)
        names = pa.array([message.host_text(bytes(raw)) for raw in distinct.tolist()], pa.string())
        return names.take(pa.array(index.reshape(-1)))

    return build


def _topic(rows: _Rows, _: str) -> pa.Array:
    return valid_text(rows.gather(*rows.topic))


def _broker(rows: _Rows, broker_name: str) -> pa.Array:
    return constant(broker_name, len(rows))


def _property(name: str) -> Callable[[_Rows, str], pa.Array]:
    def build(rows: _Rows, _: str) -> pa.Array:
        return rows.pairs.lookup(_SPECIAL_TEXT[name])

    return build


def _message_id(rows: _Rows, _: str) -> pa.Array:
    found = rows.pairs.lookup(_SPECIAL_TEXT["msgId"])
    if found.null_count == 0:
        return found
    missing = np.asarray(pc.is_null(found))
    ids = [
        message.offset_message_id(bytes(host), int(at))
        for host, at in zip(
            rows.head["store_host"][missing].tolist(), rows.head["physical"][missing], strict=True
        )
    ]
    return pc.replace_with_mask(found, pa.array(missing), pa.array(ids, pa.string()))


def _body(rows: _Rows, _: str) -> pa.Array:
    bodies = rows.gather(*rows.body)
    if not rows.any_flag(_COMPRESSED):
        return bodies
    packed = (rows.flags & _COMPRESSED) != 0
    inflated = [_inflated(bodies[int(i)].as_py(), int(rows.flags[i])) for i in np.flatnonzero(packed)]
    return pc.replace_with_mask(bodies, pa.array(packed), pa.array(inflated, pa.binary()))


def _inflated(body: bytes, sys_flag: int) -> bytes:
    try:
        return decompress(body, sys_flag)
    except ProtocolError:
        return body  # as stored; bodyCrcOk and sysFlag tell the rest


def _body_crc_ok(rows: _Rows, _: str) -> pa.Array:
    data = memoryview(rows.buffer)
    start, size = rows.body
    held = [
        zlib.crc32(data[s : s + n]) & 0x7FFFFFFF == crc
        for s, n, crc in zip(start.tolist(), size.tolist(), rows.head["crc"].tolist(), strict=True)
    ]
    return pa.array(held, pa.bool_())


_BUILDERS: dict[str, Callable[[_Rows, str], pa.Array]] = {
    "topic": _topic,
    "brokerName": _broker,
    "queueId": _fixed("queue_id", pa.int32()),
    "queueOffset": _fixed("queue_offset", pa.int64()),
    "msgId": _message_id,
    "tags": _property("tags"),
    "keys": _property("keys"),
    "body": _body,
    "bornTimestamp": _time("born"),
    "storeTimestamp": _time("stored"),
    "reconsumeTimes": _fixed("reconsume", pa.int32()),
    "properties": lambda rows, _: rows.pairs.as_map(),
    "flag": _fixed("flag", pa.int32()),
    "sysFlag": _fixed("sys_flag", pa.int32()),
    "bornHost": _host("born_host"),
    "storeHost": _host("store_host"),
    "physicalOffset": _fixed("physical", pa.int64()),
    "storeSize": _fixed("size", pa.int32()),
    "bodyCrc": _fixed("crc", pa.int32()),
    "bodyCrcOk": _body_crc_ok,
    "preparedTransactionOffset": _fixed("prepared", pa.int64()),
}


# -- the plain road: IPv6 hosts and inner batches ----------------------------------------------------


def _decode_mixed(rows: _Rows, columns: tuple[str, ...], broker_name: str) -> Decoded:
    """Split into runs of simple and of special records, decode each its way, join in order."""
    from aerobee.spark.decoding.plain import decode_plain

    special = rows.special
    edges = np.flatnonzero(np.diff(special.astype(np.int8))) + 1
    parts, bad = [], list(rows.bad)
    for run, is_special in zip(
        np.split(rows.position, edges),
        special[np.concatenate(([0], edges))] if len(special) else (),
        strict=True,
    ):
        road = decode_plain if is_special else decode
        decoded = road(rows.buffer, run, columns, broker_name)
        parts.append(decoded.batch)
        bad += decoded.bad
    table = pa.Table.from_batches(parts, schema=arrow_schema(columns)).combine_chunks()
    batches = table.to_batches()
    empty = pa.RecordBatch.from_pylist([], schema=arrow_schema(columns))
    return Decoded(batches[0] if batches else empty, bad)
