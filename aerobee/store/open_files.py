# SPDX-License-Identifier: Apache-2.0
"""Files kept open, the least recently used closed: 80,000 queues share a few hundred descriptors.

Making a file does not sync its name, for a thousand queues may be made in a second: the directories are remembered, and
the next checkpoint syncs them.
"""

from __future__ import annotations

import os
from collections import OrderedDict

from aerobee.store import platform
from aerobee.store.modes import make_directory, open_file


class OpenFiles:
    """Descriptors by path. A file asked for is open until `limit` others were asked for after it."""

    def __init__(self, limit: int) -> None:
        self._limit = max(1, limit)
        self._open: OrderedDict[str, int] = OrderedDict()
        self.changed_directories: set[str] = set()  # names made or removed in them are not synced yet

    def __len__(self) -> int:
        return len(self._open)

    def existing(self, path: str) -> int:
        """The descriptor of a file that must exist (FileNotFoundError otherwise)."""
        fd = self._open.get(path)
        if fd is not None:
            self._open.move_to_end(path)
            return fd
        return self._keep(path, os.open(path, os.O_RDWR | platform.CLOSE_ON_EXEC))

    def created(self, path: str, size: int) -> int:
        """The descriptor of a file made if needed, sparse, with its full size."""
        try:
            return self.existing(path)
        except FileNotFoundError:
            pass
        directory = path.rpartition("/")[0]
        self._make_directory(directory)
        self.changed_directories.add(directory)
        fd = open_file(path)
        if os.fstat(fd).st_size < size:
            try:
                os.ftruncate(fd, size)
            except OSError:
                os.close(fd)
                raise
        return self._keep(path, fd)

    def _make_directory(self, directory: str) -> None:
        parent = directory.rpartition("/")[0]
        try:
            make_directory(directory)
        except FileNotFoundError:
            self._make_directory(parent)
            make_directory(directory)
        self.changed_directories.add(parent)

    def _keep(self, path: str, fd: int) -> int:
        self._open[path] = fd
        if len(self._open) > self._limit:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)
        return fd

    def drop(self, path: str) -> None:
        """Close before the file is deleted; nothing happens when it is not open."""
        fd = self._open.pop(path, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])
