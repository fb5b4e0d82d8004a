# SPDX-License-Identifier: Apache-2.0
"""Pops, acks and changes of invisible time, in step on both paths: each answer decides what is acked next."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.protocol import bodies
from aerobee.protocol.bodies import BatchAck, BatchAckEntry
from aerobee.protocol.command import Command, encode, request
from aerobee.protocol.headers.consume import (
    AckMessage,
    BatchAckMessage,
    ChangeInvisible,
    ChangeInvisibleResult,
    PopMessage,
    PopResult,
)
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.receipt import Receipt, bits_text, parse_msg_offsets, parse_start_offsets
from tests.native.bench import Pair, settled
from tests.native.frames import pop, written

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.broker.broker import Broker


class Popping(Pair):
    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        for bench in self.benches:
            bench.broker.pops.draw = lambda: 50

    def advance(self, ms: int) -> None:
        for bench in self.benches:
            bench.clock.advance(ms)
            bench.broker.pops.leases.journal_all(None, bench.clock.now()) if ms > 3_000 else None

    def outcome(self) -> list[Any]:
        found = []
        for bench in self.benches:
            broker, meters = bench.broker, bench.broker.stats._meters
            acked = {key: (m.calls, m.count) for key, m in meters["GROUP_ACK"].items()}
            lanes = {
                key: (lane.in_flight, [(c.start, c.open) for c in lane.young.values()], lane.cold)
                for key, lane in broker.pops.leases.in_flight.lanes.items()
            }
            offsets = [broker.offsets.get("billing", "orders", queue) for queue in range(4)]
            found.append((acked, lanes, offsets, bench.figures()))
        return found


def acks(random: Random, answer: Command) -> list[Command]:
    """Of a pop: most of its messages in turn, some twice, some not, some with another's receipt, some many at once."""
    popped = answer.fields(PopResult)
    starts = parse_start_offsets(popped.start_offset_info)
    made = []
    for (retry, queue_id), offsets in parse_msg_offsets(popped.msg_offset_info).items():
        start = starts[retry, queue_id]
        if random.random() < 0.2:
            made.append(batch_ack(random, popped, queue_id, [offset - start for offset in offsets]))
        for offset in offsets:
            receipt = Receipt(
                start, popped.pop_time, popped.invisible_time, popped.revive_qid, retry, "broker-a", queue_id, offset
            )  # fmt: skip
            text = receipt.text
            if random.random() < 0.05:
                text = random.choice(
                    [text.rpartition(" ")[0], "1 2 3", text + " 17", text.replace("1", "2"), ""]
                )
            place = {"consumer_group": "billing", "topic": "orders", "queue_id": queue_id, "offset": offset}
            if random.random() < 0.05:
                place["offset"] = random.choice([offset + 40, -1, 10**6])
            if random.random() < 0.02:
                place["topic"] = "nowhere"
            made.append(request(AckMessage(**place, extra_info=text)))  # type: ignore[arg-type]
            if random.random() < 0.1:
                failure = random.choice([None, "", "KeyError: 'card'"])
                change = ChangeInvisible(**place, extra_info=text, invisible_time=9_000, failure=failure)  # type: ignore[arg-type]
                made.append(request(change))
    made = [ack for ack in made if random.random() < 0.95]
    made += random.sample(made, min(2, len(made)))
    if random.random() < 0.4:
        random.shuffle(made)
    return made


def batch_ack(random: Random, popped: PopResult, queue_id: int, places: list[int]) -> Command:
    entries = [
        BatchAckEntry(
            consumer_group="billing",
            topic=random.choice(["orders", "orders", "orders", "nowhere"]),
            retry=random.choice(["0", "0", "0", "1", "x"]) if random.random() < 0.2 else "0",
            start_offset=parse_start_offsets(popped.start_offset_info)["0", queue_id],
            queue_id=queue_id,
            revive_queue_id=popped.revive_qid,
            pop_time=popped.pop_time,
            invisible_time=popped.invisible_time,
            bits=bits_text(random.sample(places, random.randrange(1, len(places) + 1))),
        )
        for _ in range(random.choice([1, 1, 2]))
    ]
    body = bodies.encode(BatchAck(broker_name="broker-a", acks=entries))
    return request(BatchAckMessage(), random.choice([body, body, body, body, b"", b"{}", body[:-3]]))


