# SPDX-License-Identifier: Apache-2.0
"""Records written byte by byte here, and the rows and complaints that both decoders make of them. No Spark."""

from __future__ import annotations

import struct
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from aerobee.spark import schema
from aerobee.spark.decoding import columns, plain, spans

ALL = tuple(schema.COLUMNS)
V1, V2 = 0xDAA320A7, 0xDAA320AB
BORN, STORED = 1_700_000_000_123, 1_700_000_000_456
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BORN_HOST, STORE_HOST = b"\x0a\x01\x02\x03\x00\x00\x1f\x90", b"\x0a\x01\x02\x04\x00\x00\x2a\x9f"
BORN_6, STORE_6 = bytes(15) + b"\x01\x00\x00\x1f\x90", bytes(15) + b"\x02\x00\x00\x2a\x9f"
E_ACUTE = "\N{LATIN SMALL LETTER E WITH ACUTE}"
TEXT = b"TAGS\x01red\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01ID7\x02color\x01b\xc3\xa9\x02"


def record(
    body: bytes = b"hello", topic: bytes = b"orders", text: bytes = TEXT, magic: int = V1, **other: Any
) -> bytes:
    """Every field has a number of its own."""
    flag = other.get("sys_flag", 0x8)
    born_host = BORN_6 if flag & 0x10 else BORN_HOST
    store_host = STORE_6 if flag & 0x20 else STORE_HOST
    named = struct.pack(">H" if magic == V2 else ">B", len(topic)) + topic
    rest = struct.pack(">iiiqqi", other.get("crc", zlib.crc32(body) & 0x7FFFFFFF), 3, -4, 5, 6 << 33, flag)
    rest += struct.pack(">q", other.get("born", BORN)) + born_host
    rest += struct.pack(">q", other.get("stored", STORED)) + store_host
    rest += struct.pack(">iqi", 7, 8 << 33, other.get("body_size", len(body))) + body + named
    rest += struct.pack(">H", other.get("text_size", len(text))) + text
    return struct.pack(">iI", other.get("size", len(rest) + 8), magic) + rest


ROW = {
    "topic": "orders",
    "brokerName": "broker-a",
    "queueId": 3,
    "queueOffset": 5,
    "msgId": "ID7",
    "tags": "red",
    "keys": "k1 k2",
    "body": b"hello",
    "bornTimestamp": EPOCH + timedelta(milliseconds=BORN),
    "storeTimestamp": EPOCH + timedelta(milliseconds=STORED),
    "reconsumeTimes": 7,
    "properties": [("TAGS", "red"), ("KEYS", "k1 k2"), ("UNIQ_KEY", "ID7"), ("color", f"b{E_ACUTE}")],
    "flag": -4,
    "sysFlag": 0x8,
    "bornHost": "10.1.2.3:8080",
    "storeHost": "10.1.2.4:10911",
    "physicalOffset": 6 << 33,
    "storeSize": len(record()),
    "bodyCrc": zlib.crc32(b"hello") & 0x7FFFFFFF,
    "bodyCrcOk": True,
    "preparedTransactionOffset": 8 << 33,
}  # fmt: skip


def decoded(data: bytes, *positions: int, names: tuple[str, ...] = ALL) -> columns.Decoded:
    at = np.array(positions, np.int64) if positions else columns.positions_of(data)
    return columns.decode(data, at, names, "broker-a")


def in_both_ways(data: bytes, *positions: int, names: tuple[str, ...] = ALL) -> list[dict[str, Any]]:
    """Rows that both decoders make, without a complaint."""
    at = np.array(positions, np.int64) if positions else columns.positions_of(data)
    found = decoded(data, *positions, names=names)
    slowly = plain.decode_plain(data, at, names, "broker-a")
    assert (found.bad, slowly.bad) == ([], [])
    assert found.batch.equals(slowly.batch)
    found.batch.validate(full=True)
    rows: list[dict[str, Any]] = found.batch.to_pylist()
    return rows


def test_every_field_is_in_its_column() -> None:
    assert in_both_ways(record()) == [ROW]
    assert in_both_ways(record() * 3) == [ROW] * 3
    for name in ALL:
        assert in_both_ways(record() * 2, names=(name,)) == [{name: ROW[name]}] * 2


def test_columns_come_in_the_order_that_was_asked_for() -> None:
    found = decoded(record(), names=("keys", "queueId", "topic"))
    assert found.batch.schema.names == ["keys", "queueId", "topic"]
    assert found.batch.to_pylist() == [{"keys": "k1 k2", "queueId": 3, "topic": "orders"}]


