# SPDX-License-Identifier: Apache-2.0
"""Random histories of POP against a naive model: nothing lost, nothing twice at a time, nothing after its ack.

The broker is the real one, on a store that keeps its records in lists: so a crash is "forget the broker,
keep the lists and the last saved offsets", and thousands of steps take seconds. What "reached the disk"
means is worked out here, independently, from the records of the revive log and the offsets file.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import tempfile
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace as Thing
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from aerobee.broker.background.revive import Revive
from aerobee.broker.broker import Broker
from aerobee.broker.delivery.reading import Start
from aerobee.broker.operations.ack import Ack, ack, batch_ack
from aerobee.broker.operations.admin.figures import group_figures
from aerobee.broker.operations.change_invisible import Change, change_invisible
from aerobee.broker.operations.pop import Pop, pop
from aerobee.broker.pop.pops import Pops
from aerobee.broker.pop.revive_log import GROUP
from aerobee.broker.state.clients import Clients
from aerobee.broker.state.groups import Groups
from aerobee.broker.state.offsets import Offsets
from aerobee.broker.state.stats import Stats
from aerobee.broker.state.topics import Topics
from aerobee.clock import ManualClock
from aerobee.errors import DiskFull, NoMessage, SystemFailure, TopicNotFound
from aerobee.protocol import message, names
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import BatchAckEntry, GroupConfig
from aerobee.protocol.message import Record
from aerobee.protocol.receipt import Receipt, bits_text, real_topic
from aerobee.settings import BrokerConfig, InForce
from aerobee.store.results import Found, ReadStatus, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPICS = ("orders", "bills")
QUEUES = 2
GROUPS = {"limited": 2, "endless": -1}  # name -> retry_max_times
CONFIG = BrokerConfig(pop_checkpoint_cap=6, revive_queues=2)
REVIVE = names.revive_topic(CONFIG.cluster)


class ListStore:
    """The part of a store that POP uses, in lists."""

    delays = ()
    log_max = 1 << 60  # nothing counts as "still in memory": new groups start where they ask to

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self.listeners: list[Any] = []
        self.physical = 0
        self.full = False

    def append(self, record: Record) -> None:
        if self.full:
            raise DiskFull("the test's disk is full")
        queue = self.queues[record.topic, record.queue_id]
        record.queue_offset, record.physical_offset = len(queue), self.physical
        self.physical += 100
        queue.append(message.decode(message.encode(record)))
        for listener in self.listeners:
            listener.arrived(record, 0)

    def append_batch(self, records: list[Record]) -> None:
        for record in records:
            self.append(record)

    def read(self, topic, queue_id, offset, limit, accept=None) -> Found:
        queue = self.queues.get((topic, queue_id), [])
        if not queue:
            return Found(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        high = len(queue)
        if offset >= high:
            status = ReadStatus.OFFSET_OVERFLOW_ONE if offset == high else ReadStatus.OFFSET_OVERFLOW_BADLY
            return Found(status, high, 0, high)
        taken = queue[offset : offset + limit.max_messages]
        found = [message.encode(record) for record in taken]
        offsets = [record.queue_offset for record in taken]
        return Found(ReadStatus.FOUND, offset + len(taken), 0, high, found, offsets, sum(map(len, found)))

    def record_of(self, topic, queue_id, offset) -> Record | None:
        queue = self.queues.get((topic, queue_id), [])
        return queue[offset] if 0 <= offset < len(queue) else None

    def unit(self, topic, queue_id, offset) -> Unit | None:
        record = self.record_of(topic, queue_id, offset)
        return None if record is None else Unit(record.physical_offset, 100, 0)

    def min_offset(self, topic, queue_id) -> int:
        return 0

    def bounds(self, topic, queue_id) -> tuple[int, int]:
        return self.min_offset(topic, queue_id), self.max_offset(topic, queue_id)

    def kept_from(self, topic, queue_id) -> int:
        return self.min_offset(topic, queue_id)

    def max_offset(self, topic, queue_id) -> int:
        return len(self.queues.get((topic, queue_id), ()))

    def store_time(self, topic, queue_id, offset) -> int:
        return 0

    def delete_topic(self, topic: str) -> None:
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]


WHICH = st.integers(0, 10_000)
WAITS = [1, 50, 200, 1_000, 3_000, 3_200, 6_000, 31_000]
INVISIBLE = [0, 300, 1_000, 2_999, 3_000, 5_000, 20_000]


class Place(NamedTuple):
    """One stored copy of a message, for one group."""

    group: str
    topic: str
    queue_id: int
    offset: int
    physical: int


class Lease(msgspec.Struct):
    place: Place
    body: str
    receipt: Receipt
    due: int
    attempt: int


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of redeliveries and refusals are meant here: nobody has to read of each."""
    logger = logging.getLogger("aerobee")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


