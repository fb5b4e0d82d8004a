# SPDX-License-Identifier: Apache-2.0
"""How long the loop is held while a server is looked at: `python -m benchmarks.turns [--topics 10000] [--rounds 5]`.

A server in this process, with so many topics and a thousand groups, all with figures. Pages of the console, the API and
scrapes are asked for from a thread, and every turn of the loop is timed by the CPU time of the loop's thread, so that
other work on the machine does not count. Printed is the longest turn of each path, what ran in it, and whether the
garbage collector did. Goal: none above 10 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import threading
import time
import urllib.request
from asyncio.events import Handle
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from aerobee import Admin, Server, StoreConfig
from aerobee.protocol import bodies
from aerobee.protocol.headers.topics import CreateTopicList
from aerobee.settings import BrokerConfig

PATHS = (
    "/", "/topics", "/topics?page=3", "/topics?q=many-0999", "/topics/many-00001", "/groups", "/groups/g-00001",
    "/clients", "/timers", "/transactions", "/brokers", "/settings", "/find?q=many", "/metrics", "/api/topics",
    "/api/topics?contains=999", "/api/groups", "/api/groups/g-00001", "/api/cluster", "/api/clients", "/readyz",
)  # fmt: skip
GROUPS = 1_000
SMALL = StoreConfig(index_slots=1_000, index_entries=4_000)


@dataclass
class Watch:
    """The longest turn by label: milliseconds, what it ran, and how much of that was the collector's."""

    label: str = ""
    collected_ms: float = 0.0
    longest: dict[str, tuple[float, str, float]] = field(
        default_factory=lambda: defaultdict(lambda: (0.0, "", 0.0))
    )
    _began: float = 0.0

    def start(self) -> None:
        run, loop_thread = Handle._run, threading.get_ident()

        def timed(handle: Handle) -> Any:
            self.collected_ms = 0.0
            began = time.thread_time()
            run(handle)
            took = 1_000 * (time.thread_time() - began)
            if self.label and took > self.longest[self.label][0]:
                self.longest[self.label] = (took, _named(handle), self.collected_ms)

        def collected(phase: str, _: dict[str, int]) -> None:
            if threading.get_ident() != loop_thread:
                return
            if phase == "start":
                self._began = time.thread_time()
            else:
                self.collected_ms += 1_000 * (time.thread_time() - self._began)

        Handle._run = timed  # type: ignore[method-assign]
        gc.callbacks.append(collected)


def _named(handle: Handle) -> str:
    ran = handle._callback  # type: ignore[attr-defined]
    task = getattr(ran, "__self__", None)
    return (
        task.get_coro().__qualname__
        if isinstance(task, asyncio.Task)
        else getattr(ran, "__qualname__", repr(ran))
    )


async def fill(server: Server, topics: int) -> None:
    async with Admin(server.namesrv) as admin:
        for first in range(0, topics, 1_000):
            made = [
                bodies.TopicConfig(topic_name=f"many-{n:05d}")
                for n in range(first, min(topics, first + 1_000))
            ]
            body = bodies.encode(bodies.TopicConfigList(topic_config_list=made))
            await admin.session.call(server.broker_address, CreateTopicList(), body, timeout_ms=60_000)
    broker = server.broker
    for n in range(topics):
        topic, group = f"many-{n:05d}", f"g-{n % GROUPS:05d}"
        broker.groups.require(group)
        broker.offsets.set(group, topic, 0, 0)
        broker.stats.sent(topic, 1, 100)
        broker.stats.got(group, topic, 1, 100)


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--top", type=int, default=1_000, help="metrics_top: names with metrics of their own")
    options = parser.parse_args()
    watch = Watch()
    watch.start()
    config = BrokerConfig(metrics_top=options.top)
    async with Server(ephemeral=True, grpc_port=-1, http_port=0, config=config, store=SMALL) as server:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 3, 700)  # as `aerobee serve` has it
        await fill(server, options.topics)
        await asyncio.sleep(0)  # that turn was ours

        def ask(path: str) -> None:
            urllib.request.urlopen(f"http://{server.http_address}{path}", timeout=60).read()

        for _ in range(options.rounds):
            for path in PATHS:
                watch.label = path
                await asyncio.to_thread(ask, path)
        watch.label = ""
    print(
        f"{time.strftime('%Y-%m-%d')}, {options.topics:,} topics: the longest turn, CPU ms, of it collector"
    )
    for path, (took, what, collected) in sorted(watch.longest.items(), key=lambda each: -each[1][0]):
        print(f"{path:<28} {took:6.1f} {collected:6.1f}  {what}")


if __name__ == "__main__":
    asyncio.run(main())
