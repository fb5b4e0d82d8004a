# SPDX-License-Identifier: Apache-2.0
"""RocketMQ topics as Spark DataFrames: a data source without jars, and pipelines over it.

from aerobee.spark import session, read

spark = session()
read(spark, "orders", namesrv="127.0.0.1:9876", json=True).groupBy("status").count().show()

session      a SparkSession that fits: local, on a cluster, or of a Connect server
read         a topic, or several, as a DataFrame
read_stream  the same as a stream
write        the rows of a DataFrame into a topic
send_back    failed rows to their group's retry topic
figures_of   lag and rows a second, of a stream's progress
listen       the same, of every batch of every stream of a session

The pipelines are functions in modules of their names: aerobee.spark.pipelines.lake.lake, and so consume, ledger, report,
replay.
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


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | _HOMES.keys())
