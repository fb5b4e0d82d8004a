# SPDX-License-Identifier: Apache-2.0
"""The message record: the same bytes in the commit log and in a pull, pop, view or query response.

Big-endian:
    size 4 | magic 4 | body crc 4 | queue id 4 | flag 4 | queue offset 8 | physical offset 8 | sys flag 4
    born time 8 | born host 8 or 20 | store time 8 | store host 8 or 20 | reconsume times 4 | prepared at 8
    body size 4, body | topic size 1 (V1) or 2 (V2), topic | properties size 2, properties

The last property may be RocketMQ's record check, 20 bytes `__CRC32#` 0x01 ten digits 0x02: a CRC over all
bytes before it, digits least significant first. It covers what the body's CRC does not, so Aerobee writes it.
"""

from __future__ import annotations

import socket
import struct
import zlib
from typing import TYPE_CHECKING

import msgspec

from aerobee.errors import CorruptRecord, ProtocolError
from aerobee.protocol import properties as props

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
MAGIC_BLANK = -875286124
MAX_BODY = 4 * 1024 * 1024
MAX_PROPERTIES = 32767
LENGTHS = [n.to_bytes(2, "big") for n in range(MAX_PROPERTIES + 1)]  # of a properties text, as written
RECORD_CHECK_SIZE = 20
MIN_RECORD = 91

_BORN_V6 = 0x10
_STORE_V6 = 0x20
_HOSTS_V6 = _BORN_V6 | _STORE_V6
_MAX_V1_TOPIC = 127
_ONE_BYTE = tuple(bytes((n,)) for n in range(_MAX_V1_TOPIC + 1))

# size, magic, body crc, queue id, flag, queue offset, physical offset, sys flag, born time
HEAD = struct.Struct(">iiiiiqqiq")
HEAD_SIZE = HEAD.size  # 48: where the born host starts
# The whole fixed part with both hosts IPv4, up to and including the body size.
HEAD_V4 = struct.Struct(">iiiiiqqiq8sq8siqi")
HEAD_V4_SIZE = HEAD_V4.size  # 88
_TAIL = struct.Struct(">iqi")  # reconsume times, prepared transaction offset, body size
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">H")


class Record(msgspec.Struct, gc=False):
    """A message as stored and as received. Hosts are raw: 4 or 16 address bytes and a 4-byte port."""

    topic: str
    body: bytes
    properties_text: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    store_timestamp: int = 0
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    reconsume_times: int = 0
    prepared_offset: int = 0
    body_crc: int = 0
    size: int = 0

    @property
    def properties(self) -> dict[str, str]:
        found = props.parse(self.properties_text)
        found.pop(props.RECORD_CRC, None)
        return found

    @property
    def tags(self) -> str | None:
        return props.get(self.properties_text, props.TAGS)

    @property
    def unique_key(self) -> str | None:
        return props.get(self.properties_text, props.UNIQ_KEY)

    @property
    def offset_id(self) -> str:
        return offset_message_id(self.store_host, self.physical_offset)

    @property
    def message_id(self) -> str:
        """What users call the message id: the producer's unique key, else the offset id."""
        return self.unique_key or self.offset_id


def stored_at(data: bytes | memoryview | mmap, at: int = 0) -> int:
    """The store timestamp of the encoded record at `at`."""
    is_wide = data[at + HEAD_SIZE - 9] & _BORN_V6  # the system flag's last byte
    return int(_LONG.unpack_from(data, at + HEAD_SIZE + (20 if is_wide else 8))[0])


