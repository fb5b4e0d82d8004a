# SPDX-License-Identifier: Apache-2.0
"""The official RocketMQ 5 clients on Aerobee's gRPC front and on Apache's proxy: rate, and CPU of both sides.

    python -m benchmarks.grpc_peers [--rounds 3] [--clients python5,go5,java5] [--share 1.0]

Aerobee, the proxy with its broker inside, and two floors run side by side with fresh data: grpcio's server with
constants behind it (`grpcio_floor.py`) and Aerobee's port with the same constants (`grpc_floor.py`). Each round runs
every client against each of them, another one first each time. A send is one call and waits for its answer,
`--at-once` of them under way; a push consumer then takes what was sent, acknowledging each, and is measured from its
first messages on: clients wait for seconds before they ask. Every client is one process for all servers, so what its
first rounds compile is compiled for all: two rounds are not counted. Medians; ratios are medians of those of each
round, whose servers are measured within seconds of each other. How many messages is said by client, so that each part
takes a second or more; `--share` makes it more or less.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import compare  # before the drivers, whose folder it puts on the path

import peers  # isort: skip
import servers  # isort: skip

from aerobee.blocking import Admin

if TYPE_CHECKING:
    from collections.abc import Callable

Cell = tuple[str, str, str]  # client, what, server
COMMANDS: dict[str, Callable[[], list[str]]] = {
    "python5": lambda: peers.python_program("grpc_peer.py", peers.GRPC_PACKAGE, "grpc"),
    "go5": lambda: peers.go_program("grpc"),
    "java5": lambda: peers.java_program("Grpc", peers.java_class_path(peers.HERE / "java/grpc", "grpc")),
}


SENDS = {"python5": 2_500, "go5": 12_000, "java5": 8_000}
RECEIVES = {"python5": 2_000, "go5": 3_000, "java5": 5_000}
GOAL, NEAR = 2.0, 0.8  # times the proxy's rate, or part of a floor's
WARM_UP = 2  # rounds
ALL = ("aerobee", "proxy", "grpcio", "floor")


def cpu_seconds(pid: int) -> float:
    """Of a whole process, threads that ended included: the kernel's clock of it, in nanoseconds."""
    return time.clock_gettime(~pid << 3 | 2)


class Floor(servers.Aerobee):
    def __init__(self, data: Path, module: str, messages: int, size: int) -> None:
        super().__init__(data)
        self._arguments = (module, str(data), str(messages), str(size))

    def start(self) -> None:
        log = self.data.parent / f"{self.data.name}.log"
        self.process = servers.Process([sys.executable, "-m", *self._arguments], log)
        ready = self.process.start(r"aerobee ready namesrv=(\S+) broker=(\S+) grpc=(\S+)", 30)
        self.namesrv, self.broker, self.grpc = ready.groups()


class Figures(NamedTuple):
    rate: float
    server_us: float
    client_us: float


