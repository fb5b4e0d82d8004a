# SPDX-License-Identifier: Apache-2.0
"""The one test whether a stored message is for a held request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.broker.state.parked_reads import Arrival
from aerobee.protocol.filters import Accept
from aerobee.protocol.message import Record

if TYPE_CHECKING:
    import pytest


def arrival(tags_code: int = 7, **properties: str) -> Arrival:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return Arrival(Record("t", b"", text), tags_code)


def test_tags_come_first_then_properties() -> None:
    asked: list[Any] = []

    def paid(properties: Any) -> bool:
        asked.append(properties)
        return properties.get("state") == "paid"

    stored = arrival(state="paid")
    assert stored.passes(None)
    assert stored.passes(Accept())
    assert stored.passes(Accept(codes=frozenset({7})))
    assert not stored.passes(Accept(codes=frozenset({8})))
    assert not stored.passes(Accept(codes=frozenset({8}), properties=paid))
    assert not asked, "another tag: no need to read the properties"
    assert stored.passes(Accept(codes=frozenset({7}), properties=paid))
    assert not arrival(state="open").passes(Accept(properties=paid))


def test_properties_are_parsed_once_for_all_filters() -> None:
    asked: list[Any] = []

    def remember(properties: Any) -> bool:
        asked.append(properties)
        return True

    stored = arrival(a="1")
    for _ in range(3):
        assert stored.passes(Accept(properties=remember))
    assert asked[0] == {"a": "1"}
    assert asked[0] is asked[1] is asked[2]


def test_a_filter_that_fails_does_not_match(caplog: pytest.LogCaptureFixture) -> None:
    def broken(properties: Any) -> bool:
        raise ZeroDivisionError

    assert not arrival().passes(Accept(properties=broken))
    assert "filter failed" in caplog.text
