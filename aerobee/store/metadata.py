# SPDX-License-Identifier: Apache-2.0
"""Small files that are replaced whole: topics, groups, offsets and the like.

A save never edits: the new text goes to `name.tmp` and is synced, the old file becomes `name.bak`, the new
takes the name, and the directory is synced. Whatever step a crash hits, `name` or `name.bak` holds old or
new text in full; `name.tmp` is never read. RocketMQ reads and writes the same pair of files.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.errors import DiskFull, StoreError
from aerobee.store import platform
from aerobee.store.directories import make_directory, sync_directory
from aerobee.store.modes import open_file

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("aerobee.store")

# Given the file's bytes; raises (ValueError or a parser's own error) when they cannot be used.
Check = Callable[[bytes], object]


def whole_object(data: bytes) -> None:
    """The check of a file without one: text, and a JSON object that has its end.

    Not a JSON parser on purpose: Java's files have bare integer keys.
    """
    text = data.decode().strip()
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError("not a whole JSON object")


class JsonFile:
    def __init__(self, path: Path, check: Check = whole_object) -> None:
        self.path = path
        self.backup = path.with_name(path.name + ".bak")
        self._draft = path.with_name(path.name + ".tmp")
        self._check = check

    def load(self) -> bytes | None:
        """The newest text that passes the check, or None when there is none."""
        data = self._read(self.path)
        if data is not None:
            return data
        data = self._read(self.backup)
        if data is not None:
            log.warning("metadata file=%s: missing or broken, using %s", self.path, self.backup.name)
        return data

    def save(self, data: bytes) -> None:
        try:
            make_directory(self.path.parent)
            self._write_draft(data)
            if self.path.exists():
                os.replace(self.path, self.backup)
            os.replace(self._draft, self.path)
            sync_directory(self.path.parent)
        except OSError as error:
            with suppress(OSError):
                self._draft.unlink()
            raise disk_error(error, f"cannot save {self.path}") from error

    def _open_draft(self) -> int:
        return open_file(self._draft, os.O_WRONLY | os.O_TRUNC)

    def _write_draft(self, data: bytes) -> None:
        handle = self._open_draft()
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            platform.sync_data(handle)  # before the rename: a name must never point to text still in memory
        finally:
            os.close(handle)

    def _read(self, path: Path) -> bytes | None:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error
        try:
            self._check(data)
        except Exception as error:  # whatever the caller's parser raises, the file is unusable
            self._set_aside(path, error)
            return None
        return data

    def _set_aside(self, path: Path, error: Exception) -> None:
        """Keep a broken file for the operator; the next save must not make it the backup."""
        bad = path.with_name(path.name + ".bad")
        os.replace(path, bad)
        log.warning("metadata file=%s: unusable, kept as %s: %s", path, bad.name, error)


class PrivateFile(JsonFile):
    """Of secrets: nobody but its owner may read it, whatever the directory's group may."""

    def _open_draft(self) -> int:
        with suppress(FileNotFoundError):
            self._draft.unlink()  # of another time: it might be somebody's
        return os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def disk_error(error: OSError, doing: str) -> StoreError:
    """The store error of an OSError: no space is a state that passes, the rest is a fault."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{doing}: {error.strerror}; free some space, then it works again")
    return StoreError(f"{doing}: {error.strerror}")
