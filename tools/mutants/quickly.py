# SPDX-License-Identifier: Apache-2.0
"""The quick way to try a mutant, by `hot.py`.

What gets away here is tried the slow way too: a function may have run before it was exchanged, and a test's other
processes do not know of it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from tools.mutants.trying import SLOWER, START_S, Tried

if TYPE_CHECKING:
    from pathlib import Path

    from tools.mutants.mutations import Mutant


class Hot:
    """`tests`: the files whose tests may be asked for."""

    def __init__(self, root: Path, tests: list[str], scratch: Path) -> None:
        self._root = root
        scratch = scratch.with_name(f"{scratch.name}-{os.getpid()}")  # another run may be under way
        scratch.mkdir(parents=True)
        self._scratch = scratch
        chosen, output = scratch / "chosen", scratch / "output"
        chosen.write_text("\n".join(tests))
        theirs, self._commands = os.pipe()
        answers, their_answers = os.pipe()
        arguments = [
            "-q",
            "-s",
            "-p",
            "tools.mutants.hot",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-m",
            "not spark",
        ]
        arguments += [f"--timeout={START_S * 6}", f"--basetemp={scratch / 'tmp'}", f"@{chosen}"]
        places = {"PYTHONPATH": str(root), "AEROBEE_NATIVE": "0", "AEROBEE_HOT": f"{theirs} {their_answers}"}
        with output.open("w") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pytest", *arguments], cwd=root, env=os.environ | places,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=(theirs, their_answers),
                start_new_session=True,
            )  # fmt: skip
        os.close(theirs)
        os.close(their_answers)
        self._answers = os.fdopen(answers)
        self._sound: dict[str, bool] = {}
        if self._answers.readline() != '["ok"]\n':
            raise RuntimeError(f"the tests could not be collected; see {output}")

    def close(self) -> None:
        os.close(self._commands)
        self._process.wait()
        self._answers.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def attempt(self, mutant: Mutant, tests: list[str], seconds: float) -> Tried | None:
        """None: cannot be tried so."""
        if mutant.at_import or not tests:
            return None
        source = mutant.applied((self._root / mutant.path).read_bytes()).decode()
        while tests:
            told = self._ask(mutant, source, tests, START_S + SLOWER * seconds)
            if told[0] == "time":  # for ever, or was the machine only busy?
                told = self._ask(mutant, source, tests, START_S + SLOWER * (seconds + START_S))
            if told[0] == "cannot" or (told[0] == "failed" and told[1] not in tests):  # or it died: of what?
                return None
            if told[0] == "time":
                return Tried("time", len(tests))
            if told[0] == "ok":
                return Tried("survived", len(tests))
            if self._believed(mutant, source, told[1]):
                return Tried("killed", len(tests), told[1])
            tests = [test for test in tests if test != told[1]]
        return Tried("survived", 0)

    def _believed(self, mutant: Mutant, source: str, killer: str) -> bool:
        """As the slow way does."""
        if killer not in self._sound:
            self._sound[killer] = self._ask(mutant, None, [killer], START_S * 2) == ["ok"]
        return self._sound[killer] and self._ask(mutant, source, [killer], START_S * 2)[0] == "failed"

    def _ask(self, mutant: Mutant, source: str | None, tests: list[str], seconds: float) -> list[str]:
        line = {
            "path": mutant.path,
            "function": mutant.function,
            "source": source,
            "tests": tests,
            "seconds": seconds,
        }
        os.write(self._commands, json.dumps(line).encode() + b"\n")
        answer: list[str] = json.loads(self._answers.readline())
        return answer