class History(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="pop-model-", dir=_fast_directory()))
        self.clock = ManualClock()
        self.store = ListStore()
        self.sent: dict[str, set[str]] = {topic: set() for topic in TOPICS}
        self.leases: dict[Place, Lease] = {}  # those in force
        self.receipts: list[Lease] = []  # every one ever given, used or not
        self.acked: dict[str, set[str]] = defaultdict(set)  # group -> bodies acked in time
        self.skipped: dict[str, set[str]] = defaultdict(set)  # by an operator's reset
        self.unsure: set[tuple[str, str]] = set()  # (group, body): a crash may have doubled it
        self.done: set[Place] = set()  # copies acked, redelivered or jumped over
        self.deliveries: dict[tuple[str, str], int] = defaultdict(int)
        self.counter = 0
        self.odd = 0
        self.start()

    # -- the broker ----------------------------------------------------------------------------------------

    def start(self) -> None:
        clock, directory = self.clock, self.directory
        self.store.listeners = []
        offsets, topics = Offsets(directory, clock), Topics(directory, clock)
        groups = Groups(directory, clock)
        for name in TOPICS:
            topics.ensure(name, QUEUES)
        for group, most in GROUPS.items():
            groups.put(GroupConfig(group_name=group, retry_max_times=most))
        for topic, _ in self.store.queues:
            topics.ensure(topic)
        settings = InForce(CONFIG)
        pops = Pops(settings, clock, self.store, offsets, directory)  # type: ignore[arg-type]
        pops.draw = lambda: self.drawn
        self.drawn = 0
        self.broker = Broker(
            settings=settings,
            clock=clock,
            store=self.store,  # type: ignore[arg-type]
            topics=topics,
            groups=groups,
            offsets=offsets,
            clients=Clients(),
            parked=None,  # type: ignore[arg-type]
            locks=None,  # type: ignore[arg-type]
            pops=pops,
            transactions=None,  # type: ignore[arg-type]
            stats=Stats(clock.now()),
            access=None,  # type: ignore[arg-type]
        )
        self.revive = Revive(self.broker)
        self.store.listeners.append(Thing(arrived=self.stored))

    def stored(self, record: Record, tags_code: int) -> None:
        """A copy was stored: a redelivery must be of a lease that is over, with one more attempt."""
        if not record.topic.startswith((names.RETRY_PREFIX, names.DEAD_LETTER_PREFIX)):
            return
        group, body = next(g for g in GROUPS if g in record.topic), record.body.decode()
        leases = [x for x in self.leases.values() if (x.place.group, x.body) == (group, body)]
        over = [x for x in leases if x.due <= self.clock.now() and x.attempt + 1 == record.reconsume_times]
        assert over, f"{body} came back to {group} with attempt {record.reconsume_times}, leased: {leases}"
        lease = self.leases.pop(over[0].place)
        if (group, body) not in self.unsure:
            assert record.reconsume_times == self.deliveries[group, body]
        is_dead = record.topic.startswith(names.DEAD_LETTER_PREFIX)
        assert is_dead == (0 <= GROUPS[group] <= lease.attempt)
        if is_dead:
            self.acked[group].add(body)  # nothing more is to come
        self.done.add(lease.place)

    # -- what can happen -----------------------------------------------------------------------------------

    @rule(topic=st.sampled_from(TOPICS), queue_id=st.integers(0, QUEUES - 1), count=st.integers(1, 6))
    def send(self, topic: str, queue_id: int, count: int) -> None:
        if self.store.full:
            return
        for _ in range(count):
            self.counter += 1
            body = f"{topic}-{self.counter}"
            self.store.append(Record(topic, body.encode(), queue_id=queue_id))
            self.sent[topic].add(body)

    @rule(
        group=st.sampled_from(sorted(GROUPS)),
        topic=st.sampled_from(TOPICS),
        queue_id=st.integers(-1, QUEUES - 1),
        count=st.sampled_from([1, 2, 3, 5, 32]),
        invisible=st.sampled_from(INVISIBLE),
        drawn=st.integers(0, 99),
    )
    def pop(self, group: str, topic: str, queue_id: int, count: int, invisible: int, drawn: int) -> None:
        self.drawn = drawn
        now = self.clock.wall()
        request = Pop(group, topic, Start.MIN, queue_id, count, invisible, born_time=now)
        popped = pop(request, self.broker)
        assert len(popped.messages) <= count
        records = list(message.decode_all(b"".join(popped.messages)))
        places = [(t, offset) for t in popped.taken for offset in t.offsets]
        assert len(records) == len(places)
        for record, (taken, offset) in zip(records, places, strict=True):
            assert record.queue_offset == offset
            real = real_topic(topic, group, taken.retry)
            start = taken.start_offset
            receipt = Receipt(
                start,
                popped.pop_time,
                invisible,
                popped.revive_queue,
                taken.retry,
                "",
                taken.queue_id,
                offset,
            )
            if taken.retry != "0":
                assert Receipt.parse(record.properties[props.POP_CK])[:5] == receipt[:5]
            place = Place(
                group,
                real,
                taken.queue_id,
                offset,
                self.store.record_of(real, taken.queue_id, offset).physical_offset,
            )
            self.delivered(record, place, receipt)

    def delivered(self, record: Record, place: Place, receipt: Receipt) -> None:
        key = (place.group, record.body.decode())
        group, body = key
        assert place not in self.leases, f"{body} delivered to {group} while leased, now {self.clock.now()}"
        if key not in self.unsure:
            assert key not in {(x.place.group, x.body) for x in self.leases.values()}
            assert body not in self.acked[group], f"{body} delivered to {group} after its ack"
        assert place not in self.done or key in self.unsure, f"{place} is done with"
        self.deliveries[key] += 1
        lease = Lease(place, body, receipt, self._run_time(receipt), record.reconsume_times)
        self.leases[place] = lease
        self.receipts.append(lease)

    def _current(self, lease: Lease) -> bool:
        return self.leases.get(lease.place) is lease

    def _acked(self, lease: Lease) -> None:
        if self._current(lease):
            del self.leases[lease.place]
            self.acked[lease.place.group].add(lease.body)
            self.done.add(lease.place)

    @precondition(lambda self: self.receipts)
    @rule(which=WHICH)
    def ack(self, which: int) -> None:
        lease = self._choose(which)
        try:
            p = lease.place
            ack(Ack(p.group, p.topic, p.queue_id, p.offset, lease.receipt), self.broker)
        except (TopicNotFound, NoMessage):
            assert not self._current(lease)
            return
        self._acked(lease)

    @precondition(lambda self: self.receipts)
    @rule(which=WHICH)
    def ack_batch(self, which: int) -> None:
        """All messages of one checkpoint, whatever became of them."""
        one = self._choose(which)
        same = [
            lease
            for lease in self.receipts
            if lease.place[:3] == one.place[:3] and lease.receipt[:2] == one.receipt[:2]
        ]
        r, p = one.receipt, one.place
        topic = names.normal_topic(p.topic, p.group)
        entry = BatchAckEntry(
            consumer_group=p.group,
            topic=topic,
            retry=r.retry,
            start_offset=r.start_offset,
            queue_id=p.queue_id,
            revive_queue_id=r.revive_qid,
            pop_time=r.pop_time,
            invisible_time=r.invisible_time,
            bits=bits_text(lease.place.offset - r.start_offset for lease in same),
        )
        batch_ack([entry], self.broker)
        for lease in same:
            self._acked(lease)

    @precondition(lambda self: self.receipts)
    @rule(which=WHICH, invisible=st.sampled_from([0, 500, 4_000, 30_000]))
    def change(self, which: int, invisible: int) -> None:
        lease = self._choose(which)
        p, now = lease.place, self.clock.wall()
        try:
            changed = change_invisible(
                Change(p.group, p.topic, p.queue_id, p.offset, lease.receipt, invisible), self.broker
            )
        except (TopicNotFound, NoMessage):
            assert not self._current(lease)
            return
        except SystemFailure:
            assert self.store.full
            return
        assert changed.pop_time >= now
        if self._current(lease):
            receipt = lease.receipt._replace(
                start_offset=p.offset, pop_time=changed.pop_time, invisible_time=changed.invisible_ms
            )
            new = Lease(p, lease.body, receipt, self._run_time(receipt), lease.attempt)
            self.leases[p] = new
            self.receipts.append(new)

    def _choose(self, which: int) -> Lease:
        """Mostly one that is still good."""
        good = [lease for lease in self.receipts if self._current(lease)]
        choice = good if good and which % 5 else self.receipts
        return choice[which % len(choice)]

    @rule(ms=st.sampled_from(WAITS))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self._run()

    def _run(self) -> None:
        for _ in range(200):
            if self.revive.tick(self.clock.now()):
                break
        if self.store.full:
            return
        now = self.clock.now()
        for lease in self.leases.values():
            assert lease.due + 400 > now, f"{lease} is {now - lease.due} ms late"

    @rule(ms=st.sampled_from([-3_600_000, -10_000, -500, 500, 10_000, 3_600_000]))
    def set_clock(self, ms: int) -> None:
        """No lease is longer or shorter for it."""
        # Never exactly to a time that was there before: receipts of then would be receipts of now.
        self.odd += 1
        self.clock.set_wall(self.clock.wall() + ms - self.odd)

    def _run_time(self, receipt: Receipt) -> int:
        return receipt.visible_at - self.clock.ahead

    @rule()
    def save_offsets(self) -> None:
        self.broker.offsets.save()

    @rule(full=st.booleans())
    def disk(self, full: bool) -> None:
        was_full, self.store.full = self.store.full, full
        if was_full and not full:  # what was refused is tried again ten seconds later, by the clock of then
            self.clock.jump(self.clock.now() + 10_400)
            self._run()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        if clean:
            self.broker.pops.stop()
            self.broker.offsets.save()
        saved = Offsets(self.directory, self.clock)
        log = self._replay(saved)
        for place in list(self.leases):
            if log.get(place) is not True:
                # The lease was in memory only, so the message is read again from the group's offset.
                assert not clean or self.store.full
                assert saved.get(place.group, place.topic, place.queue_id) <= place.offset, f"{place} is lost"
                del self.leases[place]
        for group, bodies in self.acked.items():
            for body in list(bodies):
                self._forget_unsaved_ack(group, body, saved, log)
        self._restore_leases(log)
        for lease in self.leases.values():  # told by the wall clock from now on
            lease.due = self._run_time(lease.receipt)
        for (group, body), _ in list(self.deliveries.items()):
            if body not in self.acked[group]:
                self.unsure.add((group, body))
        self.clock.advance(700)  # nobody starts in the millisecond of the crash
        self.start()

    def _forget_unsaved_ack(self, group: str, body: str, saved: Offsets, log: dict[Place, bool]) -> None:
        """An ack that was in memory only may be followed by another delivery; one on disk must not be."""
        places = [lease.place for lease in self.receipts if lease.place.group == group and lease.body == body]
        for place in places:
            behind = saved.get(group, place.topic, place.queue_id) > place.offset
            if log.get(place, not behind):
                self.acked[group].discard(body)
                self.done.discard(place)
                self.unsure.add((group, body))

    def _restore_leases(self, log: dict[Place, bool]) -> None:
        """What the log still says is leased is leased again: its ack or redelivery met a full disk."""
        for lease in self.receipts:
            place = lease.place
            if log.get(place) and place not in self.leases:
                last = [x for x in self.receipts if x.place == place][-1]
                self.leases[place] = last
                self.unsure.add((place.group, last.body))
                self.done.discard(place)

    def _replay(self, offsets: Offsets) -> dict[Place, bool]:
        """Every copy that the revive log speaks of: True = leased, False = acked, redelivered or void.

        Read from where the revive group's offset says that everything before is done with.
        """
        open_by_lease: dict[tuple[object, ...], bool] = {}
        places: dict[tuple[object, ...], Place] = {}
        records = [
            record
            for (topic, queue_id), queue in self.store.queues.items()
            if topic == REVIVE
            for record in queue[offsets.get(GROUP, REVIVE, queue_id) + 1 :]
        ]
        for record in sorted(records, key=lambda r: r.physical_offset):
            body = msgspec.json.decode(record.body)
            if record.tags == "ck":
                for i, diff in enumerate(body["d"]):
                    offset = body["so"] + diff
                    stored = self.store.record_of(body["t"], body["q"], offset)
                    if stored is None or stored.physical_offset > record.physical_offset:
                        continue  # of a topic that was deleted
                    key = (body["t"], body["c"], body["q"], body["so"], body["pt"], offset)
                    open_by_lease[key] = not body["bm"] >> i & 1
                    places[key] = Place(body["c"], body["t"], body["q"], offset, stored.physical_offset)
            elif record.tags in ("ack", "bAck"):
                for offset in body.get("aol") or [body["ao"]]:
                    key = (body["t"], body["c"], body["q"], body["so"], body["pt"], offset)
                    if key in open_by_lease:
                        open_by_lease[key] = False
            else:
                for key in open_by_lease:  # type: ignore[assignment]
                    if (
                        body["t"] in (None, key[0])
                        and body["c"] in (None, key[1])
                        and body["q"] in (None, key[2])
                        and key[5] >= body["so"]
                    ):
                        open_by_lease[key] = False
        found: dict[Place, bool] = {}
        for key, is_open in open_by_lease.items():  # type: ignore[assignment]
            found[places[key]] = found.get(places[key], False) or is_open
        return found

    @rule(
        group=st.sampled_from(sorted(GROUPS)),
        topic=st.sampled_from(TOPICS),
        queue_id=st.integers(0, QUEUES - 1),
        share=st.floats(0, 1),
    )
    def reset(self, group: str, topic: str, queue_id: int, share: float) -> None:
        if self.store.full:
            return
        target = int(self.store.max_offset(topic, queue_id) * share)
        self.broker.offsets.set_reset(group, topic, queue_id, target)
        self.broker.offsets.save()  # as the operation does: an operator's word is not lost
        for lease in [x for x in self.leases.values() if x.place[:3] == (group, topic, queue_id)]:
            if lease.place.offset >= target:
                del self.leases[lease.place]
        for record in self.store.queues.get((topic, queue_id), []):
            body = record.body.decode()
            place = Place(group, topic, queue_id, record.queue_offset, record.physical_offset)
            key = (group, body)
            if record.queue_offset < target:
                if place not in self.done and place not in self.leases:
                    self.skipped[group].add(body)
                    self.done.add(place)
            else:  # delivered once more, whatever happened to it before
                self.unsure.add(key)
                self.acked[group].discard(body)
                self.skipped[group].discard(body)
                self.done.discard(place)
        # Applied by the next pop of the queue; pop at once, so that the model need not know when.
        self.pop(group, topic, queue_id, 1, 5_000, 99)

    @rule(topic=st.sampled_from(TOPICS))
    def recreate(self, topic: str) -> None:
        """Delete the topic with its retry topics, and create it again under the same name."""
        if self.store.full:
            return
        for group in GROUPS:
            for retry in (names.pop_retry_topic(topic, group), names.pop_retry_topic_v2(topic, group)):
                self._delete(retry)
        self._delete(topic)
        self.broker.topics.ensure(topic, QUEUES)
        self.broker.offsets.save()
        self.sent[topic].clear()

    def _delete(self, topic: str) -> None:
        self.broker.topics.delete(topic)
        self.broker.offsets.remove_topic(topic)
        self.broker.pops.remove_topic(topic)
        self.store.delete_topic(topic)
        for place in [place for place in self.leases if place.topic == topic]:
            del self.leases[place]

    # -- what always holds ---------------------------------------------------------------------------------

    @invariant()
    def committed_offset_passes_only_what_is_safe(self) -> None:
        """Crash right now: whatever is before the group's offset is done, or leased in the revive log."""
        log = self._replay(self.broker.offsets)
        for place in self.leases:
            if self.broker.offsets.get(place.group, place.topic, place.queue_id) > place.offset:
                assert log.get(place), f"{place} is passed, not done, and not in the revive log"

    @invariant()
    def figures_count_every_lease(self) -> None:
        for group in GROUPS:
            leased = sum(place.group == group for place in self.leases)
            assert group_figures(group, None, self.broker).in_flight == leased

    def teardown(self) -> None:
        """In the end everybody gets everything: pop and ack until nothing more comes."""
        self.store.full = False
        # However often the clock was set between restarts: past the time of every lease ever given.
        self.clock.jump(max([self.clock.now(), *(lease.due for lease in self.receipts)]) + 60_000)
        self._run()
        for _ in range(12):
            for group in GROUPS:
                for topic in TOPICS:
                    while True:
                        before = len(self.receipts)
                        self.pop(group, topic, -1, 32, 60_000, 50)
                        new = self.receipts[before:]
                        for lease in new:
                            p = lease.place
                            ack(Ack(p.group, p.topic, p.queue_id, p.offset, lease.receipt), self.broker)
                            self._acked(lease)
                        if not new:
                            break
            self.clock.advance(61_000)
            self._run()
        for group in GROUPS:
            for topic, bodies in self.sent.items():
                lost = bodies - self.acked[group] - self.skipped[group]
                assert not lost, f"{group} never got {sorted(lost)} of {topic}"
        assert self.broker.pops.leases.in_flight.messages == 0
        assert self.broker.pops.leases.in_flight.young == 0
        shutil.rmtree(self.directory, ignore_errors=True)