@pytest.mark.parametrize(
    ("flag", "born", "store"),
    [
        (0x10, "[::1]:8080", "10.1.2.4:10911"),
        (0x20, "10.1.2.3:8080", "[::2]:10911"),
        (0x30, "[::1]:8080", "[::2]:10911"),
    ],
)
def test_hosts_of_ip_6_move_nothing_but_themselves(flag: int, born: str, store: str) -> None:
    unusual = record(sys_flag=flag)
    wide = {**ROW, "sysFlag": flag, "bornHost": born, "storeHost": store, "storeSize": len(unusual)}
    for order in ([0, 1, 1, 0, 1], [1], [1, 0], [0, 0, 1, 0]):
        data = b"".join((record(), unusual)[each] for each in order)
        assert in_both_ways(data) == [(ROW, wide)[each] for each in order]


def test_a_topic_may_be_longer_than_a_byte_can_count() -> None:
    name = b"n" * 300
    long = record(topic=name, magic=V2)
    wide = {**ROW, "topic": "n" * 300, "storeSize": len(long)}
    short = record(topic=b"s", magic=V2)
    narrow = {**ROW, "topic": "s", "storeSize": len(short)}
    assert in_both_ways(long) == [wide]
    assert in_both_ways(record() + long + short + record()) == [ROW, wide, narrow, ROW]
    byte = record(topic=b"n" * 255)
    assert in_both_ways(byte + record()) == [{**ROW, "topic": "n" * 255, "storeSize": len(byte)}, ROW]


def test_a_message_without_an_id_is_named_after_its_place() -> None:
    bare = record(text=b"A\x01b\x02")
    place = (STORE_HOST + struct.pack(">q", 6 << 33)).hex().upper()
    names = ("msgId", "tags", "keys")
    assert in_both_ways(bare, names=names) == [{"msgId": place, "tags": None, "keys": None}]
    found = in_both_ways(record() + bare + record(text=b""), names=("msgId",))
    assert [row["msgId"] for row in found] == ["ID7", place, place]


@pytest.mark.parametrize("name", ["born", "stored"])
@pytest.mark.parametrize(
    ("millis", "shown"),
    [
        (0, 0),
        (-5, -5),
        (285_000_000_000_000, 285_000_000_000_000),
        (285_000_000_000_001, 285_000_000_000_000),
        (2**63 - 1, 285_000_000_000_000),
        (-285_000_000_000_001, -285_000_000_000_000),
        (-(2**63), -285_000_000_000_000),
    ],
)
def test_a_time_that_no_calendar_has_is_cut(name: str, millis: int, shown: int) -> None:
    column = {"born": "bornTimestamp", "stored": "storeTimestamp"}[name]
    data = record() + record(**{name: millis})  # type: ignore[arg-type]
    for found in (decoded(data), plain.decode_plain(data, columns.positions_of(data), ALL, "b")):
        micros = found.batch.column(column).cast("int64").to_pylist()
        assert micros == [{"born": BORN, "stored": STORED}[name] * 1000, shown * 1000]


def test_a_packed_body_is_unpacked_and_a_broken_one_stays_as_it_is() -> None:
    packed = zlib.compress(b"hello" * 20)
    good, broken = record(packed, sys_flag=0x301), record(b"no zlib", sys_flag=0x301)
    found = in_both_ways(record() + good + broken + record(b""), names=("body", "bodyCrcOk", "sysFlag"))
    assert [row["body"] for row in found] == [b"hello", b"hello" * 20, b"no zlib", b""]
    assert [row["bodyCrcOk"] for row in found] == [True] * 4
    assert [row["sysFlag"] for row in found] == [0x8, 0x301, 0x301, 0x8]


def test_a_check_is_of_the_body_as_it_is_stored() -> None:
    wrong = record(crc=(zlib.crc32(b"hello") & 0x7FFFFFFF) ^ 1)
    high = next(bytes([n]) for n in range(256) if zlib.crc32(bytes([n])) >> 31)
    data = record() + wrong + record(high)
    found = in_both_ways(data, names=("bodyCrcOk",))
    assert [row["bodyCrcOk"] for row in found] == [True, False, True]


# -- bytes that are no record -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        ({"magic": 0xDAA320A8}, "no record magic"),
        ({"size": 90}, "size passes the end of the data"),
        ({"size": 1_000_000}, "size passes the end of the data"),
        ({"body_size": -1}, "body passes the end of the record"),
        ({"body_size": 10_000}, "body passes the end of the record"),
        ({"text_size": 60_000}, "topic or properties pass the end of the record"),
        ({"text_size": len(TEXT) + 1}, "topic or properties pass the end of the record"),
    ],
    ids=str,
)
def test_what_is_no_record_is_left_out_and_told_with_its_place(damaged: dict[str, int], reason: str) -> None:
    good = record()
    bad = record(**damaged)  # type: ignore[arg-type]
    data = good + bad + good
    found = decoded(data, 0, len(good), len(good) + len(bad))
    assert found.batch.to_pylist() == [ROW, ROW]
    assert found.bad == [columns.BadRecord(len(good), reason)]
    unusual = record(sys_flag=0x10)
    mixed = decoded(data + unusual, 0, len(good), len(good) + len(bad), len(data))
    assert [row["sysFlag"] for row in mixed.batch.to_pylist()] == [0x8, 0x8, 0x10]
    assert mixed.bad == found.bad


