# SPDX-License-Identifier: Apache-2.0
"""Brokers that went without a goodbye are known until they are back, say goodbye, or a day has passed."""

from __future__ import annotations

import logging

import pytest

from aerobee.namesrv import gone_brokers
from aerobee.namesrv.gone_brokers import KEPT_MS, Gone, GoneBrokers, Who
from aerobee.namesrv.route_table import RouteTable
from tests.namesrv.test_route_table import Link, body, gone, who

A, B = Who("C", "a", 0), Who("C", "b", 0)


@pytest.fixture
def link() -> Link:
    return Link()


@pytest.fixture
def table(link: Link) -> RouteTable:
    """Two brokers, of which `b` has the connection."""
    table = RouteTable()
    table.register(who("a"), body("t", "u"), 0, Link())
    table.register(who("b"), body("t", "v"), 0, link)
    return table


def test_a_broker_whose_connection_closes_is_missed_until_it_is_back(
    table: RouteTable, link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aerobee.namesrv")
    table.closed(link, 5_000)
    assert table.gone(6_000) == {B: Gone("b0:1", 5_000, "connection closed")}
    table.register(who("b"), body("t", "v"), 65_000, Link())
    assert table.gone(65_000) == {}
    table.register(who("b"), body("t", "v"), 95_000, link)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "gone without a goodbye broker=b id=0 address=b0:1: connection closed"),
        ("INFO", "is back broker=b id=0 address=b0:1 away_ms=60000"),
    ]


def test_a_broker_that_returns_at_another_address_is_back(table: RouteTable, link: Link) -> None:
    table.closed(link, 5_000)
    table.register(who("b", address="elsewhere:1"), body("t", "v"), 6_000, Link())
    assert table.gone(6_000) == {}


def test_a_broker_that_returns_at_the_address_of_another_is_back(table: RouteTable, link: Link) -> None:
    table.closed(link, 5_000)
    table.register(who("b", address="a0:1"), body("t", "v"), 6_000, Link())
    assert table.gone(6_000) == {}
    assert table.own_names() == ["C", "b"]


def test_a_broker_whose_place_was_taken_before_its_connection_closed_is_not_missed(
    table: RouteTable, link: Link
) -> None:
    table.register(who("b", address="elsewhere:1"), body("t", "v"), 1, Link())
    table.closed(link, 2)
    assert table.gone(2) == {}
    assert "b" in table.own_names()


def test_a_silent_broker_is_missed_from_its_last_word_on(table: RouteTable) -> None:
    table.heard("C", "a0:1", 1_000)
    table.expire(130_000)
    assert list(table.gone(130_000).items()) == [
        (B, Gone("b0:1", 0, "silent for 130000 ms")),
        (A, Gone("a0:1", 1_000, "silent for 129000 ms")),
    ]


def test_who_says_goodbye_is_not_missed_neither_before_nor_afterwards(table: RouteTable, link: Link) -> None:
    table.unregister(gone("b"))
    table.closed(link, 1)
    assert table.gone(1) == {}
    table.register(who("b"), body("t", "v"), 2, link)
    table.closed(link, 3)
    table.unregister(gone("b"))
    assert table.gone(3) == {}


def test_a_slave_is_missed_as_well(table: RouteTable, link: Link) -> None:
    table.register(who("a", 1), body("t", "u"), 0, link)
    table.closed(link, 1)
    assert {*table.gone(1)} == {Who("C", "a", 1), B}


def test_after_a_day_nobody_waits_for_it(table: RouteTable, link: Link) -> None:
    table.closed(link, 5)
    assert list(table.gone(4 + KEPT_MS)) == [B]
    assert table.gone(5 + KEPT_MS) == {}


def test_no_more_are_kept_than_a_name_server_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone_brokers, "MAX_GONE", 2)
    kept = GoneBrokers()
    for at, name in enumerate("xyz"):
        kept.went(Who("C", name, 0), Gone(f"{name}:1", at, "connection closed"))
    assert [each.name for each in kept.known(3)] == ["y", "z"]


def test_one_that_went_once_more_is_missed_from_then_on_and_forgotten_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gone_brokers, "MAX_GONE", 2)
    brokers = GoneBrokers()
    brokers.went(A, Gone("a0:1", 1, "silent"))
    brokers.went(B, Gone("b0:1", 2, "silent"))
    again = Gone("a0:1", 3, "silent")
    brokers.went(A, again)
    brokers.went(Who("C", "c", 0), Gone("c0:1", 4, "silent"))
    known = brokers.known(5)
    assert list(known) == [A, Who("C", "c", 0)]
    assert known[A] == again
