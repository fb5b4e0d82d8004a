# SPDX-License-Identifier: Apache-2.0
"""Kills and power cuts in both flush modes, until the time is over or the rounds are done."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import shutil
import sys
import tempfile
from pathlib import Path

from aerobee.clock import SystemClock
from tests.chaos.rounds import ROUNDS_A_STORE, Rounds

CASES = [(fault, flush) for fault in ("kill", "power") for flush in ("async", "sync")]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--fault", choices=("kill", "power"), help="only this [both]")
    parser.add_argument("--flush", choices=("async", "sync"), help="only this mode [both]")
    parser.add_argument("--rounds", type=int, help="rounds of each case [as many as the time allows]")
    parser.add_argument("--seconds", type=int, default=300, help="when no rounds are given [300]")
    parser.add_argument("--seed", type=int, help="of all dice, to repeat a run [random]")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first round, to repeat a store [0]"
    )
    parser.add_argument(
        "--directory", type=Path, help="where the stores are; left as it is when a check fails"
    )
    return parser.parse_args()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def run(chosen: argparse.Namespace) -> None:
    seed = chosen.seed if chosen.seed is not None else random.randrange(1 << 30)
    directory = chosen.directory or Path(tempfile.mkdtemp(prefix="aerobee-chaos-"))
    cases = [c for c in CASES if chosen.fault in (None, c[0]) and chosen.flush in (None, c[1])]
    rounds = {case: Rounds(directory / "-".join(case), case[1], seed) for case in cases}
    end = chosen.first + chosen.rounds if chosen.rounds else sys.maxsize
    deadline = SystemClock().now() + chosen.seconds * 1000
    say(f"directory={directory}")
    for number in range(chosen.first, end, ROUNDS_A_STORE):
        for (fault, flush), work in rounds.items():
            if not chosen.rounds and SystemClock().now() > deadline:
                shutil.rmtree(directory)
                return
            count = min(ROUNDS_A_STORE, end - number)
            say(f"--fault {fault} --flush {flush} --seed {seed} --first {number} --rounds {count}")
            await (work.kill_rounds if fault == "kill" else work.power_rounds)(count, number)
            say(f"  held so far: {work.summary}")
    shutil.rmtree(directory)


if __name__ == "__main__":
    logging.disable(logging.ERROR)  # what a server without power says; its log is not the question
    asyncio.run(run(arguments()))
