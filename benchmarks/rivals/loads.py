# SPDX-License-Identifier: Apache-2.0
"""One round of one rival, in a process of its own: `python -m benchmarks.rivals.loads NAME ADDRESS PIDS LOADS`; prints
JSON.

CPU is that of this process and of the server's (with its children), a message, over the time of the load.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import struct
import sys
import time
from typing import TYPE_CHECKING, Any

import uvloop

from benchmarks.rivals.client import client_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from benchmarks.rivals.client import Client

BODY = b"x" * 128
OUTSTANDING = 64
LOADS = (
    "send",
    "lone",
    "ack",
    "drain",
    "paced",
)  # those after the first need what it has sent, but for `lone`
MANY, LONE, TAKEN, DRAINED, PACED, A_SECOND = 30_000, 5_000, 8_000, 20_000, 400, 200
WARM = 1_000
WARM_S = {"Kafka": 6, "RocketMQ": 6}  # until Java has compiled what it runs
TICK = os.sysconf("SC_CLK_TCK")
_SENT = struct.Struct(">4sd")
_MARK = b"sent"  # so that what was sent before is not taken for it


def own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_of(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


class Meter:
    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self.figures: dict[str, dict[str, float]] = {}

    async def measure(self, what: str, count: int, work: Callable[[], Awaitable[object]]) -> None:
        own, theirs, began = own_cpu(), cpu_of(self._pids), time.perf_counter()
        await work()
        took = time.perf_counter() - began
        self.figures[what] = {
            "rate": count / took,
            "client_us": (own_cpu() - own) / count * 1e6,
            "server_us": (cpu_of(self._pids) - theirs) / count * 1e6,
        }


async def send_many(client: Client, count: int) -> None:
    left = iter(range(count))

    async def sender() -> None:
        for _ in left:
            await client.send(BODY)

    await asyncio.gather(*(sender() for _ in range(OUTSTANDING)))


async def send_lone(client: Client, times: list[float]) -> None:
    for _ in range(LONE):
        began = time.perf_counter()
        await client.send(BODY)
        times.append((time.perf_counter() - began) * 1e3)


async def paced(client: Client) -> list[float]:
    """From the call of send to the consumer's function, milliseconds, at a pace that nobody minds."""
    delays: list[float] = []
    met = asyncio.Event()

    def heard(body: bytes) -> None:
        mark, sent = _SENT.unpack_from(body)
        if mark == _MARK:
            delays.append((time.perf_counter() - sent) * 1e3)
            met.set()

    await client.listen(heard)
    while not met.is_set():  # a consumer needs a moment to begin
        await client.send(_SENT.pack(_MARK, time.perf_counter()) + BODY)
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)
    delays.clear()
    began = time.perf_counter()
    for number in range(PACED):
        await asyncio.sleep(max(0.0, began + number / A_SECOND - time.perf_counter()))
        await client.send(_SENT.pack(_MARK, time.perf_counter()) + BODY)
    await asyncio.sleep(1)
    return sorted(delays)


async def round_of(name: str, address: str, pids: list[int], wanted: list[str]) -> dict[str, Any]:
    client = client_of(name)(address)
    await client.open()
    began = time.perf_counter()
    while time.perf_counter() < began + WARM_S.get(name, 1):
        await send_many(client, WARM)
    meter, lone = Meter(pids), list[float]()
    works: dict[str, tuple[int, Callable[[], Awaitable[object]]]] = {
        "send": (MANY, lambda: send_many(client, MANY)),
        "lone": (LONE, lambda: send_lone(client, lone)),
        "ack": (TAKEN, lambda: client.take_and_ack(TAKEN)),
        "drain": (DRAINED, lambda: client.drain(DRAINED)),
    }
    for load, (count, work) in works.items():
        if load in wanted:
            await meter.measure(load, count, work)
    if lone:
        meter.figures["lone"]["p50"] = statistics.median(lone)
    if "paced" in wanted:
        delays = await paced(client)
        meter.figures["paced"] = {"p50": delays[len(delays) // 2], "p99": delays[len(delays) * 99 // 100]}
    await client.close()
    return meter.figures


def main() -> None:
    name, address, pids = sys.argv[1], sys.argv[2], [int(pid) for pid in sys.argv[3].split(",")]
    figures = uvloop.run(round_of(name, address, pids, sys.argv[4].split(",")))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
