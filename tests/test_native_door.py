# SPDX-License-Identifier: Apache-2.0
"""Whether the compiled lane runs is said in one place, and everything works without it."""

from __future__ import annotations

import os
import subprocess
import sys

from aerobee import native


def test_the_door_says_whether_it_runs_and_why_not() -> None:
    assert native.is_on == (native.state == "on")
    assert native.is_on or native.why_off in native.state


def test_it_is_switched_off_by_the_environment() -> None:
    environment = {**os.environ, "AEROBEE_NATIVE": "0"}
    command = [sys.executable, "-m", "aerobee", "--version"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert shown.rstrip().endswith("(native lane: off (switched off by AEROBEE_NATIVE=0))")
