# SPDX-License-Identifier: Apache-2.0
"""One broker process against several: sends a second over all of them, and the CPU they used.

    python -m benchmarks.brokers [--brokers 2] [--seconds 4] [--rounds 3] [--size 1024]

`aerobee serve --brokers N` with a temporary store; a load of its own, in C, for each broker. One and N run in turn; the
median of the rounds. With as many cores as brokers the load competes with them: the CPU a message tells the rest.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from benchmarks import load

OUTSTANDING = 64
PORTS = ["--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "-1", "--http-port", "-1"]


def measure(brokers: int, seconds: float, size: int) -> tuple[float, float]:
    """Messages a second, and microseconds of all brokers a message."""
    command = [sys.executable, "-m", "aerobee", "serve", "--ephemeral", "--brokers", str(brokers)]
    server = subprocess.Popen([*command, *PORTS, "--log-level", "ERROR"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        addresses = re.findall(r"broker=(\S+)", server.stdout.readline())[0].split(",")
        for address in addresses:
            load.create_topic(address, "load-send")
        frames = [load.send_frames(["load-send"], size, int(seconds * 40_000)) for _ in addresses]
        processes = psutil.Process(server.pid).children()
        before, begun = cpu(processes), time.perf_counter()
        with ThreadPoolExecutor(brokers) as threads:
            done = list(
                threads.map(
                    lambda each: load.send(each[0], each[1], OUTSTANDING, seconds, load.MANY_TIMES),
                    zip(addresses, frames, strict=True),
                )
            )
        took, messages = time.perf_counter() - begun, sum(each.messages for each in done)
        return messages / took, (cpu(processes) - before) / messages * 1e6
    finally:
        server.terminate()
        server.wait(60)


def cpu(processes: list[psutil.Process]) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in processes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=1024)
    given = parser.parse_args()
    found: dict[int, list[tuple[float, float]]] = {1: [], given.brokers: []}
    for _ in range(given.rounds):
        for count, figures in found.items():
            figures.append(measure(count, given.seconds, given.size))
            rate, cost = figures[-1]
            print(f"brokers={count} {rate:10,.0f} /s {cost:6.2f} us a message", flush=True)
    one, several = (statistics.median(rate for rate, _ in found[count]) for count in (1, given.brokers))
    print(
        f"{given.brokers} brokers: {several / one:.2f} x one; load average {Path('/proc/loadavg').read_text()[:14]}"
    )
    print(f"cores: {os.cpu_count()}")


if __name__ == "__main__":
    main()
