# SPDX-License-Identifier: Apache-2.0
"""One mapped file of fixed size, named by the offset of its first byte.

The file has its full size from the start (RocketMQ refuses others) but is sparse. Storing into a hole of a
mapping on a full disk kills the process with SIGBUS, so space is reserved with `posix_fallocate` before it is
written: there a full disk is an error like any other.
"""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.errors import DiskFull, StoreError
from aerobee.store import platform
from aerobee.store.modes import open_file

if TYPE_CHECKING:
    from pathlib import Path

_FIRST_EXTENT = 1 << 20
_MAX_EXTENT = 1 << 24
_PAGE = mmap.PAGESIZE
_ZEROS = memoryview(bytes(256 << 10))


def reserve_range(fd: int, start: int, length: int, what: str) -> None:
    """Make `length` bytes from `start` safe to store into, or raise DiskFull."""
    try:
        platform.reserve(fd, start, length)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DiskFull(
                f"{what}: no space for {length} bytes ({error.strerror}); free space or lower retention_hours"
            ) from None
        raise StoreError(f"{what}: cannot reserve {length} bytes: {error}") from error


def is_position(name: str) -> bool:
    """Whether a file's name says at which byte it begins: 20 digits."""
    return len(name) == 20 and name.isascii() and name.isdigit()


class Segment:
    """Bytes [base, base + size) of a log. `map` is opened on first use and may be dropped again."""

    __slots__ = ("_fd", "base", "mapped", "paged", "path", "reserved", "size")

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.base = int(path.name)
        self.size = size
        self.reserved = 0  # bytes from the start known to have space
        self.paged = 0  # where the pages end that the kernel has ready for what comes
        self._fd = -1
        self.mapped: mmap.mmap | None = None  # `map`, once it was used

    @property
    def map(self) -> mmap.mmap:
        if self.mapped is None:
            self.mapped = mmap.mmap(self.fd, self.size)
        return self.mapped

    @property
    def fd(self) -> int:
        if self._fd < 0:
            self._fd = open_file(self.path)
            if os.fstat(self._fd).st_size != self.size:
                os.ftruncate(self._fd, self.size)
        return self._fd

    def reserve(self, end: int) -> None:
        """Space for bytes up to `end` (within the segment), taken in growing extents."""
        if end <= self.reserved:
            return
        extent = min(_MAX_EXTENT, max(_FIRST_EXTENT, self.reserved))
        wanted = min(self.size, max(end, self.reserved + extent))
        try:
            reserve_range(self.fd, self.reserved, wanted - self.reserved, str(self.path))
        except DiskFull:
            # The last extent may not fit where the record still does.
            wanted = min(self.size, -(-end // _PAGE) * _PAGE)
            reserve_range(self.fd, self.reserved, wanted - self.reserved, str(self.path))
        self.reserved = wanted

    def reserve_for(self, end: int, written: int) -> None:
        """The same for what is stored by the map, of which `written` bytes are."""
        if end > self.reserved:
            self.reserve(end)
            self.written_from(written)

    def make_pages(self, written: int, end: int) -> int:
        """Have the kernel's pages up to `end` and somewhat further ready, where space is reserved and past what is
        `written`: zeros by one call cost it a fifth of what as many stores into fresh pages of the map do. Returns
        where they end."""
        start = self.paged = max(self.paged, -(-written // _PAGE) * _PAGE)
        if end > start:
            self.paged = min(self.reserved, max(end, start + len(_ZEROS)))
            with suppress(OSError):  # then each page is made when it is written to
                platform.pwrite(self.fd, _ZEROS[: self.paged - start], start)
        return min(self.reserved, self.paged)

    def written_from(self, start: int) -> None:
        """What lies before `start` will be read, what follows is about to be written."""
        platform.expect_writes(self.map, start // _PAGE * _PAGE)

    def data_end(self) -> int:
        """Where the file's last written bytes end; what follows is a hole and reads as zeros."""
        return platform.data_end(self.fd, self.size)

    def cut(self, end: int) -> None:
        """Everything from `end` on reads as zeros again, so old bytes can never follow new ones."""
        self.unmap()
        os.ftruncate(self.fd, end)
        os.ftruncate(self.fd, self.size)
        self.reserved = min(self.reserved, end)
        self.paged = min(self.paged, end)

    def forget_pages(self, end: int) -> None:
        """Give the mapped pages before `end` back; they stay in the page cache, only our count shrinks."""
        if self.mapped is not None and (length := end // _PAGE * _PAGE):
            platform.forget_pages(self.mapped, length)

    def unmap(self) -> None:
        if self.mapped is not None:
            with suppress(BufferError):  # a view of it is on its way to a peer: the map goes with the view
                self.mapped.close()
            self.mapped = None

    def close(self) -> None:
        self.unmap()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def delete(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)
