# SPDX-License-Identifier: Apache-2.0
"""A broker without network: its parts, a clock that tests move, and short words for what tests do most."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.broker.broker import Broker, assemble
from aerobee.broker.operations.pull import Pull, pull
from aerobee.broker.operations.send import PlainOrigin, Sent, send
from aerobee.clock import ManualClock
from aerobee.protocol import message, properties
from aerobee.protocol.message import Record
from aerobee.settings import BrokerConfig, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from aerobee.store.results import Found

SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 20,
    consume_queue_units=1000,
    index_slots=1000,
    index_entries=4000,
    max_message_bytes=4 << 20,
)


class Bench:
    """One broker on one directory; `restart` closes it and opens it again."""

    def __init__(self, directory: Path, clock: ManualClock, config: BrokerConfig, store: StoreConfig) -> None:
        self.directory, self.clock = directory, clock
        self._config, self._store = config, store
        self.broker: Broker = assemble(config, store, directory, clock)

    def restart(self) -> None:
        self.close()
        self.broker = assemble(self._config, self._store, self.directory, self.clock)

    def close(self) -> None:
        broker = self.broker
        for table in (broker.offsets, broker.topics, broker.groups, broker.pops.modes, broker.pops.orders):
            table.save()
        broker.store.close()

    def send(self, topic: str = "orders", body: bytes = b"x", queue_id: int = 0, **more: Any) -> Sent:
        """`properties` is a dict; other names are the record's, or the origin's."""
        text = properties.render(more.pop("properties", {}))
        origin = {k: more.pop(k) for k in PlainOrigin.__struct_fields__ if k in more}
        return send(Record(topic, body, text, queue_id, **more), PlainOrigin(**origin), self.broker)

    def pull(self, topic: str = "orders", offset: int = 0, group: str = "billing", **more: Any) -> Found:
        """A pull that must answer at once."""
        found = self.start_pull(topic, offset, group, **more)
        assert not asyncio.iscoroutine(found), "the pull is held"
        return found

    def start_pull(self, topic: str = "orders", offset: int = 0, group: str = "billing", **more: Any) -> Any:
        more.setdefault("queue_id", 0)
        more.setdefault("expression", "*")
        return pull(Pull(group, topic, offset=offset, **more), self.broker)

    def hold(self, topic: str = "orders", offset: int = 0, **more: Any) -> asyncio.Task[Found]:
        """A pull that must be held."""
        more.setdefault("hold_ms", 15_000)
        later = self.start_pull(topic, offset, **more)
        assert asyncio.iscoroutine(later), f"answered at once: {later}"
        return asyncio.get_running_loop().create_task(later)

    def records(self, topic: str, queue_id: int = 0) -> list[Record]:
        """Everything stored in a queue."""
        store = self.broker.store
        found = [store.record_of(topic, queue_id, at) for at in range(store.max_offset(topic, queue_id))]
        return [record for record in found if record is not None]


def decode(found: Found) -> list[Record]:
    return [message.decode(raw) for raw in found.messages]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_bench(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(store: StoreConfig = SMALL, **config: Any) -> Bench:
        made.append(Bench(tmp_path, clock, msgspec.structs.replace(BrokerConfig(), **config), store))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], AbstractContextManager[Bench]]:
    """For properties that want a new broker for each of hundreds of examples: `with broker() as bench:`."""

    @contextmanager
    def new() -> Iterator[Bench]:
        directory = tmp_path_factory.mktemp("broker")
        bench = Bench(directory, ManualClock(), BrokerConfig(), SMALL)
        try:
            yield bench
        finally:
            bench.close()
            shutil.rmtree(directory)

    return new


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
