# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.consume.inbox import Inbox
from aerobee.client.message import Origin, ReceivedMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., ReceivedMessage]


def plain(offset: int, body: bytes = b"1234567890") -> ReceivedMessage:
    return ReceivedMessage("T", body, queue_offset=offset, origin=Origin("a", 0, 100))


@pytest.mark.seed("S004-5", "S004-22", "S004-23", "S004-25")
def test_the_reported_offset_is_the_smallest_unfinished() -> None:
    inbox, messages = Inbox(0), [plain(n) for n in range(5, 10)]
    inbox.put(messages)
    assert inbox.remove([messages[1]]) == 5
    assert inbox.remove([messages[0]]) == 7
    assert inbox.remove(messages[2:]) == 10


@pytest.mark.seed("S004-90", "S004-26")
def test_a_slow_message_holds_the_offset_back() -> None:
    inbox, messages = Inbox(0), [plain(n) for n in range(100)]
    inbox.put(messages)
    assert inbox.remove(messages[1:]) == 0
    assert inbox.remove(messages[:1]) == 100


def test_removing_from_an_empty_inbox_reports_nothing() -> None:
    assert Inbox(0).remove([plain(1)]) == -1


def test_only_new_offsets_are_counted() -> None:
    inbox = Inbox(0)
    inbox.put([plain(1), plain(2)])
    inbox.put([plain(2), plain(3)])
    assert (inbox.count, inbox.size_bytes, inbox.highest) == (3, 30, 3)


@pytest.mark.seed("S004-62")
def test_span_is_the_distance_of_first_and_last() -> None:
    inbox, messages = Inbox(0), [plain(n) for n in (3, 10, 2003)]
    assert inbox.span == 0
    inbox.put(messages)
    assert inbox.span == 2000
    inbox.remove(messages[:1])
    assert inbox.span == 1993


@pytest.mark.seed("S004-5")
def test_size_is_that_of_the_bodies_and_returns_to_zero() -> None:
    inbox, messages = Inbox(0), [plain(n, b"x" * n) for n in range(1, 5)]
    inbox.put(messages)
    assert inbox.size_bytes == 10
    inbox.remove(messages)
    assert (inbox.count, inbox.size_bytes) == (0, 0)


@pytest.mark.seed("S004-60")
def test_what_comes_out_of_order_finds_its_place() -> None:
    inbox, messages = Inbox(0), {n: plain(n, b"x" * n) for n in (2, 3, 5, 9)}
    inbox.put([messages[5], messages[9]])
    inbox.put([messages[3]])
    inbox.put([messages[2], messages[3]])
    assert (inbox.offsets(), inbox.first_offset(), inbox.size_bytes) == ([2, 3, 5, 9], 2, 19)
    assert (inbox.highest, inbox.span) == (9, 7)
    assert inbox.remove([messages[2]]) == 3
    assert inbox.remove([messages[9], messages[5]]) == 3
    assert inbox.remove([messages[3]]) == 10
    assert inbox.size_bytes == 0


def test_the_backlog_is_estimated_from_the_last_answer() -> None:
    inbox = Inbox(0)
    inbox.put([plain(60)])
    assert inbox.backlog == 40


@pytest.mark.seed("S004-60", "S004-67")
def test_ordered_work_takes_lowest_offsets_first_and_one_worker_at_a_time() -> None:
    inbox = Inbox(0)
    inbox.put([plain(4), plain(5), plain(6)])
    assert inbox.claim()
    assert not inbox.claim()
    assert [m.queue_offset for m in inbox.take(2)] == [4, 5]
    assert inbox.commit() == 6
    assert [m.queue_offset for m in inbox.take(2)] == [6]
    assert inbox.commit() == 7
    assert inbox.take(2) == []
    assert not inbox.busy