def message(random: Random, number: int) -> bytes:
    text = f"UNIQ_KEY\x01{number:032X}\x02TAGS\x01{random.choice(['TagA', 'TagB'])}\x02"
    return encode(request(SendMessageV2(topic="orders", queue_id=number % 4, properties=text), b"x" * 50))


def change(random: Random, broker: Broker) -> None:
    """One of the things that decide how a pop ends."""
    orders, groups, settings = broker.topics.require("orders"), broker.groups, broker.settings
    way = random.randrange(5)
    if way == 0:
        broker.topics.put(msgspec.structs.replace(orders, perm=random.choice([6, 6, 6, 2])))
    elif way == 1:
        broker.topics.put(msgspec.structs.replace(orders, read_queue_nums=random.choice([2, 4, 4, 4])))
    elif way == 2:
        known = groups.require("billing")
        groups.put(msgspec.structs.replace(known, consume_enable=random.random() < 0.8))
    elif way == 3:
        broker.offsets.set_reset("billing", "orders", random.randrange(4), 7)
    else:
        settings.swap(msgspec.structs.replace(settings.value, perm=random.choice([6, 6, 6, 2])))


def pieces(random: Random, data: bytes) -> list[bytes]:
    at = sorted(random.randrange(len(data) + 1) for _ in range(random.choice([0, 0, 1, 3])))
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 16))])
async def test_pops_and_acks_of_the_lane_are_those_of_python(
    seed: int, tmp_path: Path, same_choices: None
) -> None:
    random, pair = Random(seed), Popping(tmp_path)
    await pair.feed(*[message(random, number) for number in range(120)])
    before = pair.benches[1].runs
    for number in range(40):
        pops = [pop(random, pair.benches[0].clock.wall()) for _ in range(random.choice([1, 1, 2]))]
        answers = await pair.feed(*pieces(random, b"".join(written(random, one, number) for one in pops)))
        answers += await pair.feed(*[message(random, number * 100 + n) for n in range(8)])
        for answer in answers:
            if answer.code == 0 and "msgOffsetInfo" in answer.ext_dict():
                frames = [written(random, ack, random.randrange(10**6)) for ack in acks(random, answer)]
                await pair.feed(*pieces(random, b"".join(frames)))
        draw = random.getrandbits(32)
        if draw % 5 == 0:
            for bench in pair.benches:
                change(Random(draw), bench.broker)
        pair.advance(random.choice([0, 1, 1, 2_000, 4_000]))
        reference, lane = pair.outcome()
        assert lane == reference
    assert pair.benches[1].runs > before + 20, "the lane took next to nothing"
    for bench in pair.benches:
        bench.broker.pops.stop()
        await settled()
        bench.broker.store.close()
    assert pair.benches[0].files() == pair.benches[1].files()


async def test_changes_of_what_was_popped_are_one_run(tmp_path: Path, same_choices: None) -> None:
    pair, random = Popping(tmp_path), Random(3)
    await pair.feed(*[message(random, number) for number in range(12)])
    wanted = PopMessage(
        consumer_group="billing", topic="orders", queue_id=-1, max_msg_nums=8, invisible_time=60_000,
        poll_time=0, born_time=pair.benches[0].clock.wall(), init_mode=0,
    )  # fmt: skip
    (answer,) = await pair.feed(encode(request(wanted)))
    popped = answer.fields(PopResult)
    starts, made = parse_start_offsets(popped.start_offset_info), []
    for (retry, queue_id), offsets in parse_msg_offsets(popped.msg_offset_info).items():
        for offset in offsets:
            given = (starts[retry, queue_id], popped.pop_time, popped.invisible_time, popped.revive_qid)
            receipt = Receipt(*given, retry, "broker-a", queue_id, offset)
            change = ChangeInvisible(
                consumer_group="billing", topic="orders", queue_id=queue_id, offset=offset,
                extra_info=receipt.text, invisible_time=9_000,
            )  # fmt: skip
            made.append(encode(request(change)))
    before = pair.benches[1].runs
    answers = await pair.feed(b"".join(made))
    assert len(made) > 1
    assert pair.benches[1].runs == before + 1
    assert [each.fields(ChangeInvisibleResult).invisible_time for each in answers] == [9_000] * len(made)
    reference, lane = pair.outcome()
    assert lane == reference
    for bench in pair.benches:
        bench.broker.store.close()
