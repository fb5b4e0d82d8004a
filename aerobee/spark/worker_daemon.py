# SPDX-License-Identifier: Apache-2.0
"""Spark's parent of all Python workers that run tasks, without its word on those that were cut off.

`session()` names this module in Spark's setting `spark.python.daemon.module`.
"""

from __future__ import annotations

from pyspark import daemon

from aerobee.spark.hung_up import hush

if __name__ == "__main__":
    hush()
    daemon.manager()