@pytest.mark.seed("S004-60")
def test_what_is_put_back_is_taken_again_first() -> None:
    inbox = Inbox(0)
    inbox.put([plain(1), plain(2), plain(3)])
    taken = inbox.take(2)
    inbox.put_back(taken[:1])
    assert [m.queue_offset for m in inbox.take(1)] == [1]
    inbox.rollback()
    assert [m.queue_offset for m in inbox.take(9)] == [1, 2, 3]
    assert inbox.commit() == 4
    assert inbox.size_bytes == 0


def test_what_is_in_work_is_told_in_order_whatever_was_put_back_meanwhile() -> None:
    inbox = Inbox(0)
    inbox.put([plain(1), plain(2), plain(3)])
    first, _ = inbox.take(2)
    inbox.put_back([first])
    inbox.take(1)
    assert (inbox.taken_offsets(), inbox.offsets()) == ([1, 2], [3])


def test_commit_without_work_reports_nothing() -> None:
    assert Inbox(0).commit() == -1


@pytest.mark.seed("S004-26", "S004-29")
def test_only_the_first_message_can_be_overdue() -> None:
    inbox, messages = Inbox(0), [plain(0), plain(1)]
    inbox.put(messages)
    messages[1].consume_started = 1
    assert inbox.overdue(1_000_000, 900_000) is None, "the first one is not in work"
    messages[0].consume_started = 100_000
    assert inbox.overdue(1_000_000, 900_000) is None
    assert inbox.overdue(1_000_001, 900_000) is messages[0]


@pytest.mark.seed("S003-21")
def test_ages_are_strict() -> None:
    inbox = Inbox(1_000)
    assert not inbox.pull_expired(121_000, 120_000)
    assert inbox.pull_expired(121_001, 120_000)
    assert not inbox.lock_expired(31_000, 30_000)
    assert inbox.lock_expired(31_001, 30_000)


def test_clear_forgets_everything() -> None:
    inbox = Inbox(0)
    inbox.put([plain(1), plain(2)])
    inbox.take(1)
    inbox.clear()
    assert (inbox.count, inbox.size_bytes, inbox.span, inbox.first_offset()) == (0, 0, 0, None)
    assert (inbox.backlog, inbox.highest, inbox.offsets(), inbox.taken_offsets()) == (0, 0, [], [])
    inbox.put([plain(0)])
    assert inbox.remove([plain(0)]) == 1, "what comes next is counted from itself"


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "remove", "take", "commit", "rollback"]), st.integers(0, 30)),
        max_size=60,
    )
)
def test_it_behaves_like_a_sorted_map(steps: list[tuple[str, int]]) -> None:
    inside: dict[int, Any] = {}
    taken: dict[int, Any] = {}
    inbox, following = Inbox(0), 0
    for step, number in steps:
        if step == "put":
            new = [plain(following + n) for n in range(number % 4)]
            following += len(new)
            inbox.put(new)
            inside |= {m.queue_offset: m for m in new}
        elif step == "remove" and inside:
            chosen = [m for m in inside.values() if (m.queue_offset + number) % 3 == 0]
            offset = inbox.remove(chosen)
            for m in chosen:
                del inside[m.queue_offset]
            assert offset == (min(inside) if inside else following)
        elif step == "take":
            got = inbox.take(number % 4)
            assert [m.queue_offset for m in got] == sorted(inside)[: number % 4]
            for m in got:
                taken[m.queue_offset] = inside.pop(m.queue_offset)
        elif step == "commit":
            assert inbox.commit() == (max(taken) + 1 if taken else -1)
            taken = {}
        elif step == "rollback":
            inbox.rollback()
            inside |= taken
            taken = {}
        assert inbox.offsets() == sorted(inside)
        assert inbox.count == len(inside) + len(taken)
        assert inbox.size_bytes == 10 * inbox.count


def test_a_message_that_leaves_twice_is_counted_once() -> None:
    """Sent back as overdue, and then its handler ends after all."""
    inbox, messages = Inbox(0), [plain(n) for n in range(3)]
    inbox.put(messages)
    assert inbox.remove(messages[:1]) == inbox.remove(messages[:1]) == 1
    assert (inbox.count, inbox.size_bytes) == (2, 20)
