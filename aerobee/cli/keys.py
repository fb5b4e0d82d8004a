# SPDX-License-Identifier: Apache-2.0
"""Single keys of a terminal, read while a loop runs."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def pressed(tell: Callable[[str], None]) -> Iterator[None]:
    """Each key is told at once, and not shown. Without a terminal, or on a system without termios, none is."""
    try:
        import termios
        import tty

        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
    except (ImportError, OSError, ValueError):
        yield
        return
    except termios.error:  # a pipe
        yield
        return
    loop = asyncio.get_running_loop()
    tty.setcbreak(terminal)

    def read() -> None:
        for key in os.read(terminal, 64).decode(errors="ignore"):
            tell(key)

    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
