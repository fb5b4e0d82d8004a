# SPDX-License-Identifier: Apache-2.0
"""Users' programs under strict type checkers: the examples, and two programs that call everything, in which no
expression may be Any."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TYPED = sorted((ROOT / "tests" / "examples" / "typed").glob("*.py"))
# Spark's own types are another matter.
EXAMPLES = [
    path for path in sorted((ROOT / "examples").glob("*.py")) if "spark" not in path.read_text().lower()
]

pytestmark = pytest.mark.slow


def checked(folder: Path, files: list[Path], *command: str) -> subprocess.CompletedProcess[str]:
    """Away from this repository and its settings, as a user's own project."""
    for file in files:
        shutil.copy(file, folder)
    return subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def test_there_is_something_to_check() -> None:
    assert {path.name for path in EXAMPLES} >= {"order_shop.py", "blocking_script.py", "pop_worker.py"}
    assert len(TYPED) == 2


@pytest.mark.parametrize(
    ("files", "also"), [(EXAMPLES, []), (TYPED, ["--disallow-any-expr"])], ids=["examples", "everything"]
)
def test_mypy_finds_nothing(tmp_path: Path, files: list[Path], also: list[str]) -> None:
    done = checked(tmp_path, files, "mypy", "--strict", *also, *(path.name for path in files))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("files", "also"), [(EXAMPLES, {}), (TYPED, {"reportAny": "error"})], ids=["examples", "everything"]
)
def test_pyright_finds_nothing(tmp_path: Path, files: list[Path], also: dict[str, str]) -> None:
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright (pyright with its own node) is not installed: pip install 'aerobee[dev]'")
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", **also}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = checked(tmp_path, files, "basedpyright", "--pythonpath", sys.executable, ".")
    assert done.returncode == 0, done.stdout
    assert "0 errors" in done.stdout


def test_a_name_that_does_not_exist_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(
        "import aerobee\nfrom aerobee import NoSuchThing\naerobee.Whatever()\n"
    )
    done = checked(tmp_path, [], "mypy", "--strict", "wrong.py")
    assert "NoSuchThing" in done.stdout
    assert "Whatever" in done.stdout
