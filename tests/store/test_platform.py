# SPDX-License-Identifier: Apache-2.0
"""The store on systems that lack what Linux has: each function taken away, then all of them."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
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

    small = StoreConfig(
        commit_log_segment_bytes=1 << 16, consume_queue_units=100, index_slots=100, index_entries=400,
        disk_clean_ratio=1, disk_full_ratio=1,  # however full this machine's disk is
    )
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


def test_space_is_reserved_by_one_call_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To write it would take seconds for a large piece."""
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "posix_fallocate", lambda *what: asked.append(what), raising=False)
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    platform.reserve(fd, 4_096, 1 << 20)
    assert (asked, os.fstat(fd).st_size) == ([(fd, 4_096, 1 << 20)], 0)
    os.close(fd)


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


def test_a_system_that_reads_little_at_once_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd, read = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT), os.read
    os.write(fd, b"0123456789")
    with monkeypatch.context() as patch:
        patch.setattr(os, "read", lambda fd, length: read(fd, min(length, 3)))
        assert platform._pread(fd, 7, 2) == b"2345678"
    os.close(fd)


def test_pages_stay_where_there_is_no_advice_to_give() -> None:
    mapped: Any = mmap.mmap(-1, 8192)
    platform.forget_pages(mapped, 4096)
    platform.forget_pages(SimpleNamespace(), 4096)  # type: ignore[arg-type]
    platform.expect_writes(bytearray(8192), 4096)  # type: ignore[arg-type]
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


def test_a_folder_that_cannot_be_synced_is_not_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/proc/self/fd"))

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output"):
        platform.sync_names(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("fails", [False, True])
def test_a_file_system_is_synced_by_one_of_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """C says what went wrong by a number beside its answer."""
    before, asked = len(os.listdir("/proc/self/fd")), list[str]()

    def syncfs(fd: int) -> int:
        asked.append(os.readlink(f"/proc/self/fd/{fd}"))
        return -1 if fails else 0

    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: SimpleNamespace(syncfs=syncfs))
    monkeypatch.setattr("ctypes.get_errno", lambda: errno.EIO)
    if fails:
        with pytest.raises(OSError, match="syncfs") as refused:
            platform.sync_all(tmp_path)
        assert refused.value.errno == errno.EIO
    else:
        platform.sync_all(tmp_path)
    assert asked == [str(tmp_path.resolve())]
    assert len(os.listdir("/proc/self/fd")) == before


def test_where_no_file_system_can_be_synced_alone_all_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: SimpleNamespace())
    monkeypatch.setattr(os, "sync", lambda: synced.append(True))
    platform.sync_all(tmp_path)
    assert synced == [True]


def test_what_only_root_may_use_is_neither_used_nor_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = SimpleNamespace(f_blocks=100, f_bfree=40, f_bavail=30, f_frsize=10, f_bsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda root: told)
    disk = platform.disk_of(tmp_path)
    assert disk == (600, 300)
    assert disk.ratio == pytest.approx(2 / 3), "full when we can write no more, be there something for root"


@pytest.mark.parametrize(
    ("written", "size", "end"),
    [
        ([], 1 << 20, 0),
        ([0], 1 << 20, 4096),
        ([8192], 1 << 20, 12288),
        ([0, 65536], 1 << 20, 69632),
        ([0], 4096, 4096),
    ],
)
def test_the_last_written_page_of_a_sparse_file_is_found(
    tmp_path: Path, written: list[int], size: int, end: int
) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, size)
    for at in written:
        os.pwrite(fd, b"x" * 4096, at)
    found = platform.data_end(fd, size)
    os.close(fd)
    assert found in (end, size), "its size where the file system does not tell of holes"


def test_a_file_that_tells_nothing_of_its_holes_is_written_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)

    def unknown(*_: int) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    with monkeypatch.context() as patch:
        patch.setattr(os, "lseek", unknown)
        assert platform.data_end(fd, 5_000) == 5_000
    os.close(fd)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
def test_a_patient_thread_steps_back_and_no_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "getpriority", lambda which, who: 3 if who == threading.get_native_id() else 7)
    monkeypatch.setattr(os, "setpriority", lambda *what: asked.append(what))
    with ThreadPoolExecutor(1, initializer=platform.let_others_go_first) as patient:
        thread = patient.submit(threading.get_native_id).result()
    assert thread != threading.get_native_id()
    assert asked == [(os.PRIO_PROCESS, thread, 13)]


def test_without_fdatasync_the_whole_file_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(sys, "platform", "windows")
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, "fsync", synced.append)
    platform.sync_data(7)
    assert synced == [7]


@pytest.mark.parametrize(("there", "start", "length", "size"), [
    (0, 0, 100, 100), (50, 20, 100, 120), (500, 20, 100, 500), (10, 3_000_000, 5, 3_000_005),
])  # fmt: skip
def test_space_is_made_where_it_was_asked_for_and_no_byte_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: int, start: int, length: int, size: int
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    path = tmp_path / "file"
    path.write_bytes(b"x" * there)
    written: list[tuple[int, int]] = []
    pwrite = platform.pwrite

    def noted(fd: int, data: bytes, at: int) -> int:
        written.append((at, at + len(data)))
        return pwrite(fd, data, at)

    monkeypatch.setattr(platform, "pwrite", noted)
    with path.open("r+b") as file:
        platform.reserve(file.fileno(), start, length)
    assert path.read_bytes() == (b"x" * there).ljust(size, b"\0")
    assert (written[0][0], written[-1][1]) == (start, start + length)


def test_a_file_system_of_no_size_is_full() -> None:
    assert platform.Disk(0, 0).ratio == 1.0
    assert platform.Disk(1, 3).ratio == 0.25


@pytest.mark.skipif(not hasattr(platform.fcntl, "F_OFD_SETLK"), reason="Linux's locks")
def test_the_locked_byte_is_the_one_that_java_locks(tmp_path: Path) -> None:
    """And its lock lets nobody else in, be it to read."""
    fcntl = platform.fcntl

    def locked(fd: int, byte: int, kind: int) -> bool:
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, platform._FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0))
        except OSError:
            return False
        return True

    with (tmp_path / "lock").open("w+b") as ours, (tmp_path / "lock").open("r+b") as theirs:
        platform.lock_first_byte(ours.fileno())
        assert not locked(theirs.fileno(), 0, fcntl.F_WRLCK)
        assert not locked(theirs.fileno(), 0, fcntl.F_RDLCK)
        assert locked(theirs.fileno(), 1, fcntl.F_WRLCK)
        with pytest.raises((BlockingIOError, PermissionError)):
            platform.lock_first_byte(theirs.fileno())


def test_elsewhere_a_second_process_is_kept_out_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = platform.fcntl
    monkeypatch.setattr(
        platform,
        "fcntl",
        SimpleNamespace(flock=real.flock, LOCK_EX=real.LOCK_EX, LOCK_NB=real.LOCK_NB, LOCK_SH=real.LOCK_SH),
    )
    with (tmp_path / "lock").open("w+b") as ours, (tmp_path / "lock").open("r+b") as theirs:
        platform.lock_first_byte(ours.fileno())
        with pytest.raises((BlockingIOError, PermissionError)):
            platform.lock_first_byte(theirs.fileno())
