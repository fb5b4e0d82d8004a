# SPDX-License-Identifier: Apache-2.0
"""docs/compat.md has, for every row of the acceptance table, its sentence and a test that carries its id."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "seed_table.py"


def test_every_row_has_a_sentence_and_a_test_and_the_page_is_up_to_date() -> None:
    told = subprocess.run([sys.executable, str(TOOL), "--check"], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def test_a_row_without_its_sentence_is_missed(tmp_path: Path) -> None:
    """On a copy of what the tool reads, with one sentence taken out."""
    for name in ("tools/seed_table.py", "docs/compat.md", "tests/docs/behaviours.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
    sentences = tmp_path / "tests" / "docs" / "behaviours.toml"
    lines = sentences.read_text(encoding="utf-8").splitlines()
    row = next(line for line in lines if line.startswith("40 = "))
    sentences.write_text("\n".join(line for line in lines if line != row), encoding="utf-8")
    told = subprocess.run(
        [sys.executable, str(tmp_path / "tools" / "seed_table.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1
    assert "no sentence for: S000-40\n" in told.stdout
