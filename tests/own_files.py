# SPDX-License-Identifier: Apache-2.0
"""Whose file a system call is about. A test that counts such calls, or makes them fail, does it to its own files: the
server of another test may be writing in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def is_under(folder: Path, fd: int) -> bool:
    """Whether an open file or folder is that one, or is in it."""
    return f"{os.readlink(f'/proc/self/fd/{fd}')}/".startswith(f"{folder.resolve()}/")
