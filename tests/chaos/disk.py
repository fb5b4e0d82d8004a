# SPDX-License-Identifier: Apache-2.0
"""What a disk would hold if the power went now.

While it is installed, `os.fsync` and `os.fdatasync` of this process note what they make safe: of a file its bytes, of a
directory its names. `image` builds a directory from these notes alone: a file that was never synced is empty, a name
whose directory was not synced since is not there, a name removed since is there again. A lucky disk wrote more by
itself before the power went, any page and any directory; with dice the image has some of that, too.

Inodes are kept open, so that none is given to another file while the notes speak of it.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from aerobee.store import platform

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

PAGE = 4096


class Content(NamedTuple):
    """The bytes of a file that are not zero for being a hole."""

    size: int
    extents: list[tuple[int, bytes]]


class Disk:
    def __init__(self, root: Path) -> None:
        """Whatever is below `root` now is on disk."""
        self._root = root
        self._lock = threading.RLock()
        self._handles: dict[int, int] = {}  # inode -> a descriptor that keeps it
        self._files: dict[int, Content] = {}
        self._names: dict[int, dict[str, int]] = {}  # directory -> name -> inode
        self._real_fsync, self._real_fdatasync = os.fsync, os.fdatasync
        self.syncs = 0
        self.before_sync: Callable[[int], None] = lambda count: None
        self._sync_tree(root)

    @contextmanager
    def installed(self) -> Iterator[None]:
        whole = platform.sync_all
        os.fsync = os.fdatasync = self._sync  # type: ignore[assignment]
        platform.sync_all = lambda root: self._sync_everything()
        try:
            yield
        finally:
            os.fsync, os.fdatasync = self._real_fsync, self._real_fdatasync
            platform.sync_all = whole

    def close(self) -> None:
        with self._lock:  # a sync may still be under way in its thread
            for handle in self._handles.values():
                os.close(handle)
            self._handles.clear()

    # -- syncs ---------------------------------------------------------------------------------------------

    def _sync(self, descriptor: int) -> None:
        with self._lock:
            self.syncs += 1
            self.before_sync(self.syncs)
            self._note(descriptor)

    def _sync_everything(self) -> None:
        with self._lock:
            self.syncs += 1
            self.before_sync(self.syncs)
            self._sync_tree(self._root)

    def _sync_tree(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            self._note(handle)
        finally:
            os.close(handle)
        if path.is_dir():
            for child in path.iterdir():
                with suppress(FileNotFoundError):
                    self._sync_tree(child)

    def _note(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._keep(status.st_ino, f"/proc/self/fd/{descriptor}")
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = self._listing(descriptor)
        else:
            self._files[status.st_ino] = _content(descriptor)

    def _listing(self, descriptor: int) -> dict[str, int]:
        names = {}
        with os.scandir(descriptor) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # removed while we look
                    self._keep(entry.inode(), f"/proc/self/fd/{descriptor}/{entry.name}")
                    names[entry.name] = entry.inode()
        return names

    def _keep(self, inode: int, path: str) -> None:
        if inode not in self._handles:
            self._handles[inode] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    # -- the image -----------------------------------------------------------------------------------------

    def image(self, target: Path, dice: random.Random | None = None) -> None:
        with self._lock:
            self._build(os.stat(self._root).st_ino, target, dice)

    def _build(self, inode: int, target: Path, dice: random.Random | None) -> None:
        handle = self._handles[inode]
        if not stat.S_ISDIR(os.fstat(handle).st_mode):
            self._write_file(inode, target, dice)
            return
        target.mkdir(parents=True, exist_ok=True)
        names = self._names.get(inode, {})
        if dice is not None and dice.random() < 0.3:
            names = self._listing(handle)
        for name, child in names.items():
            self._build(child, target / name, dice)

    def _write_file(self, inode: int, target: Path, dice: random.Random | None) -> None:
        content = self._files.get(inode, Content(0, []))
        now = _content(self._handles[inode]) if dice is not None and dice.random() < 0.5 else None
        with target.open("wb") as file:
            file.truncate(content.size if now is None else now.size)
            for at, data in content.extents:
                file.seek(at)
                file.write(data)
            for at, data in now.extents if now is not None else ():
                for page in range(0, len(data), PAGE):
                    if dice is not None and dice.random() < 0.5:
                        file.seek(at + page)
                        file.write(data[page : page + PAGE])


def _content(descriptor: int) -> Content:
    size, extents, at = os.fstat(descriptor).st_size, [], 0
    handle = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)  # a position of its own
    try:
        while at < size:
            start = os.lseek(handle, at, os.SEEK_DATA)
            at = os.lseek(handle, start, os.SEEK_HOLE)
            extents.append((start, os.pread(handle, at - start, start)))
    except OSError as error:
        if error.errno != errno.ENXIO:  # no data after `at`
            raise
    finally:
        os.close(handle)
    return Content(size, extents)
