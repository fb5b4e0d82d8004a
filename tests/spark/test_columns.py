# SPDX-License-Identifier: Apache-2.0
"""The vectorised decoder equals the plain one on every message, and no bytes make it raise."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.protocol import message, properties
from aerobee.protocol.compression import Compression, compress, compressed_flag
from aerobee.protocol.message import Record
from aerobee.spark import schema
from aerobee.spark.decoding import alike, columns, pairs, spans
from aerobee.spark.decoding.plain import decode_plain

ALL = tuple(schema.COLUMNS)
V4 = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
V6 = bytes(15) + b"\x01\x00\x00\x2a\x9f"

names = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=12)
texts = st.dictionaries(
    st.one_of(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "XTAGS", "__CRC32#"]), names), names, max_size=5
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    body = draw(st.binary(max_size=200))
    sys_flag = 0
    if draw(st.integers(0, 4)) == 0 and body:
        kind = draw(st.sampled_from(Compression))
        body, sys_flag = compress(body, kind), compressed_flag(0, kind)
    text = properties.render(draw(texts))
    if text and draw(st.booleans()):
        text = text[:-1]  # some producers leave the last separator out
    return Record(
        topic=draw(st.sampled_from(["orders", "t" * 130, "主题"])),
        body=body,
        properties_text=text,
        queue_id=draw(st.integers(0, 7)),
        queue_offset=draw(st.integers(0, 2**40)),
        physical_offset=draw(st.integers(0, 2**40)),
        flag=draw(st.integers(-5, 5)),
        sys_flag=sys_flag,
        born_timestamp=draw(st.integers(0, 2**41)),
        born_host=draw(st.sampled_from([V4, V4, V4, V6])),
        store_timestamp=draw(st.integers(0, 2**41)),
        store_host=draw(st.sampled_from([V4, V4, V4, V6])),
        reconsume_times=draw(st.integers(0, 16)),
        prepared_offset=draw(st.integers(0, 2**40)),
    )


def both(
    data: bytes, positions: np.ndarray, names: tuple[str, ...] = ALL
) -> tuple[columns.Decoded, columns.Decoded]:
    return columns.decode(data, positions, names, "broker-a"), decode_plain(
        data, positions, names, "broker-a"
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(records(), max_size=20))
def test_vectorised_equals_plain(messages: list[Record]) -> None:
    data = b"".join(message.encode(record) for record in messages)
    fast, plain = both(data, columns.positions_of(data))
    assert fast.batch.schema == plain.batch.schema == schema.arrow_schema(ALL)
    assert fast.batch.to_pylist() == plain.batch.to_pylist()
    assert fast.bad == [] == plain.bad


pair = st.tuples(
    st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "tags", "UNIQ_KEX"]), st.sampled_from("abc")
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(pair, min_size=3, max_size=3), min_size=1, max_size=4), st.booleans())
def test_rows_alike_and_rows_that_only_look_alike_give_their_own_values(
    rows: list[list[tuple[str, str]]], alike: bool
) -> None:
    if alike:  # as one producer writes them: the same names in every row
        rows = [[(name, value) for (name, _), (_, value) in zip(rows[0], row, strict=True)] for row in rows]
    text = ["".join(f"{name}\x01{value}\x02" for name, value in row) for row in rows]
    data = b"".join(message.encode(Record("t", b"x", one)) for one in text)
    fast, plain = both(data, columns.positions_of(data), ("msgId", "tags", "keys"))
    assert fast.batch.equals(plain.batch)


changes = st.lists(
    st.tuples(st.integers(0, 39), st.integers(0, 99), st.sampled_from(b"\x00\x01\x02ab")),
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(pair, min_size=1, max_size=4), st.integers(1, 40), changes)
def test_rows_of_one_length_that_differ_anywhere_give_their_own_values(
    row: list[tuple[str, str]], count: int, changes: list[tuple[int, int, int]]
) -> None:
    """Names, marks and ends may differ too, in the rows looked at together and in those behind them."""
    text = "".join(f"{name}\x01{value * 3}\x02" for name, value in row)
    one = message.encode(Record("t", b"x", text))
    data = bytearray(one * count)
    for at_row, column, byte in changes:
        data[(at_row % count + 1) * len(one) - len(text) + column % len(text)] = byte
    fast, plain = both(bytes(data), columns.positions_of(bytes(data)), ("msgId", "tags", "keys"))
    assert fast.batch.equals(plain.batch)


@pytest.mark.parametrize("count", [1, 2, 40])
def test_a_value_that_is_no_text_is_made_one(count: int) -> None:
    data = bytearray(b"".join(message.encode(Record("t", b"x", f"TAGS\x01{i:03}\x02")) for i in range(count)))
    data[-3] = 0xFF
    found = columns.decode(bytes(data), columns.positions_of(bytes(data)), ("tags",), "b")
    wanted = [f"{i:03}" for i in range(count - 1)] + [f"0\N{REPLACEMENT CHARACTER}{(count - 1) % 10}"]
    assert found.batch.column("tags").to_pylist() == wanted
    found.batch.validate(full=True)


@settings(max_examples=100, deadline=None)
@given(st.lists(records(), min_size=1, max_size=6), st.data())
def test_damaged_bytes_are_reported_and_never_raise(messages: list[Record], data: st.DataObject) -> None:
    raw = bytearray(b"".join(message.encode(record) for record in messages))
    positions = columns.positions_of(bytes(raw))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))])
    for names in (ALL, ("body",), ("msgId", "tags")):
        found = columns.decode(cut, positions, names, "b")
        assert found.batch.num_rows + len(found.bad) >= len(positions)
        found.batch.validate(full=True)


def test_a_record_that_a_damaged_flag_made_an_empty_batch_is_reported() -> None:
    raw = bytearray(message.encode(Record("orders", b"")))
    raw[39] = 0xC0
    for found in both(bytes(raw), np.array([0])):
        assert (found.batch.num_rows, [bad.position for bad in found.bad]) == (0, [0])


def test_only_asked_columns_are_made() -> None:
    data = message.encode(Record("t", b"x", queue_offset=7))
    found = columns.decode(data, columns.positions_of(data), ("queueOffset", "body"), "b")
    assert found.batch.to_pydict() == {"queueOffset": [7], "body": [b"x"]}


def test_a_body_that_fails_its_crc_is_told_apart() -> None:
    good, bad = message.encode(Record("t", b"good")), bytearray(message.encode(Record("t", b"evil")))
    bad[88] ^= 1
    data = good + bytes(bad)
    found = columns.decode(data, columns.positions_of(data), ("bodyCrcOk",), "b")
    assert found.batch.column("bodyCrcOk").to_pylist() == [True, False]


def test_the_record_check_is_no_property_of_the_user() -> None:
    text = "A\x01b\x02"
    record = message.encode(Record("t", b"x", text + "__CRC32#\x010123456789\x02"))
    found = columns.decode(record, columns.positions_of(record), ("properties",), "b")
    assert found.batch.column("properties").to_pylist() == [[("A", "b")]]


def test_an_inner_batch_becomes_its_messages() -> None:
    def entry(body: bytes, text: bytes) -> bytes:
        return (
            struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, 0, len(body))
            + body
            + struct.pack(">H", len(text))
            + text
        )

    inner = entry(b"one", b"TAGS\x01A\x02") + entry(b"two", b"TAGS\x01B\x02")
    data = message.encode(Record("t", b"before", queue_offset=4)) + message.encode(
        Record("t", inner, queue_offset=5, sys_flag=0xC0)
    )
    found = columns.decode(
        data, columns.positions_of(data), ("queueOffset", "body", "tags", "bodyCrcOk"), "b"
    )
    assert found.batch.to_pydict() == {
        "queueOffset": [4, 5, 6],
        "body": [b"before", b"one", b"two"],
        "tags": [None, "A", "B"],
        "bodyCrcOk": [True, True, True],
    }


def test_empty_and_large_bodies_pass() -> None:
    bodies = [b"", bytes(range(256)) * 16384, b"x"]
    data = b"".join(message.encode(Record("t", body)) for body in bodies)
    found = columns.decode(data, columns.positions_of(data), ("body", "bodyCrc"), "b")
    assert found.batch.column("body").to_pylist() == bodies
    assert found.batch.column("bodyCrc").to_pylist() == [zlib.crc32(body) & 0x7FFFFFFF for body in bodies]


def test_a_mapped_buffer_beyond_two_gibibytes_is_gathered() -> None:
    # The ranges of one batch may lie further apart than 32-bit offsets reach; a sparse buffer stands for the log.
    import mmap

    size = (1 << 31) + 4096
    big = mmap.mmap(-1, size)
    record = message.encode(Record("t", b"far"))
    places = [100, (1 << 31) + 100]
    for place in places:
        big[place : place + len(record)] = record
    buffer = pa.py_buffer(big)
    found = columns.decode(buffer, np.array(places, np.int64), ("body", "topic"), "b")
    assert found.batch.column("body").to_pylist() == [b"far", b"far"]
    del found, buffer


@pytest.mark.parametrize("wrong", ["bodyy", "Topicc"])
def test_an_unknown_column_names_the_nearest(wrong: str) -> None:
    with pytest.raises(ValueError, match="did you mean"):
        schema.check((wrong,))


def as_rows(*texts: bytes) -> tuple[Any, Any]:
    data = np.frombuffer(b"".join(texts), np.uint8)
    return data, np.cumsum([0, *map(len, texts)])


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 40])
def test_rows_alike_are_seen_to_be_and_read_as_a_table(count: int) -> None:
    texts = [b"TAGS\x01%02d\x02KEYS\x01same\x02" % n for n in range(count)]
    found = alike.alike(*as_rows(*texts))
    assert found is not None, "else each row is taken apart by itself"
    assert (found.rows, found.width, found.ascii) == (count, len(texts[0]), True)
    assert found.lookup(b"TAGS").to_pylist() == [f"{n:02d}" for n in range(count)]
    assert found.lookup(b"KEYS").to_pylist() == ["same"] * count
    assert found.lookup(b"OTHER").to_pylist() == [None] * count


@pytest.mark.parametrize(
    "texts",
    [
        (),
        (b"", b""),
        (b"a\x01b\x02", b"a\x01bc\x02"),
        (b"a\x01b\x02", b"c\x01b\x02"),
        (b"a\x01bbb\x02", b"a\x01b\x02b\x02"),
        (b"a\x01b\x02bb", b"a\x01bbbb"),
        (b"aa\x01b\x02", b"a\x01bb\x02"),
    ],
)
def test_rows_that_differ_in_more_than_values_are_no_table(texts: tuple[bytes, ...]) -> None:
    assert alike.alike(*as_rows(*texts)) is None


@pytest.mark.parametrize("flag", [0x40, 0x80, 0x10, 0x20, 0x30, 0x8, 0x4])
def test_half_of_a_flag_makes_no_batch_and_one_host_of_six_is_enough(flag: int) -> None:
    """Only both bits together make an inner batch; either host may be of IPv6."""
    made = Record("t", b"x", "TAGS\x01a\x02", queue_offset=3, sys_flag=flag & ~0x30)
    made.born_host, made.store_host = (V6 if flag & 0x10 else V4), (V6 if flag & 0x20 else V4)
    plain = message.encode(Record("t", b"y", "TAGS\x01b\x02"))
    data = plain + message.encode(made) + plain
    fast, slow = both(data, columns.positions_of(data))
    assert fast.batch.to_pylist() == slow.batch.to_pylist()
    assert [row["tags"] for row in fast.batch.to_pylist()] == ["b", "a", "b"]
    assert (fast.bad, slow.bad) == ([], [])


def pairs_of(*texts: bytes) -> pairs.Pairs:
    return pairs.Pairs(pa.array(list(texts), pa.binary()))


USUAL = [b"TAGS\x01a\x02KEYS\x01k%d\x02" % (10**n) for n in range(5)]


def test_rows_with_as_many_pairs_are_read_by_their_places() -> None:
    """The short road of most topics; what it finds is compared with the long one elsewhere."""
    found = pairs_of(*USUAL)
    assert found._alike is None, "their lengths differ"
    assert pairs_of(*[b"TAGS\x01a\x02KEYS\x01k%d\x02" % n for n in range(5)])._alike is not None
    assert found._ends is not None
    assert found._ends.shape == (2, 5)
    assert found._names == [b"TAGS\x01", b"KEYS\x01"]
    assert found.lookup(b"KEYS").to_pylist() == [f"k{10**n}" for n in range(5)]
    assert "_split" not in vars(found), "nothing was taken apart for it"
    assert found.lookup(b"OTHER").to_pylist() == [None] * 5
    mixed = pairs_of(*USUAL[:2], b"KEYS\x01x\x02TAGS\x01yy\x02")
    assert mixed._names == [None, None]
    assert mixed.lookup(b"KEYS").to_pylist() == ["k1", "k10", "x"]


@pytest.mark.parametrize(
    "texts", [[*USUAL, b""], [*USUAL, b"TAGS\x01a\x02"], [b"", b""], [b"A\x01b\x02", b"A\x01b\x02c"]]
)
def test_rows_with_more_or_fewer_pairs_are_not(texts: list[bytes]) -> None:
    assert pairs_of(*texts)._ends is None


def test_usual_texts_are_taken_apart_at_once_and_odd_ones_piece_by_piece() -> None:
    def regular(*texts: bytes) -> bool:
        found = pairs_of(*texts)
        marks, ends = np.flatnonzero(found._data == 1), np.flatnonzero(found._data == 2)
        return found._regular(marks, ends) is not None

    assert regular(*USUAL)
    assert regular(*USUAL, b"", b"A\x01b\x02")
    assert regular(b"", b"")
    for odd in (b"A\x01b", b"\x01b\x02", b"A\x01\x02", b"A\x02", b"A\x01b\x02\x02", b"A\x01b\x01c\x02", b"x"):
        assert not regular(*USUAL, odd), odd


def test_texts_of_plain_letters_need_no_second_look() -> None:
    assert spans._is_ascii(None) is True
    assert spans._is_ascii(pa.py_buffer(b"~\x7f")) is True
    assert spans._is_ascii(pa.py_buffer(b"a\x80")) is False


def test_a_row_of_one_letter_is_no_part_of_the_next() -> None:
    found = pairs_of(b"A\x01b\x02", b"x", b"C\x01d\x02", b"", b"\x02", b"E\x01f\x02")
    assert found.as_map().to_pylist() == [[("A", "b")], [], [("C", "d")], [], [], [("E", "f")]]
    assert found.lookup(b"C").to_pylist() == [None, None, "d", None, None, None]


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_property_without_a_value_is_none_in_a_table_too(count: int) -> None:
    found = alike.alike(*as_rows(*[b"TAGS\x01\x02KEYS\x01k%02d\x02" % n for n in range(count)]))
    assert found is not None
    assert found.lookup(b"TAGS").to_pylist() == [None] * count
    assert found.lookup(b"KEYS").to_pylist() == [f"k{n:02d}" for n in range(count)]
