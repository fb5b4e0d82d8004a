# SPDX-License-Identifier: Apache-2.0
"""A SparkSession with the settings that measured best: local, on a cluster, or of a Spark Connect server."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerobee.spark import save_mode
from aerobee.spark.java import NoJava, ensure_java
from aerobee.spark.starting import said, spark_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

# Unix sockets and plain checkpoint files were each measured: less overhead per task, and commits in less time.
SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
    # On a busy machine a Python process needs its time to answer; a lost one is noticed by its exit all the same.
    "spark.python.authenticate.socketTimeout": "180s",
    # What a handler or another function in Python is given at once: ten thousand rows, or so many bytes.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20),
}

# Executors elsewhere have this module only after their Python has started.
LOCAL_SETTINGS = {"spark.python.daemon.module": "aerobee.spark.worker_daemon"}

# For the JVMs that read our batches: Arrow's Java looks at the bounds and for a null at every value; Spark stays within
# a batch's rows and asks for nulls itself.
ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

# Spark's plain local[*] gives up at the first lost worker; a cluster tries a task four times, and so does this.
LOCAL = "local[*,4]"
ARCHIVE = "aerobee.zip"

__all__ = ["NoJava", "NoSpark", "cores_of", "ensure_java", "is_remote", "session"]


class NoSpark(RuntimeError):
    """PySpark, or what Spark Connect needs beside it, is not installed."""


def session(
    app: str = "aerobee",
    *,
    master: str | None = None,
    remote: str | None = None,
    config: dict[str, str] | None = None,
    py_files: Sequence[str] = (),
) -> SparkSession:
    """A local session (all cores), one on the cluster `master`, or one of the Spark Connect server `remote`.

    It is tuned for this data source. On a cluster the executors get this very aerobee, and `py_files` (modules or zips,
    as spark-submit's --py-files). A Connect server has its own settings, and aerobee must be installed beside it.

    >>> spark = session(master="local[2]")                                      # doctest: +SKIP
    >>> spark = session(remote="sc://spark.example:15002")                      # doctest: +SKIP
    >>> spark.read.format("rocketmq").option("namesrv", "127.0.0.1:9876")       # doctest: +SKIP
    """
    _needs("pyspark")
    remote = remote or (None if master else os.environ.get("SPARK_REMOTE"))
    if remote and master:
        raise ValueError(f"give master ({master}) or remote ({remote}), not both")
    if remote:
        return _remote(app, remote, config or {}, py_files)
    ensure_java()
    chosen = master or os.environ.get("AEROBEE_SPARK_MASTER") or LOCAL
    local = chosen.startswith("local")
    # Workers must run this very interpreter; on a cluster, unless told otherwise, one at the same path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # executors elsewhere must reach the driver
    settings = {**SETTINGS, **(LOCAL_SETTINGS if local else {}), **(config or {})}
    with said(f"starting Spark on {chosen}"):
        spark = _started(app, chosen, _quiet(_unchecked(settings)))
        _prepare(spark, py_files)
    return spark


def _prepare(spark: SparkSession, py_files: Sequence[str]) -> None:
    from aerobee.spark.source import RocketMQSource

    _explain_save_mode()
    spark.sparkContext.setLogLevel("ERROR")
    _without_crc_files(spark)
    for path in py_files:
        spark.sparkContext.addPyFile(path)
    # Spark would find the source by itself, but not always: such a source is not given the files sent along, Spark looks
    # only where a shell finds `command -v $python`, unquoted, and on a busy machine the process that looks may take
    # longer than the ten seconds it is given.
    spark.dataSource.register(RocketMQSource)


def is_remote(spark: SparkSession) -> bool:
    """Whether the session is a Connect server's: it has no JVM, no context and no RDDs then."""
    return ".connect." in type(spark).__module__


def cores_of(spark: SparkSession) -> int:
    """How many tasks the cluster runs at once."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    from pyspark.sql import functions as f

    # Spark cuts a range into as many partitions as it has cores, and a remote session has no other way to ask.
    cut = spark.range(10_000).select(f.spark_partition_id().alias("part"))
    return cut.distinct().count()


def _needs(module: str, extra: str = "spark") -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise NoSpark(f"the package {module} is not installed: pip install 'aerobee[{extra}]'") from None


def _remote(app: str, url: str, config: dict[str, str], py_files: Sequence[str]) -> SparkSession:
    """A session of a Connect server. Of our settings those that a session may choose; the rest is the server's."""
    for module in ("grpc", "grpc_status"):
        _needs(module)
    from pyspark.sql import SparkSession

    if url.startswith("local"):  # a server inside this process
        ensure_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ours = {key: value for key, value in SETTINGS.items() if key.startswith("spark.sql.")}
    builder = SparkSession.builder.appName(app).remote(url)
    for key, value in {**ours, **config}.items():
        builder = builder.config(key, value)
    with said(f"connecting to Spark at {url}"):
        spark = builder.getOrCreate()
    _explain_save_mode()
    for path in py_files:
        spark.addArtifacts(path, pyfile=True)
    return spark


def _explain_save_mode() -> None:
    from pyspark.sql import DataFrameWriter

    writers: list[Any] = [DataFrameWriter]
    if "pyspark.sql.connect.readwriter" in sys.modules:
        writers.append(sys.modules["pyspark.sql.connect.readwriter"].DataFrameWriter)
    for writer in writers:
        save_mode.explain(writer)


def _started(app: str, master: str, config: dict[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app).master(master)
    for key, value in config.items():
        builder = builder.config(key, value)
    if not master.startswith("local"):
        return _with_this_package(builder)
    home = spark_home()
    with _environment(SPARK_HOME=str(home)) if home else _environment():
        return builder.getOrCreate()


@contextmanager
def _environment(**changes: str) -> Iterator[None]:
    """For what is started meanwhile: Spark's JVM keeps the environment it was started with."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _without_crc_files(spark: SparkSession) -> None:
    """No `.crc` beside every local file: without its native library Hadoop starts a process (chmod) for each, which is
    a sixth of a light micro-batch. Files that have one already are checked by it as ever."""
    java: Any = spark.sparkContext
    files = java._jvm.org.apache.hadoop.fs.FileSystem.getLocal(java._jsc.hadoopConfiguration())
    files.setWriteChecksum(False)


def _unchecked(config: dict[str, str]) -> dict[str, str]:
    """`ARROW` for driver and executors; whoever has set one of them decides for both, and whoever has a folder of
    Spark's settings for all: what stands there would be replaced, not added to."""
    if "SPARK_CONF_DIR" in os.environ:
        return config
    added = dict(config)
    for key in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        options = config.get(key, "")
        if "-Darrow.enable_" not in options:
            added[key] = f"{options} {ARROW}".strip()
    return added


def _quiet(config: dict[str, str]) -> dict[str, str]:
    """Spark's own greetings and warnings are no news to our users; whoever has set up its log keeps that."""
    options = config.get("spark.driver.extraJavaOptions", "")
    if "log4j2." in options or "SPARK_CONF_DIR" in os.environ:
        return config
    log = Path(__file__).with_name("log4j2.properties").as_uri()
    options = f"{options} -Dlog4j2.configurationFile={log}".strip()
    return {**config, "spark.driver.extraJavaOptions": options}


def _with_this_package(builder: SparkSession.Builder) -> SparkSession:
    """A session whose executors are given this package: they need not have it, and never have another version of it."""
    from pyspark import SparkContext

    running = SparkContext._active_spark_context
    if running is not None and ARCHIVE in (running._python_includes or ()):
        return builder.getOrCreate()
    folder = Path(tempfile.mkdtemp(prefix="aerobee-"))
    # Spark serves it from where it lies for as long as the session lives.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = str(packed(folder / ARCHIVE))
    # The driver's own helpers run the executors' Python too, but are not given the files sent along.
    before = os.environ.get("PYTHONPATH")
    with _environment(PYTHONPATH=os.pathsep.join([archive, *([before] if before else [])])):
        spark = builder.getOrCreate()
    spark.sparkContext.addPyFile(archive)
    return spark


def packed(path: Path) -> Path:
    """A zip of this package as it is installed here."""
    import zipfile

    import aerobee
    import pyspark_rocketmq

    folders = [Path(str(package.__file__)).parent for package in (aerobee, pyspark_rocketmq)]
    try:
        # Compiled: every worker imports it anew, and Spark asks for the same Python everywhere anyway.
        with zipfile.PyZipFile(str(path), "w", zipfile.ZIP_DEFLATED, optimize=0) as archive:
            for folder in folders:
                archive.writepy(str(folder))
    except OSError:  # an installation that is neither compiled nor ours to write to
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for folder in folders:
                for source in folder.rglob("*.py"):
                    archive.write(source, source.relative_to(folder.parent))
    return path
