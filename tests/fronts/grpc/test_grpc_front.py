# SPDX-License-Identifier: Apache-2.0
"""The gRPC front's life: opened as the settings say, looked after while it is open, and gone without a trace."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from aerobee.clock import ManualClock
from aerobee.fronts.grpc import front as front_module
from aerobee.fronts.grpc.front import GrpcFront
from aerobee.net.unfinished import Unfinished
from aerobee.settings import BrokerConfig

CONFIG = BrokerConfig(
    host="127.0.0.1", idle_close_ms=77_000, max_pending_bytes=12_345_678, max_connections=99
)


class Port:
    """What the front opens, in a test's hand."""

    def __init__(self, *given: Any, **told: Any) -> None:
        self.given, self.told = given, told
        self.opened: list[tuple[str, int]] = []
        self.closed: list[int] = []

    async def start(self, host: str, port: int) -> int:
        self.opened.append((host, port))
        return 4_711

    async def close(self, grace_ms: int) -> None:
        self.closed.append(grace_ms)


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, tls: Any = None) -> None:
        self.clock, self.real_clock = ManualClock(), ManualClock()
        self.ports: list[Port] = []
        self.ticks: list[int] = []
        monkeypatch.setattr(front_module, "GrpcPort", self._port)
        monkeypatch.setattr(front_module, "Service", lambda broker: self.service)
        self.service: Any = Thing(method=object(), port=0, tick=self.ticks.append)
        self.moved: list[int] = []
        self.broker: Any = Thing(
            config=CONFIG,
            clock=self.clock,
            store=Thing(config=Thing(max_message_bytes=1_000_000)),
            pops=Thing(renewals=Thing(moved=self.moved.append)),
        )
        self.unfinished = Unfinished(1)
        self.front = GrpcFront(self.broker, 8_081, self.real_clock, self.unfinished, tls)  # type: ignore[arg-type]

    def _port(self, *given: Any, **told: Any) -> Port:
        self.ports.append(Port(*given, **told))
        return self.ports[-1]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch, tls=Thing(mode="ours"))


async def test_the_port_is_opened_as_the_settings_say(bench: Bench) -> None:
    await bench.front.start()
    (port,) = bench.ports
    assert port.given == (bench.service.method, bench.real_clock, bench.unfinished)
    limits = port.told["limits"]
    assert limits.max_message == 1_000_000 + 256 * 1024, "a message, and what is said beside it"
    assert (limits.idle_close_ms, limits.max_unread, limits.handshake_ms) == (77_000, 12_345_678, 5_000)
    assert port.told["max_connections"] == 99
    assert port.told["tls"].mode == "ours"
    assert port.opened == [("127.0.0.1", 8_081)]
    assert (bench.service.port, bench.front.address) == (4_711, "127.0.0.1:4711"), "the port it was given"
    await bench.front.stop()


async def test_without_a_certificate_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    made = Thing(mode="made")
    monkeypatch.setattr(front_module, "made_tls", lambda config: made)
    await bench.front.start()
    assert bench.ports[0].told["tls"] is made
    await bench.front.stop()


async def test_while_it_is_open_it_is_told_the_brokers_time_and_its_jumps(bench: Bench) -> None:
    await bench.front.start()
    start = bench.clock.now()
    for _ in range(2):
        await asyncio.sleep(0)
        bench.clock.advance(1_000)
    await asyncio.sleep(0)
    assert bench.ticks == [start + 1_000, start + 2_000]
    assert len(bench.clock.on_jump) == 1
    bench.clock.on_jump[0](5)
    assert bench.moved == [5]
    await bench.front.stop()


async def test_when_it_is_closed_nothing_goes_on(bench: Bench) -> None:
    await bench.front.start()
    ticking = bench.front._ticking
    await bench.front.stop()
    assert ticking is not None and ticking.cancelled()
    assert bench.clock.on_jump == []
    assert bench.ports[0].closed == [500], "calls under way have half a second"
    bench.clock.advance(5_000)
    await asyncio.sleep(0)
    assert bench.ticks == []


async def test_what_was_never_opened_is_closed_without_a_word(bench: Bench) -> None:
    await bench.front.stop()
    assert bench.ports == []
