# SPDX-License-Identifier: Apache-2.0
"""Pulls on both paths, while all that decides about them changes: the lane must not go on as before."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.protocol.command import encode, request
from aerobee.protocol.headers.consume import PullMessage
from aerobee.protocol.headers.produce import SendMessageV2
from tests.native.bench import SMALL, Bench, Pair
from tests.native.frames import cut, heartbeat, pull, written

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.broker.broker import Broker


def change(random: Random, broker: Broker) -> None:
    """One of the things that decide how a pull ends."""
    topics, groups, settings = broker.topics, broker.groups, broker.settings
    orders = topics.require("orders")
    way = random.randrange(7)
    if way == 0:
        topics.put(msgspec.structs.replace(orders, perm=random.choice([6, 6, 6, 6, 6, 6, 4, 2])))
    elif way == 1:
        topics.put(msgspec.structs.replace(orders, read_queue_nums=random.choice([2, 4, 4])))
    elif way == 2:
        known = groups.require("billing")
        groups.put(msgspec.structs.replace(known, consume_enable=random.random() < 0.9))
    elif way == 3:
        groups.forbid("audit", "orders", random.choice([0, 4]))
    elif way == 4:
        broker.offsets.set_reset("billing", "orders", random.randrange(4), 7)
    elif way == 5:
        settings.swap(msgspec.structs.replace(settings.value, perm=random.choice([6, 6, 6, 6, 6, 6, 6, 2])))
    else:
        settings.swap(msgspec.structs.replace(settings.value, pull_messages=random.choice([3, 32])))


def outcome(bench: Bench) -> tuple[Any, ...]:
    offsets, clients = bench.broker.offsets, bench.broker.clients
    return offsets._table, offsets._pulled, offsets._resets, clients._learned, bench.figures()


async def filled(pair: Pair, random: Random) -> None:
    for number in range(160):
        tag = random.choice(["TagA", "TagB", "ü"])
        header = SendMessageV2(
            topic="orders", queue_id=number % 4, properties=f"UNIQ_KEY\x01{number:032X}\x02TAGS\x01{tag}\x02"
        )
        await pair.feed(encode(request(header, random.randbytes(random.choice([30, 30, 200, 900])))))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 16))])
async def test_pulls_of_the_lane_are_those_of_python(seed: int, tmp_path: Path, same_choices: None) -> None:
    random = Random(seed)
    pair = Pair(tmp_path, msgspec.structs.replace(SMALL, record_check=seed % 5 != 4))
    await filled(pair, random)
    before = pair.benches[1].runs
    for number in range(120):
        commands = [pull(random) for _ in range(random.choice([1, 3, 8]))]
        if number == 0 or random.random() < 0.2:
            commands.insert(0, heartbeat(random))
        frames = b"".join(written(random, command, number) for command in commands)
        await pair.feed(*cut(random, frames))
        draw = random.getrandbits(32)
        for bench in pair.benches:
            if draw % 4 == 0:
                change(Random(draw), bench.broker)
            bench.clock.advance(draw % 7)
            bench.broker.store.tick(bench.clock.wall())
        reference, lane = map(outcome, pair.benches)
        assert lane == reference
    assert seed % 5 == 4 or pair.benches[1].runs > before + 20, "the lane took next to nothing"
    for bench in pair.benches:
        bench.broker.parked.stop()
        bench.broker.store.close()


async def test_pulls_that_find_messages_are_one_run(tmp_path: Path, same_choices: None) -> None:
    pair = Pair(tmp_path)
    await filled(pair, Random(1))
    wanted = PullMessage(
        consumer_group="billing",
        topic="orders",
        queue_id=0,
        queue_offset=0,
        sys_flag=4,
        subscription="TagA",
        max_msg_nums=4,
    )
    await pair.feed(encode(request(wanted)))  # the first of a group makes it
    before = pair.benches[1].runs
    answers = await pair.feed(encode(request(wanted)) * 9)
    assert (pair.benches[1].runs - before, [answer.code for answer in answers]) == (1, [0] * 9)
    for bench in pair.benches:
        bench.broker.store.close()
