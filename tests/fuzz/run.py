# SPDX-License-Identifier: Apache-2.0
"""Throws odd input of five kinds at a whole broker, in one process and without sockets.

    python -m tests.fuzz.run [--cases 100000] [--seed 1]          (make fuzz CASES=100000)

Kinds in turn: frames of every request code, gRPC calls, SQL filters, names, properties. Time moves and the background
jobs run in between, so whatever was stored is also delivered, revived, checked. A round is a number of cases on a new
directory and a restart on what they left; after it a healthy client must be served, delayed messages included. Found:
any exception but the three families, a healthy client that is refused, a file outside the data directory, memory that
grows from round to round. The first finding ends the run and names seed, round and case.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import resource
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from aerobee.broker.background.jobs import Background
from aerobee.broker.broker import Broker, assemble
from aerobee.clock import ManualClock
from aerobee.fronts.remoting.front import RemotingFront
from aerobee.net.connection import Connection
from aerobee.protocol import command
from aerobee.protocol.command import Command, request
from aerobee.protocol.frames import FrameDecoder
from aerobee.protocol.headers import consume, produce
from aerobee.settings import BrokerConfig, StoreConfig
from tests.fuzz import filters
from tests.fuzz.frames import Frames, pull
from tests.fuzz.grpc_calls import Calls

if TYPE_CHECKING:
    from collections.abc import Callable

CASES_A_ROUND = 20_000
CASES_A_TURN = 25  # on one connection, before time moves
KINDS = ("frame", "grpc", "sql", "name", "properties")
GROWTH_LIMIT = 200 << 20  # bytes of memory over the first round's
SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 24,
    retention_bytes=1 << 26,
    consume_queue_units=1000,
    index_slots=1000,
    index_entries=4000,
)


class Wire(asyncio.Transport):
    """The other end of a connection: takes what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5000)})
        self.sent = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, parts: Any) -> None:
        for part in parts:
            self.sent += part

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Findings(logging.Handler):
    """What was logged with a traceback: the fronts and jobs catch everything, and say so there."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(
                f"{record.getMessage()}\n{logging.Formatter().formatException(record.exc_info)}"
            )

    def raise_first(self) -> None:
        if self.found:
            raise AssertionError(self.found[0])


class Round:
    def __init__(self, directory: Path, seed: str, findings: Findings) -> None:
        self._directory = directory
        self._findings = findings
        self._chance = Random(seed)
        self._clock = ManualClock()
        self._frames = Frames(self._chance)
        self._healthy_sent = 0
        self.counts = dict.fromkeys(KINDS, 0)
        self.last = ""
        self._open()

    def _open(self) -> None:
        self._broker: Broker = assemble(BrokerConfig(), SMALL, self._directory, self._clock)
        self._front = RemotingFront(self._broker)
        self._calls = Calls(self._broker, self._chance)
        self._background = Background(self._broker)
        self._jobs = self._background.jobs()

    def _close(self) -> None:
        self._background.save()
        self._broker.store.close()

    async def run(self, cases: int) -> None:
        for done in range(0, cases, CASES_A_TURN):
            await self._turn(min(CASES_A_TURN, cases - done))
            if done // CASES_A_TURN % 20 == 19:
                await self._healthy()
        await self._healthy()
        self._close()
        self._open()
        await self._healthy()
        await self._delayed()
        self._close()

    # -- odd input -----------------------------------------------------------------------------------------

    async def _turn(self, cases: int) -> None:
        link, wire = self._connect()
        for _ in range(cases):
            kind = self._chance.choice(KINDS)
            self.counts[kind] += 1
            if kind == "sql":
                self.last = "sql"
                self.last = f"sql {filters.check(self._chance)!r}"
            elif kind == "grpc":
                self.last = "grpc"
                self.last = await self._calls.one()
            else:
                frame = self._frame(kind)
                self.last = f"{kind} {frame!r}"
                link.data_received(frame)
                if wire.closed:
                    await asyncio.sleep(0)
                    link.connection_lost(None)
                    link, wire = self._connect()
            wire.sent.clear()
            self._findings.raise_first()
        await asyncio.sleep(0)
        link.connection_lost(None)
        await asyncio.sleep(0)
        await self._pass(self._chance.choice([0, 100, 1000, 5000]))

    def _frame(self, kind: str) -> bytes:
        make = {
            "frame": self._frames.any,
            "name": self._frames.odd_name,
            "properties": self._frames.odd_properties,
        }
        return make[kind]()

    def _connect(self) -> tuple[Connection, Wire]:
        link, wire = Connection(self._front.handle, self._front), Wire()
        link.connection_made(wire)
        return link, wire

    async def _pass(self, ms: int) -> None:
        """Let time go by, and the jobs do what there is to do."""
        self._clock.advance(ms)
        self._calls.service.tick(self._clock.now())
        for job in self._jobs:
            for _ in range(100):
                self.last = f"job {job.name}"
                wait_ms = job.tick(self._clock.now())
                if not isinstance(wait_ms, int):
                    wait_ms = await wait_ms
                if wait_ms > 0:
                    break
            self._findings.raise_first()

    # -- a healthy client ----------------------------------------------------------------------------------

    async def _healthy(self) -> None:
        sent = await self._ask(request(produce.SendMessageV2(topic="healthy", queue_id=0), b"fine"))
        offset = int(sent.ext_dict().get("queueOffset", "-1"))
        got = await self._ask(request(consume.PullMessage(**pull("healthy", "healthy", offset), sys_flag=4)))
        if sent.code or got.code or b"fine" not in got.body:
            raise AssertionError(
                f"healthy client: send {sent.code} {sent.remark}, pull {got.code} {got.remark}"
            )

    async def _delayed(self) -> None:
        """Delayed messages arrive: no job has stopped."""
        before = self._broker.store.max_offset("healthy", 0)
        for text in ("DELAY\x011\x02", "TIMER_DELAY_MS\x012000\x02"):
            header = produce.SendMessageV2(topic="healthy", queue_id=0, properties=text)
            await self._ask(request(header, b"late"))
        for _ in range(50):
            await self._pass(1000)
        arrived = self._broker.store.max_offset("healthy", 0) - before
        if arrived != 2:
            raise AssertionError(f"{arrived} of 2 delayed messages arrived")

    async def _ask(self, asked: Command) -> Command:
        link, wire = self._connect()
        link.data_received(command.encode(asked))
        while not wire.sent and link.held:  # a topic's first message waits for its settings
            await asyncio.wait(link.held)
            await asyncio.sleep(0)
        (answer,) = FrameDecoder().feed(bytes(wire.sent))
        link.connection_lost(None)
        return command.decode(answer)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def fuzz(cases: int, seed: int, tell: Callable[[str], None] = say) -> dict[str, int]:
    """Run that many cases; raises AssertionError with the first finding."""
    import psutil

    findings, memory = Findings(), psutil.Process().memory_info
    logging.getLogger().addHandler(findings)
    totals, first, began = dict.fromkeys(KINDS, 0), 0, time.perf_counter()
    try:
        for number, start in enumerate(range(0, cases, CASES_A_ROUND)):
            with tempfile.TemporaryDirectory() as outer:
                directory = Path(outer, "data")
                one = Round(directory, f"{seed}:{number}", findings)
                try:
                    await one.run(min(CASES_A_ROUND, cases - start))
                    if (beside := sorted(os.listdir(outer))) != [directory.name]:
                        raise AssertionError(f"files beside the data directory: {beside}")
                except Exception as error:
                    where = f"seed={seed} round={number} case={sum(one.counts.values())}"
                    raise AssertionError(f"{where} {one.last[:2000]}: {error}") from error
            for kind, count in one.counts.items():
                totals[kind] += count
            del one
            gc.collect()
            rss = memory().rss
            first = first or rss
            peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            took = time.perf_counter() - began
            tell(f"cases={sum(totals.values())} rss_mib={rss >> 20} peak_mib={peak_mib} seconds={took:.0f}")
            if rss - first > GROWTH_LIMIT:
                raise AssertionError(f"seed={seed} round={number}: memory grew from {first} to {rss} bytes")
    finally:
        logging.getLogger().removeHandler(findings)
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description="odd input against a whole broker")
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("aerobee").setLevel(logging.WARNING)
    logging.getLogger("aerobee").propagate = True
    try:
        totals = asyncio.run(fuzz(options.cases, options.seed))
    except AssertionError as error:
        if error.__cause__ is not None and not isinstance(error.__cause__, AssertionError):
            traceback.print_exception(error.__cause__)
        sys.exit(f"found: {error}")
    say(" ".join(f"{kind}={count}" for kind, count in totals.items()))


if __name__ == "__main__":
    main()
