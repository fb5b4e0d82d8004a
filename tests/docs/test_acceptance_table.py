# SPDX-License-Identifier: Apache-2.0
"""docs/compat.md names, for every row of the acceptance table, a test that carries its id."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_row_has_a_test_and_the_page_is_up_to_date() -> None:
    told = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "seed_table.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
