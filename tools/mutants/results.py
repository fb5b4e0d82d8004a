# SPDX-License-Identifier: Apache-2.0
"""What became of the mutants: a line of JSON for each, added when it is known, so that a run can be taken up again."""

from __future__ import annotations

import json
import threading
import tomllib
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.mutants.mutations import Mutant
    from tools.mutants.trying import Tried

EQUIVALENT = Path(__file__).with_name("equivalent.toml")


def equivalents() -> dict[str, str]:
    """Mutants that change nothing anybody could see, with the reason."""
    return {each["id"]: each["why"] for each in tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])}


class Results:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._by_id: dict[str, dict[str, Any]] = {}
        if file.exists():
            for line in file.read_text().splitlines():
                row = json.loads(line)
                self._by_id[row["id"]] = row

    def get(self, mutant: Mutant) -> str | None:
        row = self._by_id.get(mutant.id)
        return row["outcome"] if row else None

    def add(self, mutant: Mutant, tried: Tried) -> None:
        row = {"id": mutant.id, "what": str(mutant), **asdict(tried)}
        with self._lock:
            self._by_id[mutant.id] = row
            with self._file.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def report(self, package: str, mutants: list[Mutant]) -> str:
        """The score of what was tried, and who got away."""
        excused = equivalents()
        tried = [each for each in mutants if each.id in self._by_id]
        counts = Counter(self._outcome(each, excused) for each in tried)
        judged = len(tried) - counts["equivalent"]
        killed = counts["killed"] + counts["time"]
        score = f"{100 * killed / judged:.1f} %" if judged else "-"
        lines = [
            f"{package}: {score} of {judged} ({len(mutants)} there are; killed {counts['killed']}, out of time "
            f"{counts['time']}, survived {counts['survived']}, run by no test {counts['untouched']}, "
            f"equivalent {counts['equivalent']})"
        ]
        lines += [
            f"  {each.id} {each} ({self._by_id[each.id]['tests']} tests)"
            for each in tried
            if self._outcome(each, excused) in ("survived", "untouched")
        ]
        return "\n".join(lines)

    def _outcome(self, mutant: Mutant, excused: dict[str, str]) -> str:
        outcome: str = self._by_id[mutant.id]["outcome"]
        return "equivalent" if mutant.id in excused and outcome not in ("killed", "time") else outcome
