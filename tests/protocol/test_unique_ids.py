# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import threading
from datetime import datetime

import pytest

from aerobee.clock import ManualClock
from aerobee.protocol import ids as unique_ids
from aerobee.protocol import message
from aerobee.protocol.ids import UniqueIds, month_start, time_of

ADDRESS = b"\x0a\x00\x00\x01"
NOON = int(datetime(2024, 2, 29, 12).timestamp() * 1000)
MARCH = int(datetime(2024, 3, 1).timestamp() * 1000)


class Hands:
    """A clock set by hand, backwards too."""

    def __init__(self, time: int) -> None:
        self.time = time

    def wall(self) -> int:
        return self.time


def test_the_layout_is_javas() -> None:
    raw = bytes.fromhex(UniqueIds(ADDRESS, 0x12345, Hands(NOON)).next())
    assert raw[:6] == ADDRESS + b"\x23\x45"
    assert int.from_bytes(raw[10:14], "big") == NOON - month_start(NOON)
    assert int.from_bytes(raw[14:], "big") == 0
    assert len(UniqueIds(bytes(16), 1, Hands(NOON)).next()) == 56


def test_the_time_can_be_told_from_the_key() -> None:
    key = UniqueIds(ADDRESS, 1, Hands(NOON)).next()
    assert time_of(key, NOON) == NOON
    assert time_of(key, MARCH + 5) == NOON
    with pytest.raises(ValueError, match="not 32 or 56"):
        time_of("abcd", NOON)


def test_a_clock_that_stands_still_goes_back_or_jumps_repeats_nothing() -> None:
    clock = Hands(NOON)
    ids = UniqueIds(ADDRESS, 1, clock)
    found = set()
    for time in (
        NOON,
        NOON - 3_600_000,
        NOON,
        NOON + 1,
        NOON - 40 * 86_400_000,
        MARCH - 1,
        MARCH,
        MARCH + 1,
        NOON,
    ):
        clock.time = time
        found |= {ids.next() for _ in range(100)}
    assert len(found) == 900


def test_many_at_once_repeat_nothing_either() -> None:
    clock = Hands(NOON)
    ids = UniqueIds(ADDRESS, 1, clock)
    found = [*ids.many(70_000), ids.next(), *ids.many(3)]
    clock.time = MARCH
    found += ids.many(2)
    assert len(set(found)) == 70_006
    assert time_of(found[-1], MARCH) == MARCH
    assert ids.many(0) == []


def test_a_full_counter_goes_on_in_the_next_millisecond() -> None:
    ids = UniqueIds(ADDRESS, 1, Hands(NOON))
    found = [ids.next() for _ in range(65_537)]
    assert found == sorted(set(found))
    assert int(found[-1][20:28], 16) == int(found[0][20:28], 16) + 1


def test_a_new_month_starts_again_under_another_salt() -> None:
    clock = Hands(MARCH - 1)
    ids = UniqueIds(ADDRESS, 1, clock)
    before = ids.next()
    clock.time = MARCH
    after = ids.next()
    assert after[20:] == "000000000000"
    assert before[:20] != after[:20]


def test_two_producers_of_one_process_do_not_collide() -> None:
    one, other = UniqueIds(ADDRESS, 1, Hands(NOON)), UniqueIds(ADDRESS, 1, Hands(NOON))
    assert one.next() != other.next()


@pytest.mark.slow
def test_threads_share_a_generator() -> None:
    ids = UniqueIds(ADDRESS, 1, ManualClock())
    found: list[list[str]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=lambda mine: mine.extend(ids.next() for _ in range(20_000)), args=(mine,))
        for mine in found
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set().union(*found)) == 80_000


def test_a_forked_child_makes_other_keys() -> None:
    ids = UniqueIds(ADDRESS, 1, Hands(NOON))
    ids.next()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, ids.next().encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    theirs = os.read(reader, 100).decode()
    os.close(reader)
    mine = ids.next()
    assert mine[12:20] != theirs[12:20]
    assert theirs[20:] == mine[20:-1] + "0"


def test_both_ids_are_32_digits_and_cannot_be_told_apart() -> None:
    key = UniqueIds(ADDRESS, 1, Hands(NOON)).next()
    assert len(key) == len(message.offset_message_id(ADDRESS + bytes(4), 5)) == 32


def test_a_child_makes_its_keys_one_after_the_other_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new start for each would leave it to chance that none repeats."""
    made = UniqueIds(ADDRESS, 1, Hands(NOON))
    before = made.next()
    monkeypatch.setattr(unique_ids, "_forks", unique_ids._forks + 1)
    first, second = made.next(), made.next()
    assert first[:20] == second[:20] != before[:20]
    assert int(second[20:], 16) == int(first[20:], 16) + 1
