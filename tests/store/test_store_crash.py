# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROUNDS = 26


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_kill_nine_loses_nothing_that_was_acknowledged(tmp_path, mode):
    """26 rounds in either mode. In the async mode an append that returned counts as acknowledged."""
    script = Path(__file__).with_name("crash_rounds.py")
    seed = int(os.environ.get("AEROBEE_TEST_SEED", "20260801"))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "store"), mode, str(ROUNDS), str(seed)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["rounds"] == report["unclean"] == ROUNDS
    assert report["messages"] > 10 * ROUNDS
