# SPDX-License-Identifier: Apache-2.0
"""Spark's parent of all Python workers, without its word on those that were cut off.

A query that has enough (`show()`, `take(1)`, `limit`) hangs up on its workers, and PySpark prints a traceback of
BrokenPipeError for each of them, as if something had failed. `session()` names this module in Spark's setting
`spark.python.daemon.module`.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

from pyspark import daemon

_print_exc = traceback.print_exc


def _print_failures(*args: Any, **named: Any) -> None:
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        _print_exc(*args, **named)


if __name__ == "__main__":
    traceback.print_exc = _print_failures
    daemon.manager()
