# SPDX-License-Identifier: Apache-2.0
"""A broker without ports and with a still clock, with the compiled lane before its handler or without."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from aerobee.broker.broker import assemble
from aerobee.clock import ManualClock
from aerobee.fronts.gates.remoting import ONE_WAY
from aerobee.fronts.remoting.front import RemotingFront
from aerobee.net.connection import Connection, Limits
from aerobee.protocol.command import Command, decode
from aerobee.protocol.frames import FrameDecoder
from aerobee.protocol.headers.consume import LitePullMessage, PullMessage
from aerobee.protocol.headers.produce import SendBatch, SendMessage, SendMessageV2
from aerobee.settings import BrokerConfig, StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 16,
    consume_queue_units=40,
    index_slots=50,
    index_entries=150,
    max_message_bytes=8_000,
)


# Of requests that may be in one run the code by which all of them are counted here.
RUN_TOGETHER: dict[int, int] = {
    SendMessage.code: SendMessageV2.code,
    SendBatch.code: SendMessageV2.code,
    LitePullMessage.code: PullMessage.code,
}


class Wire:
    """A transport that keeps what is written."""

    def __init__(self, remote: tuple[str, int]) -> None:
        self._remote = remote
        self.written = b""
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return self._remote

    def set_write_buffer_limits(self, high: int) -> None: ...

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, parts: list[bytes]) -> None:
        self.written += b"".join(parts)

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class Bench:
    """A broker without ports: connections are fed by hand."""

    def __init__(self, data: Path, config: StoreConfig, lane: bool) -> None:
        self.clock = ManualClock()
        self.data = data
        self.broker = assemble(BrokerConfig(), config, data, self.clock)
        self.broker.topics.ensure("orders", 4)
        self.broker.topics.ensure("bills", 2)
        self.broker.topics.save()
        self.front = RemotingFront(self.broker)
        self.runs = 0  # frames that the lane served
        self._lane = lane
        self.wires: list[Wire] = []

    def connect(self, remote: tuple[str, int] = ("127.0.0.1", 40_000)) -> Connection:
        run = self._counted if self._lane else None
        connection = Connection(self.front.handle, None, Limits(max_frame=1 << 20), None, run)
        self.wires.append(Wire(remote))
        connection.connection_made(self.wires[-1])  # type: ignore[arg-type]
        return connection

    def _counted(self, data: bytes, at: int, connection: Connection) -> Any:
        assert self.front.run is not None
        end, answers = self.front.run(data, at, connection)
        self.runs += end > at
        return end, answers

    def figures(self) -> dict[str, Any]:
        """What tools are told, of all that the lane touches."""
        stats, store = self.broker.stats, self.broker.store
        topics = {name: (m.calls, m.count, m.size_bytes) for name, m in stats._topic_put.items()}
        groups = {name: (m.calls, m.count, m.size_bytes) for name, m in stats._group_get.items()}
        appends, syncs = store._append_times, store._sync_times
        return {
            "put": (stats.put_calls, stats.put_count, stats.put_bytes),
            "got": (stats.get_found, stats.get_missed, stats.get_count, stats.get_bytes),
            "topics": topics,
            "groups": groups,
            "behind": dict(stats._behind),
            "appends": (sum(appends.distribution().values()), appends.failed),
            "syncs": sum(syncs.distribution().values()),
            "held": (self.broker.parked.counts(), dict(self.broker.pops.parked._counts)),
            "corrupt": store.corrupt_records,
            "requests": self._requests(),
        }

    def _requests(self) -> Counter[tuple[int, int, bool]]:
        """How many, by code, answer and whether they were held. To the lane codes of one run are one, and a one-way
        request is one that went well."""
        found: Counter[tuple[int, int, bool]] = Counter()
        for (code, response, held), times in self.broker.stats.counted.rpc:
            code = RUN_TOGETHER.get(code, code)
            response = 0 if response == ONE_WAY else response
            found[code, response, held] += sum(times.counts)
        return found

    def files(self) -> dict[str, bytes]:
        """The store, closed: every file but the lock and what says how far a thread had come when."""
        root = self.data / "store"
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.name not in ("lock", "checkpoint", "abort", "consumequeue.sums")
        }


class Pair:
    """Two brokers, one with the lane, driven alike; `feed` returns the answer they agree on."""

    def __init__(self, data: Path, config: StoreConfig = SMALL) -> None:
        self.benches = [Bench(data / name, config, name == "lane") for name in ("python", "lane")]
        self.connections = [bench.connect() for bench in self.benches]

    async def feed(self, *pieces: bytes) -> list[Command]:
        """Also what was held till now and is answered meanwhile."""
        await settled()
        for number, bench in enumerate(self.benches):
            if bench.wires[-1].closed:
                self.connections[number] = bench.connect()
            for piece in pieces:
                if not bench.wires[-1].closed:
                    self.connections[number].data_received(piece)
                await settled()
        reference, lane = [bench.wires[-1].written for bench in self.benches]
        for bench in self.benches:
            bench.wires[-1].written = b""
        frames = FrameDecoder().feed(reference)
        for number, (ours, theirs) in enumerate(zip(FrameDecoder().feed(lane), frames, strict=True)):
            assert ours == theirs, f"answer {number}: {ours[:600]!r} instead of {theirs[:600]!r}"
        return [decode(frame) for frame in frames]


async def settled() -> None:
    for _ in range(8):
        await asyncio.sleep(0)