# What happens how often in a long history: consumers at work, now and then a crash, rarely an operator.
WEIGHTS = {
    "send": 12, "pop": 25, "ack": 20, "ack_batch": 6, "change": 8, "wait": 14, "save_offsets": 4, "restart": 5,
    "set_clock": 1, "disk": 1, "reset": 1, "recreate": 1,
}  # fmt: skip


def arguments(step: str, chance: random.Random) -> dict[str, object]:
    place = {"topic": chance.choice(TOPICS), "queue_id": chance.randrange(QUEUES)}
    group = chance.choice(sorted(GROUPS))
    match step:
        case "send":
            return {**place, "count": chance.randint(1, 8)}
        case "pop":
            invisible = chance.choice([*INVISIBLE, 5_000, 20_000])
            count = chance.choice([1, 2, 3, 5, 32])
            place["queue_id"] = chance.randint(-1, QUEUES - 1)
            return {
                **place,
                "group": group,
                "count": count,
                "invisible": invisible,
                "drawn": chance.randrange(100),
            }
        case "ack" | "ack_batch":
            return {"which": chance.randrange(10_000)}
        case "change":
            return {"which": chance.randrange(10_000), "invisible": chance.choice([0, 500, 4_000, 30_000])}
        case "wait":
            return {"ms": chance.choice([*WAITS, 3_200, 3_200])}
        case "restart":
            return {"clean": chance.random() < 0.2}
        case "set_clock":
            return {"ms": chance.choice([-3_600_000, -10_000, -500, 500, 10_000, 3_600_000])}
        case "disk":
            return {"full": chance.random() < 0.5}
        case "reset":
            return {**place, "group": group, "share": chance.random()}
        case "recreate":
            return {"topic": place["topic"]}
    return {}


