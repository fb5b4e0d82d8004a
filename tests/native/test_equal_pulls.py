# SPDX-License-Identifier: Apache-2.0
"""Pulls on both paths, while all that decides about them changes: the lane must not go on as before."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.errors import StoreError
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.command import encode, request
from aerobee.protocol.headers.consume import PullMessage
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.store.queue_loading import Damage
from tests.native.bench import SMALL, Bench, Pair
from tests.native.frames import cut, heartbeat, pull, written

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aerobee.broker.broker import Broker
    from aerobee.protocol.command import Command


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


@pytest.mark.seed("S004-73", "S004-74", "S004-77")
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


class Backlog:
    """Readers who work off queues, each from where his last answer ended; told to go elsewhere, they do."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.at: dict[tuple[str, int], int] = {}

    async def read(self, group: str, queue_id: int, *, most: int = 4, wanted: str = "*") -> Command:
        offset = self.at.get((group, queue_id), 0)
        header = PullMessage(
            consumer_group=group, topic="orders", queue_id=queue_id, queue_offset=offset, sys_flag=4,
            subscription=wanted, max_msg_nums=most, commit_offset=offset,
        )  # fmt: skip
        (answer,) = await self.pair.feed(encode(request(header)))
        self.at[group, queue_id] = int(answer.ext_dict().get("nextBeginOffset", offset))
        return answer

    def count_stretches(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        store = self.pair.benches[1].broker.store
        stretch = store.stretch

        def counted(*given: Any) -> Any:
            self.asked += 1
            return stretch(*given)

        monkeypatch.setattr(store, "stretch", counted)


@pytest.fixture
async def backlog(
    tmp_path: Path, same_choices: None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Backlog]:
    pair = Pair(tmp_path, msgspec.structs.replace(SMALL, commit_log_segment_bytes=1 << 18))
    await filled(pair, Random(1))
    made = Backlog(pair)
    for group in ("billing", "audit"):
        await made.read(group, 0, most=1)  # the first of a group makes it
    made.at.clear()
    made.count_stretches(monkeypatch)
    yield made
    for bench in pair.benches:
        assert outcome(bench) == outcome(pair.benches[0])
        bench.broker.store.close()


async def test_who_goes_on_where_he_was_is_served_without_a_word_of_pythons(backlog: Backlog) -> None:
    answers = [await backlog.read("billing", 1) for _ in range(9)]
    assert [answer.ext_dict()["nextBeginOffset"] for answer in answers] == [str(n) for n in range(4, 37, 4)]
    assert backlog.asked == 2, "the first time, and when he went on"
    backlog.at["billing", 1] = 3  # back again, as after a rebalance
    await backlog.read("billing", 1)
    assert backlog.asked == 3


async def test_what_comes_meanwhile_is_read_behind_what_lay_ahead(backlog: Backlog) -> None:
    for _ in range(10):
        await backlog.read("billing", 1)
    assert (await backlog.read("billing", 1)).code == ResponseCode.PULL_NOT_FOUND
    await filled(backlog.pair, Random(2))
    answers = [await backlog.read("billing", 1) for _ in range(10)]
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert {answer.ext_dict()["maxOffset"] for answer in answers} == {"80"}


async def test_the_end_of_a_queue_is_told_as_it_is_now_not_as_it_was_ahead(backlog: Backlog) -> None:
    for _ in range(3):
        await backlog.read("billing", 1)
    asked = backlog.asked
    await filled(backlog.pair, Random(2))
    assert (await backlog.read("billing", 1)).ext_dict()["maxOffset"] == "80"
    assert backlog.asked == asked, "what lies ahead is still there"


async def test_a_reset_is_told_to_who_has_units_ahead(backlog: Backlog) -> None:
    for _ in range(3):
        await backlog.read("billing", 1)
    for bench in backlog.pair.benches:
        bench.broker.offsets.set_reset("billing", "orders", 1, 30)
    answer = await backlog.read("billing", 1)
    assert (answer.code, answer.ext_dict()["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "30")


async def test_messages_that_are_too_old_for_their_topic_are_not_served_from_ahead(backlog: Backlog) -> None:
    for _ in range(3):
        await backlog.read("billing", 1)
    for bench in backlog.pair.benches:
        bench.broker.store._queues.find("orders", 1).served_from = 20
    answer = await backlog.read("billing", 1)
    assert (answer.code, answer.ext_dict()["minOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "20")


async def test_messages_of_a_file_that_is_gone_are_not_served_from_ahead(backlog: Backlog) -> None:
    for seed in range(2, 9):
        await filled(backlog.pair, Random(seed))  # into a second file
    for _ in range(3):
        await backlog.read("billing", 1)
    for bench in backlog.pair.benches:
        assert bench.broker.store._log.delete_first() is not None
    answer = await backlog.read("billing", 1)
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert int(answer.ext_dict()["minOffset"]) > 12
    assert (await backlog.read("billing", 1)).code == ResponseCode.SUCCESS


async def test_the_start_of_a_queue_is_told_as_it_is_now_not_as_it_was_ahead(backlog: Backlog) -> None:
    for seed in range(2, 9):
        await filled(backlog.pair, Random(seed))
    backlog.at["billing", 1] = 300  # in the second file
    for _ in range(3):
        await backlog.read("billing", 1)
    for bench in backlog.pair.benches:
        bench.broker.store._log.delete_first()
    answer = await backlog.read("billing", 1)
    assert (answer.code, backlog.at["billing", 1]) == (ResponseCode.SUCCESS, 316)
    assert int(answer.ext_dict()["minOffset"]) > 100


async def test_a_map_that_was_closed_meanwhile_is_opened_again(backlog: Backlog) -> None:
    for seed in range(2, 9):
        await filled(backlog.pair, Random(seed))  # into a second file
    for _ in range(3):
        await backlog.read("billing", 1)
    for bench in backlog.pair.benches:
        bench.broker.store._log.segments[0].close()
    assert (await backlog.read("billing", 1)).code == ResponseCode.SUCCESS


@pytest.mark.seed("S004-58")
async def test_what_has_left_memory_meanwhile_is_read_as_cold(backlog: Backlog) -> None:
    for _ in range(3):
        await backlog.read("billing", 1)
    runs = backlog.pair.benches[1].runs
    for bench in backlog.pair.benches:
        bench.broker.store.memory_bytes = 100
    await backlog.read("billing", 1)
    assert [bench.broker.store.cold_reads for bench in backlog.pair.benches] == [1, 1]
    assert backlog.pair.benches[1].runs == runs


@pytest.mark.seed("S004-78")
async def test_nothing_is_served_from_ahead_while_the_store_may_not_be_read(
    backlog: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await backlog.read("billing", 1)
    for bench in backlog.pair.benches:
        bench.broker.store.readable = False
        monkeypatch.setattr(bench.broker.store, "_unreadable", lambda: StoreError("not now"))
    answer = await backlog.read("billing", 1)
    assert (answer.code, answer.remark, answer.body) == (ResponseCode.SYSTEM_ERROR, "not now", b"")
    for bench in backlog.pair.benches:
        bench.broker.store.readable = True
    assert (await backlog.read("billing", 1)).code == ResponseCode.SUCCESS


async def test_a_topic_that_was_deleted_and_made_again_is_read_from_its_start(backlog: Backlog) -> None:
    for _ in range(3):
        await backlog.read("billing", 1)
    for bench in backlog.pair.benches:
        bench.broker.store.delete_topic("orders")
    assert (await backlog.read("billing", 1)).code == ResponseCode.PULL_OFFSET_MOVED
    await filled(backlog.pair, Random(3))
    backlog.at.clear()
    answers = [await backlog.read("billing", 1) for _ in range(3)]
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert {answer.ext_dict()["maxOffset"] for answer in answers} == {"40"}


async def test_a_record_that_is_damaged_ahead_is_stepped_over(backlog: Backlog) -> None:
    for _ in range(3):
        await backlog.read("billing", 1)
    for bench in backlog.pair.benches:
        store = bench.broker.store
        store._log.map[store.unit("orders", 1, 14).physical_offset + 60] ^= 1
    assert (await backlog.read("billing", 1)).code == ResponseCode.SUCCESS
    assert backlog.at["billing", 1] >= 16
    assert [bench.broker.store.corrupt_records for bench in backlog.pair.benches] == [1, 1]


async def test_units_that_were_put_right_are_read_anew(backlog: Backlog) -> None:
    for _ in range(3):
        await backlog.read("billing", 1)
    asked = backlog.asked
    for bench in backlog.pair.benches:
        store = bench.broker.store
        queue, unit = store._queues.find("orders", 1), store.unit("orders", 1, 30)
        assert queue is not None and unit is not None
        store._care._put_right(queue, 30, unit)
    await backlog.read("billing", 1)
    assert backlog.asked == asked + 1
    for bench in backlog.pair.benches:
        store = bench.broker.store
        queue = store._queues.find("orders", 1)
        assert queue is not None
        store._care.rebuild([Damage(queue, 0, 40)], store.log_max)
    await backlog.read("billing", 1)
    await backlog.read("billing", 1)
    assert backlog.asked == asked + 3, "twice: the first time, and when he went on"


async def test_units_lie_ahead_for_so_many_readers_and_not_for_more(backlog: Backlog) -> None:
    groups = [f"group{number}" for number in range(70)]
    for group in groups:
        await backlog.read(group, 1, most=1)  # makes the group
    for group in groups:
        for _ in range(3):
            await backlog.read(group, 1, most=1)
    asked = backlog.asked
    for group in groups[-30:]:
        await backlog.read(group, 1, most=1)
    assert backlog.asked == asked
    for group in groups[:5]:  # the first of them had to make room
        await backlog.read(group, 1, most=1)
    assert backlog.asked == asked + 5


async def test_who_wants_some_tags_has_no_units_ahead(backlog: Backlog) -> None:
    for _ in range(4):
        assert (await backlog.read("billing", 1, wanted="TagA")).code == ResponseCode.SUCCESS
    assert backlog.asked == 4, "his units are read for each pull"


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 8))])
async def test_backlogs_are_worked_off_as_python_does_it(seed: int, backlog: Backlog) -> None:
    random = Random(seed)
    for _ in range(150):
        group, queue_id = random.choice(["billing", "billing", "audit"]), random.randrange(4)
        wanted = random.choice(["*"] * 6 + ["TagA"])
        for _ in range(random.choice([1, 3, 6])):
            await backlog.read(group, queue_id, most=random.choice([1, 4, 4, 32]), wanted=wanted)
        if random.random() < 0.1:
            backlog.at[group, queue_id] = random.randrange(40)
        if random.random() < 0.2:
            await filled(backlog.pair, random)
        draw = random.getrandbits(32)
        for bench in backlog.pair.benches:
            if draw % 5 == 0:
                change(Random(draw), bench.broker)
            if draw % 16 == 1 and len(bench.broker.store._log.segments) > 2:
                bench.broker.store._log.delete_first()
            bench.clock.advance(draw % 7)
            bench.broker.store.tick(bench.clock.wall())
        assert outcome(backlog.pair.benches[1]) == outcome(backlog.pair.benches[0])
