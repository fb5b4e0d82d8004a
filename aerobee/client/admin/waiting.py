# SPDX-License-Identifier: Apache-2.0
"""Messages that wait for their time, as far as any broker tells: how far each delay level has come is in its figures,
and both topics they wait in can be read, as no group's consumer.

The timer's topic keeps what was delivered, too, until it is cleaned away. So it is read from the newest back, a part at
a time, and of each message its own properties say for when it is.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from aerobee.errors import AerobeeError
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.delay import parse_levels
from aerobee.protocol.recall_handle import recall_handle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.admin.admin import Admin
    from aerobee.client.message import ReceivedMessage

STEP = 32  # messages read at once
LOOKED_AT = 1_000
MAX_BYTES = 16 * 1024 * 1024
FIGURE = "scheduleMessageOffset_"
LEVELS = "messageDelayLevel"

BOUNDS = (60_000, 600_000, 3_600_000, 86_400_000)  # how far off, in ms


class Level(NamedTuple):
    number: int
    delay_ms: int | None
    next_offset: int  # of the first that waits
    end: int

    @property
    def waiting(self) -> int:
        return max(0, self.end - self.next_offset)

    def queue(self, broker: str) -> MessageQueue:
        return MessageQueue(topic=names.SCHEDULE_TOPIC, broker_name=broker, queue_id=self.number - 1)


class Waiting(NamedTuple):
    """`topic` is where it goes, `due` when, in ms; `handle` takes it back, or is empty where it cannot be; `by` is what
    it waits by."""

    message: ReceivedMessage
    topic: str
    due: int | None
    handle: str = ""
    by: str = "timer"


def levels_of(runtime: Mapping[str, str], settings: Mapping[str, str]) -> list[Level]:
    """In their order; empty where the broker tells none."""
    delays, found = _delays(settings), []
    for name, value in runtime.items():
        number, (first, _, end) = name.removeprefix(FIGURE), value.partition(",")
        if not name.startswith(FIGURE) or not all(each.isdigit() for each in (number, first, end)):
            continue
        delay = delays[int(number) - 1] if 0 < int(number) <= len(delays) else None
        found.append(Level(int(number), delay, int(first), int(end)))
    return sorted(found)


def _delays(settings: Mapping[str, str]) -> tuple[int, ...]:
    try:
        return parse_levels(settings.get(LEVELS, ""))
    except ValueError:
        return ()


async def untouched(
    admin: Admin, broker: str, known: list[Level], settings: Mapping[str, str]
) -> list[Level]:
    """Levels without a figure: Apache's has none of a level before it has delivered something of it."""
    told, found = {level.number for level in known}, []
    for number, delay_ms in enumerate(_delays(settings), 1):
        if number not in told:
            level = Level(number, delay_ms, 0, 0)
            low, high = await admin.offset_range(level.queue(broker))
            found.append(level._replace(next_offset=low, end=high))
    return found


async def every_level(
    admin: Admin, broker: str, runtime: Mapping[str, str], settings: Mapping[str, str]
) -> list[Level]:
    """Those with a figure, and as far as the broker lets us look, those without."""
    levels = levels_of(runtime, settings)
    with suppress(AerobeeError):
        levels += await untouched(admin, broker, levels, settings)
    return sorted(levels)


async def of_level(admin: Admin, broker: str, level: Level, begin: int, count: int) -> list[Waiting]:
    """Those of a level from an offset on: the next one due comes first."""
    begin = max(begin, level.next_offset)
    found = []
    async for message in admin.browse(level.queue(broker), begin, min(level.end, begin + count)):
        due = None if level.delay_ms is None else message.store_timestamp + level.delay_ms
        found.append(_waiting(message, names.SCHEDULE_TOPIC, due)._replace(by=f"level {level.number}"))
    return found


async def of_broker(admin: Admin, name: str, address: str, now: int, most: int) -> tuple[list[Waiting], bool]:
    """The next one due first, and whether that is all: so many of the timer and of each level are looked at."""
    runtime, settings = await admin.broker_runtime(address), await admin.broker_config(address)
    look = await of_timer(admin, name, None, now, most)
    found, is_all = look.waiting, look.is_over
    for level in await every_level(admin, name, runtime, settings):
        if level.waiting:
            found += await of_level(admin, name, level, level.next_offset, most)
            is_all = is_all and level.waiting <= most
    return sorted(found, key=_by_time), is_all


