# SPDX-License-Identifier: Apache-2.0
"""Aerobee side by side with Apache RocketMQ 5.3.3: `make bench`, about ten minutes.

    python -m benchmarks.compare [--minutes 10] [--rounds 3] [--seconds S] [--skip clients,topics,memory,sync]

Both are started in turn on loopback with fresh data; each round runs every load of `benchmarks.load` against one,
then against the other, and the next round begins with the other. Then, once each: the official Java client as a
load, 1 to 10,000 topics, memory, sync flush. What is measured by then is in benchmarks/RESULTS.md and plot.svg after
every step. RocketMQ has its start script's collector (G1), 1 GiB of heap and of direct memory, and its defaults
otherwise; a few seconds of load come first, so that its compiler is done.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "interop"))

import peers
import servers

from benchmarks import client_peers, load, report

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
BACKLOG = 128_000
MANY = 1_000_000
HELD = 10_000
TICK = os.sysconf("SC_CLK_TCK")
# What both are told; all else is as they come.
SETTINGS = {"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0"}
HEAP = ["-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=1g", "-XX:+UseG1GC"]


class RocketMQ(servers.RocketMQ):
    """With its own compilers and collector: the tests' flags are for quick starts."""

    def _java(self, name: str, heap: Any, *arguments: str) -> servers.Process:
        process = super()._java(name, heap, *arguments)
        flags = HEAP if name == "broker" else ["-Xmx256m"]
        at = process.command.index(f"-Duser.home={self.home}")
        process.command = ["java", *flags, *servers.JAVA_OPENS, *process.command[at:]]
        return process


