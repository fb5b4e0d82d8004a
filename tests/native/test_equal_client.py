# SPDX-License-Identifier: Apache-2.0
"""What the lane does for a client, against Python: messages out of an answer's bytes, a batch out of messages."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee import native
from aerobee.client.consume.decoding import decode_messages
from aerobee.client.message import Origin
from aerobee.client.produce.outgoing import merge
from aerobee.errors import ProtocolError
from aerobee.protocol import message
from aerobee.protocol.fast_frames import Sending

if TYPE_CHECKING:
    from collections.abc import Iterator

if native.is_on:
    from aerobee.native.client_batches import merged
    from aerobee.native.client_records import take

pytestmark = pytest.mark.skipif(not native.is_on, reason="the lane is not built")

ORIGIN = Origin("b", 0, 9)
LONG = st.integers(0, 2**63 - 1)
HOST = st.sampled_from([b"\x7f\0\0\1\0\0\x2a\x9f", b"\x0a\0\0\2\0\0\0\1", bytes(20)])
RECORDS = st.builds(
    message.Record,
    topic=st.sampled_from(["T", "Tempel", "%RETRY%g", "lang" * 40, "Grüße"]),
    body=st.binary(max_size=40),
    properties_text=st.text(max_size=40),
    queue_id=st.integers(0, 2**31 - 1),
    queue_offset=LONG,
    physical_offset=LONG,
    flag=st.integers(-(2**31), 2**31 - 1),
    sys_flag=st.sampled_from([0, 0, 0, 0x8, 0x20]),
    born_timestamp=LONG,
    born_host=HOST,
    store_timestamp=LONG,
    store_host=HOST,
    reconsume_times=st.integers(0, 99),
    prepared_offset=LONG,
)


@contextmanager
def python_only() -> Iterator[None]:
    native.is_on = False
    try:
        yield
    finally:
        native.is_on = True


def decoded(data: bytes) -> Any:
    try:
        return decode_messages(data, ORIGIN)
    except ProtocolError as error:
        return str(error)


@given(st.lists(RECORDS, max_size=6))
def test_an_answer_has_the_same_messages(records: list[message.Record]) -> None:
    data = b"".join(map(message.encode, records))
    found = decoded(data)
    with python_only():
        assert found == decoded(data)
    assert len(found) == len(records)


@given(st.lists(RECORDS, min_size=1, max_size=3), st.data())
def test_damage_is_told_alike(records: list[message.Record], data: st.DataObject) -> None:
    whole = bytearray(b"".join(map(message.encode, records)))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    broken = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    found = decoded(broken)
    with python_only():
        assert found == decoded(broken)


def test_a_run_of_plain_records_is_taken_whole_and_a_special_one_left() -> None:
    plain, wide = message.Record("T", b"body"), message.Record("T", b"body", born_host=bytes(20))
    data = message.encode(plain) * 3 + message.encode(wide) + message.encode(plain)
    found: list[Any] = []
    assert take(data, 0, lambda *fields: fields, ORIGIN, 0x10, found) == len(message.encode(plain)) * 3
    assert [fields[:3] for fields in found] == [("T", b"body", "")] * 3


@given(
    st.lists(
        st.tuples(st.binary(max_size=50), st.text(max_size=20), st.integers(-(2**31), 2**31 - 1)), min_size=1
    )
)
def test_a_batch_has_the_same_bytes(members: list[tuple[bytes, str, int]]) -> None:
    sendings = [Sending("T", body, text, "ID", 7, flag=flag) for body, text, flag in members]
    found = merge(sendings)
    with python_only():
        assert found == merge(sendings)


def test_properties_too_long_for_a_batch_are_left_to_python() -> None:
    assert merged([Sending("T", b"body", "é" * 20_000, "ID", 7)], message.MAX_PROPERTIES) is None
