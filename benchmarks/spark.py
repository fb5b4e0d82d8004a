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
import asyncio
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerobee.clock import SystemClock
from aerobee.config import StoreConfig
from aerobee.protocol.message import Record
from benchmarks import spark_report
from benchmarks.spark_report import Sample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

TOPIC = "bench"
QUEUES = 8
SLOW_SHARE = 8  # tuples and the plain decoder read this part of the rows
SINK_ROWS = 500_000
STREAM_SECONDS = 20
STREAM_WARM_SECONDS = 80  # Spark's driver compiles for about a minute
STREAM_RATE = 200


# -- the store -------------------------------------------------------------------------------------------------


def _record(n: int, queue: int, body: bytes, now: int) -> Record:
    key = f"AC11000112342F0E4A9B{n:012X}"
    text = (
        f"TAGS\x01Tag{n % 5}\x02KEYS\x01k{n}\x02UNIQ_KEY\x01{key}\x02WAIT\x01true\x02CLUSTER\x01Default\x02"
    )
    return Record(TOPIC, body, text, queue, born_timestamp=now)


def make_store(data: Path, count: int, size: int) -> Path:
    """An Aerobee data directory with `count` messages, 8 queues in turn, and its topic known to a broker."""
    done = data / "made.json"
    wanted = {"count": count, "size": size, "bodies": "varied"}
    if done.exists() and json.loads(done.read_text()) == wanted:
        return data
    shutil.rmtree(data, ignore_errors=True)
    from aerobee.store.message_store import MessageStore

    clock = SystemClock()
    store = MessageStore.open(data / "store", StoreConfig(), clock)
    # Every body another: the same one over and over is a single dictionary entry to Parquet.
    pool = random.Random(1).randbytes(1 << 19).hex().encode()
    due = 0
    for n in range(count):
        now = clock.now()
        at = n * 7919 % (len(pool) - size)
        store.append(_record(n, n % QUEUES, pool[at : at + size], now))
        if now >= due:
            due = now + store.tick(now)
    store.close()
    with served(data):
        pass  # a broker writes the topic's settings
    done.write_text(json.dumps(wanted))
    return data


