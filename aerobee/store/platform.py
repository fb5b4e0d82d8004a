# SPDX-License-Identifier: Apache-2.0
"""What operating systems do differently, and nothing else: the rest of the store calls these.

| | Linux | macOS | Windows |
|---|---|---|---|
| bytes on disk | fdatasync | F_FULLFSYNC: its fsync stops at the drive's cache | FlushFileBuffers, by fsync |
| names on disk | fsync of the directory | the same | the file system's own affair |
| space reserved | posix_fallocate | the bytes there are written again | the same |
| one process | a lock that Java sees too | flock | a locked byte |
| a patient thread | its own nice value | none | none |
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import struct
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_DIRECTORY = getattr(os, "O_DIRECTORY", 0)
_COPY_BYTES = 1 << 20
_PATIENT = 10  # more nice: a tenth of the share of others, and never ahead of them
# struct flock: type, whence, start, length, pid
_FLOCK = struct.Struct("hhqqi4x")


# -- reading and writing at a place ------------------------------------------------------------------------


def _pread(fd: int, length: int, offset: int) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    parts = []
    while length > 0 and (part := os.read(fd, length)):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _pwrite(fd: int, data: bytes | memoryview, offset: int) -> int:
    os.lseek(fd, offset, os.SEEK_SET)
    return os.write(fd, data)


# Where they are missing nobody else moves the descriptor's place meanwhile: descriptors are used by one thread each.
pread = getattr(os, "pread", _pread)
pwrite = getattr(os, "pwrite", _pwrite)


# -- durability --------------------------------------------------------------------------------------------


def sync_data(fd: int) -> None:
    """The file's bytes survive power loss."""
    if sys.platform == "darwin" and fcntl is not None:
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def sync_names(directory: Path | str) -> None:
    """New, changed and removed names in the directory survive power loss."""
    if not _DIRECTORY:
        return  # a directory is no file there, and its entries are journaled
    fd = os.open(directory, os.O_RDONLY | _DIRECTORY | CLOSE_ON_EXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_all(root: Path) -> None:
    """Everything of the directory's file system, in one call."""
    if hasattr(os, "sync"):
        _sync_file_system(root)


def _sync_file_system(directory: Path) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "syncfs"):
        os.sync()
        return
    fd = os.open(directory, os.O_RDONLY | _DIRECTORY)
    try:
        if libc.syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(fd)


def let_others_go_first() -> None:
    """This thread's work can wait."""
    if sys.platform == "linux":  # elsewhere it would be the whole process's
        this = threading.get_native_id()
        with suppress(OSError):  # not everybody may, by a unit of systemd for one
            os.setpriority(os.PRIO_PROCESS, this, os.getpriority(os.PRIO_PROCESS, this) + _PATIENT)


# -- space -------------------------------------------------------------------------------------------------


def reserve(fd: int, start: int, length: int) -> None:
    """Make these bytes safe to store into by a mapping; OSError (ENOSPC) when the disk is full."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, length)
        return
    end = start + length
    if os.fstat(fd).st_size < end:
        os.ftruncate(fd, end)
    # A page that was written has its block. What lies there is written again, be it the zeros of a hole.
    for at in range(start, end, _COPY_BYTES):
        data = pread(fd, min(_COPY_BYTES, end - at), at)
        if pwrite(fd, data, at) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def data_end(fd: int, size: int) -> int:
    """Where the last written bytes of a sparse file end; its size where no one can tell."""
    if not hasattr(os, "SEEK_DATA"):
        return size
    end, at = 0, 0
    try:
        while at < size:
            at = os.lseek(fd, at, os.SEEK_DATA)
            at = end = os.lseek(fd, at, os.SEEK_HOLE)
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO: no data after `at`
            return size
    return end


def forget_pages(mapped: mmap.mmap, length: int) -> None:
    """Give mapped pages back; they stay in the page cache, only our count shrinks."""
    if hasattr(mapped, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED, 0, length)


def expect_writes(mapped: mmap.mmap, start: int) -> None:
    """From page boundary `start` on, nothing is read ahead: a store into a fresh page would else have the kernel fill
    megabytes of its cache with zeros first, for which the loop stands still (19 ms for 8 MiB)."""
    if start and hasattr(mapped, "madvise") and hasattr(mmap, "MADV_NORMAL"):
        mapped.madvise(mmap.MADV_NORMAL, 0, start)
    expect_no_order(mapped, start)


def expect_no_order(mapped: mmap.mmap, start: int) -> None:
    """From page boundary `start` on, what is near is not what is wanted next."""
    if start < len(mapped) and hasattr(mapped, "madvise") and hasattr(mmap, "MADV_RANDOM"):
        mapped.madvise(mmap.MADV_RANDOM, start)


class Disk(NamedTuple):
    """A file system; `free` is what we may use, without root's share."""

    used: int
    free: int

    @property
    def ratio(self) -> float:
        return self.used / (self.used + self.free) if self.used + self.free else 1.0


def disk_of(root: Path) -> Disk:
    if not hasattr(os, "statvfs"):
        usage = shutil.disk_usage(root)
        return Disk(usage.used, usage.free)
    stat = os.statvfs(root)
    return Disk((stat.f_blocks - stat.f_bfree) * stat.f_frsize, stat.f_bavail * stat.f_frsize)


# -- who may come in ---------------------------------------------------------------------------------------


def lock_first_byte(fd: int) -> None:
    """A lock of the open file, not of the process: a second store in this process is refused as well. OSError when
    somebody has it."""
    if fcntl is None:
        _lock_windows(fd)
    elif hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    else:  # not Linux: keeps other Aerobee processes out
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_windows(fd: int) -> None:
    import msvcrt

    os.lseek(fd, 0, os.SEEK_SET)
    msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]


def set_mode(fd: int, path: Path | str, mode: int) -> None:
    """Whatever umask the process has."""
    if hasattr(os, "fchmod"):
        os.fchmod(fd, mode)
    else:
        os.chmod(path, mode)


def owns(path: Path) -> bool:
    return not hasattr(os, "geteuid") or path.stat().st_uid == os.geteuid()
