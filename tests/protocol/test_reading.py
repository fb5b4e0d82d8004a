# SPDX-License-Identifier: Apache-2.0
"""The requests that read, as they are on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import header_fields
from aerobee.protocol.filters.tags import TAG, subscribe
from aerobee.protocol.reading import PopRequest, PullRequest, lite_pull, member_pull, pop, pull

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = MessageQueue("broker-a", 3, "orders")
COMMIT, SUSPEND, SUBSCRIPTION, LITE = 1, 2, 4, 16


@pytest.mark.seed("S001-21", "S004-51")
@pytest.mark.parametrize(
    ("ask", "always"), [(member_pull, 0), (pull, SUBSCRIPTION), (lite_pull, SUBSCRIPTION | LITE)]
)
@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({}, 0),
        ({"hold_ms": 15_000}, SUSPEND),
        ({"commit": 7}, COMMIT),
        ({"hold_ms": 1, "commit": 1}, COMMIT | SUSPEND),
    ],
)
def test_the_flags_of_a_pull_say_what_it_asks_for(
    ask: Callable[[PullRequest], Any], always: int, given: dict[str, int], flags: int
) -> None:
    wanted: dict[str, Any] = {"group": "g", "queue": QUEUE, "offset": 41, **given}
    header = ask(PullRequest(subscription=subscribe("orders", "a || b", 9, TAG), **wanted))
    sent = header_fields(header)
    assert int(sent["sysFlag"]) == always | flags
    assert sent.get("subscription") == ("a || b" if always else None)
    assert (sent["suspendTimeoutMillis"], sent["commitOffset"]) == (
        str(given.get("hold_ms", 0)),
        str(given.get("commit", 0)),
    )
    assert header.code == (RequestCode.LITE_PULL_MESSAGE if always & LITE else RequestCode.PULL_MESSAGE)


def test_a_pull_names_its_queue_and_its_limits() -> None:
    request = PullRequest(
        group="g", queue=QUEUE, offset=41, subscription=subscribe("orders", "a", 9, TAG), max_bytes=1_000
    )
    assert header_fields(pull(request)) == {
        "consumerGroup": "g",
        "topic": "orders",
        "queueId": "3",
        "queueOffset": "41",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "a",
        "subVersion": "9",
        "expressionType": "TAG",
        "maxMsgBytes": "1000",
        "bname": "broker-a",
    }


@pytest.mark.seed("S004-51")
@pytest.mark.parametrize("ask", [member_pull, lite_pull])
def test_a_pull_of_either_kind_of_consumer_has_the_same_fields(ask: Callable[[PullRequest], Any]) -> None:
    request = PullRequest(
        group="g", queue=QUEUE, offset=41, subscription=subscribe("orders", "a || b", 9, TAG), max_bytes=1_000,
        max_messages=40, hold_ms=15_000, commit=7,
    )  # fmt: skip
    apart = {"sysFlag", "subscription"}  # what kind it is, and whether the broker knows the filter
    sent, same = (header_fields(header) for header in (ask(request), pull(request)))
    assert {key: value for key, value in sent.items() if key not in apart} == {
        key: value for key, value in same.items() if key not in apart
    }


@pytest.mark.parametrize(("wanted", "bulk"), [(32, None), (33, "true")])
def test_more_than_32_messages_are_asked_for_as_bulk(wanted: int, bulk: str | None) -> None:
    request = PullRequest(
        group="g", queue=QUEUE, offset=0, subscription=subscribe("orders", "*", 0, TAG), max_messages=wanted
    )
    assert header_fields(pull(request)).get("bulk") == bulk


@pytest.mark.parametrize(("from_first", "mode"), [(True, "0"), (False, "1")])
def test_a_pop_says_where_a_group_begins_that_never_read(from_first: bool, mode: str) -> None:
    request = PopRequest(
        group="g", queue=QUEUE, subscription=subscribe("orders", "a", 9, TAG), max_messages=5,
        invisible_ms=60_000, hold_ms=15_000, from_first=from_first, ordered=True, attempt="once",
    )  # fmt: skip
    sent = header_fields(pop(request, now=1_700_000_000_000))
    assert sent["initMode"] == mode
    assert (sent["bornTime"], sent["invisibleTime"], sent["pollTime"]) == ("1700000000000", "60000", "15000")
    assert (sent["order"], sent["attemptId"], sent["exp"], sent["expType"]) == ("true", "once", "a", "TAG")
    assert (sent["consumerGroup"], sent["topic"], sent["queueId"], sent["maxMsgNums"]) == (
        "g",
        "orders",
        "3",
        "5",
    )
