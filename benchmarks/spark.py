# SPDX-License-Identifier: Apache-2.0
"""The Spark data source beside Parquet and beside working row by row; `local[2]`, rounds in turn.

    python -m benchmarks.spark [--messages 2000000] [--rounds 3] [--jvms 3] [--sizes 128,1024]
                               [--only read,sink,stream,memory] [--memory-messages 10000000] [--dir DIR] [--save]

read    rows a second: tuples, plain decoder to Arrow, over the wire, store scan, Parquet of the same rows (the ceiling);
        and one batch of the scan handed over again and again: what Spark's own part of any Python source comes to.
        In several JVMs one after the other: one may read Parquet half as fast again as the next, for as long as it lives
sink    rows a second of the Arrow sink and of one that works by row: against a peer that only answers, and for real
stream  milliseconds from stored at the broker to batch committed, light load, tuned session
memory  what a Python worker holds (anonymous memory) while it scans ten million messages

`--save` writes the "Spark" part of benchmarks/RESULTS.md. Stores are made in DIR and used again if they are there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import spark_report
from benchmarks.spark_report import Sample
from benchmarks.spark_stores import QUEUES, TOPIC, make_large_store, make_store, served
from benchmarks.spark_streams import stream_latencies

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

SLOW_SHARE = 8  # tuples and the plain decoder read this part of the rows
SINK_ROWS = 500_000


# -- reading ---------------------------------------------------------------------------------------------------


def _loaded(spark: SparkSession, kind: str, **options: str) -> DataFrame:
    reader = spark.read.format(kind).option("subscribe", TOPIC)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def _drained(frame: DataFrame) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def read_rates_of(jvms: int, folder: Path, size: int, count: int, rounds: int) -> dict[str, list[Sample]]:
    """All rounds of `jvms` new JVMs, each started by a process of its own and ended before the next."""
    found: dict[str, list[Sample]] = {}
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        for turn in range(jvms):
            print(f" JVM {turn + 1} of {jvms}", flush=True)
            rates = processes.submit(_read_rates_of_a_new_jvm, folder, size, count, rounds).result()
            for road, samples in rates.items():
                found.setdefault(road, []).extend(samples)
    return found


def _read_rates_of_a_new_jvm(folder: Path, size: int, count: int, rounds: int) -> dict[str, list[Sample]]:
    spark = tuned_session(folder)
    try:
        return read_rates(spark, folder / f"store-{size}", count, rounds)
    finally:
        spark.stop()


def read_rates(spark: SparkSession, data: Path, count: int, rounds: int) -> dict[str, list[Sample]]:
    from benchmarks.spark_peers import PlainSource, RepeatingSource, TupleSource

    for source in (TupleSource, PlainSource, RepeatingSource):
        spark.dataSource.register(source)
    store = str(data)
    parquet = data / "parquet"
    if not parquet.exists():
        _loaded(spark, "rocketmq", storePath=store).write.parquet(str(parquet))
    few = count // SLOW_SHARE // QUEUES  # of each queue: the slow ones take a minute for a million
    part = json.dumps({TOPIC: {"store": {str(queue): few for queue in range(QUEUES)}}})
    with served(data) as namesrv:
        roads: dict[str, tuple[int, Callable[[], DataFrame]]] = {
            "Parquet": (count, lambda: spark.read.parquet(str(parquet))),
            "store scan": (count, lambda: _loaded(spark, "rocketmq", storePath=store)),
            "no decoding": (count, lambda: _loaded(spark, "rocketmq_repeating", storePath=store)),
            "over the wire": (count, lambda: _loaded(spark, "rocketmq", namesrv=namesrv)),
            "plain decoder to Arrow": (
                few * QUEUES,
                lambda: _loaded(
                    spark, "rocketmq_plain", storePath=store, endingOffsets=part, minPartitions="4"
                ),
            ),
            "tuples": (
                few * QUEUES,
                lambda: _loaded(
                    spark, "rocketmq_tuples", storePath=store, endingOffsets=part, minPartitions="4"
                ),
            ),
        }
        for road in ("store scan", "no decoding", "over the wire"):
            assert roads[road][1]().count() == count, f"{road} lost rows"
        return _in_turn(
            {n: (rows, lambda r=road: _drained(r())) for n, (rows, road) in roads.items()}, rounds
        )


def _in_turn(roads: dict[str, tuple[int, Callable[[], float]]], rounds: int) -> dict[str, list[Sample]]:
    """Rows a second and CPU of each, all of them in every round; the first round only warms up."""
    found: dict[str, list[Sample]] = {name: [] for name in roads}
    for turn in range(rounds + 1):
        for name, (count, road) in roads.items():
            before = _cpu_ticks()
            rate = count / road()
            spent = sum(ticks - before.get(pid, 0) for pid, ticks in _cpu_ticks().items())
            sample = Sample(rate, spent / os.sysconf("SC_CLK_TCK") / count * 1e6)
            when = f"round {turn}" if turn else "warm-up"
            print(f"  {when} {name}: {rate:,.0f} rows/s, {sample.cpu_us:.2f} us of CPU a row", flush=True)
            if turn:
                found[name].append(sample)
    return found


def _cpu_ticks() -> dict[int, int]:
    """User and system time of everything started from here: Spark's JVM, its Python workers, the broker.

    What a process spent that ended in between is missed: Spark ends workers that were idle for a minute.
    """
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split() if entry.name.isdigit() else []
        except OSError:
            continue
        if fields:
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = int(fields[11]) + int(fields[12])
    return {pid: ticks for pid, ticks in spent.items() if _descends(pid, parents)}


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = parents.get(pid, 0)
    return False


# -- writing ---------------------------------------------------------------------------------------------------


def sink_rates(spark: SparkSession, folder: Path, rounds: int) -> dict[str, list[Sample]]:
    from benchmarks.spark_peers import Acknowledging, RowSink

    spark.dataSource.register(RowSink)
    rows = spark.range(SINK_ROWS).selectExpr(
        "cast(rpad(cast(id AS STRING), 128, 'x') AS BINARY) AS body",
        "'TagA' AS tags",
        "concat('k', id) AS keys",
    )
    rows.write.mode("overwrite").parquet(str(folder / "rows"))
    rows = spark.read.parquet(str(folder / "rows")).repartition(2).persist()
    rows.count()
    peer = Acknowledging()

    def written(kind: str, namesrv: str) -> float:
        began = time.perf_counter()
        rows.write.format(kind).option("namesrv", namesrv).option("topic", "sink").mode("append").save()
        return time.perf_counter() - began

    with served(folder / "sink-data") as namesrv:
        found = _in_turn(
            {
                "Arrow sink": (SINK_ROWS, lambda: written("rocketmq", peer.address)),
                "row sink": (SINK_ROWS, lambda: written("rocketmq_rows", peer.address)),
                "Arrow sink, real broker": (SINK_ROWS, lambda: written("rocketmq", namesrv)),
                "row sink, real broker": (SINK_ROWS, lambda: written("rocketmq_rows", namesrv)),
            },
            rounds,
        )
    peer.close()
    rows.unpersist()
    shutil.rmtree(folder / "sink-data")
    return found


# -- memory ----------------------------------------------------------------------------------------------------


def worker_memory(spark: SparkSession, data: Path) -> dict[str, Any]:
    """Anonymous memory of the largest Python worker, in tenths of the scan's time."""
    samples: list[tuple[float, float]] = []
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            held = [_anonymous_mib(pid) for pid in _python_workers()]
            samples.append((time.perf_counter(), max(held, default=0.0)))

    frame = _loaded(spark, "rocketmq", storePath=str(data), minPartitions="2", maxPartitions="2")
    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    _drained(frame)
    took = time.perf_counter() - began
    stop.set()
    watcher.join()
    tenths: list[float] = [0.0] * 10
    for at, mib in samples:
        tenth = min(9, int((at - began) / took * 10))
        tenths[tenth] = max(tenths[tenth], mib)
    return {"tenths": tenths, "took": took}


