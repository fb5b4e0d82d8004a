# SPDX-License-Identifier: Apache-2.0
"""`aerobee messages delayed`: what waits, by level and by time, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Message, blocking
from aerobee.cli import delayed
from aerobee.client.admin import waiting
from aerobee.testing import TestServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Done

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    """With RocketMQ's own levels: what waits at one still does when it is looked at."""
    with TestServer() as running:
        for topic in ("orders", "letters"):
            running.create_topic(topic, queues=1)
        yield running


@pytest.fixture(scope="module")
def sent(server: TestServer) -> list[Any]:
    with blocking.Producer(server.namesrv, group="shop") as producer:
        return [
            producer.send(Message("letters", b"in two days", delay_ms=48 * HOUR_MS)),
            producer.send(Message("orders", b"in an hour", keys=["o-1"], delay_ms=HOUR_MS)),
            producer.send(Message("orders", b"in two hours", tags="late", delay_level=18)),
        ]


def test_nothing_that_waits_is_said(good: Callable[..., Done], server: TestServer) -> None:
    done = good("messages", "delayed", "orders")
    assert (done.out, done.err) == ("", "nothing waits to go to orders\n")
    assert good("messages", "delayed", "--json").json == []


def test_the_next_one_due_comes_first(good: Callable[..., Done], sent: list[Any]) -> None:
    rows = good("messages", "delayed", "--json").json
    assert [row["body"] for row in rows] == ["in an hour", "in two hours", "in two days"]
    assert [row["msgId"] for row in rows] == [sent[1].message_id, sent[2].message_id, sent[0].message_id]
    assert [(row["topic"], row["by"], row["keys"], row["tags"]) for row in rows] == [
        ("orders", "timer", ["o-1"], None),
        ("orders", "level 18", [], "late"),
        ("letters", "timer", [], None),
    ]
    for row, delay_ms in zip(rows[::2], (HOUR_MS, 48 * HOUR_MS), strict=True):
        assert 0 <= row["dueTimestamp"] - row["bornTimestamp"] - delay_ms < 2_000, (
            "never before it was asked for"
        )
    assert [row["recallHandle"] for row in rows] == [sent[1].recall_handle, None, sent[0].recall_handle]


def test_one_topic_and_so_many(good: Callable[..., Done], sent: list[Any]) -> None:
    assert [row["topic"] for row in good("messages", "delayed", "letters", "--json").json] == ["letters"]
    done = good("messages", "delayed", "-c", "1")
    assert "in an hour" in done.out and "in two" not in done.out
    assert "59 m 5" in done.out
    assert done.err == "the first 1 of 3; --limit shows more\n"


def test_a_misspelt_topic_is_no_topic_without_delays(
    aerobee: Callable[..., Done], server: TestServer
) -> None:
    done = aerobee("messages", "delayed", "ordres")
    assert (done.code, done.out) == (1, "")
    assert "did you mean 'orders'?" in done.err


def test_what_was_not_looked_at_is_said(
    good: Callable[..., Done], sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed, "LOOKED_AT", 1)
    monkeypatch.setattr(waiting, "STEP", 1)
    done = good("messages", "delayed", "letters")
    assert "broker-a: more wait than were looked at" in done.err


def test_one_that_waits_is_found_by_its_id(good: Callable[..., Done], sent: list[Any]) -> None:
    for result, topic in ((sent[1], "orders"), (sent[2], "orders"), (sent[0], "letters")):
        done = good("messages", "get", result.message_id)
        assert result.message_id in done.out
        assert done.err.startswith("it waits until ")
        assert f" to go to {topic}; `aerobee messages delayed {topic}` lists them" in done.err


def test_an_id_of_nothing_is_told_without_an_address_that_cannot_be(
    aerobee: Callable[..., Done], sent: list[Any]
) -> None:
    done = aerobee("messages", "get", "7F0000013189FBBD10DF594A86CA0000")
    assert (done.code, done.out) == (1, "")
    assert "message '7F0000013189FBBD10DF594A86CA0000' is not found by key" in done.err
    assert "no broker here" not in done.err