@pytest.mark.slow
@pytest.mark.seed("S000-17", "S000-18", "S000-20", "S000-27", "S000-28", "S000-29", "S000-31")
@pytest.mark.parametrize("seed", range(int(os.environ.get("AEROBEE_POP_HISTORIES", "25"))))
def test_a_long_history_with_crashes(seed):
    """250 steps each, by weight. A failing seed can be run again alone; `steps` then tells what happened."""
    chance, machine, steps = random.Random(seed), History(), []
    try:
        for _ in range(250):
            (step,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
            if step in ("ack", "ack_batch", "change") and not machine.receipts:
                continue
            given = arguments(step, chance)
            steps.append((step, given))
            getattr(machine, step)(**given)
            machine.committed_offset_passes_only_what_is_safe()
            machine.figures_count_every_lease()
        machine.teardown()
    finally:
        shutil.rmtree(machine.directory, ignore_errors=True)


def _fast_directory() -> str | None:
    """Memory, where there is such a place: the offsets file is synced at every save."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


_SETTINGS = settings(
    max_examples=30,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    print_blob=True,
)

TestHistory = History.TestCase
TestHistory.settings = _SETTINGS
TestHistory.pytestmark = [  # type: ignore[attr-defined]
    pytest.mark.slow,
    pytest.mark.seed("S000-17", "S000-18", "S000-20", "S000-27", "S000-28", "S000-29", "S000-31"),
]
