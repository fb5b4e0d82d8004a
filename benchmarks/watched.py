# SPDX-License-Identifier: Apache-2.0
"""What it costs a broker to be watched: `python -m benchmarks.watched [--seconds 2.5] [--rounds 6] [--only send]`.

The loads of `benchmarks.quick` on one server with its HTTP port, in slices next to each other: in two nobody asks it for
anything, in one it is scraped, in one the console's Overview is asked for, as a page that is open asks. Two slices of
2.5 seconds so watched are five seconds with a scrape every five and a refresh every five. Each round has a server of
its own and the other order, so that what a slice leaves behind (pages to be written, above all) falls on both alike.

Printed: messages a second, the 99th percentile from a send to the answer of the pull held for it, and broker CPU a
message with all that watching costs in it, alone and watched, medians; then the change, the median of the rounds' own,
and how far off that may be by chance (two standard errors). A change smaller than that is none.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import sys
import time
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks import load
from benchmarks.quick import BACKLOG, cpu_seconds, loads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from benchmarks.quick import Run

NAMES = ("send 128 B, 64 outstanding", "send 1024 B, 64 outstanding", "pull, 32 a request", "pop + ack")
HELD = "send to held pull"
# What is asked for in each of a round's slices; the next round has them the other way round.
SLICES = ("", "/metrics", "/", "")
ORDERS = (SLICES, (SLICES[1], "", "", SLICES[2]))
WAIT_S = 0.5  # before it is asked: the load has begun


@dataclass
class Slice:
    rate: float
    cpu_us: float
    p99_ms: float = 0.0


@dataclass
class Seen:
    """Of one load: what a slice of each round came to, the mean of its two, alone and watched."""

    alone: list[Slice] = field(default_factory=list)
    watched: list[Slice] = field(default_factory=list)

    def values(self, what: str) -> tuple[list[float], list[float]]:
        return [getattr(one, what) for one in self.alone], [getattr(one, what) for one in self.watched]


@asynccontextmanager
async def served() -> AsyncIterator[tuple[str, str, int]]:
    """Addresses of its broker and of its HTTP port, and its process id."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "aerobee.cli.main", "serve", "--ephemeral", "--namesrv-port", "0", "--broker-port", "0",
        "--grpc-port", "-1", "--http-port", "0", "--log-level", "ERROR", "--set", "index_slots=500000",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    line = (await server.stdout.readline()).decode()
    try:
        broker, http = re.findall(r"broker=(\S+) .*http=(\S+)", line)[0]
        yield broker, http, server.pid
    finally:
        server.terminate()
        await server.wait()


def runs_of(broker: str, seconds: float) -> dict[str, Callable[[], Run]]:
    every = loads(broker, seconds)
    chosen = {name: every[name] for name in NAMES}
    return {**chosen, HELD: lambda: lambda: load.latency(broker, "load-held", seconds, rate=500)}


async def measure(options: argparse.Namespace) -> dict[str, Seen]:
    seen = {name: Seen() for name in (*NAMES, HELD) if name.startswith(options.only)}
    for turn in range(options.rounds):
        async with served() as (broker, http, pid):
            for topic in ("load-send", "load-pull", "load-held"):
                load.create_topic(broker, topic)
            load.fill(broker, "load-pull", 128, BACKLOG)
            runs = runs_of(broker, options.seconds)
            for name in seen:
                await _slice(runs[name](), pid)  # the first of a load warms it up
                await _round(runs[name], f"http://{http}", pid, seen[name], ORDERS[turn % 2])
    return seen


async def _round(ready: Callable[[], Run], http: str, pid: int, seen: Seen, order: tuple[str, ...]) -> None:
    alone, watched = [], []
    for path in order:
        (watched if path else alone).append(await _slice(ready(), pid, http + path if path else ""))
    seen.alone.append(_mean(alone))
    seen.watched.append(_mean(watched))


async def _slice(run: Run, pid: int, url: str = "") -> Slice:
    cpu = cpu_seconds(pid)
    under_way = asyncio.create_task(asyncio.to_thread(run))
    if url:
        await asyncio.sleep(WAIT_S)
        asked = urllib.request.Request(url, headers={"x-refresh": "1"})
        await asyncio.to_thread(lambda: urllib.request.urlopen(asked).read())
    done = await under_way
    told = Slice(done.rate, (cpu_seconds(pid) - cpu) / max(1, done.messages) * 1e6)
    if len(done.latencies_ms) >= 100:
        told.p99_ms = statistics.quantiles(done.latencies_ms, n=100)[98]
    return told


def _mean(slices: list[Slice]) -> Slice:
    return Slice(
        *(statistics.mean(getattr(one, what) for one in slices) for what in ("rate", "cpu_us", "p99_ms"))
    )


def told(what: str, alone: list[float], watched: list[float], form: str) -> str:
    changes = [second / max(first, 1e-9) - 1 for first, second in zip(alone, watched, strict=True)]
    # The standard error of a median is a quarter more than that of a mean.
    chance = 2 * 1.25 * statistics.stdev(changes) / len(changes) ** 0.5 if len(changes) > 1 else float("nan")
    first, second = statistics.median(alone), statistics.median(watched)
    return f"{what:<42} {first:{form}} {second:{form}} {statistics.median(changes):+8.1%} {chance:8.1%}"


def tell(seen: dict[str, Seen]) -> None:
    load_average = f"{time.strftime('%Y-%m-%d')}, load average {os.getloadavg()[0]:.1f}"
    print(f"{load_average:<42} {'alone':>10} {'watched':>10} {'change':>8} {'chance':>8}")
    for name, one in seen.items():
        if name == HELD:
            print(told(f"{name}, p99 ms", *one.values("p99_ms"), "10.2f"))
        else:
            print(told(f"{name}, a second", *one.values("rate"), "10,.0f"))
            print(told(f"{name}, CPU us", *one.values("cpu_us"), "10.2f"))


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default="", help="loads whose name begins so")
    tell(await measure(parser.parse_args()))


if __name__ == "__main__":
    asyncio.run(main())
