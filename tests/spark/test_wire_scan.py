# SPDX-License-Identifier: Apache-2.0
"""A scan over the wire against a store: the same rows as by any other way, whatever happens to log and connection."""

from __future__ import annotations

import random
import socket
import threading
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.clock import ManualClock
from aerobee.errors import NetworkError, TopicNotFound
from aerobee.protocol import command as wire
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.consume import LogBounds, ReadLog, ReadUnits, UnitsRead
from aerobee.protocol.message import Record
from aerobee.settings import StoreConfig
from aerobee.spark import options
from aerobee.spark.reading import tasks, wire_scan
from aerobee.spark.reading.plan import DataLoss, Range
from aerobee.spark.reading.queue_source import BrokerQueues
from aerobee.store.message_store import MessageStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from aerobee.protocol.command import Command

SEGMENT = 1 << 16


class Peer:
    """Answers from a store. `happens(n)` comes before the n-th answer and may do anything to the store; when it says
    so, the connection is closed instead of an answer."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.happens: Callable[[int], Any] = lambda _: None
        self.codes: list[int] = []
        self.refused: set[int] = set()
        self.refusal = (3, b"")
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, suppress(ConnectionError):
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        data = b""
        while chunk := connection.recv(65536):
            data += chunk
            while len(data) >= 4 and len(data) >= 4 + (size := int.from_bytes(data[:4], "big")):
                command = wire.decode(data[4 : 4 + size])
                data = data[4 + size :]
                self.codes.append(command.code)
                if self.happens(len(self.codes)):
                    return
                connection.sendall(self._answer(command))

    def _answer(self, command: Command) -> bytes:
        if command.code in self.refused:
            code, body = self.refusal
            return wire.encode(wire.Command(code, command.opaque, flag=1, remark="not supported", body=body))
        fields: dict[str, str] = {}
        if command.code == RequestCode.AEROBEE_READ_UNITS:
            asked = command.fields(ReadUnits)
            if asked.topic not in self.store.topics():
                return wire.encode(wire.Command(TopicNotFound.code, command.opaque, flag=1, remark="gone"))
            first = max(asked.offset, self.store.min_offset(asked.topic, asked.queue_id))
            count = asked.count - (first - asked.offset)
            few = count if asked.step > 1 else min(count, 60)
            body = self.store.units(asked.topic, asked.queue_id, first, few, asked.step)
            fields = wire.header_fields(UnitsRead(offset=first))
        else:
            wanted = command.fields(ReadLog)
            body = bytes(self.store.log_from(wanted.position, wanted.size))
            bounds = LogBounds(min_position=self.store.log_min, max_position=self.store.log_max)
            fields = wire.header_fields(bounds)
        return wire.encode(wire.Command(0, command.opaque, flag=1, ext=fields, body=body))

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    config = StoreConfig(
        commit_log_segment_bytes=SEGMENT, consume_queue_units=50, index_slots=64, index_entries=256
    )
    made = MessageStore.open(tmp_path / "store", config, ManualClock())
    yield made
    made.close()


@pytest.fixture
def peer(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    monkeypatch.setattr(wire_scan, "LARGE", 1)
    monkeypatch.setattr(wire_scan, "SAMPLES", 20)
    monkeypatch.setattr(wire_scan, "STRETCH", 9_000)  # a dozen records
    made = Peer(store)
    yield made
    made.close()


def fill(store: MessageStore, count: int, topics: tuple[str, ...] = ("t",), seed: int = 1) -> None:
    chance = random.Random(seed)
    for n in range(count):
        topic = chance.choice(topics)
        body = b"%d:" % n + bytes(chance.choice((0, 10, 1_000, 12_000 if n % 50 == 0 else 300)))
        store.append(Record(topic, body, f"TAGS\x01a\x02KEYS\x01{n}\x02", chance.randrange(4)))


def ranges(store: MessageStore, topic: str = "t") -> list[Range]:
    return [
        Range(topic, "b", queue, store.min_offset(topic, queue), store.max_offset(topic, queue))
        for queue in store.queue_ids(topic)
    ]


def options_for(peer: Peer, **given: str) -> options.Read:
    fixed = {"namesrv": peer.address, "subscribe": "t", "retryIntervalMs": "1"}
    return options.for_batch({**fixed, **given})


def planned(peer: Peer, parts: list[Range], count: int = 3, **given: str) -> list[list[Range]] | None:
    read = options_for(peer, **given)
    source = BrokerQueues(read)
    source._others["b"] = peer.address
    try:
        return wire_scan.cut(source, parts, count, read)
    finally:
        source.close()


def rows(peer: Peer, parts: list[Range], **given: str) -> list[tuple[str, int, int, bytes]]:
    names = ("topic", "queueId", "queueOffset", "body")
    task = tasks.Task(options_for(peer, **given), parts, {"b": peer.address}, names, in_log_order=True)
    return [
        (row["topic"], row["queueId"], row["queueOffset"], row["body"])
        for batch in tasks.read(task)
        for row in batch.to_pylist()
    ]


def stored(store: MessageStore, parts: list[Range]) -> list[tuple[str, int, int, bytes]]:
    found = []
    for part in parts:
        for offset in range(part.start, part.end):
            record = store.record_of(part.topic, part.queue, offset)
            assert record is not None
            found.append((part.topic, part.queue, offset, record.body))
    return sorted(found)


@pytest.mark.parametrize("batch", ["1", "7", "10000"])
@pytest.mark.parametrize("tasks_wanted", [1, 3, 8])
def test_every_row_once_and_each_queue_in_order(
    peer: Peer, store: MessageStore, batch: str, tasks_wanted: int
) -> None:
    fill(store, 600)
    parts = ranges(store)
    groups = planned(peer, parts, tasks_wanted)
    assert groups is not None
    assert len(groups) == tasks_wanted
    found = [rows(peer, group, batchRows=batch) for group in groups]
    assert sorted(row for task in found for row in task) == stored(store, parts)
    for task in found:
        seen: dict[int, list[int]] = defaultdict(list)
        for _, queue, offset, _ in task:
            seen[queue].append(offset)
        assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert set(peer.codes) == {RequestCode.AEROBEE_READ_UNITS, RequestCode.AEROBEE_READ_LOG}


def test_tasks_are_of_about_equal_size_and_lie_apart_in_the_log(peer: Peer, store: MessageStore) -> None:
    fill(store, 2_000)
    groups = planned(peer, ranges(store), 4)
    assert groups is not None
    assert all(400 < sum(map(len, group)) < 600 for group in groups)
    firsts = [min(store.unit("t", p.queue, p.start).physical_offset for p in group) for group in groups]  # type: ignore[union-attr]
    lasts = [max(store.unit("t", p.queue, p.end - 1).physical_offset for p in group) for group in groups]  # type: ignore[union-attr]
    assert all(last < first + 100_000 for last, first in zip(lasts, firsts[1:], strict=False))


def test_other_topics_records_in_between_are_left_out(peer: Peer, store: MessageStore) -> None:
    fill(store, 600, ("t", "t", "other"))
    parts = ranges(store)
    groups = planned(peer, parts)
    assert groups is not None
    assert sorted(row for group in groups for row in rows(peer, group)) == stored(store, parts)


def test_several_topics_at_once(peer: Peer, store: MessageStore) -> None:
    fill(store, 600, ("t", "u"))
    parts = ranges(store) + ranges(store, "u")
    groups = planned(peer, parts)
    assert groups is not None
    assert sorted(row for group in groups for row in rows(peer, group)) == stored(store, parts)


@pytest.mark.parametrize(
    "given",
    [{"tags": "a"}, {"sqlFilter": "a > 1"}, {"orderedByQueue": "true"}, {"maxRecordsPerPartition": "10"}],
)
def test_what_needs_pulls_is_not_cut(peer: Peer, store: MessageStore, given: dict[str, str]) -> None:
    fill(store, 100)
    assert planned(peer, ranges(store), 3, **given) is None
    assert peer.codes == []


def test_a_topic_that_is_a_small_part_of_the_log_is_not_cut(peer: Peer, store: MessageStore) -> None:
    fill(store, 400, ("t", *["other"] * 4))
    assert planned(peer, ranges(store)) is None


def test_a_small_range_is_not_worth_samples(
    peer: Peer, store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, 100)
    monkeypatch.setattr(wire_scan, "LARGE", 101)
    assert planned(peer, ranges(store)) is None
    assert peer.codes == []


def test_several_brokers_are_pulled_from(peer: Peer, store: MessageStore) -> None:
    fill(store, 100)
    assert planned(peer, [*ranges(store), Range("t", "c", 0, 0, 5)]) is None


@pytest.mark.parametrize("refusal", [(3, b""), (16, b""), (9_999, b""), (0, b""), (0, b"anything")], ids=str)
def test_a_broker_that_knows_no_such_question_is_pulled_from(
    peer: Peer, store: MessageStore, refusal: tuple[int, bytes]
) -> None:
    fill(store, 100)
    peer.refusal = refusal
    peer.refused = {RequestCode.AEROBEE_READ_UNITS, RequestCode.AEROBEE_READ_LOG}
    assert planned(peer, ranges(store)) is None
    assert len(peer.codes) == len(ranges(store))


@pytest.mark.parametrize("every", [2, 3, 5])
def test_a_connection_that_is_lost_again_and_again_loses_no_row(
    peer: Peer, store: MessageStore, every: int
) -> None:
    fill(store, 300)
    parts = ranges(store)
    peer.happens = lambda n: n % every == 0
    found = rows(peer, parts, numRetries="5")
    assert len(found) == len(set(found)) == 300
    assert sorted(found) == stored(store, parts)


def test_a_broker_that_is_gone_for_good_is_an_error(peer: Peer, store: MessageStore) -> None:
    fill(store, 50)
    peer.happens = lambda _: True
    with pytest.raises(NetworkError):
        rows(peer, ranges(store), numRetries="2")


def deletes_the_first_file_once(peer: Peer, at: int) -> None:
    def happens(n: int) -> None:
        if n == at:
            peer.store._log.delete_first()

    peer.happens = happens


@pytest.mark.parametrize("at", range(1, 40, 4))
def test_retention_while_reading(peer: Peer, store: MessageStore, at: int) -> None:
    """With the first file gone from some answer on, exactly rows of that file are missing, and the loss is told."""
    fill(store, 600)
    parts = ranges(store)
    everything = stored(store, parts)
    units = {(p.queue, o): store.unit("t", p.queue, o) for p in parts for o in range(p.start, p.end)}
    deletes_the_first_file_once(peer, at)
    found = rows(peer, parts, failOnDataLoss="false")
    missing = set(everything) - set(found)
    assert set(found) <= set(everything)
    assert len(found) == len(set(found))
    assert all(units[queue, offset].physical_offset < SEGMENT for _, queue, offset, _ in missing)  # type: ignore[union-attr]


def test_retention_before_reading_is_data_loss_with_its_figures(peer: Peer, store: MessageStore) -> None:
    fill(store, 600)
    parts = ranges(store)
    store._log.delete_first()
    with pytest.raises(DataLoss, match=r"messages of t/0 .* failOnDataLoss=false"):
        rows(peer, parts)


def test_a_log_that_ends_earlier_is_data_loss(peer: Peer, store: MessageStore) -> None:
    """Units are there, their records are not: what a broker may show whose log was cut at a restart."""
    fill(store, 100)
    parts = ranges(store)
    cut_at = store.unit("t", 0, store.max_offset("t", 0) // 2).physical_offset  # type: ignore[union-attr]
    store._log.end, end = cut_at, store._log.end
    try:
        with pytest.raises(DataLoss, match="behind the end of the broker's log"):
            rows(peer, parts)
        found = rows(peer, parts, failOnDataLoss="false")
    finally:
        store._log.end = end
    assert 0 < len(found) < 100
    assert set(found) < set(stored(store, parts))


def test_a_topic_deleted_meanwhile(peer: Peer, store: MessageStore) -> None:
    fill(store, 300)
    parts = ranges(store)
    peer.happens = lambda n: store.delete_topic("t") if n == 2 else None
    with pytest.raises(DataLoss, match="messages of t/"):
        rows(peer, parts)
    peer.happens = lambda _: None
    assert rows(peer, parts, failOnDataLoss="false") == []
