# SPDX-License-Identifier: Apache-2.0
"""Pops, acks and changes of invisible time, in step on both paths: each answer decides what is acked next."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.protocol.command import Command, encode, request
from aerobee.protocol.headers.consume import AckMessage, ChangeInvisible, PopMessage, PopResult
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.receipt import Receipt, parse_msg_offsets, parse_start_offsets
from tests.native.bench import Pair

if TYPE_CHECKING:
    from pathlib import Path


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
    """Of a pop: most of its messages in turn, some twice, some not, some with another's receipt."""
    popped = answer.fields(PopResult)
    starts = parse_start_offsets(popped.start_offset_info)
    made = []
    for (retry, queue_id), offsets in parse_msg_offsets(popped.msg_offset_info).items():
        for offset in offsets:
            receipt = Receipt(
                starts[retry, queue_id], popped.pop_time, popped.invisible_time, popped.revive_qid, retry, "broker-a",
                queue_id, offset,
            )  # fmt: skip
            text = receipt.text
            if random.random() < 0.05:
                text = random.choice(
                    [text.rpartition(" ")[0], "1 2 3", text + " 17", text.replace("1", "2"), ""]
                )
            place = {"consumer_group": "billing", "topic": "orders", "queue_id": queue_id, "offset": offset}
            if random.random() < 0.05:
                place["offset"] = random.choice([offset + 40, -1, 10**6])
            made.append(request(AckMessage(**place, extra_info=text)))  # type: ignore[arg-type]
            if random.random() < 0.06:
                made.append(request(ChangeInvisible(**place, extra_info=text, invisible_time=9_000)))  # type: ignore[arg-type]
    made = [ack for ack in made if random.random() < 0.95]
    made += random.sample(made, min(2, len(made)))
    if random.random() < 0.4:
        random.shuffle(made)
    return made


def pop(random: Random, number: int) -> bytes:
    command = request(
        PopMessage(
            consumer_group="billing",
            topic="orders",
            queue_id=random.choice([-1, -1, 0, 2]),
            max_msg_nums=random.choice([1, 8, 32]),
            invisible_time=30_000,
            poll_time=0,
            exp_type="TAG",
            exp=random.choice(["*", "*", "TagA"]),
        )
    )
    command.opaque = number
    return encode(command)


def cut(random: Random, data: bytes) -> list[bytes]:
    at = sorted(random.randrange(len(data) + 1) for _ in range(random.choice([0, 0, 1, 3])))
    return [data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)]


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 12))])
async def test_acks_of_the_lane_are_those_of_python(seed: int, tmp_path: Path, same_choices: None) -> None:
    random, pair = Random(seed), Popping(tmp_path)
    for number in range(240):
        text = f"UNIQ_KEY\x01{number:032X}\x02TAGS\x01{random.choice(['TagA', 'TagB'])}\x02"
        header = SendMessageV2(topic="orders", queue_id=number % 4, properties=text)
        await pair.feed(encode(request(header, b"x" * 50)))
    for number in range(25):
        (answer,) = await pair.feed(pop(random, number))
        if answer.code == 0:
            frames = []
            for ack in acks(random, answer):
                ack.opaque, ack.flag = random.randrange(10**6), 2 if random.random() < 0.1 else 0
                ack.serialize = int(random.random() < 0.2)
                frames.append(encode(ack))
            await pair.feed(*cut(random, b"".join(frames)))
        pair.advance(random.choice([0, 1, 1, 2_000, 4_000]))
        reference, lane = pair.outcome()
        assert lane == reference
    assert pair.benches[1].runs > 20
    for bench in pair.benches:
        bench.broker.pops.stop()
        bench.broker.store.close()
