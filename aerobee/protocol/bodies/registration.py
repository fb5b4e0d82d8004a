# SPDX-License-Identifier: Apache-2.0
"""A broker's registration body, as plain JSON or in its compressed form.

Compressed, one zlib stream: DataVersion JSON; topic count; per topic `name read write perm filterType
attributes`; filter server list JSON; for brokers from 5.0 on a count and that many mappings. Each text is
preceded by its length.
"""

from __future__ import annotations

import struct
import zlib

import msgspec

from aerobee.errors import ProtocolError
from aerobee.protocol import java_json
from aerobee.protocol.bodies.route import RegisterBrokerBody
from aerobee.protocol.bodies.topics import TopicConfig, TopicConfigs
from aerobee.protocol.bodies.values import DataVersion
from aerobee.protocol.compression import inflate

BODY_SINCE = 37  # 3.0.11; older brokers register bare TopicConfigs
MAPPINGS_SINCE = 413  # 5.0.0
MAX_REGISTRATION = 16 * 1024 * 1024
MAX_TOPICS = 50_000  # of one broker: some 0.3 s of a name server's time
_MAX_TOPIC_TEXT, _MAX_ATTRIBUTES = 65_536, 1_000
# A topic has a dozen values. Brokers with static topics write integer keys bare: the slow way, so fewer.
_MAX_VALUES, _MAX_TOLERATED = 12 * MAX_TOPICS, 200_000

_INT = struct.Struct(">i")


def encode_registration(body: RegisterBrokerBody) -> bytes:
    return java_json.encode(body)


def decode_registration(data: bytes, version: int) -> RegisterBrokerBody:
    """The plain form of a broker of that version; no body at all is no topics."""
    if not data:
        return RegisterBrokerBody()
    java_json.check_values(data, _MAX_VALUES)
    if version >= BODY_SINCE:
        return java_json.decode(data, RegisterBrokerBody, _MAX_TOLERATED)
    configs = java_json.decode(data, TopicConfigs, _MAX_TOLERATED)
    return RegisterBrokerBody(topic_config_serialize_wrapper=configs)


def compress_registration(body: RegisterBrokerBody, version: int) -> bytes:
    configs = body.topic_config_serialize_wrapper
    parts = [_sized(java_json.encode(configs.data_version)), _INT.pack(len(configs.topic_config_table))]
    parts += [_sized(_topic_text(config)) for config in configs.topic_config_table.values()]
    parts.append(_sized(msgspec.json.encode(body.filter_server_list)))
    if version >= MAPPINGS_SINCE:
        parts.append(_INT.pack(0))
    return zlib.compress(b"".join(parts))


def decompress_registration(data: bytes) -> RegisterBrokerBody:
    """Mappings (static topics) are not kept. ProtocolError for anything that is not such a body."""
    reader = _Reader(inflate(data, MAX_REGISTRATION))
    version = java_json.decode_request(reader.sized(), DataVersion)
    count = reader.count()
    if count > MAX_TOPICS:
        raise ProtocolError(f"registration of {count} topics, limit {MAX_TOPICS}")
    topics = [_parse_topic(reader.sized()) for _ in range(count)]
    servers = java_json.decode_request(reader.sized(), list[str])
    table = {config.topic_name: config for config in topics}
    configs = TopicConfigs(data_version=version, topic_config_table=table)
    return RegisterBrokerBody(filter_server_list=servers, topic_config_serialize_wrapper=configs)


def _sized(text: bytes) -> bytes:
    return _INT.pack(len(text)) + text


def _topic_text(config: TopicConfig) -> bytes:
    queues = f"{config.topic_name} {config.read_queue_nums} {config.write_queue_nums}"
    attributes = msgspec.json.encode(config.attributes).decode()
    return f"{queues} {config.perm} {config.topic_filter_type} {attributes}".encode()


def _parse_topic(text: bytes) -> TopicConfig:
    if len(text) > _MAX_TOPIC_TEXT:
        raise ProtocolError(f"topic of {len(text)} bytes in a registration, limit {_MAX_TOPIC_TEXT}")
    try:
        parts = text.decode().split(" ", 5)
        name, read, write, perm, filter_type = parts[:5]
        attributes = parts[5].encode() if len(parts) > 5 and parts[5] else b"{}"
        return TopicConfig(
            topic_name=name,
            read_queue_nums=int(read),
            write_queue_nums=int(write),
            perm=int(perm),
            topic_filter_type=filter_type,
            attributes=java_json.decode(attributes, dict[str, str], _MAX_ATTRIBUTES),
        )
    except ValueError as error:
        raise ProtocolError(f"topic {text[:200]!r} of a registration: {error}") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        try:
            (value,) = _INT.unpack_from(self._data, self._at)
        except struct.error as error:
            raise ProtocolError(f"registration: {error}") from None
        if value < 0 or value > len(self._data) - self._at:
            raise ProtocolError(f"registration: count {value} at {self._at} of {len(self._data)}")
        self._at += 4
        return int(value)

    def sized(self) -> bytes:
        size = self.count()
        start, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise ProtocolError(f"registration: text of {size} bytes passes the end")
        return self._data[start : self._at]
