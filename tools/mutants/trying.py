# SPDX-License-Identifier: Apache-2.0
"""One mutant at a time in a copy of the tree: its tests, until one fails or its time is over."""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tools.mutants.mutations import Mutant

Outcome = Literal["killed", "time", "survived", "untouched"]

_FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
START_S = 20  # what a busy machine may take to load everything
SLOWER = 3  # than when they were measured


@dataclass(frozen=True)
class Tried:
    outcome: Outcome
    tests: int
    killer: str = ""


class Copy:
    """A temporary copy of what git knows, as it stands in the tree."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.path = Path(tempfile.mkdtemp(prefix="aerobee-mutants-"))
        known = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root, capture_output=True, check=True,
        )  # fmt: skip
        for name in filter(None, known.stdout.decode().split("\0")):
            if (root / name).is_file():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.path / name)
        compileall.compile_dir(self.path / "aerobee", quiet=2)
        self._warm: subprocess.Popen[str] | None = None
        self._sound: dict[
            str, bool
        ] = {}  # tests that have noticed something: do they pass when nothing is wrong?

    def remove(self) -> None:
        if self._warm is not None:
            self._warm.terminate()
            self._warm.wait()
        shutil.rmtree(self.path, ignore_errors=True)

    def check(self, tests: list[str]) -> None:
        """They pass as long as nothing is changed; else every mutant would look noticed."""
        tried = self._run(tests, 60)
        if tried.outcome != "survived":
            raise RuntimeError(f"tests fail without a mutant: {tried.killer}; see {self.path / '.output'}")

    def attempt(self, mutant: Mutant, tests: list[str], seconds: float) -> Tried:
        """`seconds`: what the tests took when nothing was wrong."""
        if not tests:
            return Tried("untouched", 0)
        tried = self._broken(mutant, tests, seconds)
        if tried.outcome == "time":  # for ever, or was the machine only busy?
            tried = self._broken(mutant, tests, seconds + START_S)
        if tried.killer in tests and not self._believed(mutant, tried.killer):
            return self.attempt(mutant, [test for test in tests if test != tried.killer], seconds)
        return tried

    def _broken(self, mutant: Mutant, tests: list[str], seconds: float) -> Tried:
        file = self.path / mutant.path
        original = file.read_bytes()
        try:
            file.write_bytes(mutant.applied(original))
            self._forget_compiled(file)
            return self._run(tests, seconds)
        finally:
            file.write_bytes(original)
            self._forget_compiled(file)

    def _believed(self, mutant: Mutant, killer: str) -> bool:
        """It passes without the mutant and fails with it once more: a test that fails at times proves nothing."""
        if killer not in self._sound:
            self._sound[killer] = self._run([killer], START_S).outcome == "survived"
        return self._sound[killer] and self._broken(mutant, [killer], START_S).outcome == "killed"

    def _forget_compiled(self, file: Path) -> None:
        """A change within the same second, of the same length, would go unnoticed."""
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()

    def _run(self, tests: list[str], seconds: float) -> Tried:
        chosen, output = self.path / ".chosen", self.path / ".output"
        chosen.write_text("\n".join(tests))
        arguments = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
        arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # loaded before pytest knew of it
        arguments += [f"--timeout={START_S * 6}", f"--basetemp={self.path / '.tmp'}", f"@{chosen}"]
        told = self._ask([str(output), START_S + SLOWER * seconds, *arguments])
        if told == "time":
            return Tried("time", len(tests))
        if told == "0":
            return Tried("survived", len(tests))
        failure = _FIRST_FAILURE.search(output.read_text(errors="replace"))
        return Tried("killed", len(tests), failure[1] if failure else "nothing could be loaded")

    def _ask(self, line: list[object]) -> str:
        if self._warm is None:
            self._warm = subprocess.Popen(
                [sys.executable, self._root / "tools" / "mutants" / "warm.py"], cwd=self.path, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
                env=os.environ | {"PYTHONPATH": str(self.path)},
            )  # fmt: skip
        assert self._warm.stdin is not None
        assert self._warm.stdout is not None
        self._warm.stdin.write(json.dumps(line) + "\n")
        self._warm.stdin.flush()
        return self._warm.stdout.readline().strip()
