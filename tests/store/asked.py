# SPDX-License-Identifier: Apache-2.0
"""Logs of small files without a store around them, and what they ask of the system, noted on the way."""

from __future__ import annotations

import errno
import mmap
import os
from typing import TYPE_CHECKING, Any

from aerobee.store import platform
from aerobee.store.commit_log import CommitLog, file_name
from tests.own_files import is_under

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


SEGMENT = 4 * mmap.PAGESIZE


class Logs:
    """Opens logs in one folder and closes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: list[CommitLog] = []

    def made(self, *bases: int, size: int = SEGMENT) -> None:
        self.folder.mkdir(exist_ok=True)
        for base in bases:
            with (self.folder / file_name(base)).open("wb") as file:
                file.truncate(size)

    def open(self, end: int = 0, size: int = SEGMENT) -> CommitLog:
        log = CommitLog(self.folder, size)
        self._opened.append(log)
        log.start_at(end)
        return log

    def files(self) -> list[int]:
        return sorted(int(path.name) for path in self.folder.iterdir())

    def close(self) -> None:
        for log in self._opened:
            log.close()


class Asked:
    """What is asked of the system for files of one folder, and then done."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reserved: list[tuple[int, int]] = []  # start, end
        self.written: list[tuple[int, int]] = []
        self.forgotten: list[int] = []
        self.expected: list[int] = []
        self.space = 1 << 62  # what the disk still gives at once
        reserve, pwrite = platform.reserve, os.pwrite

        def reserved(fd: int, start: int, length: int) -> None:
            if is_under(folder, fd):
                if length > self.space:
                    raise OSError(errno.ENOSPC, "full")
                self.reserved.append((start, start + length))
            reserve(fd, start, length)

        def written(fd: int, data: Any, at: int) -> int:
            if is_under(folder, fd):
                self.written.append((at, at + len(data)))
            return pwrite(fd, data, at)

        monkeypatch.setattr(platform, "reserve", reserved)
        monkeypatch.setattr(os, "pwrite", written)
        monkeypatch.setattr(platform, "pwrite", written)
        monkeypatch.setattr(platform, "forget_pages", lambda _, length: self.forgotten.append(length))
        monkeypatch.setattr(platform, "expect_writes", lambda _, start: self.expected.append(start))
