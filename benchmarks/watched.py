# SPDX-License-Identifier: Apache-2.0
"""What it costs a broker to be watched: `python -m benchmarks.watched [--seconds 1] [--rounds 15] [--every 5]`.

Two servers side by side, one without the HTTP port; the other is scraped every few seconds and has the console's
Overview open in a browser, which asks for the page as often as its script does. Both take the loads of
`benchmarks.quick` in turn, many short rounds, each of them first in every second one. Printed for both: messages a
second and the 99th percentile from a send to the answer of the pull held for it, medians of the rounds, and broker CPU
a message, the least of them, with all that watching costs in it. What rounds differ by is said beside the ratio: a
difference within it is noise.
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
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks import load
from benchmarks.quick import BACKLOG, cpu_seconds, loads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

NAMES = ("send 128 B, 64 outstanding", "send 1024 B, 64 outstanding", "pull, 32 a request", "pop + ack")
HELD = "send to held pull"
OVERVIEW_S = 5  # as the console's script asks
SIDES = ("alone", "watched")


@dataclass
class Seen:
    """Of one load on one side, a value for each round."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)


@asynccontextmanager
async def served(http_port: str) -> AsyncIterator[tuple[str, str, int]]:
    """Addresses of its broker and of its HTTP port, and its process id."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "aerobee.cli.main", "serve", "--ephemeral", "--namesrv-port", "0", "--broker-port", "0",
        "--grpc-port", "-1", "--http-port", http_port, "--log-level", "ERROR", "--set", "index_slots=500000",
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


async def ask_again(url: str, every_s: float, **headers: str) -> None:
    asked = urllib.request.Request(url, headers=headers)
    while True:
        with suppress(OSError):
            await asyncio.to_thread(lambda: urllib.request.urlopen(asked).read())
        await asyncio.sleep(every_s)


def runs_of(broker: str, seconds: float) -> dict[str, Callable[[], load.Count]]:
    every = loads(broker, seconds)
    chosen = {name: every[name] for name in NAMES}
    return {**chosen, HELD: lambda: load.latency(broker, "load-held", seconds, rate=500)}


async def measure(options: argparse.Namespace) -> dict[tuple[str, str], Seen]:
    seen = {(name, side): Seen() for name in (*NAMES, HELD) for side in SIDES}
    async with AsyncExitStack() as stack:
        sides = {}
        for side, port in zip(SIDES, ("-1", "0"), strict=True):
            broker, http, pid = await stack.enter_async_context(served(port))
            for topic in ("load-send", "load-pull", "load-held"):
                load.create_topic(broker, topic)
            load.fill(broker, "load-pull", 128, BACKLOG)
            sides[side] = (runs_of(broker, options.seconds), pid)
        watching = [
            asyncio.create_task(ask_again(f"http://{http}/metrics", options.every)),
            asyncio.create_task(ask_again(f"http://{http}/", OVERVIEW_S, **{"x-refresh": "1"})),
        ]
        for turn in range(options.rounds):
            for name in (*NAMES, HELD):
                # The second of two finds the first one's pages still to be written: each is it in turn.
                for side in SIDES[:: -1 if turn % 2 else 1]:
                    runs, pid = sides[side]
                    await _round(runs[name], pid, seen[name, side])
        for each in watching:
            each.cancel()
    return seen


async def _round(run: Callable[[], load.Count], pid: int, seen: Seen) -> None:
    cpu = cpu_seconds(pid)
    done = await asyncio.to_thread(run)
    seen.cpu_us.append((cpu_seconds(pid) - cpu) / max(1, done.messages) * 1e6)
    seen.rates.append(done.rate)
    if len(done.latencies_ms) >= 100:
        seen.p99_ms.append(statistics.quantiles(done.latencies_ms, n=100)[98])


def told(what: str, alone: list[float], watched: list[float], form: str) -> str:
    """Medians, and how far apart the middle half of the rounds is: on this machine, now, that is noise."""
    first, second = statistics.median(alone), statistics.median(watched)
    quarter, _, three = statistics.quantiles([*alone, *watched], n=4)
    noise = (three - quarter) / 2 / max(first, 1e-9)
    return f"{what:<42} {first:{form}} {second:{form}} {second / max(first, 1e-9) - 1:+8.1%} {noise:7.1%}"


def tell(seen: dict[tuple[str, str], Seen]) -> None:
    load_average = f"{time.strftime('%Y-%m-%d')}, load average {os.getloadavg()[0]:.1f}"
    print(f"{load_average:<42} {'alone':>10} {'watched':>10} {'change':>8} {'noise':>7}")
    for name in NAMES:
        alone, watched = seen[name, "alone"], seen[name, "watched"]
        print(told(f"{name}, a second", alone.rates, watched.rates, "10,.0f"))
    alone, watched = seen[HELD, "alone"], seen[HELD, "watched"]
    if alone.p99_ms and watched.p99_ms:
        print(told(f"{HELD}, p99 ms", alone.p99_ms, watched.p99_ms, "10.2f"))
    for name in NAMES:
        first, second = min(seen[name, "alone"].cpu_us), min(seen[name, "watched"].cpu_us)
        print(
            f"{f'{name}, least CPU us':<42} {first:10.2f} {second:10.2f} {second / max(first, 1e-9) - 1:+8.1%}"
        )


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--every", type=float, default=5)
    tell(await measure(parser.parse_args()))


if __name__ == "__main__":
    asyncio.run(main())