class Run:
    """One server with fresh data, and its figures."""

    def __init__(self, kind: str, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.kind = kind
        self.server: servers.Server
        if kind == "aerobee":
            self.server = servers.Aerobee(directory / "data")
            self.server.ports = {"namesrv": "0", "broker": str(servers.free_port()), "grpc": "0"}
        else:
            self.server = RocketMQ(directory / "data", peers.server_class_path())
        self.server.settings = {**SETTINGS, **(settings or {})}
        self.first_send_s = 0.0

    def start(self) -> None:
        server = self.server
        if isinstance(server, RocketMQ):
            server.start_namesrv()
            address, begin = server.broker, server.start_broker
        else:
            address, begin = f"{servers.HOST}:{server.ports['broker']}", server.start
        probe = threading.Thread(target=self._first_send, args=(address, time.perf_counter()))
        probe.start()
        try:
            begin()
        finally:
            probe.join(60)
        self.address = server.broker

    def _first_send(self, address: str, began: float) -> None:
        frame = load.frame(310, {"a": "load", "b": "first", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0,
                                 "i": "", "j": 0, "k": "false", "m": "false"}, b"x" * 128)  # fmt: skip
        while time.perf_counter() < began + 60:
            try:
                with load.Link(address, 5) as link:
                    if b'"code":0,' in link.ask(frame):
                        self.first_send_s = time.perf_counter() - began
                        return
            except OSError:
                pass
            time.sleep(0.005)

    @property
    def pid(self) -> int:
        process = self.server.processes["broker"] if self.kind == "rocketmq" else self.server.process
        return process.child.pid

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def memory(self) -> dict[str, float]:
        """MiB: all of it, and without mapped files, which are the system's cache."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if "kB" in line}
        return {"rss": found["VmRSS"], "anonymous": found["RssAnon"]}


class Bench:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.seconds = options.seconds
        self.began = time.time()
        self.results: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d %H:%M", time.localtime()),
            "machine": machine(),
            "command": "python -m benchmarks.compare " + " ".join(sys.argv[1:]),
            "seconds": self.seconds,
            "rounds_done": 0,
            "load_before": os.getloadavg()[0],
            "loads": {},
            "facts": {},
        }

    def note(self, run: Run, name: str, done: load.Count, cpu_seconds: float) -> None:
        sample = {"rate": done.rate, "refused": done.refused, "messages": done.messages}
        if done.latencies_ms:
            took = sorted(done.latencies_ms)
            sample |= {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100]}
        if done.messages:
            sample["cpu_us"] = cpu_seconds / done.messages * 1e6
        self.results["loads"].setdefault(name, {}).setdefault(run.kind, []).append(sample)
        shown = " ".join(f"{key}={value:,.2f}" for key, value in sample.items())
        print(f"{time.time() - self.began:6.1f} {run.kind:<9} {name:<32} {shown}", flush=True)

    def fact(self, run: Run, name: str, value: float) -> None:
        self.results["facts"].setdefault(name, {}).setdefault(run.kind, []).append(value)
        print(f"{time.time() - self.began:6.1f} {run.kind:<9} {name:<32} {value:,.3f}", flush=True)

    def measure(self, run: Run, name: str, action: Callable[[], load.Count]) -> None:
        cpu = run.cpu_seconds()
        done = action()
        self.note(run, name, done, run.cpu_seconds() - cpu)

    def write(self) -> None:
        self.results["took_s"] = time.time() - self.began
        (peers.CACHE / "bench.json").write_text(json.dumps(self.results, indent=1))
        report.write(self.results, HERE)

    def served(self, kind: str, stage: Callable[[Run], None], settings: dict[str, str] | None = None) -> None:
        directory = Path(tempfile.mkdtemp(prefix=f"bench-{kind}-"))
        run = Run(kind, directory, settings)
        try:
            run.start()
            stage(run)
        finally:
            run.server.discard()
            shutil.rmtree(directory, ignore_errors=True)
            self.write()

    # -- stages --------------------------------------------------------------------------------------------------

    def round(self, run: Run) -> None:
        self.fact(run, "start to first send, s", run.first_send_s)
        address, seconds = run.address, self.seconds
        load.create_topic(address, "load-send")
        load.create_topic(address, "load-pull")
        load.create_topic(address, "load-late", 1)
        backlog = load.fill(address, "load-pull", 128, BACKLOG)
        self.warm(run, backlog)
        for size in (128, 1024):
            for outstanding in (1, 64, 256):
                self.send(run, f"send {size} B, {outstanding} outstanding", size, outstanding)
        for batch in (16, 64):
            self.send(run, f"batch of {batch}, 128 B", 128, load.BATCH_OUTSTANDING, batch)
        self.measure(run, "pull, 32 a request", lambda: load.pull(address, "load-pull", seconds))
        self.measure(run, "POP + ack", lambda: load.pop(address, "load-pull", backlog, seconds))
        self.measure(run, "send to receive", lambda: load.latency(address, "load-late", max(2, seconds)))

    def send(self, run: Run, name: str, size: int, outstanding: int, batch: int = 1) -> None:
        expected = (15_000 if outstanding == 1 else 60_000 if batch == 1 else 160_000 // batch) * self.seconds
        frames = load.send_frames(["load-send"], size, int(expected), batch)
        self.measure(
            run, name, lambda: load.send(run.address, frames, outstanding, self.seconds, load.MANY_TIMES)
        )

    def warm(self, run: Run, backlog: int) -> None:
        seconds = min(5.0, 2 * self.seconds) if run.kind == "rocketmq" else min(1.0, self.seconds)
        frames = load.send_frames(["load-send"], 128, int(40_000 * seconds))
        load.send(run.address, frames, 64, seconds)
        load.send(run.address, load.send_frames(["load-send"], 128, 2000, 16), 16, seconds / 3)
        load.pull(run.address, "load-pull", seconds / 3)
        load.pop(run.address, "load-pull", backlog, seconds / 2)

    def clients(self, run: Run) -> None:
        """The Java client: its users' view. Consumes what `memory` stored."""
        namesrv, seconds = run.server.namesrv, 2 * self.seconds
        name = "Java client: push consume"
        self.measure(
            run, name, lambda: client_load("consume", namesrv, "load-many", f"g{time.time_ns()}", seconds)
        )
        for name, threads, batch in (
            ("Java client: send 128 B, 64 threads", 64, 1),
            ("Java client: batch of 16, 8 threads", 8, 16),
        ):
            call = functools.partial(
                client_load, "produce", namesrv, "load-send", threads, 128, batch, 1.5 * seconds
            )
            self.measure(run, name, call)

    def memory(self, run: Run) -> None:
        time.sleep(1)
        for kind, value in run.memory().items():
            self.fact(run, f"{kind} idle, MiB", value)
        load.create_topic(run.address, "load-many")
        load.create_topic(run.address, "load-send")
        count = MANY if self.seconds >= 1 else MANY // 20
        self.fact(run, "messages stored", count)
        began = time.perf_counter()
        load.fill(run.address, "load-many", 128, count)
        print(f"       stored {count:,} in {time.perf_counter() - began:.1f} s")
        for kind, value in run.memory().items():
            self.fact(run, f"{kind} with messages, MiB", value)

    def held(self, run: Run) -> None:
        load.create_topic(run.address, "load-held", 1)
        before, during = run.memory(), {}
        served = load.hold(run.address, "load-held", HELD, 100, lambda: during.update(run.memory()))
        self.fact(run, "held pulls served by one send", served)
        self.fact(run, "KiB a held pull", (during["anonymous"] - before["anonymous"]) * 1024 / HELD)

    def topics(self, run: Run) -> None:
        made: list[str] = []
        for count in (1, 100, 10_000 if self.seconds >= 1 else 1000):
            names = [f"load-{number:06d}" for number in range(len(made), count)]
            took = load.create_topics(run.address, names)
            made += names
            if count >= 1000:
                self.fact(run, f"creating {count:,} topics, s", took)
            first = load.send_frames(made, 128, count, queues=1)  # the first to each makes its files
            load.send(run.address, first, 64, 60)
            time.sleep(1)
            frames = load.send_frames(made, 128, int(50_000 * self.seconds), queues=1)
            self.measure(
                run,
                f"send 128 B to {count:,} topics",
                functools.partial(load.send, run.address, frames, 64, self.seconds, load.MANY_TIMES),
            )

    def sync(self, run: Run) -> None:
        load.create_topic(run.address, "load-send")
        load.send(run.address, load.send_frames(["load-send"], 128, 4000), 64, min(2, self.seconds))
        self.send(run, "send 128 B, 64 outstanding, sync flush", 128, 64)

    # -- the order of it all ---------------------------------------------------------------------------------------

    def long(self, run: Run) -> None:
        for name in ("memory", "clients", "held", "topics"):
            if name not in self.options.skip:
                try:
                    getattr(self, name)(run)
                except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                    print(f"       {run.kind} {name}: {error}")
                    self.results.setdefault("failures", []).append(f"{run.kind}, {name}: {error}"[:300])
                self.write()

    def run(self) -> None:
        kinds = ["rocketmq", "aerobee"]
        for number in range(self.options.rounds):
            for kind in kinds if number % 2 == 0 else kinds[::-1]:
                self.served(kind, self.round)
            self.results["rounds_done"] = number + 1
            self.write()
        if not {"memory", "clients", "held", "topics"} <= set(self.options.skip):
            for kind in kinds:
                self.served(kind, self.long)
        if "sync" not in self.options.skip:
            for kind in kinds:
                self.served(kind, self.sync, {"flushDiskType": "SYNC_FLUSH"})
        self.results["load_after"] = os.getloadavg()[0]
        self.write()


def client_load(*arguments: object) -> load.Count:
    done = subprocess.run(
        [*client_peers.java(), *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=True, preexec_fn=servers.die_with_parent,
    )  # fmt: skip
    row = json.loads(done.stdout.strip().splitlines()[-1])
    return load.Count(row["messages"], row["seconds"], row["refused"])


def machine() -> str:
    model = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.processor(),
    )  # fmt: skip
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    java = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, check=False
    ).stderr.splitlines()
    return (
        f"{os.cpu_count()} x {model}, {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, {java[0] if java else 'no Java'}"
    )


