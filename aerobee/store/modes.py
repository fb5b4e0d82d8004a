# SPDX-License-Identifier: Apache-2.0
"""Who may read what the store writes: the user it runs as and, with `group_access = "read"`, that user's group.

The store's own directory says which of the two: it gets its mode when the store is opened, and whatever is made below it
takes the group's part from the directory it is made in. So the parts that make files need not know the setting, and a
table saved next to the store follows it as well.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aerobee.store import platform

if TYPE_CHECKING:
    from pathlib import Path

_DIRECTORY_MODES = {"none": 0o700, "read": 0o750}
_FILE_MODES = {"none": 0o600, "read": 0o640}


def open_file(path: Path | str, flags: int = os.O_RDWR) -> int:
    """The descriptor of a file, which is made when there is none."""
    mode = _FILE_MODES[_access(os.path.dirname(path) or ".")]
    fd = os.open(path, flags | os.O_CREAT | platform.CLOSE_ON_EXEC, mode)
    if mode & 0o040:
        platform.set_mode(fd, path, mode)
    return fd


def make_directory(path: Path | str) -> None:
    """One directory, in one that exists; FileExistsError only where something else has the name."""
    mode = _DIRECTORY_MODES[_access(os.path.dirname(path) or ".")]
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return
    if mode & 0o040:
        os.chmod(path, mode)


def set_access(directory: Path, access: str) -> None:
    """Close a directory to all but its user, or open it to the group; one that another user owns stays as it is."""
    mode = _DIRECTORY_MODES[access]
    if directory.stat().st_mode & 0o777 != mode and platform.owns(directory):
        directory.chmod(mode)


def _access(directory: str) -> str:
    return "read" if os.stat(directory).st_mode & 0o077 == 0o050 else "none"
