# SPDX-License-Identifier: Apache-2.0
"""Spark wraps what our Python said into pages of its own: how to say less there, and how to find the sentence again."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aerobee.errors import AerobeeError
from aerobee.spark.options import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TRACE = "Traceback (most recent call last):"
_RAISED = re.compile(r"^((?:\w+\.)*[A-Z]\w*)(?:: |$)(.*)$")
_OURS = re.compile(r"\baerobee\.[\w.]*[A-Z]\w*: (.+)")


@contextmanager
def plainly() -> Iterator[None]:
    """An error of ours, raised in a process that plans for Spark, reaches the user as its sentence, without the thirty
    lines of how we came there (AEROBEE_DEBUG shows them). Such a process ends with its error, so that what is set here
    is of no consequence to others."""
    try:
        yield
    except (OptionError, AerobeeError):
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER" and "AEROBEE_DEBUG" not in os.environ:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


_CALLED = "An error occurred while calling"
# Spark's own exit code for it; what a shell says of a process that the kernel has killed; and Python of the same.
_OUT_OF_MEMORY = {52: "out of memory", 137: "killed, as the kernel does when memory runs out", -9: "killed"}
_LOST_JVM = ("Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError")


def is_of_spark(error: BaseException) -> bool:
    """Is it Spark that failed, or the connection to its JVM?"""
    return type(error).__module__.startswith(("pyspark.", "py4j.")) or (
        type(error).__name__ in _LOST_JVM and jvm_exit() is not None
    )


def jvm_exit(patience_s: float = 5.0) -> int | None:
    """The exit code of the driver's JVM; None while it lives, or where somebody else has started it."""
    from subprocess import TimeoutExpired

    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    try:
        # Its sockets are closed some time before it is gone.
        return process.wait(patience_s) if process is not None else None
    except TimeoutExpired:
        return None


def reason(error: BaseException) -> str:
    """One sentence: the last Python error inside a Spark error, else its own first line."""
    if type(error).__name__ in _LOST_JVM and (code := jvm_exit()) is not None:
        return (
            f"Spark's JVM has ended (exit code {code}{_because(code)}). If it was for want of memory give it more:"
            ' --conf spark.driver.memory=4g, in a program session(config={"spark.driver.memory": "4g"})'
        )
    text = str(error)
    if "java.lang.OutOfMemoryError" in text:
        return (
            "Spark ran out of memory (java.lang.OutOfMemoryError). Give it more: --conf spark.driver.memory=4g, on a"
            " cluster also spark.executor.memory"
        )
    lines = text.rpartition(_TRACE)[2].splitlines() if _TRACE in text else []
    for line in lines:
        if found := _RAISED.match(line.strip("\r")):
            name, said = found.groups()
            # Our own errors say all by their text; others are known by their names.
            return (
                said
                if name.startswith("aerobee.") and said
                else f"{name.rpartition('.')[2]}: {said}".rstrip(": ")
            )
    if told := _OURS.search(text):
        return told[1].strip()
    said = [line.strip(" :\r") for line in text.splitlines() if line.strip(" :\r")]
    if len(said) > 1 and said[0].startswith(_CALLED) and "SparkSession" in said[0] + said[1]:
        return f"Spark has not started: {said[1]}. Its log above says why; does the master (--master) answer?"
    return said[0] if said else type(error).__name__


def _because(code: int) -> str:
    return f": {_OUT_OF_MEMORY[code]}" if code in _OUT_OF_MEMORY else ""
