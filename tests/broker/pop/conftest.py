# SPDX-License-Identifier: Apache-2.0
"""A broker without network, and short words for popping, acking and letting time pass."""

from __future__ import annotations

import asyncio
import inspect
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from aerobee.broker.background.revive import Revive
from aerobee.broker.broker import Broker, assemble
from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations.ack import Ack, ack
from aerobee.broker.operations.change_invisible import Change, Changed, change_invisible
from aerobee.broker.operations.pop import Pop, Popped, pop
from aerobee.clock import ManualClock
from aerobee.fronts.remoting.routes import ROUTES
from aerobee.net.connection import Reply
from aerobee.net.routes import Request
from aerobee.protocol import command as wire
from aerobee.protocol import message
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import GroupConfig
from aerobee.protocol.command import request as command_of
from aerobee.protocol.headers.consume import PopResult
from aerobee.protocol.message import Record
from aerobee.protocol.receipt import Receipt, real_topic
from aerobee.settings import BrokerConfig, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aerobee.protocol.command import Header

SMALL = StoreConfig(
    commit_log_segment_bytes=1 << 20, consume_queue_units=1000, index_slots=1000, index_entries=40_000
)


class Got(NamedTuple):
    """One message as a consumer gets it."""

    record: Record
    receipt: Receipt
    group: str
    topic: str  # the real one

    @property
    def body(self) -> str:
        return self.record.body.decode()


