# SPDX-License-Identifier: Apache-2.0
"""Waiting in tests: what is said when it was in vain."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from aerobee.testing import eventually, wait_until

EVERYWHERE = ["global"]


def failure_of(condition: object) -> str:
    with pytest.raises(AssertionError) as failed:
        wait_until(condition, timeout_ms=1)  # type: ignore[arg-type]
    return str(failed.value)


def test_waiting_for_what_never_comes_fails() -> None:
    with pytest.raises(AssertionError, match=r"did not hold within 1 ms: .*lambda: False"):
        wait_until(lambda: False, timeout_ms=1)


async def test_what_was_compared_is_shown_with_its_values() -> None:
    attempts = [1]
    with pytest.raises(AssertionError) as failed:
        await eventually(lambda: attempts == [1, 2], timeout_ms=1)
    assert str(failed.value).endswith("; attempts is [1]")


def test_however_much_is_compared_and_wherever_it_stands() -> None:
    attempts, server = [1], SimpleNamespace(lag=lambda group: SimpleNamespace(group=group, delayed=0))
    told = failure_of(lambda: server.lag("billing").delayed == 1 or len(EVERYWHERE) > 3)
    assert told.endswith("; server.lag('billing').delayed is 0; len(EVERYWHERE) is 1")
    assert failure_of(lambda: not (attempts < [2])).endswith("; attempts is [1]")
    with pytest.raises(AssertionError, match=r"; attempts is \[1\]$"):
        wait_until(lambda: attempts == [1, 2],
                   timeout_ms=1)  # fmt: skip


def test_what_is_no_comparison_is_shown_by_what_it_returned() -> None:
    def nothing_yet() -> list[int]:
        return []

    assert failure_of(nothing_yet).endswith("it returned []")
    assert failure_of([].__len__).endswith("it returned 0")
    pair = [lambda: EVERYWHERE == [], lambda: EVERYWHERE == [1]]
    assert failure_of(pair[1]).endswith("it returned False"), "two in one line: nobody knows which"


def test_a_long_value_is_cut_and_one_that_cannot_be_had_says_why() -> None:
    long, calls = "x" * 1_000, list[int]()

    def once() -> int:
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("only once")
        return 0

    assert failure_of(lambda: long == "").endswith("x...")

    def wait() -> None:
        wait_until(lambda: once() == 1, timeout_ms=-1)

    with pytest.raises(AssertionError, match=r"once\(\) is ValueError\('only once'\)"):
        wait()


async def test_on_a_running_loop_the_plain_wait_says_what_to_use() -> None:
    with pytest.raises(RuntimeError, match=r"await eventually\(\.\.\.\)"):
        wait_until(lambda: True)
