# SPDX-License-Identifier: Apache-2.0
"""`make mutants`: small bugs are put into a copy of the code, one at a time; do the tests notice?

Theory of operation. `mutations` finds what can be broken, `touching` knows which tests run that line (measured once),
`quickly` runs them in a process that has loaded everything, `trying` in a copy of the tree, `results` keeps what became
of it. Everything known is in `.mutants/`: stop a run and start it again, it goes on where it was. A survivor is a test
to be written, or a line in `equivalent.toml` with the reason why nobody could see the difference.
"""

from __future__ import annotations

import argparse
import functools
import queue
import random
import signal
import sys
import threading
from collections import Counter, deque
from pathlib import Path

from tools.mutants.mutations import Mutant, mutants_of
from tools.mutants.quickly import Hot
from tools.mutants.results import Results, equivalents
from tools.mutants.touching import Touching
from tools.mutants.trying import Copy

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".mutants"
PACKAGES = ("protocol", "net", "store", "namesrv", "broker", "fronts", "client", "spark")
_TESTS_S = 30.0  # so many seconds of tests, as measured, are enough for a mutant that hundreds run
_ROWS = 8


def _mutants(package: str) -> list[Mutant]:
    found: list[Mutant] = []
    for path in sorted((ROOT / "aerobee" / package).rglob("*.py")):
        if "generated" not in path.parts:
            found += mutants_of(path.relative_to(ROOT).as_posix(), path.read_bytes())
    return found


def _sample(mutants: list[Mutant], size: int, seed: int) -> list[Mutant]:
    """By lot, but each has its own: what is added to the code moves no other in or out."""
    drawn = sorted(mutants, key=lambda each: random.Random(f"{seed} {each.id}").random())
    return drawn[:size] if size else mutants


def _todo(mutants: list[Mutant], asked: argparse.Namespace, results: Results) -> list[Mutant]:
    if asked.only:
        return [each for each in mutants if each.id in asked.only]
    excused = equivalents()
    drawn = {each.id for each in _sample(mutants, asked.sample, asked.seed)}
    got_away = ("survived", "untouched") if asked.again else ()
    return [
        each
        for each in mutants
        if each.id not in excused
        and (results.get(each) in got_away or (each.id in drawn and results.get(each) is None))
    ]


def _chosen(touching: Touching, mutant: Mutant) -> tuple[list[str], float]:
    """The tests for a mutant and how long they take: those of files named after its own first, then its package's, and
    of these who runs little else. A test of many rows has its turn for a few of them at a time."""
    package, name = f"tests/{mutant.path.split('/')[1]}/", Path(mutant.path).stem
    tests = touching.tests_of(mutant)
    if (
        mutant.at_import
    ):  # who only uses what is declared there runs no line of it: those that name it come first
        known = set(tests)
        tests += sorted(test for test in touching.seconds if test.startswith(package) and test not in known)
        named = mutant.function.rpartition(".")[2] or name
        tests.sort(key=lambda test: (f"{named}]" not in test, named not in _text(test.partition("::")[0])))
    rows: Counter[str] = Counter()
    ranked = []
    for near, test in enumerate(tests):
        function = test.partition("[")[0]
        ranked.append((name not in Path(test.partition("::")[0]).stem, not test.startswith(package),
                       rows[function] // _ROWS, near, test))  # fmt: skip
        rows[function] += 1
    total, found = 0.0, []
    for *_, test in sorted(ranked):
        if total < _TESTS_S:
            total += touching.seconds[test]
            found.append(test)
    return found, total


@functools.cache
def _text(file: str) -> str:
    return (ROOT / file).read_text()


def _try_all(todo: list[Mutant], touching: Touching, results: Results, jobs: int) -> None:
    waiting = deque(todo)
    copies: queue.Queue[Copy] = queue.Queue()
    files = sorted({test.partition("::")[0] for test in touching.seconds})

    def work(copy: Copy, number: int) -> None:
        hot = Hot(ROOT, files, FOLDER / f"hot{number}") if waiting else None
        while waiting:
            mutant = waiting.popleft()
            tests, seconds = _chosen(touching, mutant)
            tried = None if hot is None else hot.attempt(mutant, tests, seconds)
            if tried is None or tried.outcome == "survived":
                tried = copy.attempt(mutant, tests, seconds)
            results.add(mutant, tried)
            print(f"{tried.outcome:9} {mutant.id} {mutant} {tried.killer}", flush=True)
        if hot is not None:
            hot.close()

    threads = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for number in range(jobs):
            copy = Copy(ROOT)
            copies.put(copy)
            copy.check(sorted(touching.seconds, key=lambda test: touching.seconds[test])[:20])
            threads.append(threading.Thread(target=work, args=(copy, number)))
            threads[-1].start()
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        waiting.clear()
        for thread in threads:
            thread.join()
        sys.exit("stopped; start it again and it goes on")
    finally:
        while not copies.empty():
            copies.get().remove()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--package", choices=PACKAGES, action="append", help="only this one; may be given again"
    )
    parser.add_argument(
        "--sample", type=int, default=0, help="so many of each package, chosen by the seed; 0: all"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--only", action="append", default=[], metavar="ID", help="this mutant, known already or not"
    )
    parser.add_argument("--again", action="store_true", help="all that got away before are tried again")
    parser.add_argument(
        "--as-measured", action="store_true", help="measure no test file again, also those that have changed"
    )
    parser.add_argument("--report", action="store_true", help="say what is known; try nothing")
    return parser.parse_args()


def main() -> None:
    asked = _arguments()
    FOLDER.mkdir(exist_ok=True)
    results = Results(FOLDER / "results.jsonl")
    touching = Touching(ROOT, FOLDER / "touching")
    if not (asked.report or asked.as_measured):
        touching.measure(asked.jobs)
    known: set[str] = set()
    for package in asked.package or PACKAGES:
        mutants = _mutants(package)
        known.update(each.id for each in mutants)
        if not asked.report:
            _try_all(_todo(mutants, asked, results), touching, results, asked.jobs)
        print(results.report(package, mutants))
    if not asked.package:
        for stale in equivalents().keys() - known:
            print(f"equivalent.toml: there is no mutant {stale} any more")


if __name__ == "__main__":
    main()
