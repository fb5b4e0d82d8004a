# SPDX-License-Identifier: Apache-2.0
"""One process per store: RocketMQ's `lock` file, and its `abort` file, which exists while a broker runs."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import TYPE_CHECKING

from aerobee.errors import StoreInUse
from aerobee.store.directories import make_directory, secure_name, sync_directory
from aerobee.store.modes import open_file

if TYPE_CHECKING:
    from pathlib import Path

# struct flock: type, whence, start, length, pid
_FLOCK = struct.Struct("hhqqi4x")


class StoreLock:
    """Held from construction to `release`. Java locks the same byte, so it is kept out too."""

    def __init__(self, root: Path) -> None:
        make_directory(root)
        secure_name(root)
        self._abort = root / "abort"
        self._fd = open_file(root / "lock")
        try:
            _lock_first_byte(self._fd)
        except OSError:
            os.close(self._fd)
            holder = self._pid()
            raise StoreInUse(
                f"store {root} is in use by process {holder or 'unknown'}; stop it or choose another --data"
            ) from None
        os.pwrite(self._fd, b"lock", 0)
        self.was_clean = not self._abort.exists()

    def _pid(self) -> str:
        try:
            return self._abort.read_text().strip()
        except OSError:
            return ""

    def mark_running(self) -> None:
        """From here on a stop that does not call `mark_clean` is a crash to whoever opens the store next."""
        fd = open_file(self._abort, os.O_WRONLY | os.O_TRUNC)
        os.write(fd, str(os.getpid()).encode())
        os.close(fd)
        sync_directory(self._abort.parent)

    def mark_clean(self) -> None:
        self._abort.unlink(missing_ok=True)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _lock_first_byte(fd: int) -> None:
    """A lock of the open file, not of the process: a second store in this process is refused as well."""
    if hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    else:  # not Linux: keeps other Aerobee processes out
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