class Bench:
    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self.given = given
        most = self.count(max(SENDS.values()))
        self.servers: dict[str, servers.Server] = {
            "aerobee": servers.Aerobee(folder / "aerobee", compare.SETTINGS),
            "proxy": compare.RocketMQ(
                folder / "proxy", peers.server_class_path(), compare.SETTINGS, proxy=True
            ),
            "grpcio": Floor(folder / "grpcio", "benchmarks.grpcio_floor", most, given.size),
            "floor": Floor(folder / "floor", "benchmarks.grpc_floor", most, given.size),
        }
        self.found: dict[Cell, list[Figures]] = defaultdict(list)

    def count(self, usual: int) -> int:
        return max(int(self.given.at_once), int(usual * self.given.share))

    def pid(self, name: str) -> int:
        server = self.servers[name]
        process = server.process if isinstance(server, servers.Aerobee) else server.processes["broker"]
        return int(process.child.pid)

    def run(self) -> None:
        for server in self.servers.values():
            server.start()
        clients = {name: peers.Peer(name, COMMANDS[name]()) for name in self.given.clients.split(",")}
        try:
            for number in range(self.given.rounds + WARM_UP):
                for client, peer in clients.items():
                    names = list(self.servers)
                    for turn in range(len(names)):
                        self.both(number, client, peer, names[(number + turn) % len(names)])
        finally:
            for peer in clients.values():
                peer.end()
            for server in self.servers.values():
                server.stop()

    def both(self, number: int, client: str, peer: peers.Peer, name: str) -> None:
        """Send, then consume of it."""
        server, topic = self.servers[name], f"bench-{client}-{number}"
        sends, receives = self.count(SENDS[client]), self.count(RECEIVES[client])
        with Admin(server.namesrv) as admin:
            admin.create_topic(topic, queues=8)
        session = peers.Session(peer, server.grpc)
        producer = session.producer(topics=[topic])
        self.send(peer, producer.name, topic, self.given.at_once)  # connections are open, routes known
        watch = Watch(self.pid(name), peer.child.pid)
        self.send(peer, producer.name, topic, sends)
        self.note((client, "send", name), number, watch.figures(sends))
        consumer = session.consumer(f"g-{topic}", topic)
        before = len(consumer.wait(1, 120))
        watch = Watch(self.pid(name), peer.child.pid)
        after = len(consumer.wait(before + receives, 120))
        self.note((client, "receive + ack", name), number, watch.figures(after - before))
        session.close_all(wait=True)

    def send(self, peer: peers.Peer, producer: str, topic: str, count: int) -> None:
        share = count // self.given.at_once
        some: list[dict[str, Any]] = [{"topic": topic, "body": "x" * self.given.size} for _ in range(share)]
        asked = [
            peer.post("send", producer=producer, mode="sync", messages=some)
            for _ in range(self.given.at_once)
        ]
        for waiter in asked:
            peer.answer(waiter, "send", 300)

    def note(self, cell: Cell, number: int, seen: Figures) -> None:
        print(
            f"round {number} {cell}: {seen.rate:,.0f} /s, {seen.server_us:.0f} + {seen.client_us:.0f} us",
            flush=True,
        )
        if number >= WARM_UP:
            self.found[cell].append(seen)

    def medians(self, *cell: str) -> Figures:
        rounds = self.found[cell]  # type: ignore[index]
        return Figures(*(statistics.median(each) for each in zip(*rounds, strict=True)))

    def times(self, client: str, what: str, other: str) -> float:
        """How many times the other's rate Aerobee's is."""
        ours, theirs = self.found[client, what, "aerobee"], self.found[client, what, other]
        return statistics.median(our.rate / their.rate for our, their in zip(ours, theirs, strict=True))

    def table(self) -> None:
        print("All fours: Aerobee, proxy, grpcio's floor, floor of Aerobee's port.")
        print(
            "| client | what | /s | times the proxy | of grpcio's floor | of our port's | goal | server CPU us"
            " | client CPU us | CPUs of the client |"
        )
        print("|---|---|--:|--:|--:|--:|---|--:|--:|--:|")
        for client, what, name in list(self.found):
            if name == "aerobee":
                print(self.row(client, what))
        print(f"load average {' '.join(f'{each:.1f}' for each in os.getloadavg())}")

    def row(self, client: str, what: str) -> str:
        figures = [self.medians(client, what, each) for each in ALL]
        times = [self.times(client, what, each) for each in ALL[1:]]
        cells = (
            client,
            what,
            ", ".join(f"{each.rate:,.0f}" for each in figures),
            *(f"{each:.2f}" for each in times),
            "met" if times[0] >= GOAL or max(times[1:]) >= NEAR else "**missed**",
            ", ".join(f"{each.server_us:.0f}" for each in figures),
            ", ".join(f"{each.client_us:.0f}" for each in figures),
            ", ".join(f"{each.rate * each.client_us / 1e6:.2f}" for each in figures),
        )
        return f"| {' | '.join(cells)} |"


class Watch:
    def __init__(self, server: int, client: int) -> None:
        self._pids = (server, client)
        self._cpu = [cpu_seconds(pid) for pid in self._pids]
        self._began = time.perf_counter()

    def figures(self, count: int) -> Figures:
        took = time.perf_counter() - self._began
        used = [cpu_seconds(pid) - before for pid, before in zip(self._pids, self._cpu, strict=True)]
        return Figures(count / took, *(each / count * 1e6 for each in used))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--clients", default="python5,go5,java5")
    with tempfile.TemporaryDirectory(prefix="aerobee-bench-peers-") as folder:
        bench = Bench(Path(folder), parser.parse_args())
        bench.run()
        bench.table()


if __name__ == "__main__":
    main()
