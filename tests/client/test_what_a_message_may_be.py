# SPDX-License-Identifier: Apache-2.0
"""What a message may hold, and the whole sentence that says what it may not."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from aerobee.client.message import Message

SEPARATES = "holds 0x01 or 0x02, which separate properties on the wire"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"tags": 5}, "tags is int 5, not text"),
        ({"tags": "a\x01"}, f"tags 'a\\x01' {SEPARATES}"),
        ({"sharding_key": 5}, "sharding_key is int 5, not text"),
        ({"sharding_key": "a\x02"}, f"sharding_key 'a\\x02' {SEPARATES}"),
        ({"keys": "k"}, "keys is the text 'k'; give a list: keys=['k']"),
        ({"keys": [5]}, "keys is int 5, not text"),
        ({"keys": ["a\x02"]}, f"keys 'a\\x02' {SEPARATES}"),
        ({"keys": [""]}, "key '' is empty or holds white space, which separates keys"),
        ({"keys": ["ok", "a\tb"]}, "key 'a\\tb' is empty or holds white space, which separates keys"),
        ({"properties": {"a": 1}}, "property 'a' = 1: names and values are text"),
        ({"properties": {1: "a"}}, "property 1 = 'a': names and values are text"),
        ({"properties": {"KEYS": "a"}}, "property 'KEYS' is reserved by RocketMQ; choose another name"),
        ({"properties": {" ": "a"}}, "property ' ' = 'a': neither may be blank"),
        ({"properties": {"a": " "}}, "property 'a' = ' ': neither may be blank"),
        ({"properties": {"a\x01": "b"}}, f"property name 'a\\x01' {SEPARATES}"),
        ({"properties": {"a": "b\x02"}}, f"property 'a' 'b\\x02' {SEPARATES}"),
        ({"delay_level": 1, "delay_ms": 0}, "give one of delay_level, deliver_at and delay_ms, not several"),
        ({"deliver_at": 1, "delay_ms": 0}, "give one of delay_level, deliver_at and delay_ms, not several"),
        (
            {"delay_level": 1, "deliver_at": 1},
            "give one of delay_level, deliver_at and delay_ms, not several",
        ),
        ({"delay_level": 19}, "delay_level is 19; levels are 1 to 18"),
        ({"delay_level": -1}, "delay_level is -1; levels are 1 to 18"),
        ({"delay_ms": -1}, "delay_ms is -1; it cannot be negative"),
        ({"deliver_at": 0}, "deliver_at is 0; give a datetime or epoch milliseconds"),
        ({"deliver_at": 1.5}, "deliver_at is 1.5; give a datetime or epoch milliseconds"),
        ({"deliver_at": True}, "deliver_at is True; give a datetime or epoch milliseconds"),
        ({"body": "text"}, "the body of a message to 'T' is str, not bytes: text.encode() makes them"),
        ({"body": 5}, "the body of a message to 'T' is int, not bytes"),
        ({"body": b""}, "the body of a message to 'T' is empty; brokers refuse that"),
    ],
    ids=str,
)
def test_what_it_may_not_hold_is_said_in_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(said)}$"):
        Message(**{"topic": "T", "body": b"x", **given})


@pytest.mark.parametrize(
    "given",
    [
        {"delay_level": 1},
        {"delay_level": 18},
        {"delay_ms": 0},
        {"deliver_at": 1},
        {"keys": ("a", "b")},
        {"tags": "", "sharding_key": ""},
        {"properties": {"a": "b"}},
        {"body": bytearray(b"x")},
        {"body": memoryview(b"x")},
        {"body": bytes(4 * 1024 * 1024)},
    ],
    ids=lambda given: "-".join(given),
)
def test_what_it_may_hold_up_to_the_edge(given: dict[str, Any]) -> None:
    message = Message(**{"topic": "T", "body": b"x", **given})
    assert isinstance(message.body, bytes)


def test_a_moment_becomes_milliseconds() -> None:
    moment = datetime(2027, 1, 1, 0, 0, 0, 123_600, tzinfo=UTC)
    assert Message("T", b"x", deliver_at=moment).deliver_at == round(moment.timestamp() * 1000)
