# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.errors import MessageIllegal, ProtocolError
from aerobee.protocol import batch
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.message import Record

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
items = st.lists(
    st.builds(BatchItem, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=30), text), max_size=5
)


@given(items)
@settings(deadline=None)
def test_a_batch_survives(sent: list[BatchItem]) -> None:
    assert batch.decode(batch.encode(sent)) == sent


def test_the_layout_is_the_documented_one() -> None:
    data = batch.encode([BatchItem(7, b"body", "a\x01b\x02")])
    assert data == struct.pack(">iiiii", 30, 0, 0, 7, 4) + b"body" + b"\0\4a\x01b\x02"


ONE = batch.encode([BatchItem(7, b"body", "a\x01b\x02")])


def changed(at: int, value: int) -> bytes:
    return ONE[:at] + struct.pack(">i", value) + ONE[at + 4 :]


@pytest.mark.parametrize(
    "data",
    [ONE[:-1], ONE + b"x", b"\0", changed(0, 0), changed(0, -1), changed(0, 2**31 - 1), changed(0, 29)]
    + [changed(16, size) for size in (-1, -24, 3, 5, 2**31 - 1)]
    + [ONE[:-6] + b"\xff\xff" + ONE[-4:], ONE[:-1] + b"\xff"],
)
def test_a_batch_that_does_not_add_up_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        batch.decode(data)


@given(st.binary(min_size=1, max_size=80))
@settings(deadline=None)
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        batch.decode(data)


@given(items.filter(bool), st.data())
@settings(deadline=None)
def test_a_cut_batch_is_a_protocol_error_or_its_first_messages(
    sent: list[BatchItem], data: st.DataObject
) -> None:
    raw = batch.encode(sent)
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    with contextlib.suppress(ProtocolError):
        assert batch.decode(cut) == sent[: len(batch.decode(cut))]


def test_properties_over_the_limit_are_refused() -> None:
    with pytest.raises(ProtocolError):
        batch.encode([BatchItem(0, b"", "x" * 32768)])


def test_an_inner_batch_is_unwrapped_with_consecutive_offsets() -> None:
    inner = [BatchItem(n, bytes([n]), f"n\x01{n}\x02") for n in range(3)]
    outer = Record("T", batch.encode(inner), "INNER_NUM\x013\x02INNER_BASE\x01100\x02", 2, 5, sys_flag=0xC0)
    found = batch.unwrap(outer)
    assert [(r.queue_offset, r.body, r.flag, r.sys_flag, r.queue_id) for r in found] == [
        (100 + n, bytes([n]), n, 0, 2) for n in range(3)
    ]
    assert batch.unwrap(Record("T", b"", sys_flag=0x40)) == [Record("T", b"", sys_flag=0x40)]


def test_a_body_of_less_than_nothing_is_refused() -> None:
    """One that would have its properties end just where its message does."""
    record = struct.pack(">iiiii", 22, 0, 0, 7, -22) + b"\0\0"
    with pytest.raises(ProtocolError, match="message of 22 bytes, body -22, 22 left"):
        batch.columns(record)


@pytest.mark.parametrize(("most", "good"), [(2, False), (3, True), (4, True)])
def test_a_batch_may_hold_so_many_and_no_more(most: int, good: bool) -> None:
    data = batch.encode([BatchItem(n, b"%d" % n, f"p{n}") for n in range(3)])
    if good:
        assert batch.columns(data, most).bodies == [b"0", b"1", b"2"]
    else:
        with pytest.raises(MessageIllegal, match="a batch of more than 2 messages; send smaller ones"):
            batch.columns(data, most)


def test_properties_may_be_as_long_as_the_limit() -> None:
    (item,) = batch.decode(batch.encode([BatchItem(0, b"x", "p" * 32_767)]))
    assert len(item.properties_text) == 32_767
    with pytest.raises(ProtocolError, match="properties of 32768 bytes, limit 32767"):
        batch.encode([BatchItem(0, b"x", "p" * 32_768)])
