# SPDX-License-Identifier: Apache-2.0
"""Limits of the protocol met exactly: the last byte, value, bit and digit that is taken, and the first that is not."""

from __future__ import annotations

import pytest

from aerobee.errors import CorruptRecord, MessageIllegal, ProtocolError
from aerobee.protocol import batch, compression, java_json, message, receipt
from aerobee.protocol import properties as props
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.compression import Compression
from aerobee.protocol.message import MAX_PROPERTIES, Record


def test_properties_may_be_as_long_as_their_length_can_say() -> None:
    longest = "x" * MAX_PROPERTIES
    assert batch.decode(batch.encode([BatchItem(0, b"", longest)]))[0].properties_text == longest
    assert message.decode(message.encode(Record("t", b"", longest))).properties_text == longest
    assert message.decode(message.encode(Record("t" * 128, b"", longest))).properties_text == longest
    for write in (
        lambda text: batch.encode([BatchItem(0, b"", text)]),
        lambda text: message.encode(Record("t", b"", text)),
    ):
        with pytest.raises(ProtocolError, match="properties of 32768 bytes, limit 32767"):
            write(longest + "x")
    assert message.LENGTHS[258] == b"\x01\x02"
    assert len(message.LENGTHS) == MAX_PROPERTIES + 1


def test_a_batch_may_have_so_many_messages() -> None:
    data = batch.encode([BatchItem(n, b"%d" % n) for n in range(3)])
    assert batch.columns(data, 3).flags == [0, 1, 2]
    with pytest.raises(MessageIllegal, match="a batch of more than 2 messages; send smaller ones"):
        batch.columns(data, 2)


def test_messages_inside_a_record_are_counted_from_their_base() -> None:
    body = batch.encode([BatchItem(1, b"a", "k\x01v\x02"), BatchItem(2, b"b")])
    both = 0x40 | 0x80
    for text, first in (
        ("INNER_BASE\x0170\x02", 70),
        ("INNER_BASE\x010\x02", 0),
        ("", 9),
        ("INNER_BASE\x01x\x02", 9),
    ):
        record = Record("t", body, text, queue_offset=9, sys_flag=both | 1)
        found = batch.unwrap(record)
        assert [(each.body, each.flag, each.queue_offset, each.sys_flag) for each in found] == [
            (b"a", 1, first, 1),
            (b"b", 2, first + 1, 1),
        ]
        assert found[0].properties_text == "k\x01v\x02"
    for flag in (0, 0x40, 0x80):
        record = Record("t", body, sys_flag=flag)
        assert batch.unwrap(record) == [record], "it needs both bits"


