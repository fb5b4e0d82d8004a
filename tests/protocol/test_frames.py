# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import ProtocolError
from aerobee.protocol.frames import DEFAULT_MAX_FRAME, FrameDecoder

bodies = st.lists(st.binary(max_size=40), max_size=8)


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@given(bodies, st.lists(st.integers(1, 30), min_size=1))
@settings(deadline=None)
def test_frames_survive_any_cutting_of_the_stream(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(framed, sent))
    decoder, found, at, turn = FrameDecoder(), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        found += decoder.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert found == sent
    assert decoder.pending_bytes == 0


def test_a_whole_read_leaves_nothing_buffered() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(framed(b"one") + framed(b"two")) == [b"one", b"two"]
    assert decoder.pending_bytes == 0


def test_the_length_counts_against_the_limit_whole() -> None:
    assert FrameDecoder(max_frame=12).feed(struct.pack(">I", 8) + b"12345678") == [b"12345678"]
    with pytest.raises(ProtocolError, match="frame of 13 bytes, limit 12"):
        FrameDecoder(max_frame=12).feed(struct.pack(">I", 9))


@pytest.mark.parametrize("size", [DEFAULT_MAX_FRAME, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_huge_length_is_refused_before_anything_is_buffered(size: int) -> None:
    decoder = FrameDecoder()
    with pytest.raises(ProtocolError):
        decoder.feed(struct.pack(">I", size) + b"x")
    assert decoder.pending_bytes == 0


def test_a_frame_that_never_ends_buffers_no_more_than_the_limit() -> None:
    decoder = FrameDecoder(max_frame=1024)
    decoder.feed(struct.pack(">I", 1020))
    for _ in range(1019):
        assert decoder.feed(b"x") == []
    assert decoder.pending_bytes == 1023
    assert decoder.feed(b"x") == [b"x" * 1020]
    assert decoder.pending_bytes == 0


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_garbage_is_frames_or_a_protocol_error(data: bytes) -> None:
    decoder = FrameDecoder(max_frame=4096)
    try:
        frames = decoder.feed(data)
    except ProtocolError:
        return
    assert sum(len(frame) + 4 for frame in frames) + decoder.pending_bytes == len(data)