async def of_all(admin: Admin, topic: str | None, now: int, most: int = LOOKED_AT) -> list[Waiting]:
    """Of every broker, the next one due first."""
    found: list[Waiting] = []
    for name, address in (await admin.masters()).items():
        here, _ = await of_broker(admin, name, address, now, most)
        found += [each for each in here if topic in (None, each.topic)]
    return sorted(found, key=_by_time)


def _by_time(each: Waiting) -> int:
    return each.due or 0


@dataclass
class Timers:
    """What was found in a part of the timer's topic."""

    waiting: list[Waiting] = field(default_factory=list)
    looked_at: int = 0
    read_bytes: int = 0
    begin: int = 0  # where the next look ends
    is_over: bool = True

    def by_topic(self) -> list[tuple[str, int]]:
        return Counter(each.topic for each in self.waiting).most_common()

    def by_time(self, now: int) -> list[int]:
        """How many are due within each bound, and after the last."""
        counts = [0] * (len(BOUNDS) + 1)
        for each in self.waiting:
            ahead = (each.due or 0) - now
            counts[next((n for n, bound in enumerate(BOUNDS) if ahead < bound), len(BOUNDS))] += 1
        return counts


async def of_timer(admin: Admin, broker: str, end: int | None, now: int, most: int | None = None) -> Timers:
    """Those that wait among the newest, or among those before `end`; by the time they are due. At most so many messages
    (`LOOKED_AT`) are looked at."""
    most = most or LOOKED_AT
    queue = MessageQueue(topic=names.TIMER_TOPIC, broker_name=broker, queue_id=0)
    low, high = await admin.offset_range(queue)
    at = high if end is None else min(end, high)
    look, recalled, seen = Timers(begin=at), set[str](), set[str]()
    while at > low and look.looked_at < most and look.read_bytes < MAX_BYTES:
        begin = max(low, at - STEP)
        step = [message async for message in admin.browse(queue, begin, at)]
        for message in reversed(step):
            look.read_bytes += len(message.body)
            _put(look, message, broker, now, recalled, seen)
        look.looked_at += at - begin
        at = look.begin = begin
    look.is_over = at <= low
    look.waiting.sort(key=_by_time)
    return look


def _put(
    look: Timers, message: ReceivedMessage, broker: str, now: int, recalled: set[str], seen: set[str]
) -> None:
    """Read from the newest back, a recall is met before what it recalls, and the last copy before the others."""
    table = message.properties
    out = props.whole_number(table.get(props.TIMER_OUT_MS))
    topic, unique = table.get(props.REAL_TOPIC, ""), table.get(props.UNIQ_KEY, "")
    name = f"{topic}+{unique}"
    if (taken_back := table.get(props.TIMER_DEL_UNIQKEY)) is not None:
        recalled.add(taken_back if "+" in taken_back else f"{topic}+{taken_back}")
        return
    due = _asked_for(message) or out
    if out is None or due is None or due <= now or name in recalled or name in seen:
        return
    seen.add(name)
    handle = recall_handle(topic, broker, out, unique) if topic and unique else ""
    look.waiting.append(_waiting(message, names.TIMER_TOPIC, due, handle))


def _asked_for(message: ReceivedMessage) -> int | None:
    """To the millisecond; the timer keeps whole seconds."""
    table = message.properties
    if (at := props.whole_number(table.get(props.TIMER_DELIVER_MS))) is not None:
        return at
    delay_ms = props.whole_number(table.get(props.TIMER_DELAY_MS))
    return None if delay_ms is None else message.store_timestamp + delay_ms


def _waiting(message: ReceivedMessage, kept_in: str, due: int | None, handle: str = "") -> Waiting:
    message.topic = kept_in  # where a look for it finds it
    return Waiting(message, message.properties.get(props.REAL_TOPIC, ""), due, handle)
