# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import ProtocolError
from aerobee.protocol.compression import Compression, compress, compressed_flag, decompress

KINDS = list(Compression)
LIMIT = 1 << 20


@pytest.mark.parametrize("kind", KINDS)
@given(body=st.binary(max_size=300))
@settings(deadline=None, max_examples=30)
def test_bodies_survive(kind: Compression, body: bytes) -> None:
    assert decompress(compress(body, kind), compressed_flag(0, kind)) == body


def test_the_flags_are_those_java_sends() -> None:
    assert compressed_flag(0, Compression.ZLIB) == 0x301
    assert compressed_flag(0x708, Compression.LZ4) == 0x109


def test_an_uncompressed_body_is_left_alone() -> None:
    assert decompress(b"plain", 0x300) == b"plain"


def test_no_type_means_zlib() -> None:
    assert decompress(zlib.compress(b"old client"), 1) == b"old client"


def test_what_other_libraries_write_is_read() -> None:
    assert decompress(lz4.frame.compress(b"x" * 99, store_size=False), 0x101) == b"x" * 99
    streamed = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    assert decompress(streamed.compress(b"x" * 99) + streamed.flush(), 0x201) == b"x" * 99


def test_an_unknown_type_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="compression type 4"):
        decompress(b"", 0x401)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_stops_at_the_limit(kind: Compression) -> None:
    exact, over = (compress(b"\0" * size, kind) for size in (LIMIT, LIMIT + 1))
    bomb = compress(b"\0" * (16 * LIMIT), kind)
    assert len(decompress(exact, 1 | kind, LIMIT)) == LIMIT
    for data in (over, bomb):
        with pytest.raises(ProtocolError, match="grows past"):
            decompress(data, 1 | kind, LIMIT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_cut_anywhere_is_a_protocol_error(kind: Compression) -> None:
    data = compress(b"some text, some text, more text" * 3, kind)
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            decompress(data[:end], 1 | kind)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.binary(max_size=80), head=st.booleans())
@settings(deadline=None, max_examples=100)
def test_garbage_is_a_protocol_error(kind: Compression, data: bytes, head: bool) -> None:
    body = compress(b"text text text", kind)[:8] + data if head else data
    with contextlib.suppress(ProtocolError):
        assert len(decompress(body, 1 | kind, LIMIT)) <= LIMIT
