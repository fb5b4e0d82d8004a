# SPDX-License-Identifier: Apache-2.0
"""RocketMQ topics as Spark DataFrames: a data source without jars, and pipelines over it.

from aerobee.spark import session, read

spark = session()
read(spark, "orders", namesrv="127.0.0.1:9876", json=True).groupBy("status").count().show()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aerobee.spark.dataframes import read, read_stream, write
    from aerobee.spark.sessions import session
    from aerobee.spark.stream_figures import figures_of, listen
    from aerobee.spark.writing.sending_back import send_back

__all__ = ["figures_of", "listen", "read", "read_stream", "send_back", "session", "write"]

_HOMES = {
    "read": "aerobee.spark.dataframes",
    "read_stream": "aerobee.spark.dataframes",
    "write": "aerobee.spark.dataframes",
    "figures_of": "aerobee.spark.stream_figures",
    "listen": "aerobee.spark.stream_figures",
    "send_back": "aerobee.spark.writing.sending_back",
    "session": "aerobee.spark.sessions",
}


def __getattr__(name: str) -> Any:
    # Spark imports this package in every worker process: nothing is loaded before it is used. No module may share its
    # name with a function here: importing the module would hide the function.
    if name not in _HOMES:
        raise AttributeError(f"module 'aerobee.spark' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
