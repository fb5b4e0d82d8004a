# SPDX-License-Identifier: Apache-2.0
"""Spark's part of the demo: the lake, the ledger, the report, and the verdict."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aerobee.spark.pipelines.report import Figures


class Proof(NamedTuple):
    lake_rows: int
    figures: Figures
    report: Path
    lost: int


def prove(namesrv: str, topic: str, groups: list[str], out: Path, step: Callable[[str], Any]) -> Proof:
    """Run the three pipelines against the live broker; `step` names what is going on."""
    from aerobee.spark.pipelines.lake import lake
    from aerobee.spark.pipelines.ledger import ledger
    from aerobee.spark.pipelines.parquet_table import Table
    from aerobee.spark.pipelines.report import report
    from aerobee.spark.sessions import session

    step("starting Spark")
    # Short jobs: a JVM that compiles less starts faster.
    quick = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "4",
    }
    out.mkdir(parents=True, exist_ok=True)
    with errors_into(out / "spark.log"):
        spark = session("aerobee demo", config=quick)
    try:
        step("lake: orders to Parquet, exactly once")
        lake(
            spark, topic, str(out / "lake"), json=True, once=True, options={"namesrv": namesrv}
        ).awaitTermination()
        rows = Table(spark, str(out / "lake")).read().count()
        step("ledger: what became of every message")
        book = ledger(spark, [topic], groups, traces="complete", namesrv=namesrv).persist()
        step("report: one page")
        page = out / "report.html"
        figures = report(book, page, title="Aerobee demo: an online shop")
        return Proof(rows, figures, page, figures.lost)
    finally:
        spark.stop()


@contextmanager
def errors_into(file: Path) -> Iterator[None]:
    """What is started meanwhile has its stderr there for good: Spark's workers complain of pipes that Spark closed."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with file.open("wb") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