def encode(record: Record) -> bytes:
    """The record's bytes, without the record check; size and body CRC are computed, not taken."""
    body, topic, text = record.body, record.topic.encode(), record.properties_text.encode()
    if len(text) > MAX_PROPERTIES:
        raise ProtocolError(f"properties of {len(text)} bytes, limit {MAX_PROPERTIES}")
    if len(record.born_host) != 8 or len(record.store_host) != 8 or len(topic) > _MAX_V1_TOPIC:
        return _encode_wide(record, topic, text)
    head = HEAD_V4.pack(
        MIN_RECORD + len(body) + len(topic) + len(text),
        MAGIC_V1,
        zlib.crc32(body) & 0x7FFFFFFF,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag & ~_HOSTS_V6,
        record.born_timestamp,
        record.born_host,
        record.store_timestamp,
        record.store_host,
        record.reconsume_times,
        record.prepared_offset,
        len(body),
    )
    return b"".join((head, body, _ONE_BYTE[len(topic)], topic, _SHORT.pack(len(text)), text))


def _encode_wide(record: Record, topic: bytes, text: bytes) -> bytes:
    """With an IPv6 host or a topic too long for one byte of length."""
    magic, topic_size = MAGIC_V2, _SHORT.pack(len(topic))
    if len(topic) <= _MAX_V1_TOPIC:
        magic, topic_size = MAGIC_V1, _ONE_BYTE[len(topic)]
    body = record.body
    tail = b"".join((body, topic_size, topic, _SHORT.pack(len(text)), text))
    hosts = len(record.born_host) + len(record.store_host)
    size = HEAD_V4_SIZE - 16 + hosts + len(tail)
    crc = zlib.crc32(body) & 0x7FFFFFFF
    return encode_head(msgspec.structs.replace(record, size=size, body_crc=crc), magic) + tail


def encode_head(record: Record, magic: int) -> bytes:
    """All before the body, hosts of either width; the size and the body's CRC are the record's."""
    sys_flag = record.sys_flag & ~_HOSTS_V6
    sys_flag |= _BORN_V6 if len(record.born_host) == 20 else 0
    sys_flag |= _STORE_V6 if len(record.store_host) == 20 else 0
    head = HEAD.pack(
        record.size,
        magic,
        record.body_crc,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        sys_flag,
        record.born_timestamp,
    )
    tail = _TAIL.pack(record.reconsume_times, record.prepared_offset, len(record.body))
    return b"".join((head, record.born_host, _LONG.pack(record.store_timestamp), record.store_host, tail))


def decode(data: bytes | memoryview, at: int = 0) -> Record:
    """The record at `at`, body as stored (maybe compressed). ProtocolError when the bytes are no record."""
    try:
        (
            size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born, born_host,
            store_time, store_host, reconsume, prepared, body_size,
        ) = HEAD_V4.unpack_from(data, at)  # fmt: skip
        end, pos = at + size, at + HEAD_V4_SIZE
        if magic != MAGIC_V1 and magic != MAGIC_V2:
            raise ProtocolError(f"record magic {magic & 0xFFFFFFFF:#x}")
        if size < MIN_RECORD or end > len(data):
            raise ProtocolError(f"record of {size} bytes, {len(data) - at} left")
        if sys_flag & _HOSTS_V6:
            hosts = _decode_hosts(data, at, sys_flag)
            born_host, store_time, store_host, reconsume, prepared, body_size, pos = hosts
        text_at = pos + body_size
        body = bytes(data[pos:text_at])
        if magic == MAGIC_V1:
            topic_size, pos = data[text_at], text_at + 1
        else:
            (topic_size,), pos = _SHORT.unpack_from(data, text_at), text_at + 2
        text_at = pos + topic_size
        (text_size,) = _SHORT.unpack_from(data, text_at)
        if body_size < 0 or topic_size < 0 or text_size < 0 or text_at + 2 + text_size > end:
            raise ProtocolError(f"record of {size} bytes: its body, topic and properties pass its end")
        topic = str(data[pos:text_at], "utf-8")
        text = str(data[text_at + 2 : text_at + 2 + text_size], "utf-8")
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise ProtocolError(f"record: {error}") from None
    return Record(
        topic, body, text, queue_id, queue_offset, physical, flag, sys_flag, born, born_host,
        store_time, store_host, reconsume, prepared, crc, size,
    )  # fmt: skip


