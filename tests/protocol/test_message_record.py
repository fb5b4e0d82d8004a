# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import struct
import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import CorruptRecord, ProtocolError
from aerobee.protocol import message
from aerobee.protocol.message import Record

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
records = st.builds(
    Record,
    topic=text | st.text("ab", min_size=120, max_size=255),
    body=st.binary(max_size=60),
    properties_text=text,
    queue_id=ints,
    queue_offset=longs,
    physical_offset=longs,
    flag=ints,
    sys_flag=st.integers(0, 0x7FF).map(lambda flag: flag & ~0x30),
    born_timestamp=longs,
    born_host=hosts,
    store_timestamp=longs,
    store_host=hosts,
    reconsume_times=ints,
    prepared_offset=longs,
)


@given(records)
@settings(deadline=None)
def test_a_record_survives(record: Record) -> None:
    data = message.encode(record)
    found = message.decode(data)
    assert message.encode(found) == data
    assert (found.size, found.body_crc) == (len(data), zlib.crc32(record.body) & 0x7FFFFFFF)
    same = msgspec.structs.replace(
        found, size=record.size, body_crc=record.body_crc, sys_flag=found.sys_flag & ~0x30
    )
    assert same == record
    assert message.decode(memoryview(b"xyz" + data), 3) == found
    message.verify(data)


def test_the_layout_is_the_documented_one() -> None:
    record = Record(
        "T",
        b"body",
        "a\x01b\x02",
        1,
        2,
        3,
        4,
        5,
        6,
        b"\x0a\0\0\1\0\0\0\7",
        8,
        b"\x0a\0\0\2\0\0\0\x09",
        10,
        11,
    )
    data = message.encode(record)
    fixed = struct.pack(
        ">iIiiiqqiq4siq4siiqi", 91 + 4 + 1 + 4, 0xDAA320A7, zlib.crc32(b"body") & 0x7FFFFFFF, 1, 4, 2, 3, 5, 6,
        b"\x0a\0\0\1", 7, 8, b"\x0a\0\0\2", 9, 10, 11, 4,
    )  # fmt: skip
    assert data == fixed + b"body" + b"\x01T" + b"\0\4a\x01b\x02"


def test_topics_over_127_bytes_are_written_as_v2() -> None:
    assert message.encode(Record("t" * 127, b""))[4:8].hex() == "daa320a7"
    assert message.encode(Record("t" * 128, b""))[4:8].hex() == "daa320ab"
    assert message.encode(Record("é" * 64, b""))[4:8].hex() == "daa320ab"


def test_properties_over_the_limit_are_refused() -> None:
    message.encode(Record("T", b"", "x" * 32767))
    with pytest.raises(ProtocolError, match="properties of 32768 bytes"):
        message.encode(Record("T", b"", "x" * 32768))


def test_the_records_of_a_response_follow_each_other() -> None:
    records = [Record("T", str(n).encode(), queue_offset=n) for n in range(5)]
    body = b"".join(map(message.encode, records))
    assert [record.queue_offset for record in message.decode_all(body)] == [0, 1, 2, 3, 4]
    with pytest.raises(ProtocolError):
        list(message.decode_all(body[:-1]))


RECORD = message.encode(Record("T", b"body", "a\x01b\x02"))


def changed(at: int, form: str, value: int) -> bytes:
    data = bytearray(RECORD)
    struct.pack_into(form, data, at, value)
    return bytes(data)


