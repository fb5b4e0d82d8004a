# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.consume.decoding import decode_messages
from aerobee.client.message import Origin
from aerobee.errors import ProtocolError
from aerobee.protocol import batch, compression, message
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.message import Record

ORIGIN = Origin("broker-a", 3, 9)
V6 = b"\0" * 15 + b"\1" + b"\0\0\0\1"

records = st.builds(
    Record,
    topic=st.text("abcXYZ%_-é", min_size=1, max_size=60),
    body=st.binary(max_size=200),
    properties_text=st.text(max_size=80),
    queue_id=st.integers(0, 100),
    queue_offset=st.integers(0, 2**60),
    physical_offset=st.integers(0, 2**60),
    flag=st.integers(0, 2**31 - 1),
    sys_flag=st.sampled_from([0, 2, 4, 8, 12]),
    born_timestamp=st.integers(0, 2**45),
    born_host=st.sampled_from([b"\x7f\0\0\1\0\0\0\1", V6]),
    store_timestamp=st.integers(0, 2**45),
    store_host=st.sampled_from([b"\x7f\0\0\1\0\0\0\2", V6]),
    reconsume_times=st.integers(0, 99),
    prepared_offset=st.integers(0, 2**60),
)


@given(st.lists(records, max_size=5))
def test_the_fast_way_reads_what_the_careful_way_reads(items: list[Record]) -> None:
    body = b"".join(map(message.encode, items))
    fast = decode_messages(body, ORIGIN)
    for one, careful in zip(fast, message.decode_all(body), strict=True):
        assert all(getattr(one, name) == getattr(careful, name) for name in Record.__struct_fields__)
        assert one.origin is ORIGIN


@pytest.mark.parametrize("kind", list(compression.Compression))
def test_bodies_arrive_decompressed(kind: compression.Compression) -> None:
    packed = compression.compress(b"x" * 9000, kind)
    record = Record("T", packed, sys_flag=compression.compressed_flag(0, kind))
    (found,) = decode_messages(message.encode(record), ORIGIN)
    assert found.body == b"x" * 9000
    assert not found.sys_flag & 1


@pytest.mark.seed("S001-24")
def test_a_batch_stored_as_one_record_arrives_as_its_messages() -> None:
    inner = batch.encode([BatchItem(0, b"one", "TAGS\x01A\x02"), BatchItem(0, b"two")])
    record = Record("T", inner, "INNER_NUM\x012\x02", queue_offset=10, sys_flag=0xC0)
    found = decode_messages(message.encode(record), ORIGIN)
    assert [(m.queue_offset, m.body, m.tags) for m in found] == [(10, b"one", "A"), (11, b"two", None)]


@given(records, st.data())
def test_damaged_answers_are_refused_or_read_but_never_crash(record: Record, data: st.DataObject) -> None:
    raw = bytearray(message.encode(record))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for damaged in (bytes(raw), bytes(raw[:cut])):
        with contextlib.suppress(ProtocolError):
            decode_messages(damaged, ORIGIN)
