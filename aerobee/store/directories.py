# SPDX-License-Identifier: Apache-2.0
"""Names that survive power loss.

Syncing a file keeps its bytes, not its name: that is an entry of its directory and is kept by syncing the directory,
whose own name is an entry of its parent. A file is safe only when every directory on the way down to it was synced
after it got its new entry.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from aerobee.store import modes, platform

if TYPE_CHECKING:
    from pathlib import Path


def sync_directory(path: Path | str) -> None:
    """New, changed and removed names in it survive power loss from here on."""
    platform.sync_names(path)


def make_directory(path: Path) -> None:
    """The directory and those above it, each with a name that survives power loss."""
    if path.is_dir():
        return
    make_directory(path.parent)
    modes.make_directory(path)
    try:
        sync_directory(path.parent)
    except OSError:  # the next try must make it anew: to one that is there no name is synced
        with suppress(OSError):
            path.rmdir()
        raise


def make_root(path: Path, group_access: str) -> None:
    """A directory that we own the content of, and those above it that are not there yet, with the access asked for."""
    new = [parent for parent in path.parents if not parent.exists()]
    make_directory(path)
    for directory in (path, *new):
        modes.set_access(directory, group_access)


def secure_name(path: Path) -> None:
    """Sync the name of a directory that somebody else made, maybe a moment ago: the operator, or a killed process.

    Where its parent may not be read or cannot be synced (a mount point, a network file system) it is the
    administrator's, and older than we are.
    """
    with suppress(OSError):
        sync_directory(path.absolute().parent)