BAD = {
    "nothing": b"",
    "a byte short": RECORD[:-1],
    "negative size": changed(0, ">i", -1),
    "huge size": changed(0, ">i", 2**31 - 1),
    "size below the least": changed(0, ">i", 90),
    "other magic": changed(4, ">i", 0),
    "blank magic": changed(4, ">i", message.MAGIC_BLANK),
    "negative body": changed(84, ">i", -1),
    "huge body": changed(84, ">i", 2**31 - 1),
    "body to the end": changed(84, ">i", 11),
    "topic passes the end": changed(92, ">B", 255),
    "properties pass the end": changed(94, ">H", 5),
    "topic is no UTF-8": changed(93, ">B", 0xFF),
    "IPv6 flag on an IPv4 record": changed(36, ">i", 0x30),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_what_is_no_record_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        message.decode(data)


@given(records, st.data())
@settings(deadline=None, max_examples=200)
@pytest.mark.slow
def test_a_damaged_record_is_a_protocol_error_or_another_record(record: Record, data: st.DataObject) -> None:
    raw = bytearray(message.encode(record))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for damaged in (bytes(raw), bytes(raw[:cut]), bytes(raw) + b"tail"):
        try:
            found = message.decode(damaged)
        except ProtocolError:
            continue
        assert 0 < found.size <= len(damaged)


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        message.decode(data)
    if data:
        with pytest.raises(ProtocolError):
            list(message.decode_all(data))


# -- checks -------------------------------------------------------------------------------------------


def checked(record: Record) -> bytes:
    """A record that ends in its check, as the store writes it."""
    placeholder = "__CRC32#\x01" + "0" * 10 + "\x02"
    data = message.encode(
        msgspec.structs.replace(record, properties_text=record.properties_text + placeholder)
    )[:-20]
    return data + message.record_check(data)


def test_the_record_check_has_its_digits_backwards() -> None:
    data = b"anything"
    expected = str(zlib.crc32(data) & 0x7FFFFFFF).zfill(10)[::-1]
    assert message.record_check(data) == b"__CRC32#\x01" + expected.encode() + b"\x02"


def test_the_record_check_is_no_property_of_the_message() -> None:
    found = message.decode(checked(Record("T", b"body", "a\x01b\x02")))
    assert found.properties == {"a": "b"}


def test_every_flipped_bit_of_a_checked_record_is_found() -> None:
    good = checked(Record("T", b"body", "a\x01b\x02"))
    message.verify(good)
    for at in range(len(good)):
        for bit in range(8):
            bad = bytearray(good)
            bad[at] ^= 1 << bit
            with pytest.raises(CorruptRecord):
                message.verify(bytes(bad))


def test_without_a_check_the_bodys_crc_counts() -> None:
    message.verify(RECORD)
    with pytest.raises(CorruptRecord):
        message.verify(RECORD.replace(b"body", b"bodz"))


@given(st.binary(min_size=91, max_size=200))
@settings(deadline=None)
def test_verifying_garbage_finds_it_corrupt_or_nothing_wrong(data: bytes) -> None:
    with contextlib.suppress(CorruptRecord):
        message.verify(data)


# -- ids ----------------------------------------------------------------------------------------------


def test_offset_ids_are_host_port_and_offset_in_hex() -> None:
    host = message.pack_host("10.0.0.1", 10911)
    assert message.offset_message_id(host, 4711) == "0A00000100002A9F0000000000001267"
    assert message.parse_offset_message_id("0A00000100002A9F0000000000001267") == (host, 4711)
    wide = message.offset_message_id(message.pack_host("::1", 10911), 4711)
    assert len(wide) == 56
    assert message.host_text(message.parse_offset_message_id(wide)[0]) == "[::1]:10911"


@pytest.mark.parametrize("bad", ["", "xyz", "0A", "0A00000100002A9F00000000000012670", "é" * 32])
def test_what_is_no_offset_id_is_a_value_error(bad: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 bytes.fromhex has its own words
        message.parse_offset_message_id(bad)


def test_hosts_are_packed_and_shown() -> None:
    assert message.host_text(message.pack_host("127.0.0.1", 80)) == "127.0.0.1:80"
    assert message.host_text(message.pack_host("fe80::1%eth0", 80)) == "[fe80::1]:80"
    assert message.host_text(message.pack_host("a name", 80)) == "127.0.0.1:80"


def test_the_message_id_is_the_unique_key_or_else_the_offset_id() -> None:
    assert Record("T", b"", "UNIQ_KEY\x01abc\x02").message_id == "abc"
    record = Record("T", b"", physical_offset=1)
    assert record.message_id == record.offset_id == "7F000001000000000000000000000001"
    assert Record("T", b"", "TAGS\x01A\x02").tags == "A"


@pytest.mark.parametrize("size", [1_000, -1])
def test_a_body_that_does_not_end_within_its_record_is_damaged_whatever_its_crc_says(size: int) -> None:
    record = bytearray(message.encode(message.Record("T", b"hello")))
    assert bytes(record[84:88]) == (5).to_bytes(4, "big")
    record[84:88] = size.to_bytes(4, "big", signed=True)
    taken = bytes(record[88 : 88 + size])
    record[8:12] = (zlib.crc32(taken) & 0x7FFFFFFF).to_bytes(4, "big")
    with pytest.raises(CorruptRecord, match="body CRC does not hold"):
        message.verify(bytes(record))