@pytest.mark.parametrize("topic", ["t" * 127, "t" * 128, "t" * 255, "t" * 300])
@pytest.mark.parametrize("born", [8, 20])
@pytest.mark.parametrize("stored", [8, 20])
def test_topics_and_hosts_of_every_width_survive(topic: str, born: int, stored: int) -> None:
    record = Record(
        topic, b"body", "a\x01b\x02", 1, 2, 3, 4, 0x30 | 0x100, 5, bytes(range(born)), 6, bytes(range(stored)), 7, 8,
    )  # fmt: skip
    raw = message.encode(record)
    found = message.decode(b"xx" + raw + b"yy", 2)
    assert found.size == len(raw)
    for name in record.__struct_fields__:
        if name not in ("size", "body_crc", "sys_flag"):
            assert getattr(found, name) == getattr(record, name), name
    assert found.sys_flag == 0x100 | (0x10 if born == 20 else 0) | (0x20 if stored == 20 else 0)
    assert message.stored_at(raw) == 6
    message.verify(raw)
    for at in (raw.index(b"body"), 8):
        with pytest.raises(CorruptRecord):
            message.verify(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
    with pytest.raises(ProtocolError):
        message.decode(raw[:-1])
    assert raw[4:8] == (message.MAGIC_V1 if len(topic) <= 127 else message.MAGIC_V2).to_bytes(
        4, "big", signed=True
    )


def test_a_record_that_ends_within_its_header_is_corrupt() -> None:
    raw = message.encode(Record("t", b"body", born_host=bytes(20), store_host=bytes(20)))
    for end in (84 + 24 + 3, 84 + 24):
        with pytest.raises(CorruptRecord, match="record ends within its header"):
            message.verify(raw[:end])
    with pytest.raises(CorruptRecord, match="body CRC does not hold"):
        message.verify(raw[: 84 + 24 + 4])


@pytest.mark.parametrize("kind", list(Compression))
def test_a_body_may_grow_to_its_limit(kind: Compression) -> None:
    body = bytes(1_000)
    packed = compression.compress(body, kind)
    flag = compression.compressed_flag(0x700, kind)
    assert flag == 1 | kind
    assert compression.decompress(packed, flag, 1_000) == body
    with pytest.raises(ProtocolError, match="body grows past 999 bytes"):
        compression.decompress(packed, flag, 999)
    assert compression.decompress(b"plain", int(kind), 1) == b"plain", "without the bit it is none"


def test_old_clients_say_no_type_and_mean_zlib() -> None:
    assert compression.decompress(compression.compress(b"x"), 1) == b"x"
    with pytest.raises(ProtocolError, match="compression type 4 is none of 1 lz4, 2 zstd, 3 zlib"):
        compression.decompress(b"x", 0x401)


# -- JSON ----------------------------------------------------------------------------------------------------


def test_requests_may_be_as_large_as_the_limits() -> None:
    java_json.check_request(b" " * java_json.MAX_REQUEST_SIZE)
    for sign in (b",", b"{", b"["):
        java_json.check_values(sign * 5, 5)
        with pytest.raises(ProtocolError, match="JSON request of 6 values, limit 5; send several"):
            java_json.check_values(sign * 6, 5)
    assert java_json.parse(b"{1:[2,3]}", 5) == {1: [2, 3]}, "the object, its key, the list, and two"
    with pytest.raises(ProtocolError, match="more than 4 values"):
        java_json.parse(b"{1:[2,3]}", 4)


def test_java_json_may_be_nested_so_deep() -> None:
    def nested(depth: int) -> bytes:
        return b"{1:" * depth + b"0" + b"}" * depth

    assert java_json.parse(nested(java_json.MAX_DEPTH))
    with pytest.raises(ProtocolError, match="nested deeper than 64"):
        java_json.parse(nested(java_json.MAX_DEPTH + 1))
    lists = java_json.MAX_DEPTH - 1
    assert java_json.parse(b"{1:" + b"[" * lists + b"]" * lists + b"}")
    with pytest.raises(ProtocolError, match="nested deeper than 64"):
        java_json.parse(b"{1:" + b"[" * (lists + 1) + b"]" * (lists + 1) + b"}")


def test_java_json_numbers_may_have_so_many_digits() -> None:
    for digits in (1, 19, 399, 400):
        assert java_json.parse(b"{1:%b}" % (b"9" * digits)) == {1: int("9" * digits)}
    with pytest.raises(ProtocolError, match="number of 401 digits"):
        java_json.parse(b"{1:%b}" % (b"9" * 401))
    assert java_json.parse(b"{1:-1.5e2,2:1E+2,3:2e-1,4:-7}") == {1: -150.0, 2: 100.0, 3: 0.2, 4: -7}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{1 2}", "no ':' after the key before"),
        (b"{1:2 3}", "neither ',' nor '}' at 5"),
        (b"{1:[2 3]}", "neither ',' nor ']' at 6"),
        (b"{1:@}", "'@' at 3 begins no value"),
        (b"{[1]:2}", "a key before 4 is neither text nor a whole number nor an object"),
        (b'{{"a":[1]}:2}', "an object key holds another object or an array"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(data: bytes, said: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        java_json.parse(data)
    assert said in str(refused.value)


@pytest.mark.parametrize("space", [" ", "\t", "\r", "\n", " \t\r\n"])
def test_white_space_may_stand_between_all_signs(space: str) -> None:
    signs = [
        "{",
        "1",
        ":",
        "[",
        "true",
        ",",
        "null",
        "]",
        ",",
        "2",
        ":",
        "{",
        "}",
        ",",
        "3",
        ":",
        "[",
        "]",
        "}",
    ]
    assert java_json.parse(space.join(["", *signs, ""])) == {1: [True, None], 2: {}, 3: []}


# -- POP's strings -------------------------------------------------------------------------------------------


def test_bit_sets_may_be_as_long_as_the_limit() -> None:
    most = receipt.MAX_BITS // 6 + 8
    text = "A" * (most // 4 * 4)
    assert receipt.parse_bits(text) == []
    with pytest.raises(ProtocolError, match=f"bit set of {most + 1} characters, more than 65536 bits"):
        receipt.parse_bits("A" * (most + 1))
    assert receipt.parse_bits(receipt.bits_text([0, 7, 8, 31, 32, 65_535])) == [0, 7, 8, 31, 32, 65_535]


def test_a_checkpoint_without_diffs_has_as_many_offsets_as_it_counts() -> None:
    def offsets(**more: object) -> list[int]:
        return receipt.CheckpointRecord(group="g", topic="t", start_offset=5, **more).offsets  # type: ignore[arg-type]

    assert (offsets(count=0), offsets(count=-3), offsets(count=2)) == ([], [], [5, 6])
    assert offsets(count=9, diffs=[0, 4]) == [5, 9]


# -- numbers in texts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (None, None), ("", None), ("0", 0), ("+5", 5), ("-5", None), ("5 ", None), ("5.0", None), ("٣", None),
        ("1_0", None), ("--5", None), ("-", None), ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None), ("0" * 19 + "7", 7), ("0" * 20 + "7", None),
    ],
)  # fmt: skip
def test_whole_numbers_are_what_a_long_can_hold(text: str | None, number: int | None) -> None:
    assert props.whole_number(text) == number


def test_whole_numbers_have_bounds() -> None:
    for text, number in (("-3", -3), ("-2", -2), ("4", 4), ("-4", None), ("5", None)):
        assert props.whole_number(text, -3, 4) == number


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 1_000])
def test_javas_hash_of_texts_of_any_length(length: int) -> None:
    def java(text: str) -> int:
        value = 0
        data = text.encode("utf-16-be")
        for at in range(0, len(data), 2):
            value = (31 * value + int.from_bytes(data[at : at + 2], "big")) % 2**32
        return value - 2**32 if value >= 2**31 else value

    for text in ("a" * length, "é" * length, "zY9%" * (length // 4), "\U0001f600" * length):
        assert props.java_hash(text) == java(text)
