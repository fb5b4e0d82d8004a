# SPDX-License-Identifier: Apache-2.0
"""What makes the start of Spark shorter, and the wait for it less silent."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sys
import tempfile
import threading
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger("aerobee.spark.starting")

_STARTS = 5
_NOT_IN_TIME = "failed to connect back"
_SILENT_S = 1.0  # what is quicker needs no word


@contextmanager
def said(what: str) -> Iterator[None]:
    """`what`, on a terminal or in a notebook, while something takes longer than a second."""
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        yield
        return
    timer = threading.Timer(_SILENT_S, lambda: print(f"{what} ...", file=sys.stderr, flush=True))  # noqa: T201
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def started(writer: DataStreamWriter) -> StreamingQuery:
    """The stream, its source running. Spark gives the Python processes of a source and of a `foreachBatch` ten seconds
    to call back, which on a busy machine is too little, and no setting raises that: nothing was begun then, so it is
    tried again."""
    for _ in range(_STARTS - 1):
        try:
            query = writer.start()
            if not _was_too_slow(query):
                return query
        except Exception as error:
            if _NOT_IN_TIME not in str(error):
                raise
        log.warning("Spark gave up on a Python process that did not call back in time; starting it again")
    return writer.start()


def _was_too_slow(query: StreamingQuery) -> bool:
    """Waits for the source; what else may have ended the query is for whoever awaits it."""
    while query.isActive and query.status["message"].startswith("Initializing"):
        with suppress(Exception):
            query.awaitTermination(1)
    return _NOT_IN_TIME in str(query.exception())


def spark_home() -> Path | None:
    """A SPARK_HOME whose Python workers import PySpark from the installed package, not from its zip.

    Spark puts `python/lib/pyspark.zip` first on the path of every Python process it starts. What is in a zip is compiled
    anew by each: three times the start of a worker, of which the first query waits for four, and one that takes more
    than ten seconds to call back, as on a busy machine, is given up. A folder by the zip's name, linked to the package,
    is as good to Python and has the compiled files. None where the user has a SPARK_HOME, or no folder can be made.
    """
    found = find_spec("pyspark")
    if "SPARK_HOME" in os.environ or found is None or not found.submodule_search_locations:
        return None
    package = Path(next(iter(found.submodule_search_locations)))
    if not (package / "python" / "lib" / "pyspark.zip").is_file():
        return None
    root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "aerobee"
    home = root / f"spark-{hashlib.sha1(str(package).encode()).hexdigest()[:12]}"
    try:
        return home if _is_linked(home, package) else _linked(home, package)
    except OSError:  # no place to write to: the start takes longer
        return None


def _is_linked(home: Path, package: Path) -> bool:
    names = {entry.name for entry in package.iterdir()} - {"python", "__pycache__"}
    made = {entry.name for entry in home.iterdir()} if home.is_dir() else set()
    return names <= made and (home / "python" / "lib" / "pyspark.zip" / "pyspark" / "version.py").is_file()


def _linked(home: Path, package: Path) -> Path:
    """Made beside and renamed, so that no other process sees half of it."""
    home.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
    try:
        for entry in package.iterdir():
            if entry.name not in ("python", "__pycache__"):
                (fresh / entry.name).symlink_to(entry)
        lib = fresh / "python" / "lib"
        (lib / "pyspark.zip").mkdir(parents=True)
        (lib / "pyspark.zip" / "pyspark").symlink_to(package)
        for archive in (package / "python" / "lib").iterdir():
            if archive.name != "pyspark.zip":
                (lib / archive.name).symlink_to(archive)
        shutil.rmtree(home, ignore_errors=True)  # of another version
        os.replace(fresh, home)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if _is_linked(home, package):  # another process was quicker
            return home
        raise
    return home
