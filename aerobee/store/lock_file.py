# SPDX-License-Identifier: Apache-2.0
"""One process per store: RocketMQ's `lock` file, and its `abort` file, which exists while a broker runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aerobee.errors import StoreInUse
from aerobee.store import platform
from aerobee.store.directories import make_directory, secure_name, sync_directory
from aerobee.store.modes import open_file

if TYPE_CHECKING:
    from pathlib import Path


class StoreLock:
    """Held from construction to `release`. Java locks the same byte, so it is kept out too."""

    def __init__(self, root: Path) -> None:
        make_directory(root)
        secure_name(root)
        self._abort = root / "abort"
        self._fd = open_file(root / "lock")
        try:
            platform.lock_first_byte(self._fd)
        except OSError:
            os.close(self._fd)
            holder = self._pid()
            raise StoreInUse(
                f"store {root} is in use by process {holder or 'unknown'}; stop it or choose another --data"
            ) from None
        platform.pwrite(self._fd, b"lock", 0)
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
