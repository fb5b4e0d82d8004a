# SPDX-License-Identifier: Apache-2.0
"""Bytes of gRPC messages that are not whole, counted from HTTP/2 frames however they arrive."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.errors import ProtocolError
from aerobee.fronts.grpc.mux import PREFACE
from aerobee.fronts.grpc.uploads import Uploads

DATA, HEADERS, RST_STREAM, SETTINGS, PING = 0, 1, 3, 4, 6
END_STREAM, PADDED = 1, 8


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def message(size: int) -> bytes:
    return b"\0" + struct.pack(">I", size) + bytes(size)


def fed(*frames: bytes, most: int = 1_000, streams: int = 5) -> Uploads:
    uploads = Uploads(len(PREFACE), most, streams)
    uploads.feed(PREFACE + b"".join(frames))
    return uploads


def test_a_whole_message_leaves_nothing() -> None:
    uploads = fed(frame(SETTINGS, 0), frame(HEADERS, 1, b"h" * 50), frame(DATA, 1, message(100), END_STREAM))
    assert (uploads.pending_bytes, uploads.completed) == (0, 1)


def test_a_message_in_parts_counts_until_it_is_whole() -> None:
    whole = message(100)
    uploads = fed(frame(DATA, 1, whole[:40]), frame(PING, 0, bytes(8)), frame(DATA, 3, whole[:15]))
    assert uploads.pending_bytes == 35 + 10
    uploads.feed(frame(DATA, 1, whole[40:]))
    assert (uploads.pending_bytes, uploads.completed) == (10, 1)


def test_a_stream_may_carry_many_messages() -> None:
    uploads = fed(frame(DATA, 1, message(10) + message(0) + message(20)[:12]))
    assert (uploads.pending_bytes, uploads.completed) == (7, 2)
    uploads.feed(frame(DATA, 1, bytes(13) + message(5)))
    assert (uploads.pending_bytes, uploads.completed) == (0, 4)


@pytest.mark.parametrize("last", [frame(RST_STREAM, 1, bytes(4)), frame(DATA, 1, b"", END_STREAM)])
def test_a_stream_that_ends_takes_its_part_with_it(last: bytes) -> None:
    assert fed(frame(DATA, 1, message(100)[:50]), last).pending_bytes == 0
    assert fed(frame(DATA, 3, message(100)[:50]), last).pending_bytes == 45


def test_what_grpc_refuses_is_not_counted() -> None:
    uploads = fed(frame(DATA, 1, message(1_001)[:900]), frame(DATA, 1, bytes(90)), most=1_000)
    assert uploads.pending_bytes == 0


def test_padded_frames_count_until_their_stream_ends() -> None:
    uploads = fed(frame(DATA, 1, b"\x02" + message(1) + bytes(2), PADDED), frame(DATA, 1, message(4)))
    assert uploads.pending_bytes == 9 + 9
    uploads.feed(frame(DATA, 1, b"", END_STREAM))
    assert uploads.pending_bytes == 0


def test_messages_under_way_are_limited() -> None:
    begun = [frame(DATA, stream, b"\0") for stream in range(1, 13, 2)]
    with pytest.raises(ProtocolError, match="more than 5 messages under way"):
        fed(*begun)
    fed(*(frame(DATA, stream, message(1)) for stream in range(1, 101, 2)))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([DATA, DATA, DATA, HEADERS, RST_STREAM, PING]),
            st.sampled_from([1, 3]),
            st.binary(max_size=3),
            st.sampled_from([0, 0, 0, END_STREAM, PADDED]),
            st.integers(0, 40),
        ),
        max_size=12,
    ),
    st.lists(st.integers(1, 30), min_size=1),
)
def test_it_does_not_matter_how_the_bytes_arrive(
    parts: list[tuple[int, int, bytes, int, int]], cuts: list[int]
) -> None:
    data = PREFACE + b"".join(
        frame(kind, stream, message(size) + tail if size % 2 else tail, flags)
        for kind, stream, tail, flags, size in parts
    )
    at_once, bit_by_bit = Uploads(len(PREFACE), 35, 5), Uploads(len(PREFACE), 35, 5)
    at_once.feed(data)
    at, turn = 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        bit_by_bit.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert bit_by_bit.pending_bytes == at_once.pending_bytes == sum(u.got for u in at_once._streams.values())
    assert bit_by_bit.completed == at_once.completed


@pytest.mark.parametrize(
    ("last", "left"),
    [
        (frame(HEADERS, 1, b"h", END_STREAM), 0),  # trailers
        (frame(HEADERS, 1, b"h"), 45),
        (frame(8, 1, bytes(4), END_STREAM), 45),  # a window's update: that bit says nothing there
        (frame(SETTINGS, 0, b"", END_STREAM), 45),  # an acknowledgement
        (frame(RST_STREAM, 3, bytes(4)), 45),
    ],
)
def test_only_what_ends_a_stream_ends_it(last: bytes, left: int) -> None:
    assert fed(frame(DATA, 1, message(100)[:50]), last).pending_bytes == left


def test_a_message_as_large_as_may_be_is_counted_and_a_larger_one_until_its_stream_ends_is_not() -> None:
    assert fed(frame(DATA, 1, message(1_000)[:500]), most=1_000).pending_bytes == 495
    uploads = fed(frame(DATA, 1, message(1_001)[:500]), most=1_000)
    assert uploads.pending_bytes == 0
    uploads.feed(frame(DATA, 1, b"", END_STREAM))
    uploads.feed(frame(DATA, 1, message(10)[:9]))  # its number again, as a stranger may
    assert uploads.pending_bytes == 4


def test_the_bit_before_a_streams_number_does_not_count() -> None:
    uploads = fed(frame(DATA, 1, message(100)[:50]), frame(RST_STREAM, 1 | 0x80000000, bytes(4)))
    assert uploads.pending_bytes == 0
