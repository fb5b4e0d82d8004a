# SPDX-License-Identifier: Apache-2.0
"""Which tests run which lines. Measured once and kept; a test file that has changed since is measured again.

A measurement is a folder: coverage's files, the tests' times, and the sources as they were. Where a source has changed
since, the tests are those that ran the function then, not the line.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import coverage

if TYPE_CHECKING:
    from pathlib import Path

    from tools.mutants.mutations import Mutant

_MARKS = "not spark"
_LEFT_OUT = ("tests/interop/", "tests/docs/", "tests/chaos/", "tests/examples/", "tests/test_layers.py")
_LAST = ("access", "cli", "e2e", "fuzz", "native", "testing")  # slow, and seldom the first to notice


def _digest(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


class Touching:
    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self._index_file = folder / "index.json"
        # test file -> its digest when it was measured, and the folder of that measurement
        self._index: dict[str, tuple[str, str]] = {}
        if self._index_file.exists():
            self._index = {name: (a, b) for name, (a, b) in json.loads(self._index_file.read_text()).items()}

    def measure(self, jobs: int) -> None:
        """All test files that are new or changed, a folder at a time: what is measured stays so when this is stopped."""
        stale: dict[str, dict[str, str]] = defaultdict(dict)
        for path in sorted((self._root / "tests").rglob("test_*.py")):
            name = path.relative_to(self._root).as_posix()
            if not name.startswith(_LEFT_OUT) and self._index.get(name, ("",))[0] != _digest(path):
                stale[name.split("/")[1]][name] = _digest(path)
        for folder in sorted(stale, key=lambda each: (_LAST.count(each), each)):
            self._measure(folder, stale[folder], jobs)

    def _measure(self, folder: str, stale: dict[str, str], jobs: int) -> None:
        print(f"measuring {len(stale)} test files of {folder}: which test runs which line", flush=True)
        number = 1 + max((int(each.name) for each in self._folder.glob("[0-9]*")), default=0)
        to = self._folder / str(number)
        to.mkdir(parents=True)
        shutil.copytree(
            self._root / "aerobee", to / "sources" / "aerobee", ignore=shutil.ignore_patterns("__pycache__")
        )
        self._run(list(stale), to, jobs)
        self._index.update({name: (digest, to.name) for name, digest in stale.items()})
        self._index_file.write_text(json.dumps(self._index, indent=0))

    def _run(self, tests: list[str], to: Path, jobs: int) -> None:
        (to / "tests").write_text("\n".join(tests))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "tools.mutants.measuring",
            "-p",
            "no:cacheprovider",
        ]
        command += [
            "-n",
            str(jobs),
            "--dist",
            "loadfile",
            "-m",
            _MARKS,
            f"--basetemp={to / 'tmp'}",
            f"@{to / 'tests'}",
        ]
        places = {"PYTHONPATH": str(self._root), "AEROBEE_MEASURE": str(to), "AEROBEE_NATIVE": "0"}
        with (to / "output").open("w") as output:
            subprocess.run(command, cwd=self._root, env=os.environ | places, stdout=output, check=False)
        shutil.rmtree(to / "tmp", ignore_errors=True)
        print(*(to / "output").read_text().splitlines()[-1:], flush=True)

    @functools.cached_property
    def seconds(self) -> dict[str, float]:
        """The tests there are now, and how long each took when it was measured."""
        found = {}
        for folder in {place for _, place in self._index.values()}:
            for file in (self._folder / folder).glob("*.seconds"):
                times = json.loads(file.read_text())
                found.update(
                    {test: took for test, took in times.items() if self._measured_in(test) == folder}
                )
        return found

    def _measured_in(self, test: str) -> str:
        return self._index.get(test.partition("::")[0], ("", ""))[1]

    @functools.cached_property
    def _lines(self) -> dict[str, list[coverage.CoverageData]]:
        found = defaultdict(list)
        for folder in {place for _, place in self._index.values()}:
            for file in (self._folder / folder).glob("*.lines"):
                data = coverage.CoverageData(basename=str(file))
                data.read()
                found[folder].append(data)
        return found

    @functools.cached_property
    def breadth(self) -> dict[str, int]:
        """How many source files each test runs something of: who runs few of them is about those."""
        found: dict[str, int] = {}
        for folder, place in sorted({(place, self._folder / place) for _, place in self._index.values()}):
            for file in place.glob("*.lines"):
                with contextlib.closing(sqlite3.connect(file)) as lines:
                    rows = lines.execute(
                        "select context.context, count(distinct line_bits.file_id) from line_bits"
                        " join context on context.id = line_bits.context_id group by context.context"
                    )
                    found.update({test: count for test, count in rows if self._measured_in(test) == folder})
        return found

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that run it, those that run little else first; those that run anything of its module where that is
        unknown: what runs while tests are collected belongs to none of them."""
        exact: set[str] = set()
        module: set[str] = set()
        for folder in self._lines:
            ran = self._ran(folder, mutant.path)
            exact.update(
                test for line in self._lines_then(folder, mutant, set(ran)) for test in ran.get(line, ())
            )
            module.update(*ran.values())
        return sorted((exact or module) & self.seconds.keys(), key=self._nearness)

    def _nearness(self, test: str) -> tuple[int, float, str]:
        return self.breadth.get(test, 1_000), self.seconds[test], test

    @functools.cache  # noqa: B019 - one object for a run
    def _ran(self, folder: str, path: str) -> dict[int, set[str]]:
        found: dict[int, set[str]] = defaultdict(set)
        for data in self._lines[folder]:
            for line, tests in data.contexts_by_lineno(str(self._root / path)).items():
                found[line].update(test for test in tests if self._measured_in(test) == folder)
        return dict(found)

    def _lines_then(self, folder: str, mutant: Mutant, ran: set[int]) -> set[int]:
        then = self._folder / folder / "sources" / mutant.path
        if not then.exists():
            return set()
        spans = _functions(then.read_bytes())
        if mutant.at_import or mutant.function not in spans:  # whoever runs anything of the module
            return ran - _outside(spans, ran)
        first, last = spans[mutant.function]
        if then.read_bytes() == (self._root / mutant.path).read_bytes():
            exact = ran & set(range(mutant.line, mutant.end_line + 1))
            if exact:
                return exact
        return ran & set(range(first + 1, last + 1))


@functools.cache
def _functions(source: bytes) -> dict[str, tuple[int, int]]:
    """The lines of each function, by its dotted name."""
    found: dict[str, tuple[int, int]] = {}

    def walk(node: ast.AST, scope: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = (*scope, child.name)
                if not isinstance(child, ast.ClassDef):
                    found[".".join(inner)] = (child.lineno, child.end_lineno or child.lineno)
                walk(child, inner)
            else:
                walk(child, scope)

    walk(ast.parse(source), ())
    return found


def _outside(spans: dict[str, tuple[int, int]], lines: set[int]) -> set[int]:
    return {line for line in lines if not any(first < line <= last for first, last in spans.values())}
