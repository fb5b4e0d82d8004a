# SPDX-License-Identifier: Apache-2.0
"""What waits for its time, read off the topics it waits in: a fake admin whose queues are lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.admin import waiting
from aerobee.client.admin.waiting import Level, Timers, Waiting
from aerobee.errors import SystemFailure
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.recall_handle import parse_handle

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOW = 1_000_000
TIMER = MessageQueue("a", 0, names.TIMER_TOPIC)
SETTINGS = {"messageDelayLevel": "1s 5s 10s"}


class Queues:
    """Stands in for Admin: `kept[queue]` is a queue's messages, of which the first has the offset `low`."""

    def __init__(self, **brokers: dict[str, Any]) -> None:
        self.brokers = brokers
        self.kept: dict[MessageQueue, list[Any]] = {}
        self.low = 0
        self.read: list[tuple[int, int]] = []
        self.refuses: set[MessageQueue] = set()

    async def masters(self) -> dict[str, str]:
        return {name: f"{name}:1" for name in self.brokers}

    async def broker_runtime(self, address: str) -> dict[str, str]:
        found: dict[str, str] = self.brokers[address.partition(":")[0]]
        return found

    async def broker_config(self, address: str) -> dict[str, str]:
        return SETTINGS

    async def offset_range(self, queue: MessageQueue) -> tuple[int, int]:
        if queue in self.refuses:
            raise SystemFailure("no")
        return self.low, self.low + len(self.kept.get(queue, []))

    async def browse(self, queue: MessageQueue, begin: int, end: int) -> AsyncIterator[Any]:
        self.read.append((begin, end))
        for message in self.kept.get(queue, [])[begin - self.low : end - self.low]:
            yield message


@pytest.fixture
def admin() -> Any:
    return Queues(a={})


@pytest.fixture
def timed(make_message: Any) -> Any:
    """A message of the timer's topic: for when, and whose."""

    def make(due: int, key: str = "K", topic: str = "orders", body: bytes = b"x", **more: str) -> Any:
        table = {props.TIMER_OUT_MS: str(due), props.REAL_TOPIC: topic, props.UNIQ_KEY: key} | more
        message = make_message(body=body)
        message.properties_text = props.render(table)
        return message

    return make


def due(found: list[Waiting]) -> list[tuple[str, int | None]]:
    return [(each.message.unique_key or "", each.due) for each in found]


# -- levels --------------------------------------------------------------------------------------------------


async def test_of_a_level_those_are_shown_that_have_not_been_delivered(admin: Any, make_message: Any) -> None:
    level = Level(2, 5_000, next_offset=3, end=7)
    text = props.render({props.REAL_TOPIC: "orders"})
    kept = [make_message(n, store_timestamp=NOW + n, properties=text) for n in range(9)]
    admin.kept[MessageQueue("a", 1, names.SCHEDULE_TOPIC)] = kept
    found = await waiting.of_level(admin, "a", level, 0, 2)
    assert admin.read == [(3, 5)], "not what has gone, though it was asked for"
    assert [(each.topic, each.due, each.by) for each in found] == [
        ("orders", NOW + 3 + 5_000, "level 2"),
        ("orders", NOW + 4 + 5_000, "level 2"),
    ]
    assert {each.message.topic for each in found} == {names.SCHEDULE_TOPIC}, "where a look finds it"
    assert {each.handle for each in found} == {""}, "a level gives nothing back"
    await waiting.of_level(admin, "a", level, 5, 100)
    assert admin.read[1:] == [(5, 7)], "up to its end, and not what is being written"
    (unknown,) = await waiting.of_level(admin, "a", level._replace(delay_ms=None), 6, 9)
    assert unknown.due is None


