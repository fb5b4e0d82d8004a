# SPDX-License-Identifier: Apache-2.0
"""PySpark's word on workers that were cut off, left unsaid.

A query that has enough (`show()`, `take(1)`, `limit`) hangs up on its workers, and PySpark prints a traceback of
BrokenPipeError for each of them, as if something had failed. Workers that run tasks get our parent process by a setting
(`worker_daemon.py`); those that plan always have PySpark's own, and import the data source, which hushes them.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

_print_exc = traceback.print_exc


def hush() -> None:
    """In this process and those it forks."""
    traceback.print_exc = _print_failures


def hush_workers() -> None:
    """Where this process is one of PySpark's, and not a user's own."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        hush()


def _print_failures(*args: Any, **named: Any) -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        _print_exc(*args, **named)
