# SPDX-License-Identifier: Apache-2.0
"""Whoever has the repository has all it speaks of: no page, comment or test names what is not in it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).resolve()
ROOT = HERE.parents[2]
FOLDERS = ("aerobee", "benchmarks", "docs", "examples", "pyspark_rocketmq", "tests", "tools")
NOT_OURS = {"generated", "node_modules", "target", ".interop"}
ROW = r"\bS00\d-\d+\b"  # of the acceptance table, which has its sentence
PAGE = re.compile(r"[\w./-]*\w\.md\b")
ELSEWHERE = {
    # what is somewhere else: how it is written instead
    r"\b[Ss]heets? \d|\bthe sheet\b": "the rule itself",
    r"\bdesign \d|\bstyle guide \d": "the rule itself",
    r"(?<![\w/])[Ii]ssues? #?\d{2,}": "apache/rocketmq#8479",
}

pytestmark = pytest.mark.slow  # reads everything


@cache
def lines(*endings: str) -> list[tuple[str, str]]:
    """With their places: of all files but what was generated, or installed by others."""
    folders = [path for path in (ROOT / name for name in FOLDERS) if path.is_dir()]
    paths = [path for folder in folders for path in sorted(folder.rglob("*"))] + sorted(ROOT.glob("*.*"))
    ours = [
        path
        for path in paths
        if path.suffix[1:] in endings and path != HERE and not NOT_OURS & set(path.parts) and path.is_file()
    ]
    return [
        (f"{path.relative_to(ROOT)}:{number}", line)
        for path in ours
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    ]


@pytest.mark.parametrize("pattern", ELSEWHERE)
def test_nothing_is_explained_by_a_text_that_is_elsewhere(pattern: str) -> None:
    found = [
        f"{place}: {line.strip()}" for place, line in lines("py", "md", "toml") if re.search(pattern, line)
    ]
    assert not found, f"write {ELSEWHERE[pattern]}"


def test_every_page_that_code_names_is_here() -> None:
    missing = [
        f"{place}: {name}"
        for place, line in lines("py", "toml")
        if ".md" in line
        for name in PAGE.findall(line)
        if not any((ROOT / folder / name).is_file() for folder in ("", "docs", "benchmarks"))
    ]
    assert not missing


def test_a_row_of_the_acceptance_table_stands_for_no_reason_in_the_code() -> None:
    found = [
        f"{place}: {line.strip()}"
        for place, line in lines("py")
        if place.startswith(("aerobee/", "benchmarks/", "examples/")) and re.search(ROW, line)
    ]
    assert not found, "say what must happen; the number is for the test's mark"