async def test_levels_without_a_figure_are_read_off_their_queues_as_far_as_they_may_be(admin: Any) -> None:
    admin.kept[MessageQueue("a", 2, names.SCHEDULE_TOPIC)] = [None] * 4
    runtime = {"scheduleMessageOffset_2": "3,9", "other": "1,2"}
    assert await waiting.every_level(admin, "a", runtime, SETTINGS) == [
        Level(1, 1_000, 0, 0),
        Level(2, 5_000, 3, 9),
        Level(3, 10_000, 0, 4),
    ]
    admin.refuses.add(MessageQueue("a", 0, names.SCHEDULE_TOPIC))
    assert await waiting.every_level(admin, "a", runtime, SETTINGS) == [Level(2, 5_000, 3, 9)]


def test_figures_that_are_none_and_levels_without_a_delay_are_borne() -> None:
    runtime = {
        "scheduleMessageOffset_4": "1,2",
        "scheduleMessageOffset_0": "1,2",
        "scheduleMessageOffset_1": "5,2",
        "scheduleMessageOffset_x": "1,2",
        "scheduleMessageOffset_2": "1",
        "scheduleMessageOffset_3": "-1,2",
    }
    found = waiting.levels_of(runtime, SETTINGS)
    assert found == [Level(0, None, 1, 2), Level(1, 1_000, 5, 2), Level(4, None, 1, 2)]
    assert [level.waiting for level in found] == [1, 0, 1]
    assert {level.delay_ms for level in waiting.levels_of(runtime, {"messageDelayLevel": "soon"})} == {None}


# -- the timer -----------------------------------------------------------------------------------------------


async def test_of_the_timer_only_what_still_waits_is_shown_the_next_one_due_first(
    admin: Any, timed: Any
) -> None:
    admin.kept[TIMER] = [
        timed(NOW + 9_000, "rolled"),
        timed(NOW + 8_000, "late"),
        timed(NOW - 1, "delivered"),
        timed(NOW, "now"),
        timed(NOW + 1, "soon"),
        timed(NOW + 2_000, "taken-back"),
        timed(NOW + 2_000, "other", topic="letters"),
        timed(NOW + 2_000, "deletes", **{props.TIMER_DEL_UNIQKEY: "orders+taken-back"}),
        timed(NOW + 9_000, "rolled"),
        timed(NOW + 3_000, "old-way"),
        timed(NOW + 3_000, "deletes", **{props.TIMER_DEL_UNIQKEY: "old-way"}),
    ]
    look = await waiting.of_timer(admin, "a", None, NOW)
    assert due(look.waiting) == [
        ("soon", NOW + 1),
        ("other", NOW + 2_000),
        ("late", NOW + 8_000),
        ("rolled", NOW + 9_000),
    ]
    assert look.by_topic() == [("orders", 3), ("letters", 1)]
    handle = parse_handle(look.waiting[1].handle)
    assert handle == ("letters", "a", NOW + 2_001, "other")
    assert {(each.by, each.message.topic) for each in look.waiting} == {("timer", names.TIMER_TOPIC)}


async def test_the_time_is_that_which_was_asked_for_not_the_whole_second_the_timer_keeps(
    admin: Any, timed: Any
) -> None:
    admin.kept[TIMER] = [
        timed(NOW + 5_000, "at", **{props.TIMER_DELIVER_MS: str(NOW + 5_750)}),
        timed(NOW + 4_000, "after", **{props.TIMER_DELAY_MS: "4321"}),
        timed(NOW + 3_000, "second"),
    ]
    admin.kept[TIMER][1].store_timestamp = NOW
    look = await waiting.of_timer(admin, "a", None, NOW)
    assert due(look.waiting) == [("second", NOW + 3_000), ("after", NOW + 4_321), ("at", NOW + 5_750)]
    assert parse_handle(look.waiting[2].handle).deliver_at == NOW + 5_001, "its slot in the timer"


async def test_without_a_topic_or_an_id_nothing_can_be_taken_back(admin: Any, timed: Any) -> None:
    admin.kept[TIMER] = [timed(NOW + 1, ""), timed(NOW + 2, "K", topic="")]
    look = await waiting.of_timer(admin, "a", None, NOW)
    assert [each.handle for each in look.waiting] == ["", ""]