def test_fields_may_reach_the_end_of_the_record_and_no_further() -> None:
    bare = record(b"", b"", b"")
    assert len(bare) == 91
    (row,) = in_both_ways(bare)
    assert (row["topic"], row["body"], row["properties"], row["tags"]) == ("", b"", [], None)
    full = record(b"hello", b"orders", b"")
    longer = bytearray(full)
    longer[88 + 5] += 1  # the topic takes what is left
    assert decoded(bytes(longer)).bad == [
        columns.BadRecord(0, "topic or properties pass the end of the record")
    ]
    for more, reason in ((0, ""), (1, "topic or properties pass"), (6, "topic or"), (7, "body passes")):
        found = decoded(record(b"", b"orders"[:6], b"", body_size=more)).bad
        assert [each.reason.startswith(reason) for each in found] == [True] * bool(reason)


def test_positions_outside_the_data_are_told_and_the_others_read() -> None:
    good = record(b"", b"", b"")
    data = good * 2
    found = decoded(data, -1, 0, 91, 92, 500, names=("queueId",))
    assert found.batch.num_rows == 2
    assert found.bad == [columns.BadRecord(at, "cut off") for at in (-1, 92, 500)]
    assert decoded(data[:-1], 0, 91, names=("queueId",)).bad == [columns.BadRecord(91, "cut off")]
    assert decoded(data, 0, 92, names=("queueId",)).batch.num_rows == 1
    assert decoded(b"", 0, names=("queueId", "tags")).bad == [columns.BadRecord(0, "cut off")]


def test_nothing_is_a_batch_without_rows() -> None:
    for names in (ALL, ("msgId",), ("body", "topic"), ()):
        found = columns.decode(b"", np.empty(0, np.int64), names, "b")
        assert found.batch.num_rows == 0
        assert found.batch.schema == schema.arrow_schema(names)
        assert found.bad == []
    only_bad = decoded(record(magic=7, sys_flag=0x30))
    assert (only_bad.batch.num_rows, len(only_bad.bad)) == (0, 1)


@pytest.mark.parametrize(
    ("data", "positions"),
    [
        (b"", []),
        (b"\0\0\0", []),
        (struct.pack(">i", 4), [0]),
        (struct.pack(">i", 8) + b"abcd", [0]),
        (struct.pack(">i", 5) + b"x" + struct.pack(">i", 4), [0, 5]),
        (struct.pack(">i", 5) + b"x" + b"\0\0\0", [0]),
        (struct.pack(">i", 4) + struct.pack(">i", 0) + struct.pack(">i", 4), [0, 4]),
        (struct.pack(">i", 4) + struct.pack(">i", -4) + struct.pack(">i", 4), [0, 4]),
        (struct.pack(">i", 4) + struct.pack(">i", 1_000) + struct.pack(">i", 4), [0, 4]),
    ],
)
def test_each_record_leads_to_the_next_until_one_leads_nowhere(data: bytes, positions: list[int]) -> None:
    assert columns.positions_of(data).tolist() == positions


# -- ranges of bytes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "size"),
    [
        ([], []),
        ([0], [0]),
        ([3], [4]),
        ([0, 4, 8], [4, 4, 4]),
        ([2, 6, 22], [3, 3, 4]),
        ([2, 6, 22], [3, 0, 4]),
        ([2, 6, 22], [0, 0, 0]),
        ([0, 6, 6], [5, 0, 4]),
        ([1, 2, 25], [1, 1, 1]),
        ([0], [26]),
    ],
)
def test_ranges_of_any_width_are_gathered(start: list[int], size: list[int]) -> None:
    data = bytes(range(97, 123))
    found = spans.gather(pa.py_buffer(data), np.array(start, np.int64), np.array(size, np.int64))
    assert found.type == pa.binary()
    assert found.to_pylist() == [data[a : a + n] for a, n in zip(start, size, strict=True)]
    found.validate(full=True)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 1_000])
def test_a_constant_stands_in_every_row(count: int) -> None:
    assert spans.constant("broker", count).to_pylist() == ["broker"] * count


def test_text_that_is_none_gets_signs_that_say_so_and_nothing_stays_nothing() -> None:
    raw = pa.array([b"ok", None, b"\xff!", f"h{E_ACUTE}".encode()])
    assert spans.valid_text(raw).to_pylist() == [
        "ok",
        None,
        "\N{REPLACEMENT CHARACTER}!",
        f"h{E_ACUTE}",
    ]
