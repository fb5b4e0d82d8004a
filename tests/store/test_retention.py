# SPDX-License-Identifier: Apache-2.0
"""What is deleted when, by numbers: age, size, a full disk; and when sends stop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.settings import InForce, StoreConfig
from aerobee.store.platform import Disk
from aerobee.store.retention import Retention

HOUR = 3_600_000
FILE = 1_000


class Log:
    """Files of 1,000 bytes; the first message of each was stored in the hour of its number."""

    segment_bytes = FILE

    def __init__(self, files: int) -> None:
        self.segments = [SimpleNamespace(base=n * FILE, path=f"file-{n}") for n in range(files)]
        self.unreadable: set[int] = set()

    @property
    def min_offset(self) -> int:
        return int(self.segments[0].base)

    def store_time(self, base: int) -> int:
        return -1 if base in self.unreadable else base // FILE * HOUR + 1

    def delete_first(self) -> Any:
        return self.segments.pop(0)


class Queue:
    def __init__(self) -> None:
        self.trimmed: list[int] = []

    def trim(self, to: int) -> None:
        self.trimmed.append(to)


class Kept:
    def __init__(self, files: int, queues: int = 3, **config: Any) -> None:
        self.log = Log(files)
        self.queues = [Queue() for _ in range(queues)]
        self.index: list[int] = []
        self.disk = Disk(used=10, free=90)
        usual = {"retention_hours": 1_000, "disk_clean_ratio": 0.75, "disk_full_ratio": 0.9}
        self.settings = InForce(StoreConfig(**{**usual, **config}))
        self.retention = Retention(
            self.settings,
            self.log,  # type: ignore[arg-type]
            SimpleNamespace(everything=lambda: iter(self.queues)),  # type: ignore[arg-type]
            SimpleNamespace(trim=self.index.append),  # type: ignore[arg-type]
            lambda: self.disk,
        )

    def tick(self, hour: float) -> bool:
        return self.retention.tick(round(hour * HOUR))

    @property
    def left(self) -> list[int]:
        return [segment.base // FILE for segment in self.log.segments]


@pytest.mark.parametrize(
    ("now", "left"),
    [
        (HOUR * 3, [0, 1, 2, 3]),  # the second file began in hour 1
        (HOUR * 3 + 1, [1, 2, 3]),  # which is two hours ago
        (HOUR * 4, [1, 2, 3]),
        (HOUR * 4 + 1, [2, 3]),
        (HOUR * 99, [3]),  # the one that is written to stays
    ],
)
def test_a_file_goes_when_the_first_message_behind_it_is_old_enough(now: int, left: list[int]) -> None:
    kept = Kept(4, retention_hours=2)
    kept.retention.tick(now)
    assert kept.left == left


def test_a_file_whose_time_nobody_knows_is_kept_for_its_age() -> None:
    kept = Kept(4, retention_hours=2)
    kept.log.unreadable = {FILE}
    kept.tick(99)
    assert kept.left == [0, 1, 2, 3]


@pytest.mark.parametrize(("limit", "left"), [(0, 4), (4 * FILE, 4), (4 * FILE - 1, 3), (1, 1)])
def test_a_log_that_is_too_large_loses_its_oldest_files(limit: int, left: int) -> None:
    kept = Kept(4, retention_bytes=limit)
    kept.tick(0)
    assert kept.left == [0, 1, 2, 3][4 - left :]


@pytest.mark.parametrize(("used", "left"), [(74, [0, 1, 2]), (75, [2]), (99, [2])])
def test_a_disk_that_is_nearly_full_loses_old_files_of_any_age(used: int, left: list[int]) -> None:
    kept = Kept(3)
    kept.disk = Disk(used=used, free=100 - used)
    kept.tick(0)
    assert kept.left == left


def test_no_more_than_four_files_go_at_a_time_and_the_rest_soon() -> None:
    kept = Kept(10, retention_hours=2)
    assert kept.tick(99) is True
    assert len(kept.left) == 6
    assert kept.tick(99) is True
    assert kept.tick(99) is False
    assert kept.left == [9]


def test_queues_and_index_follow_once_some_at_a_time() -> None:
    kept = Kept(3, queues=450, retention_hours=2)
    assert kept.tick(2) is False
    assert kept.index == []
    assert kept.tick(99) is True, "more queues than one tick looks at"
    assert kept.index == [2 * FILE]
    assert sum(bool(queue.trimmed) for queue in kept.queues) == 200
    assert kept.tick(99) is True
    assert kept.tick(99) is False
    assert [queue.trimmed for queue in kept.queues] == [[2 * FILE]] * 450
    assert kept.tick(99) is False
    assert (kept.index, kept.queues[0].trimmed) == ([2 * FILE], [2 * FILE]), "once"


def test_what_is_deleted_while_queues_are_trimmed_is_trimmed_after_them() -> None:
    kept = Kept(9, queues=300, retention_hours=2)
    kept.tick(99)
    kept.tick(99)
    for _ in range(6):
        kept.tick(99)
    assert kept.index == [4 * FILE, 8 * FILE]
    assert {tuple(queue.trimmed) for queue in kept.queues} == {(4 * FILE, 8 * FILE)}


@pytest.mark.parametrize(
    ("disk", "more", "refusal"),
    [
        (Disk(89, 11), {}, ""),
        (Disk(90, 10), {}, "disk 90% full, sends stop at 90% (disk_full_ratio)"),
        (Disk(10, 90), {"min_free_bytes": 90}, ""),
        (Disk(10, 90), {"min_free_bytes": 91}, "90 bytes free, sends stop below 91 (min_free_bytes)"),
    ],
)
def test_sends_stop_where_the_settings_say(
    caplog: pytest.LogCaptureFixture, disk: Disk, more: dict[str, int], refusal: str
) -> None:
    kept = Kept(1, **more)
    kept.disk = disk
    kept.tick(0)
    kept.tick(0)
    assert kept.retention.refusal == refusal
    assert caplog.text.count("store takes no more writes") == bool(refusal), "told once"
    kept.disk = Disk(1, 999)
    caplog.set_level("WARNING")
    kept.tick(0)
    assert kept.retention.refusal == ""
    assert caplog.text.count("store takes writes again") == bool(refusal)


def test_settings_that_change_count_from_the_next_tick() -> None:
    kept = Kept(4)
    kept.tick(99)
    assert kept.left == [0, 1, 2, 3]
    kept.settings.swap(StoreConfig(retention_hours=2))
    kept.tick(99)
    assert kept.left == [3]
