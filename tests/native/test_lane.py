# SPDX-License-Identifier: Apache-2.0
"""What the lane must leave alone, and what happens when the disk does not take a write."""

from __future__ import annotations

import os
import zlib
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.broker.operations.admin.topics import delete_topic
from aerobee.broker.state.stats import TOPIC_PUT
from aerobee.fronts.remoting.lane import Lane
from aerobee.native import memory
from aerobee.protocol.command import decode, encode, request
from aerobee.protocol.frames import FrameDecoder
from aerobee.protocol.headers.produce import SendMessageV2
from tests.native.bench import SMALL, Bench
from tests.own_files import is_under

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, SMALL, lane=True)
    yield bench
    bench.broker.store.close()


def send(number: int, queue_id: int = 0, body: bytes = b"x" * 500) -> bytes:
    text = f"UNIQ_KEY\x01{number:032X}\x02"
    command = request(SendMessageV2(topic="orders", queue_id=queue_id, properties=text), body)
    command.opaque = number
    return encode(command)


def codes(bench: Bench) -> list[int]:
    return [decode(frame).code for frame in FrameDecoder().feed(bench.wires[0].written)]


def warm(bench: Bench) -> Any:
    """The first message of a queue, and the first key of an index file, are Python's."""
    connection = bench.connect()
    connection.data_received(send(0))
    assert bench.runs == 0
    return connection


def test_a_read_of_several_sends_is_one_run(bench: Bench) -> None:
    warm(bench).data_received(b"".join(map(send, range(1, 20))))
    assert (bench.runs, codes(bench)) == (1, [0] * 20)
    assert bench.broker.store.max_offset("orders", 0) == 20


def test_requests_behind_a_gate_are_left_to_it(bench: Bench) -> None:
    connection = warm(bench)
    lane = Lane(bench.broker, lambda code: code != 310, lambda command, reply: reply)
    assert lane.run(send(1), 0, connection) == (0, b"")


def test_a_topic_that_lost_queues_is_seen_in_the_next_run(bench: Bench) -> None:
    connection = warm(bench)
    connection.data_received(send(1, queue_id=3) + send(2, queue_id=3))
    topics = bench.broker.topics
    topics.put(msgspec.structs.replace(topics.require("orders"), read_queue_nums=2, write_queue_nums=2))
    topics.save()
    connection.data_received(send(3, queue_id=3))
    assert codes(bench)[:3] == [0, 0, 0]
    assert codes(bench)[3] != 0


def test_a_queue_that_was_taken_out_of_memory_is_found_anew(bench: Bench) -> None:
    connection, store = warm(bench), bench.broker.store
    connection.data_received(send(1) + send(2))
    store.flush()
    store._queues._unload("orders", 0)
    store._queues.log_end = store.log_max
    assert store.max_offset("orders", 0) == 3, "another object for the same queue"
    connection.data_received(send(3) + send(4))
    assert bench.runs == 2
    assert store.max_offset("orders", 0) == 5
    assert store.record_of("orders", 0, 4) is not None


async def test_a_topic_that_was_deleted_and_made_again_begins_anew(bench: Bench) -> None:
    connection, broker = warm(bench), bench.broker
    connection.data_received(send(1) + send(2))
    await delete_topic("orders", broker)
    broker.topics.ensure("orders", 4)
    broker.topics.save()
    connection.data_received(send(3))
    connection.data_received(send(4) + send(5))
    assert bench.runs == 2
    assert broker.store.max_offset("orders", 0) == 3
    assert dict(broker.stats.meters(TOPIC_PUT))["orders"].count == 3


@pytest.mark.parametrize("disk", ["short", "refuses"])
def test_a_write_that_the_disk_does_not_take_whole_is_copied_into_the_map(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    connection, pwrite = warm(bench), os.pwrite

    def unwilling(fd: int, data: memoryview, at: int) -> int:
        if not is_under(bench.broker.store.root, fd):
            return pwrite(fd, data, at)
        if disk == "refuses":
            raise OSError(28, "No space left on device")
        return pwrite(fd, bytes(data)[:100], at)

    monkeypatch.setattr(os, "pwrite", unwilling)
    connection.data_received(b"".join(map(send, range(1, 20))))
    assert codes(bench) == [0] * 20
    for offset in range(20):
        record = bench.broker.store.record_of("orders", 0, offset)
        assert record is not None
        assert record.body == b"x" * 500


def test_the_crc_is_zlibs_at_every_length() -> None:
    random = Random(1)
    for size in [*range(300), 4096, 4111]:
        data, before = random.randbytes(size), random.getrandbits(32)
        assert memory.crc32_of(data, before) == zlib.crc32(data, before), size
