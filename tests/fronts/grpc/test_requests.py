# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from aerobee.fronts.grpc import requests
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.requests import MAX_BESIDE_BODIES, MAX_PARTS, reader
from aerobee.fronts.grpc.status import Refused

LARGE = 4 * 1024 * 1024


def message(body: bytes, **user: str) -> pb.Message:
    made = pb.Message(body=body)
    made.topic.name = "orders"
    made.user_properties.update(user)
    return made


def test_large_bodies_are_read_and_nothing_of_them_counts() -> None:
    sent = pb.SendMessageRequest(messages=[message(b"\x0a\x00" * (LARGE // 2), a="1") for _ in range(2)])
    data = sent.SerializeToString()
    assert reader(pb.SendMessageRequest)(data) == sent
    assert requests._beside_bodies(data) == len(data) - 2 * LARGE


@pytest.mark.parametrize(
    "unit",
    [
        b"\x0a\x00",
        b"\x0a\x02\x12\x00",
        b"\x0a\x04\x12\x00\x12\x00",
        b"\x0a\x02\x22\x00",
        b"\xf8\x01\x01",
        b"\x12\x00",
    ],
)
def test_a_send_of_countless_parts_is_refused_unread(unit: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pb.SendMessageRequest, "FromString", None, raising=False)
    with pytest.raises(Refused, match=f"limit {MAX_BESIDE_BODIES}|more than {MAX_PARTS} parts"):
        reader(pb.SendMessageRequest)(unit * (LARGE // len(unit)))


def test_what_carries_no_bodies_is_bounded_as_a_whole() -> None:
    data = b"\x1a\x00" * (MAX_BESIDE_BODIES // 2 + 1)
    with pytest.raises(Refused, match=r"AckMessageRequest with 262146 bytes beside bodies, limit 262144"):
        reader(pb.AckMessageRequest)(data)
    assert len(reader(pb.AckMessageRequest)(b"\x1a\x00" * 3).entries) == 3


def test_garbage_is_refused_by_name() -> None:
    for data in (b"\xff\xff\xff", b"\x0a\x7f"):
        with pytest.raises(Refused, match="the request is no SendMessageRequest"):
            reader(pb.SendMessageRequest)(data)


@pytest.mark.parametrize(
    ("unit", "parts"),
    [(b"\x0a\x00", 1), (b"\x0a\x02\x22\x00", 2), (b"\x0a\x04\x22\x00\x22\x00", 3), (b"\x12\x00", 1)],
)
def test_as_many_parts_as_there_may_be_are_counted_and_not_one_more(unit: bytes, parts: int) -> None:
    """Messages and their fields alike, beside a body that makes the request a large one."""
    large = pb.SendMessageRequest(messages=[pb.Message(body=bytes(MAX_BESIDE_BODIES))]).SerializeToString()
    for units in ((MAX_PARTS - 2) // parts, (MAX_PARTS - 2) // parts + 1):
        data, counted = large + unit * units, 2 + units * parts
        if counted <= MAX_PARTS:
            assert requests._beside_bodies(data) == len(data) - MAX_BESIDE_BODIES
        else:
            with pytest.raises(Refused, match="more than 20000 parts"):
                requests._beside_bodies(data)


def test_a_request_is_read_without_a_look_while_it_is_small() -> None:
    small = b"\x1a\x00" * (MAX_BESIDE_BODIES // 2)
    assert len(reader(pb.AckMessageRequest)(small).entries) == MAX_BESIDE_BODIES // 2


@pytest.mark.parametrize(
    ("data", "value", "end"),
    [
        (b"\x00", 0, 1),
        (b"\x7f\x01", 0x7F, 1),
        (b"\x80\x01", 0x80, 2),
        (b"\xff\xff\x03\x09", 0xFFFF, 3),
        (b"\x80", 0, 1),  # cut off
        (b"\x81" * 12, sum(1 << 7 * i for i in range(10)), 10),  # no number is longer
    ],
)
def test_numbers_of_the_wire(data: bytes, value: int, end: int) -> None:
    assert requests._varint(data, 0) == (value, end)
    assert requests._varint(b"\xff" + data, 1) == (value, end + 1)
