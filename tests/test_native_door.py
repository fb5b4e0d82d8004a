# SPDX-License-Identifier: Apache-2.0
"""Whether the compiled lane runs is said in one place, and everything works without it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from aerobee import native

HAS_COMPILER = (
    shutil.which(os.environ.get("CC", "cc")) is not None
    and Path(sysconfig.get_path("include"), "Python.h").exists()
)


def test_the_door_says_whether_it_runs_and_why_not() -> None:
    assert native.is_on == (native.state == "on")
    assert native.is_on or native.why_off in native.state


@pytest.mark.skipif(not HAS_COMPILER, reason="no C compiler, or no headers of Python")
@pytest.mark.skipif(os.environ.get("AEROBEE_NATIVE") == "0", reason="switched off")
def test_it_is_built_where_there_is_a_compiler() -> None:
    assert native.is_on, (
        f"sources that do not compile would go unnoticed, for all works without: {native.state}"
    )


def test_it_is_switched_off_by_the_environment() -> None:
    environment = {**os.environ, "AEROBEE_NATIVE": "0"}
    command = [sys.executable, "-m", "aerobee", "--version"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert shown.rstrip().endswith("(native lane: off (switched off by AEROBEE_NATIVE=0))")
