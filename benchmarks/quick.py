# SPDX-License-Identifier: Apache-2.0
"""What a message costs the broker in CPU, against the last committed figure: `make bench-quick`, two minutes, no Java.

    python -m benchmarks.quick [--seconds 4] [--rounds 3] [--save] [--only send]

Starts `aerobee serve` with a temporary store, runs the loads of `benchmarks.load` in turn, takes user and system time
of its process from /proc around each, and prints the least of the rounds beside benchmarks/quick_baseline.json: on a
machine with other work the least is the nearest to the truth. `--save` makes it the new baseline; commit it with the
change that moved it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from latency import served

from benchmarks import load

BASELINE = Path(__file__).with_name("quick_baseline.json")
BACKLOG = 64_000
TICK = os.sysconf("SC_CLK_TCK")
NOTABLE = 1.05  # a change below this is noise


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


Run = Callable[[], load.Count]


def loads(address: str, seconds: float) -> dict[str, Callable[[], Run]]:
    """Each makes its load ready, anew at each call: a key sent twice would be found remembered."""

    def send(size: int, outstanding: int, batch: int = 1) -> Callable[[], Run]:
        def ready() -> Run:
            count = int(seconds * (60_000 if batch == 1 else 4_000))
            frames = load.send_frames(["load-send"], size, count, batch)
            return lambda: load.send(address, frames, outstanding, seconds, load.MANY_TIMES)

        return ready

    return {
        "send 128 B, 64 outstanding": send(128, 64),
        "send 1024 B, 64 outstanding": send(1024, 64),
        "send 128 B, 1 outstanding": send(128, 1),
        "batch of 16": send(128, 16, 16),
        "batch of 64": send(128, 16, 64),
        "pull, 32 a request": lambda: lambda: load.pull(address, "load-pull", seconds),
        "pop + ack": lambda: lambda: load.pop(address, "load-pull", BACKLOG, seconds),
    }


async def measure(options: argparse.Namespace) -> dict[str, float]:
    costs: dict[str, list[float]] = {}
    async with served("--set", "index_slots=500000") as (address, pid):
        for topic in ("load-send", "load-pull"):
            load.create_topic(address, topic)
        load.fill(address, "load-pull", 128, BACKLOG)
        chosen = {k: v for k, v in loads(address, options.seconds).items() if k.startswith(options.only)}
        for _ in range(options.rounds):
            for name, ready in chosen.items():
                run = ready()
                began, cpu = time.perf_counter(), cpu_seconds(pid)
                done = run()
                cost = (cpu_seconds(pid) - cpu) / max(1, done.messages) * 1e6
                costs.setdefault(name, []).append(cost)
                took = time.perf_counter() - began
                print(f"  {name:<30} {cost:7.2f} us {done.rate:10,.0f}/s  ({took:.1f} s)", flush=True)
    return {name: min(values) for name, values in costs.items()}


def compare(now: dict[str, float], baseline: dict[str, float]) -> None:
    print(f"{'broker CPU a message':<30} {'us':>8} {'baseline':>9} {'change':>8}")
    for name, cost in now.items():
        before = baseline.get(name)
        if before is None:
            print(f"{name:<30} {cost:8.2f} {'-':>9}")
            continue
        ratio = cost / before
        sign = "slower" if ratio > NOTABLE else "faster" if ratio < 1 / NOTABLE else ""
        print(f"{name:<30} {cost:8.2f} {before:9.2f} {ratio - 1:+8.1%} {sign}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="loads whose name begins so")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    now = asyncio.run(measure(options))
    saved = json.loads(BASELINE.read_text()) if BASELINE.exists() else {"us": {}}
    compare(now, saved["us"])
    if saved["us"]:
        print(f"baseline of {saved['date']} on {saved['machine']}")
    if options.save:
        machine = f"{platform.machine()}, Python {platform.python_version()}, {os.cpu_count()} cores"
        us = {**saved["us"], **{name: round(cost, 2) for name, cost in now.items()}}
        data = {
            "date": time.strftime("%Y-%m-%d %H:%M"),
            "machine": f"{machine}, load average {os.getloadavg()[0]:.1f}",
            "us": us,
        }
        BASELINE.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
