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
