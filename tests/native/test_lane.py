# SPDX-License-Identifier: Apache-2.0
"""What the lane must leave alone, and what happens when the disk does not take a write."""

from __future__ import annotations

import asyncio
import os
import zlib
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.broker.operations.admin.topics import delete_topic
from aerobee.broker.state.stats import TOPIC_PUT
from aerobee.errors import DiskFull, TopicNotFound
from aerobee.fronts.remoting.lane import Lane
from aerobee.native import memory
from aerobee.net.connection import Limits
from aerobee.protocol import bodies
from aerobee.protocol.bodies import BatchAck
from aerobee.protocol.command import ONE_WAY, Command, decode, encode, request
from aerobee.protocol.frames import FrameDecoder
from aerobee.protocol.headers.consume import (
    AckMessage,
    BatchAckMessage,
    ChangeInvisible,
    LitePullMessage,
    PopMessage,
    PopResult,
    PullMessage,
)
from aerobee.protocol.headers.offsets import GetMaxOffset
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.message import pack_host
from aerobee.protocol.receipt import Receipt, parse_start_offsets
from tests.native.bench import SMALL, Bench, settled
from tests.own_files import is_under

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from aerobee.net.connection import Connection


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


def test_each_kind_of_request_is_served_where_no_gate_stands_before_it(bench: Bench) -> None:
    codes = set(Lane(bench.broker, lambda code: True, lambda command, reply: reply)._runs)
    assert codes == {10, 310, 320, 11, 361, 200050, 200051, 200151, 200053}
    assert not Lane(bench.broker, lambda code: False, lambda command, reply: reply)._runs
    for open_one in codes:
        lane = Lane(bench.broker, lambda code: code == open_one, lambda command, reply: reply)  # noqa: B023
        assert set(lane._runs) == {open_one}


def test_no_kind_takes_a_frame_that_is_longer_than_its_connection_lets_through(bench: Bench) -> None:
    """Nor one of who has not read his answers, where answers are written one by one."""
    connection = warm(bench)
    connection.data_received(b"".join(map(send, range(1, 9))))
    assert bench.front.run is not None
    for kind, made in every_kind(bench, connection):
        for limit, end in ((len(made) - 1, 0), (len(made), len(made))):
            connection.limits = Limits(max_frame=limit)
            assert bench.front.run(made, 0, connection)[0] == end, kind
    kinds = every_kind(bench, connection)
    connection.pause_writing()
    for kind, made in kinds:
        if kind in ("pop", "batch ack"):
            assert bench.front.run(made, 0, connection) == (0, b""), kind


def every_kind(bench: Bench, connection: Connection) -> list[tuple[str, bytes]]:
    """One request of each that the lane would serve."""
    place: dict[str, Any] = {"consumer_group": "billing", "topic": "orders", "queue_id": 0}
    pop = PopMessage(
        **place, max_msg_nums=2, invisible_time=60_000, poll_time=0, born_time=bench.clock.wall(), init_mode=0
    )
    pull = PullMessage(
        **place, queue_offset=0, max_msg_nums=1, sys_flag=4, subscription="*", expression_type="TAG"
    )
    connection.data_received(encode(request(pop)))
    given = decode(FrameDecoder().feed(bench.wires[-1].written)[-1]).fields(PopResult)
    ((_, start),) = parse_start_offsets(given.start_offset_info).items()
    acked, changed = (
        {**place, "offset": start + n, "extra_info": Receipt(
            start, given.pop_time, given.invisible_time, given.revive_qid, "0", "broker-a", 0, start + n
        ).text}
        for n in (0, 1)
    )  # fmt: skip
    none = bodies.encode(BatchAck(broker_name="broker-a", acks=[]))
    return [
        ("send", send(99)),
        ("pull", encode(request(pull))),
        ("pop", encode(request(pop))),
        ("ack", encode(request(AckMessage(**acked)))),
        ("change", encode(request(ChangeInvisible(**changed, invisible_time=9_000)))),
        ("batch ack", encode(request(BatchAckMessage(), none))),
    ]


def answers(bench: Bench) -> list[Command]:
    found = [decode(frame) for frame in FrameDecoder().feed(bench.wires[-1].written)]
    bench.wires[-1].written = b""
    return found


