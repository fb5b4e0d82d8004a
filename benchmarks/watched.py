# SPDX-License-Identifier: Apache-2.0
"""What it costs a broker to be watched: `python -m benchmarks.watched [--seconds 3] [--rounds 3] [--every 5]`.

Two servers side by side, one without the HTTP port and one that is scraped every few seconds, take the loads of
`benchmarks.quick` in turn. Printed is the CPU a message of both, the least of the rounds, scrapes included.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
import urllib.request
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from benchmarks import load
from benchmarks.quick import BACKLOG, cpu_seconds, loads

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NAMES = ("send 128 B, 64 outstanding", "send 1024 B, 64 outstanding", "pull, 32 a request", "pop + ack")


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


async def scrape(http: str, every_s: float) -> None:
    while True:
        with suppress(OSError):
            await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://{http}/metrics").read())
        await asyncio.sleep(every_s)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--every", type=float, default=5)
    options = parser.parse_args()
    costs: dict[tuple[str, str], list[float]] = {}
    async with AsyncExitStack() as stack:
        sides = {}
        for side, port in (("alone", "-1"), ("watched", "0")):
            broker, http, pid = await stack.enter_async_context(served(port))
            for topic in ("load-send", "load-pull"):
                load.create_topic(broker, topic)
            load.fill(broker, "load-pull", 128, BACKLOG)
            sides[side] = (loads(broker, options.seconds), pid)
        scraping = asyncio.create_task(scrape(http, options.every))
        for turn in range(options.rounds):
            for name in NAMES:
                # The second of two finds the first one's pages still to be written: each is it in turn.
                for side in sorted(sides, reverse=bool(turn % 2)):
                    runs, pid = sides[side]
                    cpu = cpu_seconds(pid)
                    done = await asyncio.to_thread(runs[name])
                    cost = (cpu_seconds(pid) - cpu) / max(1, done.messages) * 1e6
                    costs.setdefault((name, side), []).append(cost)
        scraping.cancel()
    print(
        f"{'broker CPU a message':<32} {'alone':>8} {'watched':>8} {'ratio':>7}  {time.strftime('%Y-%m-%d')}"
    )
    for name in NAMES:
        alone, watched = min(costs[name, "alone"]), min(costs[name, "watched"])
        print(f"{name:<32} {alone:8.2f} {watched:8.2f} {watched / alone:7.2f}")


if __name__ == "__main__":
    asyncio.run(main())
