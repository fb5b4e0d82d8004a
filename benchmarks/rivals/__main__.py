# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.rivals [--rounds 3] [--only Aerobee,NATS] [--loads send,lone] [--keep FILE] [--save]`: some five
minutes; `--only Aerobee,NATS,Redis --loads lone` half a minute.

--save writes RIVALS.md; --keep adds the rounds to those in a file, for a machine that is never quiet for so long.

Every round starts each server anew, with fresh data, and runs the same loads against it (`loads.py`), in turn, so that
what the machine does meanwhile hits all of them. The figures are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.rivals import page
from benchmarks.rivals.loads import LOADS
from benchmarks.rivals.servers import SERVERS, Missing, resident_mib

if TYPE_CHECKING:
    from benchmarks.rivals.page import Rounds

ROOT = Path(__file__).resolve().parents[2]


def one_round(name: str, loads: str) -> dict[str, Any]:
    directory = Path(tempfile.mkdtemp(prefix="rivals-"))
    try:
        server = SERVERS[name](directory)
        try:
            start_s = server.start()
            idle_mib = resident_mib(server.pids())
            pids = ",".join(map(str, server.pids()))
            load = [sys.executable, "-m", "benchmarks.rivals.loads", name, server.address, pids, loads]
            try:
                done = subprocess.run(
                    load, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
                )
            except subprocess.TimeoutExpired:
                raise Missing(f"{name}: not through with the load after two minutes") from None
            if done.returncode:
                raise Missing(
                    f"{name}: the load failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}"
                )
            figures: dict[str, Any] = json.loads(done.stdout)
            figures["start"] = {"s": start_s}
            figures["memory"] = {"idle_mib": idle_mib, "used_mib": resident_mib(server.pids())}
            return figures
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(SERVERS))
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # servers are stopped on the way out
    rounds: Rounds = {name: [] for name in given.only.split(",")}
    missing: dict[str, str] = {}
    began, load_before = time.time(), os.getloadavg()[0]
    for number in range(given.rounds):
        for name in rounds:
            if name in missing:
                continue
            try:
                rounds[name].append(one_round(name, given.loads))
            except Missing as error:
                missing[name] = str(error)
            print(f"round {number + 1} {name}: {missing.get(name, 'done')}", file=sys.stderr, flush=True)
    if given.keep is not None:
        rounds = _with_those_before(rounds, given.keep)
    text = page.text(
        {name: rounds[name] for name in SERVERS if rounds.get(name)},
        missing,
        page.Run(began, load_before, os.getloadavg()[0], max(map(len, rounds.values()))),
    )
    print(text)
    if given.save:
        (ROOT / "benchmarks" / "RIVALS.md").write_text(text)


def _with_those_before(rounds: Rounds, file: Path) -> Rounds:
    kept: Rounds = json.loads(file.read_text()) if file.exists() else {}
    for name, found in rounds.items():
        kept[name] = kept.get(name, []) + found
    file.write_text(json.dumps(kept))
    return kept


if __name__ == "__main__":
    main()
