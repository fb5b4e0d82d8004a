# SPDX-License-Identifier: Apache-2.0
"""A few rounds of each kind; `make chaos` has the others."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "flush", "rounds"), [("kill", "sync", 2), ("power", "sync", 3), ("power", "async", 3)]
)
def test_what_was_acknowledged_is_there(tmp_path: Path, fault: str, flush: str, rounds: int) -> None:
    seed = os.environ.get("AEROBEE_TEST_SEED") or str(random.randrange(1 << 30))
    chosen = ["--fault", fault, "--flush", flush, "--rounds", str(rounds), "--seed", seed]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *chosen, "--directory", str(tmp_path / "stores")],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
