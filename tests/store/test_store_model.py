# SPDX-License-Identifier: Apache-2.0
"""The store against the simplest thing that could be right: lists of bodies per queue."""

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from aerobee.clock import ManualClock
from aerobee.protocol.message import Record, decode
from aerobee.protocol.properties import tag_code
from aerobee.settings import StoreConfig
from aerobee.store.message_store import Boundary, MessageStore, ReadLimit, ReadStatus
from aerobee.store.platform import Disk

TOPICS = st.sampled_from(["a", "b", "c"])
QUEUES = st.sampled_from([0, 5])
TAGS = st.sampled_from(["x", "y"])
SIZES = st.sampled_from([0, 1, 50, 900])


class Only:
    properties = None

    def __init__(self, tag: str) -> None:
        self.codes = frozenset([tag_code(tag)])


class StoreModel(RuleBasedStateMachine):
    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.syncs = os.fsync, os.fdatasync
        os.fsync = os.fdatasync = lambda fd: None  # type: ignore[assignment]
        self.root = Path(tempfile.mkdtemp(prefix="aerobee-model"))
        self.clock = ManualClock()
        self.config = StoreConfig(
            commit_log_segment_bytes=4096, consume_queue_units=4, index_slots=8, index_entries=32,
            open_files=3, retention_bytes=0,
        )  # fmt: skip
        self.queues: dict[tuple[str, int], list[tuple[bytes, str, int]]] = {}
        self.by_key: dict[tuple[str, str], list[bytes]] = {}
        self.number = 0
        self.store = self.opened()

    def opened(self) -> MessageStore:
        return MessageStore.open(self.root, self.config, self.clock, disk=lambda: Disk(1, 99))

    def message(self, topic: str, queue_id: int, tag: str, size: int) -> Record:
        self.number += 1
        body = b"%06d" % self.number + bytes(size)
        key = f"k{self.number % 7}"
        self.queues.setdefault((topic, queue_id), []).append((body, tag, self.clock.now()))
        self.by_key.setdefault((topic, key), []).append(body)
        return Record(topic, body, f"TAGS\x01{tag}\x02KEYS\x01{key}\x02", queue_id)

    @rule(topic=TOPICS, queue_id=QUEUES, tag=TAGS, size=SIZES)
    def append(self, topic: str, queue_id: int, tag: str, size: int) -> None:
        self.store.append(self.message(topic, queue_id, tag, size))

    @rule(
        topic=TOPICS,
        queue_id=QUEUES,
        tags=st.lists(TAGS, min_size=1, max_size=4),
        size=st.sampled_from([0, 300]),
    )
    def append_batch(self, topic: str, queue_id: int, tags: list[str], size: int) -> None:
        self.store.append_batch([self.message(topic, queue_id, tag, size) for tag in tags])

    @rule(ms=st.integers(0, 3000))
    def tick(self, ms: int) -> None:
        self.clock.advance(ms)
        self.store.tick(self.clock.now())
        self.store._flush.wait()

    @rule(topic=TOPICS)
    def delete_topic(self, topic: str) -> None:
        self.store.delete_topic(topic)
        for queue_id in (0, 5):
            self.queues.pop((topic, queue_id), None)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.opened()
        assert self.store.recovery.clean

    @rule()
    def crash(self) -> None:
        store = self.store
        store._flush.close()
        store._queues.close()
        store._index.close()
        store._log.close()
        store._lock.release()
        self.store = self.opened()
        assert not self.store.recovery.clean
        assert self.store.corrupt_records == 0

    @rule(
        topic=TOPICS,
        queue_id=QUEUES,
        offset=st.integers(0, 20),
        count=st.integers(1, 9),
        tag=st.none() | TAGS,
    )
    def read(self, topic: str, queue_id: int, offset: int, count: int, tag: str | None) -> None:
        there = self.queues.get((topic, queue_id))
        found = self.store.read(
            topic, queue_id, offset, ReadLimit(max_messages=count), Only(tag) if tag else None
        )
        if there is None:
            assert found.status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
            return
        if offset >= len(there):
            over = (
                ReadStatus.OFFSET_OVERFLOW_ONE if offset == len(there) else ReadStatus.OFFSET_OVERFLOW_BADLY
            )
            assert (found.status, found.next_offset) == (over, len(there))
            return
        scanned = there[offset : found.next_offset]
        expected = [body for body, its, _ in scanned if tag in (None, its)]
        assert [decode(raw).body for raw in found.messages] == expected
        assert len(expected) <= count
        assert offset < found.next_offset <= len(there)
        if not expected:
            assert found.status is ReadStatus.NO_MATCHED_MESSAGE

    @rule(topic=TOPICS, queue_id=QUEUES, back=st.integers(0, 5000))
    def by_time(self, topic: str, queue_id: int, back: int) -> None:
        times = [time for _, _, time in self.queues.get((topic, queue_id), [])]
        moment = self.clock.now() - back
        lower = next((n for n, time in enumerate(times) if time >= moment), len(times))
        upper = max((n for n, time in enumerate(times) if time <= moment), default=0)
        assert self.store.offset_by_time(topic, queue_id, moment) == lower
        assert self.store.offset_by_time(topic, queue_id, moment, Boundary.UPPER) == upper

    @rule(topic=TOPICS, key=st.integers(0, 6).map(lambda n: f"k{n}"))
    def by_a_key(self, topic: str, key: str) -> None:
        found = self.store.find_by_key(topic, key, 1000, 0, 1 << 60)
        # A deleted topic's messages stay in the log, and in the index.
        assert [decode(raw).body for raw in found] == self.by_key.get((topic, key), [])

    @invariant()
    def offsets_agree(self) -> None:
        for (topic, queue_id), there in self.queues.items():
            assert self.store.max_offset(topic, queue_id) == len(there)
            assert self.store.min_offset(topic, queue_id) == 0
        assert set(self.store.topics()) == {topic for topic, _ in self.queues}

    def teardown(self) -> None:
        self.store.close()
        os.fsync, os.fdatasync = self.syncs
        shutil.rmtree(self.root)


StoreModel.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
test_the_store_does_what_lists_do = StoreModel.TestCase
