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


@pytest.mark.parametrize(("size", "good"), [(12, True), (13, False)])
def test_a_frame_that_comes_whole_is_held_to_the_limit_too(size: int, good: bool) -> None:
    for data in (framed(bytes(size)), framed(bytes(size)) + framed(b"x")):
        decoder = FrameDecoder(max_frame=16)
        if good:
            assert decoder.feed(data)[0] == bytes(size)
        else:
            with pytest.raises(ProtocolError, match="frame of 17 bytes, limit 16"):
                decoder.feed(data)


@pytest.mark.parametrize("cut", range(1, 24))
def test_frames_taken_one_by_one_are_those_that_are_fed(cut: int) -> None:
    """For a reader that joins what came and cuts it himself."""
    bodies = [b"abcd", b"", b"12345678", b"w"]
    data, decoder, found = b"".join(map(framed, bodies)), FrameDecoder(), []
    for start in range(0, len(data), cut):
        joined, at = decoder.join(data[start : start + cut]), 0
        while at < len(joined):
            frame, at = decoder.cut(joined, at)
            if frame is not None:
                found.append(frame)
    assert found == bodies
    assert decoder.pending_bytes == 0


def test_what_is_left_of_a_frame_is_kept_once() -> None:
    decoder = FrameDecoder()
    joined = decoder.join(framed(b"abcd") + b"\0\0")
    frame, at = decoder.cut(joined, 0)
    assert (frame, at) == (b"abcd", 8)
    assert decoder.cut(joined, at) == (None, 10)
    assert bytes(decoder.pending) == b"\0\0"
    assert decoder.join(b"\0") == b"", "its length is not whole yet"
    assert decoder.join(b"\1x") == framed(b"x")
    assert decoder.pending_bytes == 0


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_length_that_comes_in_pieces_is_held_to_the_limit_before_its_frame_comes(cut: int) -> None:
    """Else one byte sent ahead would have us keep gigabytes."""
    start = struct.pack(">I", 13)
    for way in (FrameDecoder.feed, FrameDecoder.join):
        decoder = FrameDecoder(max_frame=16)
        decoder.feed(start[:cut])
        with pytest.raises(ProtocolError, match="frame of 17 bytes, limit 16"):
            way(decoder, start[cut:])