def _decode_hosts(
    data: bytes | memoryview, at: int, sys_flag: int
) -> tuple[bytes, int, bytes, int, int, int, int]:
    """The fields from the born host to the body size where a host is IPv6, and where the body starts."""
    pos = at + HEAD_SIZE
    width = 20 if sys_flag & _BORN_V6 else 8
    born_host = bytes(data[pos : pos + width])
    (store_time,) = _LONG.unpack_from(data, pos + width)
    pos += width + 8
    width = 20 if sys_flag & _STORE_V6 else 8
    store_host = bytes(data[pos : pos + width])
    reconsume, prepared, body_size = _TAIL.unpack_from(data, pos + width)
    return born_host, store_time, store_host, reconsume, prepared, body_size, pos + width + _TAIL.size


def decode_all(data: bytes | memoryview) -> Iterator[Record]:
    """The records of a response body, one after another."""
    at, end = 0, len(data)
    while at < end:
        record = decode(data, at)
        yield record
        at += record.size


# RocketMQ's record check of a CRC, read from its end: that is how its ten digits are written.
CHECK_BACKWARDS = b"\x02%010d\x01#23CRC__"
_CHECK_START = b"__CRC32#\x01"


def record_check(record: bytes | memoryview) -> bytes:
    """The 20 bytes of RocketMQ's record check for the `record` bytes before them."""
    return (CHECK_BACKWARDS % (zlib.crc32(record) & 0x7FFFFFFF))[::-1]


def verify(record: bytes | memoryview) -> None:
    """Raise CorruptRecord unless the record's check (or, without one, its body's CRC) holds."""
    start = bytes(record[-20:-11])
    if start == _CHECK_START:
        crc = zlib.crc32(record[:-20]) & 0x7FFFFFFF
        # The digits are compared as written: a parser would read some damaged ones as the same number.
        if bytes(record[-11:]) != (b"%010d" % crc)[::-1] + b"\x02":
            raise CorruptRecord("record check does not hold")
        return
    if sum(map(int.__eq__, start, _CHECK_START)) >= len(_CHECK_START) - 2:
        raise CorruptRecord("the name of the record check is damaged")
    sys_flag = _INT.unpack_from(record, 36)[0]
    at = 84 + (12 if sys_flag & _BORN_V6 else 0) + (12 if sys_flag & _STORE_V6 else 0)
    if at + 4 > len(record):
        raise CorruptRecord("record ends within its header")
    (body_size,) = _INT.unpack_from(record, at)
    body = record[at + 4 : at + 4 + body_size]
    (crc,) = _INT.unpack_from(record, 8)
    if body_size < 0 or len(body) != body_size or zlib.crc32(body) & 0x7FFFFFFF != crc:
        raise CorruptRecord("body CRC does not hold")


# -- hosts and ids -----------------------------------------------------------------------------------


def pack_host(host: str, port: int) -> bytes:
    """8 bytes for IPv4, 20 for IPv6; a name is not resolved here and becomes 127.0.0.1."""
    try:
        return socket.inet_pton(socket.AF_INET, host) + _INT.pack(port)
    except OSError:
        pass
    try:
        return socket.inet_pton(socket.AF_INET6, host.partition("%")[0]) + _INT.pack(port)
    except OSError:
        return b"\x7f\x00\x00\x01" + _INT.pack(port)


def host_text(raw: bytes) -> str:
    """`ip:port`, or `[ip]:port` for IPv6."""
    address, (port,) = raw[:-4], _INT.unpack(raw[-4:])
    if len(address) == 4:
        return f"{socket.inet_ntop(socket.AF_INET, address)}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, address)}]:{port}"


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    return (store_host + _LONG.pack(physical_offset)).hex().upper()


def parse_offset_message_id(text: str) -> tuple[bytes, int]:
    """The store host and the commit-log offset; ValueError when the text is no such id."""
    raw = bytes.fromhex(text)
    if len(raw) not in (16, 28):
        raise ValueError(f"offset message id {text!r} has {len(text)} characters, not 32 or 56")
    return raw[:-8], _LONG.unpack(raw[-8:])[0]