def make_large_store(root: Path, count: int, size: int) -> Path:
    """The same as files only, made by numpy in seconds: enough for a scan, which needs no broker."""
    import numpy as np

    from aerobee.protocol import message

    template = message.encode(_record(0, 0, b"x" * size, SystemClock().now()))
    shutil.rmtree(root, ignore_errors=True)
    (root / "commitlog").mkdir(parents=True)
    length, per_file = len(template), (1 << 30) // len(template)
    units = np.zeros(count, np.dtype([("position", ">i8"), ("size", ">i4"), ("tag", ">i8")]))
    for file, first in enumerate(range(0, count, per_file)):
        numbers = np.arange(first, min(first + per_file, count))
        positions = file * (1 << 30) + (numbers - first) * length
        rows = np.frombuffer(template, np.uint8)[None, :].repeat(len(numbers), axis=0)
        rows[:, 12:16] = (numbers % QUEUES).astype(">i4").view(np.uint8).reshape(-1, 4)
        rows[:, 20:28] = (numbers // QUEUES).astype(">i8").view(np.uint8).reshape(-1, 8)
        rows[:, 28:36] = positions.astype(">i8").view(np.uint8).reshape(-1, 8)
        rows.tofile(root / "commitlog" / f"{file * (1 << 30):020d}")
        units["position"][numbers], units["size"][numbers] = positions, length
    for queue in range(QUEUES):
        folder = root / "consumequeue" / TOPIC / str(queue)
        folder.mkdir(parents=True)
        units[queue::QUEUES].tofile(folder / f"{0:020d}")
    return root


class served:
    """`aerobee serve` on a data directory, any ports."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def __enter__(self) -> str:
        command = [sys.executable, "-m", "aerobee", "serve", "--data", str(self._data), "--namesrv-port", "0"]
        command += ["--broker-port", "0", "--grpc-port", "-1", "--log-level", "WARNING"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        told = ""
        for line in self._process.stdout:
            told += line
            if "ready" in line:
                break
        self.pid = self._process.pid
        namesrv = told.split("namesrv=")[1].split()[0]
        asyncio.run(self._topic(namesrv))
        return namesrv

    @staticmethod
    async def _topic(namesrv: str) -> None:
        from aerobee import Admin

        async with Admin(namesrv) as admin:
            await admin.create_topic(TOPIC, queues=QUEUES)
            await admin.create_topic("sink", queues=QUEUES)

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)


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


# -- streaming -------------------------------------------------------------------------------------------------


def stream_latencies(spark: SparkSession, folder: Path) -> dict[str, dict[str, float]]:
    """A young stream, and one whose driver has run for a while, with the settings of `session`; and with Spark's own
    asynchronous tracking of progress, which a query may ask for where its sink can take a batch twice."""
    stream_latency(spark, folder, 10)
    found = {"young": stream_latency(spark, folder)}
    stream_latency(spark, folder, STREAM_WARM_SECONDS)
    found["plain"] = stream_latency(spark, folder)
    ahead = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "1000"}
    found["async"] = stream_latency(spark, folder, **ahead)
    return found


def stream_latency(
    spark: SparkSession, folder: Path, seconds: int = STREAM_SECONDS, **more: str
) -> dict[str, float]:
    """Every message: from the broker's answer to the end of the batch that holds it, by the query's own progress."""
    data = folder / "stream-data"
    shutil.rmtree(folder / "stream-checkpoint", ignore_errors=True)
    with served(data) as namesrv:
        reader = spark.readStream.format("rocketmq").option("namesrv", namesrv).option("subscribe", TOPIC)
        writer = reader.option("startingOffsets", "earliest").option("maxPartitions", "1").load().writeStream
        writer = writer.format("noop").options(**more)
        query = writer.option("checkpointLocation", str(folder / "stream-checkpoint")).start()
        sent = asyncio.run(_send_lightly(namesrv, seconds))
        query.processAllAvailable()
        progress = query.recentProgress
        query.stop()
    shutil.rmtree(data)
    warm = sent[len(sent) // 4][1]
    delays = [done - at for done, at in _commits(progress, sent) if at >= warm]
    triggers = [p["durationMs"]["triggerExecution"] for p in progress if p["numInputRows"]]
    cuts = statistics.quantiles(delays, n=100)
    return {"p50": cuts[49], "p99": cuts[98], "trigger": statistics.median(triggers), "messages": len(delays)}


async def _send_lightly(namesrv: str, seconds: int) -> list[tuple[tuple[str, int], float]]:
    from aerobee import Message, Producer

    sent = []
    async with Producer(namesrv, group="bench") as producer:
        began = time.time()
        for n in range(seconds * STREAM_RATE):
            await asyncio.sleep(max(0.0, began + n / STREAM_RATE - time.time()))
            result = await producer.send(Message(TOPIC, b"x" * 128))
            sent.append(((str(result.queue.queue_id), result.queue_offset), time.time() * 1000))
    return sent


def _commits(progress: list[Any], sent: list[tuple[tuple[str, int], float]]) -> Iterator[tuple[float, float]]:
    ends: list[tuple[dict[str, int], float]] = []
    for one in progress:
        if one["numInputRows"]:
            started = datetime.fromisoformat(one["timestamp"].replace("Z", "+00:00")).timestamp() * 1000
            end = json.loads(one["sources"][0]["endOffset"]) if isinstance(
                one["sources"][0]["endOffset"], str
            ) else one["sources"][0]["endOffset"]  # fmt: skip
            queues = next(iter(end["o"][TOPIC].values()))
            ends.append((queues, started + one["durationMs"]["triggerExecution"]))
    for (queue, offset), at in sent:
        done = next((when for queues, when in ends if queues.get(queue, 0) > offset), None)
        if done is not None:
            yield done, at


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
                if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
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