def seconds_a_load(minutes: float, rounds: int) -> float:
    """What fits: starts, warming up, preparing frames and the single stages take some 260 s at 3 rounds."""
    fixed = 140 + 40 * rounds
    return max(0.3, round((minutes * 60 - fixed) / (22 * rounds + 38), 1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0, help="of one load; overrides --minutes")
    parser.add_argument(
        "--native", action="store_true", help="the compiled lane's table only: benchmarks/lane.py"
    )
    parser.add_argument(
        "--full-cache",
        action="store_true",
        help="with --native: fill the page cache first, as on a server at work",
    )
    parser.add_argument("--skip", type=lambda text: text.split(","), default=[])
    options = parser.parse_args()
    if options.native:
        from benchmarks.lane import Table

        Table(options).run()
        return
    options.seconds = options.seconds or seconds_a_load(options.minutes, options.rounds)
    print(f"{options.rounds} rounds, {options.seconds} s a load; load average {os.getloadavg()[0]:.1f}")
    bench = Bench(options)
    bench.run()
    print(f"took {time.time() - bench.began:.0f} s; see {HERE / 'RESULTS.md'}")
    for name, better in report.ratios(bench.results):
        print(f"{name:<40} {better:6.2f} times better")


if __name__ == "__main__":
    main()
