# SPDX-License-Identifier: Apache-2.0
"""The store on systems that lack what Linux has: each function taken away, then all of them."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.store import platform

if TYPE_CHECKING:
    from pathlib import Path

# What macOS or Windows is without.
LACKING = (
    "os.fdatasync", "os.posix_fallocate", "os.pread", "os.pwrite", "os.SEEK_DATA", "os.statvfs", "os.fchmod",
    "os.geteuid", "os.sync", "os.O_DIRECTORY", "os.O_CLOEXEC", "os.register_at_fork", "mmap.MADV_DONTNEED",
    "mmap.MADV_RANDOM",
    "fcntl.F_OFD_SETLK", "fcntl",
)  # fmt: skip

PROGRAM = """
    import asyncio, fcntl, mmap, os, shutil, sys
    from types import SimpleNamespace
    for name in sys.argv[2:]:
        if name == "fcntl":
            sys.modules["fcntl"] = None  # as if there were none
            class msvcrt:
                LK_NBLCK = 2
                taken = set()
                @classmethod
                def locking(cls, fd, how, count):
                    place = os.fstat(fd).st_ino
                    if place in cls.taken:
                        raise OSError(13, "Permission denied")
                    cls.taken.add(place)
            sys.modules["msvcrt"] = msvcrt
        else:
            module, _, attribute = name.partition(".")
            if name == "os.statvfs":
                shutil.disk_usage = lambda path: SimpleNamespace(used=1 << 30, free=1 << 40)
            delattr({"os": os, "mmap": mmap, "fcntl": fcntl}[module], attribute)

    from pathlib import Path
    from aerobee.clock import ManualClock
    from aerobee.errors import StoreInUse
    from aerobee.protocol.message import Record
    from aerobee.settings import StoreConfig
    from aerobee.store.message_store import MessageStore
    from aerobee.store.results import ReadLimit

    small = StoreConfig(commit_log_segment_bytes=1 << 16, consume_queue_units=100, index_slots=100, index_entries=400)
    root, clock = Path(sys.argv[1]), ManualClock()

    def opened():
        return MessageStore.open(root, small, clock)

    store = opened()
    for number in range(400):
        store.append(Record("orders", b"%d" % number * 50, f"KEYS\\x01k{number}\\x02", number % 4))
    try:
        opened()
    except StoreInUse:
        pass
    else:
        raise SystemExit("a second store in the same directory was let in")
    store.flush()
    store.close()
    if "fcntl" in sys.argv:
        sys.modules["msvcrt"].taken.clear()
    store = opened()
    found = []
    for queue in range(4):
        offset = 0
        while offset < store.max_offset("orders", queue):
            read = store.read("orders", queue, offset, ReadLimit(max_messages=1000, max_bytes=1 << 22))
            found += read.messages
            offset = read.next_offset
    assert len(found) == 400, len(found)
    store.append(Record("orders", b"more", "", 0))
    assert 0 <= store.disk_ratio() <= 1
    store.close()
    print("kept")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "lacking", [(), *((name,) for name in LACKING), LACKING], ids=lambda names: ",".join(names)[:40]
)
def test_the_store_keeps_messages_without_it(tmp_path: Path, lacking: tuple[str, ...]) -> None:
    # F_OFD_SETLK cannot be taken from a module that is not there.
    names = [name for name in lacking if not ("fcntl" in lacking and name.startswith("fcntl."))]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path / "store"), *names],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "kept\n", done.stderr


def test_macos_syncs_past_the_drives_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fsync does not: F_FULLFSYNC does."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(platform, "sys", SimpleNamespace(platform="darwin"))
    monkeypatch.setattr(
        platform, "fcntl", SimpleNamespace(F_FULLFSYNC=51, fcntl=lambda fd, what: asked.append((fd, what)))
    )
    platform.sync_data(7)
    assert asked == [(7, 51)]


def test_reserving_without_fallocate_keeps_what_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"message", 5_000)
    os.ftruncate(fd, 1 << 22)
    platform.reserve(fd, 0, 3 << 20)
    assert os.pread(fd, 7, 5_000) == b"message"
    assert os.fstat(fd).st_size == 1 << 22
    assert os.fstat(fd).st_blocks * 512 >= 3 << 20, "every block of the range is there"
    os.close(fd)


def test_a_disk_that_fills_while_space_is_reserved_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    monkeypatch.setattr(platform, "pwrite", lambda fd, data, at: len(data) - 1)
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    with pytest.raises(OSError, match="No space") as refused:
        platform.reserve(fd, 0, 1 << 20)
    assert refused.value.errno == errno.ENOSPC
    os.close(fd)


def test_reads_and_writes_at_a_place_without_the_calls_for_it(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    assert platform._pwrite(fd, b"hello", 100) == 5
    assert platform._pread(fd, 5, 100) == b"hello"
    assert platform._pread(fd, 99, 103) == b"lo", "up to the file's end"
    os.close(fd)


def test_pages_stay_where_there_is_no_advice_to_give() -> None:
    mapped: Any = mmap.mmap(-1, 8192)
    platform.forget_pages(mapped, 4096)
    platform.forget_pages(SimpleNamespace(), 4096)  # type: ignore[arg-type]
    mapped.close()


@pytest.mark.parametrize(
    ("start", "advice"),
    [
        (0, [(mmap.MADV_RANDOM, 0)]),
        (4096, [(mmap.MADV_NORMAL, 0, 4096), (mmap.MADV_RANDOM, 4096)]),
        (8192, [(mmap.MADV_NORMAL, 0, 8192)]),
    ],
)
def test_what_is_written_already_may_be_read_ahead_and_what_follows_not(
    start: int, advice: list[tuple[int, ...]]
) -> None:
    given: list[tuple[int, ...]] = []

    class Mapped:
        def __len__(self) -> int:
            return 8192

        def madvise(self, *advice: int) -> None:
            given.append(advice)

    mapped: Any = Mapped()
    platform.expect_writes(mapped, start)
    assert given == advice
