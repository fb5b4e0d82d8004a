# SPDX-License-Identifier: Apache-2.0
"""The checkpoint file, byte by byte: what it says, and when it is not believed."""

from __future__ import annotations

import os
import struct
import zlib
from typing import TYPE_CHECKING

import pytest

from aerobee.store import checkpoint as checkpoints
from aerobee.store.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pathlib import Path

SAVED = Checkpoint(11, 22, 33, 4_400, 4_000, has_queues=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    checkpoints.save(tmp_path / "checkpoint", SAVED)
    return tmp_path / "checkpoint"


def changed(path: Path, at: int, data: bytes) -> Checkpoint:
    before = path.read_bytes()
    path.write_bytes(before[:at] + data + before[at + len(data) :])
    return checkpoints.load(path)


def test_what_was_saved_is_loaded(path: Path) -> None:
    assert checkpoints.load(path) == SAVED._replace(is_latest=True)
    checkpoints.save(path, SAVED._replace(has_queues=True, position=0, checked_from=0))
    assert checkpoints.load(path) == Checkpoint(11, 22, 33, 0, 0, has_queues=True, is_latest=True)


def test_rocketmq_finds_its_times_and_a_file_of_its_size(path: Path) -> None:
    data = path.read_bytes()
    assert len(data) == 4096
    assert struct.unpack_from(">qqqqq", data) == (11, 22, 33, 0, 4_400)
    checkpoints.save(path, Checkpoint(1, 2, 3))
    assert struct.unpack_from(">qqqqq", path.read_bytes()) == (1, 2, 3, 0, 0), "no place is below zero"


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    assert checkpoints.load(tmp_path / "checkpoint") == Checkpoint(0, 0, 0, -1, -1, has_queues=True)


@pytest.mark.parametrize("at", range(1024, 1024 + 36))
def test_a_flipped_byte_of_ours_leaves_the_times_alone(path: Path, at: int) -> None:
    flipped = bytes([path.read_bytes()[at] ^ 1])
    assert changed(path, at, flipped) == Checkpoint(11, 22, 33, -1, -1, has_queues=True, is_latest=False)


@pytest.mark.parametrize("size", [0, 8, 40, 1024, 1059])
def test_a_short_file_says_what_it_still_has(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])
    loaded = checkpoints.load(path)
    assert (loaded.position, loaded.checked_from, loaded.has_queues, loaded.is_latest) == (
        -1,
        -1,
        True,
        False,
    )
    assert loaded[:3] == ((0, 0, 0), (11, 0, 0), (11, 22, 33))[(size >= 8) + (size >= 40)]


@pytest.mark.parametrize("at", [0, 8, 16, 24, 32])
def test_times_that_another_broker_wrote_make_ours_an_older_word(path: Path, at: int) -> None:
    loaded = changed(path, at, struct.pack(">q", 99))
    assert (loaded.position, loaded.checked_from, loaded.has_queues) == (4_400, 4_000, False)
    assert not loaded.is_latest


def test_a_place_below_zero_is_none(path: Path) -> None:
    checkpoints.save(path, SAVED._replace(position=-5))
    assert checkpoints.load(path) == Checkpoint(11, 22, 33, -1, -1, has_queues=True, is_latest=False)


def test_a_word_of_another_version_is_not_ours(path: Path) -> None:
    data = path.read_bytes()
    own = b"AEROBEE2" + data[1032:1056]
    path.write_bytes(data[:1024] + own + struct.pack(">I", zlib.crc32(own)) + data[1060:])
    assert checkpoints.load(path).position == -1


def test_nothing_is_left_open(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    checkpoints.save(path, SAVED)
    assert len(os.listdir("/proc/self/fd")) == before
