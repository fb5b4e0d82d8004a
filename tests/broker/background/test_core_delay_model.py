# SPDX-License-Identifier: Apache-2.0
"""Random sends with delays, random steps of time, stops and starts: against a list of due times."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.broker.background.schedule import Schedule
from aerobee.broker.background.timers import Timers
from aerobee.broker.broker import Broker, assemble
from aerobee.broker.operations.send import PlainOrigin, send
from aerobee.clock import ManualClock
from aerobee.protocol import properties
from aerobee.protocol.message import Record
from aerobee.settings import BrokerConfig, StoreConfig

SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 20, consume_queue_units=1000, index_slots=100, index_entries=400
)
LATE_MS = 1_000  # a timer knows whole seconds


class Expected(NamedTuple):
    body: bytes
    due: int


class Machine:
    """A broker whose only work is to deliver late, and what it should have delivered."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.expected: list[Expected] = []
        self.open()

    def open(self) -> None:
        self.broker: Broker = assemble(BrokerConfig(), SMALL, self.directory, self.clock)
        self.schedule = Schedule(self.broker.store, self.broker.stats)
        self.timers = Timers(self.broker.store, self.broker.stats, self.clock)

    def restart(self) -> None:
        self.schedule.save()
        self.timers.close()
        self.broker.store.close()
        self.open()

    def send(self, name: str, value: int) -> None:
        body = b"%d" % len(self.expected)
        text = properties.render({name: str(value)})
        now = self.clock.now()
        send(Record("orders", body, text, 0), PlainOrigin(), self.broker)
        delay = self.broker.store.delays[value - 1] if name == "DELAY" else value
        self.expected.append(Expected(body, now + delay))

    def work(self) -> None:
        """The two jobs, until they have nothing more to do now."""
        now = self.clock.now()
        while self.schedule.tick(now) == 0 or self.timers.tick(now) == 0:
            pass

    def delivered(self) -> dict[bytes, int]:
        store, found = self.broker.store, {}
        for offset in range(store.max_offset("orders", 0)):
            record = store.record_of("orders", 0, offset)
            assert record is not None
            assert record.body not in found, f"{record.body!r} delivered twice"
            found[record.body] = record.store_timestamp
        return found

    def check(self) -> None:
        now, delivered = self.clock.now(), self.delivered()
        for body, due in self.expected:
            if body in delivered:
                assert delivered[body] >= due, f"{body!r} came {due - delivered[body]} ms early"
            else:
                assert now < due + LATE_MS, f"{body!r} is {now - due} ms late"


level = st.tuples(st.just("DELAY"), st.integers(1, 18))
timer = st.tuples(st.just("TIMER_DELAY_MS"), st.integers(1, 3 * 24 * 3600 * 1000))
soon = st.tuples(st.just("TIMER_DELAY_MS"), st.integers(1, 5_000))
advance = st.integers(0, 20_000) | st.integers(0, 24 * 3600 * 1000)
step = st.one_of(level, timer, soon, st.tuples(st.just("advance"), advance), st.just(("restart", 0)))


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(step, max_size=40))
def test_delayed_messages_come_once_never_early_and_at_most_a_second_late(
    steps: list[tuple[str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        machine = Machine(Path(directory))
        for name, value in steps:
            if name == "advance":
                machine.clock.advance(value)
            elif name == "restart":
                machine.restart()
            else:
                machine.send(name, value)
            machine.work()
            machine.check()
        machine.restart()
        machine.work()
        machine.clock.advance(hours=24 * 4)
        machine.work()
        assert len(machine.delivered()) == len(machine.expected)
        machine.timers.close()
        machine.broker.store.close()
