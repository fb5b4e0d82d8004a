# SPDX-License-Identifier: Apache-2.0
"""What may be sent, up to the last byte, and how it is made ready."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from aerobee.client.message import Message
from aerobee.client.options import Options
from aerobee.client.produce.outgoing import check_batch, is_delayed, merge, prepare, prepare_batch, split
from aerobee.protocol import batch

# -- messages to be sent -------------------------------------------------------------------------------------

DELAYS: dict[str, Any] = {"delay_level": 3, "deliver_at": 5, "delay_ms": 0}


@pytest.mark.parametrize("several", [*itertools.combinations(DELAYS, 2)])
def test_no_two_delays_go_together(several: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="not several"):
        Message("T", b"x", **{name: DELAYS[name] for name in several})
    with pytest.raises(ValueError, match="not several"):
        Message("T", b"x", **DELAYS)


@pytest.mark.parametrize(
    "right",
    [
        {"delay_level": 1},
        {"delay_level": 18},
        {"deliver_at": 1},
        {"delay_ms": 0},
        {"body": b"x" * 4 * 1024 * 1024},
        {"body": bytearray(b"x")},
        {"topic": "x" * 127},
    ],
)
def test_the_outermost_of_what_is_allowed_is_taken(right: dict[str, Any]) -> None:
    message = Message(**{"topic": "T", "body": b"x", **right})
    assert type(message.body) is bytes
    delayed = right.keys() & DELAYS.keys()
    assert is_delayed(message) is bool(delayed)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"deliver_at": 0}, "deliver_at is 0"),
        ({"deliver_at": True}, "deliver_at is True"),
        ({"delay_ms": -1}, "delay_ms is -1"),
        ({"sharding_key": "a\x02"}, "sharding_key"),
        ({"keys": [""]}, "is empty or holds white space"),
        ({"keys": ["a\x01"]}, "0x01"),
        ({"properties": {" ": "x"}}, "neither may be blank"),
        ({"properties": {"x": "\x02"}}, "property 'x'"),
    ],
)
def test_what_is_just_past_it_is_not(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Message(**{"topic": "T", "body": b"x", **wrong})


def made(body: bytes = b"x", **more: Any) -> Message:
    return Message(**{"topic": "T", "body": body, "message_id": "ID", **more})


def test_limits_of_a_producer_are_counted_in_bytes_and_reached_without_harm() -> None:
    small = Options(max_message_bytes=1_024)
    assert prepare(made(b"x" * 1_024), small, 0).body == b"x" * 1_024
    with pytest.raises(ValueError, match="has 1025 bytes, max_message_bytes is 1024"):
        prepare(made(b"x" * 1_025), small, 0)
    around = len(prepare(made(properties={"p": "v"}), Options(), 0).properties_text) - 1
    room = 32_767 - around
    assert len(prepare(made(properties={"p": "v" * room}), Options(), 0).properties_text) == 32_767
    with pytest.raises(ValueError, match="have 32768 bytes, limit 32767"):
        prepare(made(properties={"p": "v" * (room + 1)}), Options(), 0)
    with pytest.raises(ValueError, match="limit 32767"):
        prepare(made(properties={"p": "\N{OGHAM LETTER BEITH}" * 11_000}), Options(), 0)
    with pytest.raises(ValueError, match="limit 32767"):
        prepare(made(), Options(), 0, extra="x" * 32_767)


def test_what_does_not_shrink_is_sent_as_it_is() -> None:
    noise = random.Random(7).randbytes(5_000)
    sending = prepare(made(noise), Options(), 0)
    assert (sending.body, sending.sys_flag) == (noise, 0)
    late = prepare(made(b"x" * 200), Options(compress_over_bytes=100), 0)
    assert (len(late.body) < 200, late.sys_flag != 0) == (True, True)


@pytest.mark.parametrize(
    ("more", "extra", "options", "may"),
    [
        ({}, "", {}, True),
        ({}, "", {"merge_sends": False}, False),
        ({}, "CORRELATION_ID\x011\x02", {}, False),
        ({"delay_level": 1}, "", {}, False),
        ({"delay_ms": 0}, "", {}, False),
        ({"body": b"x" * 5_000}, "", {}, False),
        ({"topic": "%RETRY%g"}, "", {}, False),
    ],
)
def test_only_what_a_batch_may_hold_is_merged(
    more: dict[str, Any], extra: str, options: dict[str, Any], may: bool
) -> None:
    sending = prepare(made(**{"body": b"x", **more}), Options(**options), 12, extra)
    assert bool(sending.may_merge) is may
    assert (sending.born, sending.message_id) == (12, "ID")
    assert sending.properties_text.endswith(extra)


def test_a_batch_is_cut_exactly_where_the_next_message_would_not_fit() -> None:
    messages = [made(b"x" * 100, message_id=str(n)) for n in range(7)]
    one = len(prepare_batch(messages[:1], 0).body)
    for limit, sizes in ((3 * one, [3, 3, 1]), (3 * one - 1, [2, 2, 2, 1]), (one - 1, [1] * 7)):
        assert [len(part) for part in split(messages, limit)] == sizes
    assert split([], 10) == []


def test_a_batch_is_cut_by_its_bytes_not_its_letters() -> None:
    """Else the broker refuses what we took for small enough."""
    messages = [made(b"x", message_id=str(n), tags="标签" * 40) for n in range(6)]
    limit = len(prepare_batch(messages[:2], 0).body)
    parts = split(messages, limit)
    assert [len(part) for part in parts] == [2, 2, 2]
    assert {len(prepare_batch(part, 0).body) for part in parts} == {limit}


def test_a_batch_keeps_flags_ids_and_time_and_a_merged_one_has_no_id() -> None:
    messages = [made(b"a", flag=1, message_id="1"), made(b"b", flag=2, message_id="2", tags="B")]
    together = prepare_batch(messages, 9)
    assert (together.topic, together.born, together.message_id) == ("T", 9, "1,2")
    assert together.properties_text == "UNIQ_KEY\x011\x02WAIT\x01true\x02"
    merged = merge([prepare(each, Options(), 9) for each in messages])
    assert (merged.topic, merged.born, merged.message_id) == ("T", 9, "")
    assert merged.properties_text == "WAIT\x01true\x02"
    for sending in (together, merged):
        items = batch.decode(sending.body)
        assert [(item.flag, item.body) for item in items] == [(1, b"a"), (2, b"b")]
        assert ["TAGS\x01B\x02" in item.properties_text for item in items] == [False, True]
    assert check_batch(messages) == "T"