def _python_workers() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"aerobee.spark.worker_daemon" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _anonymous_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")), 0.0)


# -- all together ----------------------------------------------------------------------------------------------


def tuned_session(folder: Path) -> SparkSession:
    from aerobee.spark import session

    return session(
        "aerobee-bench",
        master="local[2]",
        config={
            "spark.driver.memory": "3g",
            "spark.local.dir": str(folder / "tmp"),
            "spark.sql.streaming.numRecentProgressUpdates": "100000",
            "spark.sql.streaming.noDataProgressEventInterval": "1h",
        },
    )


def machine() -> str:
    text = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in text if line.startswith("model name")), "")
    import pyspark

    return (
        f"{os.cpu_count()} x {model}, Linux {platform.release()}, Python {platform.python_version()}, "
        f"PySpark {pyspark.__version__}"
    )


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = {
        "date": f"{datetime.now():%Y-%m-%d %H:%M}",
        "command": "python -m benchmarks.spark " + " ".join(sys.argv[1:]),
        "machine": machine(),
        "load_before": os.getloadavg()[0],
        "messages": options.messages,
        "rounds": options.rounds,
        "jvms": options.jvms,
        "read": {},
    }
    if "read" in options.only:
        for size in options.sizes:
            print(f"making {options.messages:,} messages of {size} B", flush=True)
            make_store(folder / f"store-{size}", options.messages, size)
    if "memory" in options.only:
        print(f"making {options.memory_messages:,} messages of 128 B", flush=True)
        make_large_store(folder / "store-memory", options.memory_messages, 128)
    if "read" in options.only:
        for size in options.sizes:
            print(f"read, {size} B", flush=True)
            results["read"][size] = read_rates_of(
                options.jvms, folder, size, options.messages, options.rounds
            )
    if {"sink", "stream", "memory"}.intersection(options.only):
        _measure_the_rest(options, folder, results)
    results["load_after"] = os.getloadavg()[0]
    return results


def _measure_the_rest(options: argparse.Namespace, folder: Path, results: dict[str, Any]) -> None:
    spark = tuned_session(folder)
    if "sink" in options.only:
        print("sink", flush=True)
        results["sink"] = sink_rates(spark, folder, options.rounds)
    if "stream" in options.only:
        print("stream", flush=True)
        results["stream"] = stream_latencies(spark, folder)
    if "memory" in options.only:
        print("memory", flush=True)
        results["memory"] = worker_memory(spark, folder / "store-memory")
        results["memory"]["messages"] = options.memory_messages
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--memory-messages", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jvms", type=int, default=3, help="Spark is started so many times for the reads")
    parser.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], default=[128, 1024])
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=["read", "sink", "stream", "memory"]
    )
    parser.add_argument("--dir", type=Path, default=None, help="keep the stores here")
    parser.add_argument("--save", action="store_true", help="write the results into benchmarks/RESULTS.md")
    options = parser.parse_args()
    folder = options.dir or Path(tempfile.mkdtemp(prefix="aerobee-spark-bench"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        results = measure(options, folder)
    finally:
        if options.dir is None:
            shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(spark_report.lines(results)))
    if options.save:
        spark_report.save(results)


if __name__ == "__main__":
    main()