def test_settings_and_the_place_of_the_broker_are_those_of_the_moment(bench: Bench) -> None:
    """An answer names the region that clients' traces go by, and where the message is found by its id."""
    connection, broker = warm(bench), bench.broker
    connection.data_received(send(1))
    answers(bench)
    broker.settings.swap(msgspec.structs.replace(broker.settings.value, region="Elsewhere"))
    connection.data_received(send(2))
    broker.store.store_host = pack_host("10.1.2.3", 4_567)
    connection.data_received(send(3))
    assert bench.runs == 3
    moved, housed = answers(bench)
    assert [each.ext_dict()["MSG_REGION"] for each in (moved, housed)] == ["Elsewhere"] * 2
    assert not moved.ext_dict()["msgId"].startswith("0A010203000011D7")
    assert housed.ext_dict()["msgId"].startswith("0A010203000011D7")


async def test_sends_wait_for_the_disk_as_soon_as_the_settings_say_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the run goes and so many as want an answer; those the disk did not keep are refused, and nobody else."""
    connection, store = warm(bench), bench.broker.store
    connection.data_received(send(1))
    store.settings.swap(msgspec.structs.replace(store.settings.value, flush="sync"))
    waited: list[tuple[int, int]] = []

    async def kept(end: int, calls: int = 1) -> None:
        waited.append((end, calls))

    monkeypatch.setattr(store, "durable", kept)
    answers(bench)
    one_way = request(SendMessageV2(topic="orders", queue_id=0, properties="UNIQ_KEY\x01AB\x02"), b"x")
    one_way.flag |= ONE_WAY
    asked = request(GetMaxOffset(topic="orders", queue_id=0))
    asked.opaque = 90
    read = encode(asked) + send(2) + encode(one_way) + send(3) + encode(asked)
    connection.data_received(read)
    await settled()
    assert bench.runs == 2
    assert waited == [(store.log_max, 2)]
    assert sorted((each.opaque, each.code) for each in answers(bench)) == [(2, 0), (3, 0), (90, 0), (90, 0)]

    async def refused(end: int, calls: int = 1) -> None:
        raise DiskFull("no space left")

    monkeypatch.setattr(store, "durable", refused)
    connection.data_received(read)
    await settled()
    assert bench.runs == 3
    assert sorted((each.opaque, each.code) for each in answers(bench)) == [(2, 14), (3, 14), (90, 0), (90, 0)]


def test_pulls_are_counted_by_their_code_and_leave_when_they_are_much(bench: Bench) -> None:
    connection = warm(bench)
    connection.data_received(b"".join(send(n, body=b"x" * 7_000) for n in range(1, 9)))
    assert bench.front.run is not None
    pull = encode(
        request(
            LitePullMessage(
                consumer_group="billing", topic="orders", queue_id=0, queue_offset=1, max_msg_nums=2, sys_flag=4,
                subscription="*", expression_type="TAG",
            )
        )
    )  # fmt: skip
    connection.data_received(pull)  # Python's, who makes the group known
    counted = bench.broker.stats.counted.rpc
    before = sum(sum(times.counts) for (code, _, _), times in counted if code == 361)
    end, found = bench.front.run(pull * 5, 0, connection)
    assert end == 2 * len(pull), "14 KB each: past 16 KB the peer has work to do"
    assert len(FrameDecoder().feed(found)) == 2  # type: ignore[arg-type]
    assert sum(sum(times.counts) for (code, _, _), times in counted if code == 361) == before + 2


async def test_a_held_pop_that_fails_in_the_end_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = warm(bench)
    place: dict[str, Any] = {"consumer_group": "billing", "topic": "bills", "queue_id": 0}
    pop = PopMessage(
        **place,
        max_msg_nums=2,
        invisible_time=60_000,
        poll_time=9_000,
        born_time=bench.clock.wall(),
        init_mode=0,
    )
    bench.broker.groups.require("billing")
    release: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def held(*given: Any) -> Any:
        return await release

    monkeypatch.setattr("aerobee.broker.operations.pop.pop_again", held)
    before = bench.runs
    answers(bench)
    connection.data_received(encode(request(pop)))
    await settled()
    assert (bench.runs, answers(bench)) == (before + 1, [])
    release.set_exception(TopicNotFound("it was deleted"))
    await settled()
    (refused,) = answers(bench)
    assert (refused.code, refused.remark) == (17, "it was deleted")


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
