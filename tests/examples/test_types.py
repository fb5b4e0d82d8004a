# SPDX-License-Identifier: Apache-2.0
"""Users' programs under strict type checkers: the examples, and two programs that call everything, in which no
expression may be Any."""

from __future__ import annotations

import importlib.util
import json
import re
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


HANDLERS = """
from aerobee import ConsumeResult, Outcome, PushConsumer, ReceivedMessage, blocking

async def nothing(message: ReceivedMessage) -> None: ...
async def perhaps(message: ReceivedMessage) -> Outcome | None: return None
async def either(message: ReceivedMessage) -> bool: return True
async def several(messages: list[ReceivedMessage]) -> Outcome: return Outcome()
def plain(message: ReceivedMessage) -> ConsumeResult: return ConsumeResult.RETRY
async def number(message: ReceivedMessage) -> int: return 1
def text(message: ReceivedMessage) -> str: return ""
async def of_a_body(body: bytes) -> None: ...
seen: list[bytes] = []
"""
GOOD = (
    "nothing", "perhaps", "either", "several", "plain", "lambda message: None",
    "lambda message: seen.append(message.body)", "lambda messages: seen.extend(each.body for each in messages)",
)  # fmt: skip
WRONG = ("number", "text", "of_a_body")


def test_a_handler_whose_answer_means_nothing_or_that_takes_something_else_is_noticed(tmp_path: Path) -> None:
    clients = ("PushConsumer", "blocking.PushConsumer")
    calls = {
        handler: [f'{client}(group="g", topics={{"t": "*"}}, handler={handler})' for client in clients]
        for handler in (*GOOD, *WRONG)
    }
    lines = [*HANDLERS.splitlines(), *(call for each in calls.values() for call in each)]
    (tmp_path / "handlers.py").write_text("\n".join(lines))
    done = checked(tmp_path, [], "mypy", "--strict", "handlers.py")
    told = {
        lines[int(number) - 1]
        for number in re.findall(r"^handlers\.py:(\d+): error", done.stdout, re.MULTILINE)
    }
    assert told == {call for handler in WRONG for call in calls[handler]}, done.stdout
