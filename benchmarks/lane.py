# SPDX-License-Identifier: Apache-2.0
"""The compiled lane beside Apache RocketMQ 5.3.3, load in C: `python -m benchmarks.compare --native`, some six minutes.

    python -m benchmarks.compare --native [--rounds 3] [--seconds 1.5] [--skip topics,memory,sync] [--full-cache]

Both brokers run at the same time; a load goes to one, then to the other, whose turn is first in the next round. The
load is pinned to the last CPU; with four or more the brokers have the others, with fewer all of them. Writes the part
"The compiled lane" of RESULTS.md: medians, the least and the most of single rounds, and the broker's CPU a message.

A guest that has free memory gets each page it first touches from its host, which costs more than a send; a server that
has run for a day has none free. `--full-cache` writes a file of that size first, and removes it at the end.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from benchmarks import load, native_load, report
from benchmarks.compare import HERE, Run, machine

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

KINDS = ("rocketmq", "aerobee")
BACKLOG = 128_000
MANY_TOPICS = 10_000
MANY_MESSAGES = 1_000_000
FRAMES = 60_000
LATE_RATE = 200
LEFT_FREE = 3 << 30  # for both brokers


class Goal(NamedTuple):
    name: str
    figure: str  # rate, p99 or MiB
    least: float  # times better than RocketMQ
    most_us: float = 0.0  # of CPU a message


GOALS = (
    Goal("send 128 B, 64 outstanding", "rate", 6, 3),
    Goal("send 1024 B, 64 outstanding", "rate", 4, 5),
    Goal("send 128 B, 1 outstanding", "rate", 2),
    Goal("batch of 16", "rate", 2, 1.5),
    Goal("batch of 64", "rate", 2, 1.5),
    Goal("pull of 32", "rate", 2, 0.7),
    Goal("POP + ack, one ack a request", "rate", 3, 4),
    Goal("send to held pull, light load", "p99", 2),
    Goal("send to held pull, half of the maximum", "p99", 2),
    Goal("send 128 B, 64 outstanding, sync flush", "rate", 2),
    Goal("send 128 B to 1 topic", "rate", 0),
    Goal("send 128 B to 10,000 topics", "rate", 0),
    Goal("rss after 1 M messages", "MiB", 5),
    Goal("anonymous memory after 1 M messages", "MiB", 5),
)


class Sample(NamedTuple):
    value: float  # messages a second, milliseconds or MiB
    cpu_us: float = 0.0


class Table:
    def __init__(self, options: argparse.Namespace) -> None:
        self.rounds, self.seconds, self.skip = options.rounds, options.seconds or 1.5, options.skip
        self.full_cache: bool = options.full_cache
        self.began = time.time()
        self.load_before = os.getloadavg()[0]
        self.samples: dict[str, dict[str, list[Sample]]] = {}
        cpus = sorted(os.sched_getaffinity(0))
        self.for_load = {cpus[-1]}
        self.for_brokers = set(cpus[:-1]) if len(cpus) >= 4 else set(cpus)

    # -- measuring -----------------------------------------------------------------------------------------------

    def note(self, run: Run, name: str, sample: Sample) -> None:
        self.samples.setdefault(name, {}).setdefault(run.kind, []).append(sample)
        took = time.time() - self.began
        print(
            f"{took:6.1f} {run.kind:<9} {name:<40} {sample.value:12,.2f} {sample.cpu_us:7.2f} us", flush=True
        )

    def rate(self, run: Run, name: str, action: Callable[[], load.Count]) -> None:
        cpu = run.cpu_seconds()
        done = action()
        if done.refused > done.messages // 100:
            print(f"       {run.kind} {name}: {done.refused} refused")
        self.note(run, name, Sample(done.rate, (run.cpu_seconds() - cpu) / max(1, done.messages) * 1e6))

    def both(self, stage: Callable[[list[Run]], None], settings: dict[str, str] | None = None) -> None:
        """Both brokers, started on their CPUs, and the stage run on the load's."""
        directory = Path(tempfile.mkdtemp(prefix="bench-lane-"))
        runs = [Run(kind, directory / kind, settings) for kind in KINDS]
        os.sched_setaffinity(0, self.for_brokers)
        try:
            for run in runs:
                run.start()
            os.sched_setaffinity(0, self.for_load)
            stage(runs)
        finally:
            for run in runs:
                run.server.discard()
            shutil.rmtree(directory, ignore_errors=True)
        self.write()

    # -- stages --------------------------------------------------------------------------------------------------

    def main_loads(self, runs: list[Run]) -> None:
        seconds = self.seconds
        frames = {
            "send 128 B, 64 outstanding": (64, load.send_frames(["load-send"], 128, FRAMES)),
            "send 1024 B, 64 outstanding": (64, load.send_frames(["load-send"], 1024, FRAMES)),
            "send 128 B, 1 outstanding": (1, load.send_frames(["load-send"], 128, FRAMES)),
            "batch of 16": (16, load.send_frames(["load-send"], 128, FRAMES // 16, 16)),
            "batch of 64": (16, load.send_frames(["load-send"], 128, FRAMES // 64, 64)),
        }
        for run in runs:
            for topic, queues in (("load-send", 4), ("load-late", 1)):
                load.create_topic(run.address, topic, queues)
            self.warm(run, frames["send 128 B, 64 outstanding"][1])
        for number in range(self.rounds):
            turn = runs if number % 2 == 0 else runs[::-1]
            for name, (outstanding, made) in frames.items():
                for run in turn:
                    self.rate(
                        run,
                        name,
                        lambda run=run, made=made, outstanding=outstanding: load.send(
                            run.address, made, outstanding, seconds, load.MANY_TIMES
                        ),
                    )
            self.reads(turn, f"load-pull-{number}")
            for run in turn:
                self.late(run, frames["send 128 B, 64 outstanding"][1])
            self.write()

    def reads(self, turn: list[Run], topic: str) -> None:
        """Of a backlog of this round's own: one that lies 40 % of the memory behind the log's end is cold, and both
        brokers then give 8 messages a request. Who takes more sends would come there first."""
        backlog = {}
        for run in turn:
            load.create_topic(run.address, topic, 4)
            backlog[run.kind] = load.fill(run.address, topic, 128, BACKLOG)
        for run in turn:
            self.rate(run, "pull of 32", lambda run=run: load.pull(run.address, topic, self.seconds))
        for run in turn:
            self.rate(
                run,
                "POP + ack, one ack a request",
                lambda run=run: load.pop(run.address, topic, backlog[run.kind], self.seconds),
            )

    def warm(self, run: Run, frames: load.Frames) -> None:
        """RocketMQ's compiler wants some seconds of each load."""
        seconds = min(4, 8 * self.seconds) if run.kind == "rocketmq" else 0.5
        load.send(run.address, frames, 64, seconds, load.MANY_TIMES)
        load.create_topic(run.address, "load-pull", 4)
        backlog = load.fill(run.address, "load-pull", 128, BACKLOG)
        load.pull(run.address, "load-pull", seconds / 2)
        load.pop(run.address, "load-pull", backlog, seconds / 2)

    def late(self, run: Run, frames: load.Frames) -> None:
        """From send to a held pull: alone, and while sends come at half of the rate that was measured."""
        self.p99(run, "send to held pull, light load")
        most = statistics.median(s.value for s in self.samples["send 128 B, 64 outstanding"][run.kind])
        many = frames.count * load.MANY_TIMES
        background = threading.Thread(
            target=native_load.send,
            args=(run.address, frames.data, frames.size, 64, self.seconds + 0.5, many, most / 2),
        )
        background.start()
        try:
            time.sleep(0.2)
            self.p99(run, "send to held pull, half of the maximum")
        finally:
            background.join()

    def p99(self, run: Run, name: str) -> None:
        _, took = native_load.late(run.address, "load-late", LATE_RATE, self.seconds)
        if took:
            self.note(run, name, Sample(sorted(took)[len(took) * 99 // 100]))

    def topics(self, runs: list[Run]) -> None:
        count = MANY_TOPICS if self.seconds >= 1 else MANY_TOPICS // 10
        names = [f"load-{number:06d}" for number in range(count)]
        one, many = (load.send_frames(some, 128, FRAMES, queues=1) for some in (names[:1], names))
        for run in runs:
            load.create_topics(run.address, names)
            first = load.send_frames(names, 128, count, queues=1)  # the first to each makes its files
            load.send(run.address, first, 64, 60)
            time.sleep(2)  # they go to disk
            load.send(run.address, one, 64, min(1, self.seconds), load.MANY_TIMES)
        for number in range(self.rounds):
            for run in runs if number % 2 == 0 else runs[::-1]:
                for name, frames in (
                    ("send 128 B to 1 topic", one),
                    (f"send 128 B to {count:,} topics", many),
                ):
                    self.rate(
                        run,
                        name,
                        lambda run=run, frames=frames: load.send(
                            run.address, frames, 64, self.seconds, load.MANY_TIMES
                        ),
                    )

    def memory(self, runs: list[Run]) -> None:
        for run in runs:
            load.create_topic(run.address, "load-many")
            load.fill(
                run.address, "load-many", 128, MANY_MESSAGES if self.seconds >= 1 else MANY_MESSAGES // 20
            )
            found = run.memory()
            self.note(run, "rss after 1 M messages", Sample(found["rss"]))
            self.note(run, "anonymous memory after 1 M messages", Sample(found["anonymous"]))

    def sync(self, runs: list[Run]) -> None:
        frames = load.send_frames(["load-send"], 128, FRAMES)
        for run in runs:
            load.create_topic(run.address, "load-send")
            load.send(run.address, frames, 64, 2, load.MANY_TIMES)
        for number in range(self.rounds):
            for run in runs if number % 2 == 0 else runs[::-1]:
                self.rate(
                    run,
                    "send 128 B, 64 outstanding, sync flush",
                    lambda run=run: load.send(run.address, frames, 64, self.seconds, load.MANY_TIMES),
                )

    def run(self) -> None:
        if native_load.program() is None:
            raise SystemExit("no C compiler: the load is native_load.c")
        with tempfile.TemporaryFile(prefix="bench-cache-") as cache:
            if self.full_cache:
                fill_page_cache(cache)
            self.both(self.main_loads)
            for name, stage in (("memory", self.memory), ("topics", self.topics)):
                if name not in self.skip:
                    self.both(stage)
            if "sync" not in self.skip:
                self.both(self.sync, {"flushDiskType": "SYNC_FLUSH"})
        print(f"took {time.time() - self.began:.0f} s; see {HERE / 'RESULTS.md'}")

    # -- the table -----------------------------------------------------------------------------------------------

    def write(self) -> None:
        report.put_part(HERE, report.LANE_MARK, self.lines())

    def lines(self) -> list[str]:
        cpus = f"load on CPU {min(self.for_load)}, brokers on {sorted(self.for_brokers)}"
        return [
            f"Written by `python -m benchmarks.compare --native`: {time.strftime('%Y-%m-%d %H:%M')}, {machine()}; load "
            f"average before {self.load_before:.1f}, after {os.getloadavg()[0]:.1f}; {self.rounds} rounds of "
            f"{self.seconds:g} s a load, both brokers in turn, {cpus}; {time.time() - self.began:.0f} s in all"
            f"{'; the page cache full' if self.full_cache else ''}. Load in "
            "C, one connection. Medians, and in brackets the least and the most; CPU is the broker's, user and system, "
            "microseconds a message.",
            "",
            "| path | times better | goal | | Aerobee | RocketMQ | CPU, Aerobee | goal | CPU, RocketMQ |",
            "|---|--:|--:|---|--:|--:|--:|--:|--:|",
            *[
                self._row(goal)
                for goal in GOALS
                if self._values(goal, "aerobee") and self._values(goal, "rocketmq")
            ],
            "",
            *self._topics_line(),
        ]

    def _values(self, goal: Goal, kind: str) -> list[float]:
        return [sample.value for sample in self.samples.get(goal.name, {}).get(kind, [])]

    def _row(self, goal: Goal) -> str:
        ours, theirs = self._values(goal, "aerobee"), self._values(goal, "rocketmq")
        a, r = statistics.median(ours), statistics.median(theirs)
        better = a / r if goal.figure == "rate" else r / a
        cpu = [
            statistics.median(sample.cpu_us for sample in self.samples[goal.name][kind])
            for kind in KINDS[::-1]
        ]
        met = better >= goal.least and (not goal.most_us or cpu[0] <= goal.most_us)
        verdict = "" if not goal.least else "met" if met else "**missed**"
        costs = [f"{value:.1f}" if value else "" for value in cpu]
        return (
            f"| {goal.name}{'' if goal.figure == 'rate' else ', ' + goal.figure} | {better:.1f} "
            f"| {f'{goal.least:g}' if goal.least else ''} | {verdict} | {_spread(ours)} | {_spread(theirs)} "
            f"| {costs[0]} | {f'{goal.most_us:g}' if goal.most_us else ''} | {costs[1]} |"
        )

    def _topics_line(self) -> list[str]:
        rates = [
            self._values(goal, "aerobee")
            for goal in GOALS
            if "to 1 topic" in goal.name or "10,000" in goal.name
        ]
        if not all(rates):
            return []
        one, many = map(statistics.median, rates)
        verdict = "met" if many >= 0.6 * one else "**missed**"
        return [f"10,000 topics against 1: {many / one:.2f} of the rate (goal 0.6, {verdict})."]


def fill_page_cache(file: IO[bytes]) -> None:
    """By a file as large as what is free; its pages are clean when this ends, and the first to be taken again."""
    block = bytes(1 << 20)
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    room = (
        shutil.disk_usage(tempfile.gettempdir()).free // 2
    )  # RocketMQ cleans up on a disk that is nearly full
    print(f"filling the page cache: {min(free, room) >> 20} MiB")
    for _ in range(max(0, min(free - LEFT_FREE, room)) >> 20):
        file.write(block)
    file.flush()
    os.fsync(file.fileno())


def _spread(values: list[float]) -> str:
    shown = [f"{value:,.0f}" if value >= 100 else f"{value:,.2f}" for value in (
        statistics.median(values), min(values), max(values),
    )]  # fmt: skip
    return shown[0] if len(values) == 1 else f"{shown[0]} ({shown[1]}-{shown[2]})"
