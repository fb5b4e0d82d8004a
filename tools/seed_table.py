# SPDX-License-Identifier: Apache-2.0
"""Writes the acceptance table of docs/compat.md: every behaviour asked for and the tests that carry its id.

`python tools/seed_table.py` writes, `--check` says what is missing or stale and exits 1. The behaviours are sentences in
tests/docs/behaviours.toml; tests are found by reading the sources, not by running them:
`@pytest.mark.seed("S000-40", ...)` on functions, classes and in `pytestmark`.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compat.md"
BEHAVIOURS = ROOT / "tests" / "docs" / "behaviours.toml"
BEGIN, END = "<!-- seed rows: written by tools/seed_table.py -->", "<!-- end of seed rows -->"
ROWS = {"S000": 81, "S001": 31, "S002": 36, "S003": 45, "S004": 90}


def all_ids() -> list[str]:
    return [f"{seed}-{n}" for seed, count in ROWS.items() for n in range(1, count + 1)]


def sentences() -> dict[str, str]:
    """id -> what must happen."""
    told = tomllib.loads(BEHAVIOURS.read_text(encoding="utf-8"))
    return {f"{seed}-{n}": text for seed, rows in told.items() for n, text in rows.items() if text.strip()}


def marked(node: ast.AST) -> list[str]:
    """The ids of every `seed(...)` mark written anywhere in `node`."""
    return [
        str(argument.value)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "seed"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    ]


def tests_of(path: Path) -> dict[str, list[str]]:
    """id -> names of the tests in one file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: dict[str, list[str]] = defaultdict(list)
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    tests = [n for n in functions if n.name.startswith("test_")]
    of_module = [i for n in tree.body if isinstance(n, ast.Assign) for i in marked(n)]
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    for test in tests:
        ids = [i for decorator in test.decorator_list for i in marked(decorator)]
        for cls in classes:
            if test in ast.walk(cls):
                ids += [i for decorator in cls.decorator_list for i in marked(decorator)]
        for one in dict.fromkeys(ids + of_module):
            found[one].append(test.name)
    return found


def collect() -> dict[str, list[str]]:
    table: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for one, names in tests_of(path).items():
            table[one] += [f"{path.relative_to(ROOT / 'tests')}::{name}" for name in names]
    return table


def render(told: dict[str, str], table: dict[str, list[str]]) -> str:
    lines = [BEGIN, "", "| row | what must happen | proved by |", "|---|---|---|"]
    for one in all_ids():
        names = table.get(one, [])
        shown = "<br>".join(
            [f"`{name}`" for name in names[:4]] + [f"and {len(names) - 4} more"] * (len(names) > 4)
        )
        lines.append(f"| {one} | {told.get(one, '')} | {shown} |")
    return "\n".join([*lines, "", END])


def main() -> None:
    told, table = sentences(), collect()
    missing = [one for one in all_ids() if one not in table]
    untold = [one for one in all_ids() if one not in told]
    unknown = sorted((set(table) | set(told)) - set(all_ids()))
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    fresh = before + render(told, table) + after
    if "--check" in sys.argv:
        for title, ids in (
            ("no test carries", missing),
            ("no sentence for", untold),
            ("no such row", unknown),
        ):
            if ids:
                print(f"{title}: {' '.join(ids)}")
        if fresh != page:
            print("docs/compat.md is stale: run python tools/seed_table.py")
        sys.exit(1 if missing or untold or unknown or fresh != page else 0)
    PAGE.write_text(fresh, encoding="utf-8")
    print(
        f"{len(all_ids()) - len(missing)} of {len(all_ids())} rows have tests; missing: {' '.join(missing) or 'none'}"
    )


if __name__ == "__main__":
    main()