class Shop:
    """Topic orders (4 queues), group billing."""

    def __init__(self, directory: Path, clock: ManualClock, config: BrokerConfig, store: StoreConfig) -> None:
        self.clock, self._config, self._store = clock, config, store
        self._directory, self._lives = directory, 0
        self.open()

    def open(self) -> None:
        self.broker: Broker = assemble(
            self._config, self._store, self._directory / str(self._lives), self.clock
        )
        self.broker.topics.ensure("orders", 4)
        if self.broker.groups.get("billing") is None:
            self.broker.groups.put(GroupConfig(group_name="billing"))
        self.revive = Revive(self.broker)
        self.draws(99)  # retries last, unless a test says otherwise

    def draws(self, *numbers: int) -> None:
        """What chance will say next; the last one for ever."""
        left = list(numbers)
        self.broker.pops.draw = lambda: left.pop(0) if len(left) > 1 else left[0]

    # -- life cycle ----------------------------------------------------------------------------------------

    def stop(self) -> None:
        broker = self.broker
        broker.pops.stop()
        self.revive.close()
        for table in (broker.offsets, broker.topics, broker.groups, broker.pops.modes, broker.pops.orders):
            table.save()
        broker.store.close()

    def restart(self) -> None:
        self.stop()
        self.open()

    def crash(self) -> None:
        """Go on with what a killed process would have left: the files as they are now, nothing saved."""
        left, self._lives = self.broker, self._lives + 1
        new = self._directory / str(self._lives)
        shutil.copytree(self._directory / str(self._lives - 1), new)
        for lock in new.rglob("lock"):
            lock.unlink()
        left.store.close()
        self.open()

    # -- messages ------------------------------------------------------------------------------------------

    def send(
        self, *bodies: str, topic: str = "orders", queue_id: int = 0, tags: str = "", **more: Any
    ) -> None:
        text = props.render({props.TAGS: tags, **more} if tags else more)
        for body in bodies:
            self.broker.store.append(
                Record(topic, body.encode(), text, queue_id, born_timestamp=self.clock.now())
            )

    def records(self, topic: str, queue_id: int = 0) -> list[Any]:
        store = self.broker.store
        return [store.record_of(topic, queue_id, at) for at in range(store.max_offset(topic, queue_id))]

    @property
    def logged(self) -> list[str]:
        """The tags of the revive log's messages, in the order they were written."""
        topic = self.broker.pops.leases.log.topic
        found = [record for q in range(8) for record in self.records(topic, q)]
        return [record.tags for record in sorted(found, key=lambda r: r.physical_offset)]

    def clean_away(self, monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
        """Let one message of queue 0 be gone, as if its file had been deleted."""
        store = self.broker.store
        read, record_of = store.read, store.record_of

        def without(*args: Any) -> Any:
            found = read(*args)
            if args[:2] == ("orders", 0) and offset in found.offsets:
                at = found.offsets.index(offset)
                del found.offsets[at], found.messages[at]
            return found

        gone = ("orders", 0, offset)
        monkeypatch.setattr(store, "read", without)
        monkeypatch.setattr(store, "record_of", lambda *at: None if at == gone else record_of(*at))

    def committed(self, queue_id: int = 0, topic: str = "orders", group: str = "billing") -> int:
        return self.broker.offsets.get(group, topic, queue_id)

    @property
    def in_flight(self) -> int:
        return self.broker.pops.leases.in_flight.messages

    # -- popping -------------------------------------------------------------------------------------------

    def request(self, **more: Any) -> Pop:
        more.setdefault("group", "billing")
        more.setdefault("topic", "orders")
        more.setdefault("start", Start.MIN)
        more.setdefault("born_time", self.clock.now())
        return Pop(**more)

    def popped(self, **more: Any) -> Popped:
        """A pop that must answer at once."""
        found = pop(self.request(**more), self.broker)
        assert not inspect.iscoroutine(found), "the pop is held"
        return found  # type: ignore[return-value]

    def pop(self, **more: Any) -> list[Got]:
        request = self.request(**more)
        return got(request, self.popped(**more))

    def hold(self, **more: Any) -> asyncio.Task[list[Got]]:
        """A pop that must be held."""
        more.setdefault("poll_ms", 15_000)
        request = self.request(**more)
        later = pop(request, self.broker)
        assert inspect.iscoroutine(later), f"answered at once: {later}"

        async def finish() -> list[Got]:
            popped = await later
            return got(request, popped)

        return asyncio.get_running_loop().create_task(finish())

    def ack(self, *messages: Got) -> None:
        for one in messages:
            r = one.receipt
            ack(Ack(one.group, one.topic, r.queue_id, r.offset, r), self.broker)

    def change(self, one: Got, invisible_ms: int, failure: str = "") -> Got:
        """Returns the message with its new receipt, made as a client makes it."""
        r = one.receipt
        changed = change_invisible(
            Change(one.group, one.topic, r.queue_id, r.offset, r, invisible_ms, failure), self.broker
        )
        return one._replace(receipt=new_receipt(r, changed))

    def wait(self, ms: int, step: int = 200) -> None:
        """Let time pass; the revive job runs as it would."""
        end = self.clock.now() + ms
        while self.clock.now() < end:
            self.clock.advance(min(step, end - self.clock.now()))
            self.tick()

    def tick(self) -> None:
        while not self.revive.tick(self.clock.now()):
            pass

    def ask(self, header: Header, body: bytes = b"") -> Reply:
        """Through the remoting front, without a network."""
        command = command_of(header, body)
        answer = ROUTES[command.code].adapter(Request(None, command), header, self.broker)  # type: ignore[arg-type]
        return decoded(answer) if isinstance(answer, bytes) else answer  # type: ignore[return-value]


def decoded(frame: bytes) -> Reply:
    """A frame as the reply it is made of; only pops and acks are written straight."""
    command = wire.decode(frame[4:])
    header = command.fields(PopResult) if command.ext_dict() else None
    return Reply(command.code, header, command.body, command.remark)


def new_receipt(old: Receipt, changed: Changed) -> Receipt:
    return old._replace(
        start_offset=old.offset,
        pop_time=changed.pop_time,
        invisible_time=changed.invisible_ms,
        revive_qid=changed.revive_queue,
    )


def got(request: Pop, popped: Popped) -> list[Got]:
    places = [(taken, offset) for taken in popped.taken for offset in taken.offsets]
    records = list(message.decode_all(b"".join(popped.messages)))
    assert len(places) == len(records)
    return [
        Got(
            record,
            Receipt(
                taken.start_offset,
                popped.pop_time,
                popped.invisible_ms,
                popped.revive_queue,
                taken.retry,
                "broker-a",
                taken.queue_id,
                offset,
            ),
            request.group,
            real_topic(request.topic, request.group, taken.retry),
        )
        for record, (taken, offset) in zip(records, places, strict=True)
    ]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make_shop(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., Shop]]:
    made: list[Shop] = []

    def make(store: StoreConfig = SMALL, **config: Any) -> Shop:
        settings = msgspec.structs.replace(BrokerConfig(), **config)
        made.append(Shop(tmp_path / str(len(made)), clock, settings, store))
        return made[-1]

    yield make
    for shop in made:
        shop.broker.store.close()


@pytest.fixture
def shop(make_shop: Callable[..., Shop]) -> Shop:
    return make_shop()