async def test_the_timer_is_read_from_the_newest_back_a_part_at_a_time(admin: Any, timed: Any) -> None:
    admin.low = 10
    admin.kept[TIMER] = [timed(NOW + n, f"K{n}") for n in range(100)]
    look = await waiting.of_timer(admin, "a", None, NOW, 40)
    assert admin.read == [(78, 110), (46, 78)]
    assert (look.looked_at, look.begin, look.is_over, len(look.waiting)) == (64, 46, False, 64)
    admin.read.clear()
    rest = await waiting.of_timer(admin, "a", look.begin, NOW)
    assert admin.read == [(14, 46), (10, 14)]
    assert (rest.looked_at, rest.begin, rest.is_over) == (36, 10, True)
    assert len(rest.waiting) == 35, "one of them is due now"
    admin.read.clear()
    assert (await waiting.of_timer(admin, "a", 5_000, NOW, 1)).looked_at == 32
    assert admin.read == [(78, 110)], "an end that is not there yet is the newest"


async def test_no_more_than_so_many_bytes_are_read_of_the_timer(
    admin: Any, timed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_BYTES", 320)
    admin.kept[TIMER] = [timed(NOW + 1, f"K{n}", body=bytes(10)) for n in range(100)]
    look = await waiting.of_timer(admin, "a", None, NOW)
    assert (look.looked_at, look.read_bytes, look.is_over) == (32, 320, False)


def test_what_waits_is_counted_by_how_far_off_it_is(make_message: Any) -> None:
    minute, ten, hour, day = 60_000, 600_000, 3_600_000, 86_400_000
    ahead = [1, minute - 1, minute, ten, hour - 1, hour, day - 1, day, 40 * day]
    look = Timers([Waiting(make_message(), "orders", NOW + each) for each in ahead])
    assert look.by_time(NOW) == [2, 1, 2, 2, 2]


# -- all together --------------------------------------------------------------------------------------------


async def test_of_all_brokers_what_goes_to_a_topic_is_shown_by_its_time(
    timed: Any, make_message: Any
) -> None:
    admin: Any = Queues(a={"scheduleMessageOffset_1": "0,2"}, b={})
    levels = [make_message(n, store_timestamp=NOW + n) for n in range(2)]
    levels[0].properties_text = props.render({props.REAL_TOPIC: "orders", props.UNIQ_KEY: "leveled"})
    levels[1].properties_text = props.render({props.REAL_TOPIC: "letters", props.UNIQ_KEY: "letter"})
    admin.kept[MessageQueue("a", 0, names.SCHEDULE_TOPIC)] = levels
    admin.kept[TIMER] = [timed(NOW + 2_000, "later")]
    admin.kept[MessageQueue("b", 0, names.TIMER_TOPIC)] = [timed(NOW + 500, "sooner")]
    both = await waiting.of_all(admin, "orders", NOW)
    assert due(both) == [("sooner", NOW + 500), ("leveled", NOW + 1_000), ("later", NOW + 2_000)]
    assert len(await waiting.of_all(admin, None, NOW)) == 4
    assert await waiting.of_all(admin, "nobody", NOW) == []


@pytest.mark.parametrize(("most", "is_all"), [(1, False), (2, True)])
async def test_whether_that_is_all_is_told(make_message: Any, most: int, is_all: bool) -> None:
    admin: Any = Queues(a={"scheduleMessageOffset_1": "0,2"})
    admin.kept[MessageQueue("a", 0, names.SCHEDULE_TOPIC)] = [make_message(n) for n in range(2)]
    found, told = await waiting.of_broker(admin, "a", "a:1", NOW, most)
    assert (len(found), told) == (most, is_all)


async def test_a_timer_that_was_not_read_to_its_beginning_is_not_all(timed: Any) -> None:
    admin: Any = Queues(a={})
    admin.kept[TIMER] = [timed(NOW + n, f"K{n}") for n in range(40)]
    _, told = await waiting.of_broker(admin, "a", "a:1", NOW, 10)
    assert not told
    _, told = await waiting.of_broker(admin, "a", "a:1", NOW, 40)
    assert told
