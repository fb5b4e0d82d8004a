# SPDX-License-Identifier: Apache-2.0
"""What happened to a message: traces of clients put together."""

from __future__ import annotations

from aerobee.client.trace_records import Traced, parse
from aerobee.console.timeline import Happened, attempts


def records(*lines: tuple[object, ...], by: str = "10.0.0.7:1") -> list[Traced]:
    body = "".join("\x01".join(map(str, line)) + "\x02" for line in lines)
    return [Traced(record, by) for record in parse(body.encode())]


def before(group: str, request: str, at: int, retries: int = 0) -> tuple[object, ...]:
    return ("SubBefore", at, "DefaultRegion", group, request, "ID", retries, "o-1")


def after(group: str, request: str, at: int, took: int, success: str) -> tuple[object, ...]:
    return ("SubAfter", request, "ID", took, success, "o-1", 0, at, group)


def told(happened: list[Happened]) -> list[tuple[object, ...]]:
    return [(each.at, each.group, each.attempt, each.took_ms, each.result) for each in happened]


def test_the_records_before_and_after_a_delivery_are_one_attempt() -> None:
    found = attempts(
        records(
            before("billing", "r-1", 100),
            after("billing", "r-1", 130, 30, "false"),
            before("billing", "r-2", 200, 1),
            after("billing", "r-2", 205, 5, "true"),
        )
    )
    assert told(found) == [(100, "billing", 1, 30, "failed"), (200, "billing", 2, 5, "ok")]


def test_an_attempt_of_which_no_end_was_told_has_none() -> None:
    (found,) = attempts(records(before("billing", "r-1", 100)))
    assert (found.took_ms, found.result) == (None, "")


def test_an_end_without_a_beginning_began_as_long_before_as_it_took() -> None:
    assert told(attempts(records(after("billing", "r-1", 130, 30, "true")))) == [
        (100, "billing", None, 30, "ok")
    ]


def test_the_same_request_at_two_clients_is_two_attempts() -> None:
    first = records(before("billing", "r", 100), by="10.0.0.7:1")
    second = records(before("billing", "r", 110), after("billing", "r", 111, 1, "true"), by="10.0.0.8:1")
    found = attempts(first + second)
    assert [(each.by, each.result) for each in found] == [("10.0.0.7:1", ""), ("10.0.0.8:1", "ok")]
