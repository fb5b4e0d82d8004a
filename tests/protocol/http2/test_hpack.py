# SPDX-License-Identifier: Apache-2.0
"""Header blocks, read as a library that nobody here wrote writes them."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.errors import ProtocolError
from aerobee.protocol.http2 import huffman
from aerobee.protocol.http2.hpack import HeaderBlocks, written

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=40)
NAME = st.text("abcxyz-:", min_size=1, max_size=12)
BLOCKS = st.lists(st.lists(st.tuples(st.sampled_from([":path", "te", "x-mq", "cookie"]) | NAME, PRINTABLE)))


@given(BLOCKS, st.booleans(), st.lists(st.sampled_from([0, 64, 300, 4_096])))
def test_what_a_sender_says_with_its_memory_is_understood(
    blocks: list[list[tuple[str, str]]], packs: bool, sizes: list[int]
) -> None:
    sender, reader = hpack.Encoder(), HeaderBlocks(1 << 20)
    for number, fields in enumerate(blocks):
        if number < len(sizes):
            sender.header_table_size = sizes[number]
        assert reader.read(sender.encode(fields, huffman=packs)) == dict(fields)


@given(st.binary(max_size=60))
def test_every_text_is_unpacked(text: bytes) -> None:
    packed = hpack.huffman.HuffmanEncoder(
        hpack.huffman_constants.REQUEST_CODES, hpack.huffman_constants.REQUEST_CODES_LENGTH
    ).encode(text)
    assert huffman.unpack(packed) == text


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x00\xff\xff", b"\xfe", b"\x1f\xff"])
def test_texts_that_no_sender_packs_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        huffman.unpack(data)


@given(st.lists(st.tuples(NAME, PRINTABLE | st.text("v", min_size=120, max_size=300))))
def test_what_we_write_is_read_by_others(fields: list[tuple[str, str]]) -> None:
    assert hpack.Decoder().decode(written(*fields)) == fields


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (b"\x80", "never said"),
        (b"\xbe", "never said"),
        (b"\x40\x03abc", "ends in the middle"),
        (b"\x40\x7fabc", "ends in the middle"),
        (b"\x40\x03ABC\x01v", "lower case"),
        (b"\x40\x00\x01v", "not empty"),
        (b"\x40\x01a\x02\r\n", "printable"),
        (b"\x40\x01a\x01\xe9", "printable"),
        (b"\x3f\xff\xff\xff\xff\xff\x01", "too large"),
        (b"\x3f\xe2\x1f", "table of 4097 bytes"),
        (b"\x82\x20", "in the middle"),
        (b"\x20\x20\x20", "in the middle"),
    ],
)
def test_blocks_that_make_no_sense_are_refused(block: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        HeaderBlocks(1_000).read(block)


def test_few_bytes_that_stand_for_many_are_bounded() -> None:
    reader = HeaderBlocks(10_000)
    reader.read(b"\x40\x01a\x7f\xc9\x0f" + b"v" * 2_120)  # one field, remembered
    with pytest.raises(ProtocolError, match="headers of more than 10000 bytes"):
        reader.read(b"\xbe" * 5)


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_read_but_nothing_else_happens(block: bytes) -> None:
    reader = HeaderBlocks(4_096)
    try:
        reader.read(block)
    except ProtocolError:
        return
    assert reader._table_bytes == sum(field[2] for field in reader._remembered) <= 4_096


def test_every_character_is_unpacked_alone_and_beside_others() -> None:
    encoder = hpack.huffman.HuffmanEncoder(
        hpack.huffman_constants.REQUEST_CODES, hpack.huffman_constants.REQUEST_CODES_LENGTH
    )
    for code in range(256):
        for text in (bytes([code]), bytes([code, 97, code]), bytes([code, 255 - code])):
            assert huffman.unpack(encoder.encode(text)) == text


def test_the_usual_fields_are_those_of_the_standard() -> None:
    standard = hpack.table.HeaderTable.STATIC_TABLE
    assert len(standard) == 61
    for index, (name, value) in enumerate(standard, 1):
        assert HeaderBlocks(1_000).read(bytes([0x80 | index])) == {name.decode(): value.decode()}
        assert written((name.decode(), value.decode())) == bytes([0x80 | index])
        assert HeaderBlocks(1_000).read(b"\x0f" + bytes([index - 15]) + b"\x01v" if index >= 15 else
                                        bytes([index]) + b"\x01v") == {name.decode(): "v"}  # fmt: skip


def test_what_is_remembered_is_named_newest_first_and_the_oldest_goes() -> None:
    reader = HeaderBlocks(100_000)
    reader.read(b"\x40\x01a\x01x" + b"\x40\x01b\x01y")
    assert reader.read(b"\xbe") == {"b": "y"}
    assert reader.read(b"\xbf") == {"a": "x"}
    assert reader.read(b"\x00\x01c\x01z") == {"c": "z"}, "not to be remembered"
    assert reader.read(b"\x10\x01c\x01z") == {"c": "z"}, "nor by anybody else"
    assert reader.read(b"\xbe") == {"b": "y"}
    assert reader.read(b"\x7e\x01w") == {"b": "w"}, "by its name"
    # Three fields of 34 bytes so far. What fills the table exactly takes nobody's place.
    free = 4_096 - 3 * 34 - 32
    reader.read(b"\x40\x01d\x7f" + _length(free - 1 - 127) + b"v" * (free - 1))
    assert reader.read(b"\xc1") == {"a": "x"}
    reader.read(b"\x40\x01e\x00")
    with pytest.raises(ProtocolError, match="never said"):
        reader.read(b"\xc2")
    assert reader.read(b"\xc1") == {"b": "y"}
    # One that is larger than the table leaves it empty.
    reader.read(b"\x40\x01f\x7f" + _length(4_096 - 127) + b"v" * 4_096)
    with pytest.raises(ProtocolError, match="never said"):
        reader.read(b"\xbe")


def test_a_number_may_be_written_longer_than_it_need_be() -> None:
    assert HeaderBlocks(1_000).read(b"\x00\x01a\x7f\x81\x80\x80\x00" + b"v" * 128) == {"a": "v" * 128}


def _length(more: int) -> bytes:
    return bytes([more & 0x7F | 0x80, more >> 7])


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 254, 255, 256, 16_510, 16_511, 100_000])
def test_texts_of_every_length_are_written_and_read(size: int) -> None:
    block = written(("x", "v" * size))
    assert hpack.Decoder(max_header_list_size=1 << 20).decode(block) == [("x", "v" * size)]
    assert HeaderBlocks(1 << 20).read(block) == {"x": "v" * size}


def test_a_table_of_the_whole_size_may_be_asked_for_and_a_smaller_one_forgets() -> None:
    reader = HeaderBlocks(1_000)
    reader.read(b"\x3f\xe1\x1f" + b"\x40\x01a\x01x" + b"\x40\x01b\x01y")
    assert reader.read(b"\x3f\x03\xbe") == {"b": "y"}, "34 bytes: one of the two"
    with pytest.raises(ProtocolError, match="never said"):
        reader.read(b"\xbf")
    assert reader.read(b"\x20\x3f\xe1\x1f") == {}, "small and large again"
    with pytest.raises(ProtocolError, match="never said"):
        reader.read(b"\xbe")


def test_headers_may_count_as_much_as_the_limit() -> None:
    assert HeaderBlocks(34).read(b"\x00\x01a\x01x") == {"a": "x"}
    with pytest.raises(ProtocolError, match="headers of more than 33 bytes"):
        HeaderBlocks(33).read(b"\x00\x01a\x01x")
