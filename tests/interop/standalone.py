# SPDX-License-Identifier: Apache-2.0
"""A Spark standalone cluster on loopback: a master and workers, each a process with a directory of its own."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from types import TracebackType

HOST = "127.0.0.1"
PR_SET_PDEATHSIG = 1
QUICK = "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"


class Cluster:
    """`with Cluster(folder) as cluster: ... cluster.url`; one core and 1 GB for each worker, none of it taken early."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._count = workers
        self._master: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Cluster:
        try:
            self._master = self._start("master", "master.Master", "--host", HOST, "--port", "0")
            self.url = self._said("master", r"Starting Spark master at (spark://\S+)")
            self.workers = [self._worker(i) for i in range(self._count)]
            for i in range(self._count):
                self._said(f"worker{i}", r"Successfully registered with master")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Workers run their executors in processes of their own, which live on when a worker is killed.
        executors = self.executors()
        for process in [*self.workers, *([self._master] if self._master else [])]:
            process.kill()
            process.wait(30)
        for executor in executors:
            kill(executor)

    def executors(self) -> list[psutil.Process]:
        """The JVMs that run tasks, whosever application it is."""
        found = []
        for worker in self.workers:
            found += [p for p in children(worker.pid) if "CoarseGrainedExecutorBackend" in line(p)]
        return found

    def python_workers(self) -> list[psutil.Process]:
        """The Python processes that run the tasks' Python.

        Found by their directory, not by their parent: when a daemon is killed, the workers it forked go on as orphans,
        and their executor goes on using them.
        """
        return [p for p in psutil.process_iter() if "pyspark.daemon" in line(p) and self._is_ours(p)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return Path(process.cwd()).is_relative_to(self._folder)
        except psutil.Error:
            return False

    def restart_worker(self, index: int) -> None:
        """Kill a worker with its executors, as a machine that went away, and start it anew."""
        gone = self.workers[index]
        for process in [*children(gone.pid), psutil.Process(gone.pid)]:
            kill(process)
        gone.wait(30)
        self.workers[index] = self._worker(index)

    def _worker(self, index: int) -> subprocess.Popen[bytes]:
        name = f"worker{index}"
        resources = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name / "work"))
        return self._start(name, "worker.Worker", "--host", HOST, *resources, self.url)

    def _start(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        # A machine of its own: nothing of ours in its environment, its directory is not ours.
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "JAVA_HOME", "LANG") if key in os.environ}
        environment = {
            **kept,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK.removeprefix("-Xmx128m "),
            "SPARK_LOCAL_DIRS": str(folder),
        }
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{module}"]
        with (folder / "log").open("ab") as out:
            return subprocess.Popen(
                [*command, "--webui-port", "0", *arguments], cwd=folder, env=environment,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, preexec_fn=_die_with_parent,
            )  # fmt: skip

    def _said(self, name: str, pattern: str, timeout: float = 60) -> str:
        deadline = time.monotonic() + timeout
        while True:
            text = (self._folder / name / "log").read_text("utf-8", "replace")
            if found := re.search(pattern, text):
                return found[found.lastindex or 0]
            if time.monotonic() > deadline:
                raise AssertionError(f"{name} did not say {pattern!r} within {timeout} s:\n{text[-3000:]}")
            time.sleep(0.05)

    def logs(self) -> str:
        """The ends of all logs, executors' included, for failure messages."""
        files = [*self._folder.glob("*/log"), *self._folder.glob("*/work/*/*/stderr")]
        return "\n".join(f"== {path}\n{path.read_text('utf-8', 'replace')[-2000:]}" for path in files)


def bare_python(folder: Path) -> Path:
    """An interpreter with all that aerobee needs and without aerobee: a machine where nobody installed it."""
    import venv

    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    ours = next(path for path in sys.path if path.endswith("site-packages"))
    # A path added by a .pth file is searched, but the .pth files in it, ours among them, are not read.
    (site / "borrowed.pth").write_text(ours + "\n")
    python = folder / "bin" / "python"
    told = subprocess.run(
        [python, "-c", "import aerobee"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert "No module named 'aerobee'" in told.stderr, "aerobee is installed there after all"
    return python


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kill(process: psutil.Process | subprocess.Popen[bytes]) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return
