# SPDX-License-Identifier: Apache-2.0
"""The official RocketMQ 5 clients on Aerobee's gRPC front and on Apache's proxy: rate, and CPU of the server.

    python -m benchmarks.grpc_peers [--messages 3000] [--rounds 3] [--clients python5,go5,java5]

Both servers run side by side with fresh data, the proxy with its broker inside it; each round runs every client against
one, then against the other. A send is one call and waits for its answer, `--at-once` of them under way; a push consumer
then takes what was sent, acknowledging each. The first round warms the servers up and is not counted; medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    def __init__(self, folder: Path, given: argparse.Namespace) -> None:
        self.given = given
        self.servers: dict[str, servers.Server] = {
            "aerobee": servers.Aerobee(folder / "aerobee", compare.SETTINGS),
            "proxy": compare.RocketMQ(
                folder / "proxy", peers.server_class_path(), compare.SETTINGS, proxy=True
            ),
        }
        self.rates: dict[Cell, list[float]] = defaultdict(list)
        self.costs: dict[Cell, list[float]] = defaultdict(list)

    def pid(self, name: str) -> int:
        server = self.servers[name]
        process = server.process if isinstance(server, servers.Aerobee) else server.processes["broker"]
        return int(process.child.pid)

    def run(self) -> None:
        for server in self.servers.values():
            server.start()
        clients = {name: peers.Peer(name, COMMANDS[name]()) for name in self.given.clients.split(",")}
        try:
            for number in range(self.given.rounds + 1):
                for client, peer in clients.items():
                    for name in ("aerobee", "proxy") if number % 2 else ("proxy", "aerobee"):
                        self.both(number, client, peer, name)
        finally:
            for peer in clients.values():
                peer.end()
            for server in self.servers.values():
                server.stop()

    def both(self, number: int, client: str, peer: peers.Peer, name: str) -> None:
        """Send, then consume it."""
        server, count = self.servers[name], self.given.messages
        topic = f"bench-{client}-{number}"
        with Admin(server.namesrv) as admin:
            admin.create_topic(topic, queues=8)
        session = peers.Session(peer, server.grpc)
        producer = session.producer(topics=[topic])
        self.measured((client, "send", name), number, lambda: self.send(peer, producer.name, topic))
        consumers = []

        def consume() -> None:
            consumers.append(session.consumer(f"g-{topic}", topic))
            consumers[0].wait(count, 120)

        self.measured((client, "receive + ack", name), number, consume)
        session.close_all(wait=True)

    def send(self, peer: peers.Peer, producer: str, topic: str) -> None:
        share = self.given.messages // self.given.at_once
        some: list[dict[str, Any]] = [{"topic": topic, "body": "x" * self.given.size} for _ in range(share)]
        asked = [
            peer.post("send", producer=producer, mode="sync", messages=some)
            for _ in range(self.given.at_once)
        ]
        for waiter in asked:
            peer.answer(waiter, "send", 300)

    def measured(self, cell: Cell, number: int, work: Callable[[], None]) -> None:
        pid, count = self.pid(cell[2]), self.given.messages
        cpu, begun = cpu_seconds(pid), time.perf_counter()
        work()
        took, used = time.perf_counter() - begun, cpu_seconds(pid) - cpu
        print(f"round {number} {cell}: {count / took:,.0f} /s, {used / count * 1e6:.0f} us", flush=True)
        if number:
            self.rates[cell].append(count / took)
            self.costs[cell].append(used / count * 1e6)

    def table(self) -> None:
        print("| client | what | Aerobee /s | proxy /s | ratio | Aerobee CPU us | proxy CPU us | ratio |")
        print("|---|---|--:|--:|--:|--:|--:|--:|")
        for client, what, name in list(self.rates):
            if name != "aerobee":
                continue
            ours, theirs = (client, what, "aerobee"), (client, what, "proxy")
            rate, other = (statistics.median(self.rates[each]) for each in (ours, theirs))
            cost, others = (statistics.median(self.costs[each]) for each in (ours, theirs))
            print(
                f"| {client} | {what} | {rate:,.0f} | {other:,.0f} | {rate / other:.2f} x"
                f" | {cost:.0f} | {others:.0f} | {others / max(cost, 1):.1f} x |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=3_000)
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
