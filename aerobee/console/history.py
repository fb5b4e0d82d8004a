# SPDX-License-Identifier: Apache-2.0
"""What was seen of the cluster lately, for curves and for what is wrong right now. Plain values, told the time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aerobee.client.admin import GroupLag

SAMPLES = 720  # an hour of them, one every five seconds
GROUP_POINTS = 360
MAX_GROUPS = 1_000  # whose curves are kept: those with most to do
RATE_MS = 60_000


class BrokerSeen(NamedTuple):
    """Of one broker; None where it does not tell."""

    name: str
    address: str
    version: str = ""
    put: int = 0  # messages stored and handed out: only differences mean anything
    got: int = 0
    disk: float | None = None
    late_ms: int | None = None  # how late its loop is, or how long a request of RocketMQ's queues
    started_at: int = 0
    answers: bool = True
    refuses: str = ""  # why it takes no messages


class GoneSeen(NamedTuple):
    """A broker that went without a goodbye."""

    name: str
    address: str
    since: int  # by the wall clock
    away_ms: int
    why: str


class GroupSeen(NamedTuple):
    """Of one group, without its queues: there may be ten thousand groups."""

    group: str
    online: bool
    ready: int
    in_flight: int
    retrying: int  # and delayed
    dead: int
    oldest_ms: int
    done: int  # messages behind the group: grows while it works
    conflicts: tuple[str, ...] = ()  # topics its members subscribe to differently
    pops: bool = False

    @property
    def waiting(self) -> int:
        return self.ready + self.retrying

    @property
    def unfinished(self) -> int:
        return self.waiting + self.in_flight


class GroupPoint(NamedTuple):
    at: int
    done: int
    waiting: int
    in_flight: int
    dead: int


class Total(NamedTuple):
    at: int
    put: int
    got: int
    ready: int
    in_flight: int
    retrying: int
    dead: int
    disk: float | None
    late_ms: int | None


class Rate(NamedTuple):
    at: int
    came: float
    went: float


class Holder(NamedTuple):
    """A consumer and the messages it has not answered for."""

    client_id: str
    held: int


@dataclass
class Sample:
    """The whole cluster at one time."""

    at: int
    brokers: list[BrokerSeen] = field(default_factory=list)
    groups: dict[str, GroupSeen] = field(default_factory=dict)
    switched_off: frozenset[str] = frozenset()  # groups that may not consume
    unread: dict[str, int] = field(default_factory=dict)  # topics that no group reads, and their messages
    holders: dict[str, list[Holder]] = field(default_factory=dict)  # of groups that stand still
    took_ms: int = 0
    gone: list[GoneSeen] = field(default_factory=list)


class History:
    def __init__(self) -> None:
        self.latest: Sample | None = None
        self.totals: deque[Total] = deque(maxlen=SAMPLES)
        self.groups: dict[str, deque[GroupPoint]] = {}
        self._moved_at: dict[str, int] = {}

    def add(self, sample: Sample) -> None:
        before = self.latest.groups if self.latest else {}
        self._moved_at = {
            name: sample.at if _moved(before.get(name), seen) else self._moved_at.get(name, sample.at)
            for name, seen in sample.groups.items()
        }
        self.latest = sample
        self.totals.append(_total(sample))
        self._keep_points(sample)

    def _keep_points(self, sample: Sample) -> None:
        kept = sample.groups
        if len(kept) > MAX_GROUPS:
            busiest = sorted(kept.values(), key=lambda seen: -seen.unfinished)[:MAX_GROUPS]
            kept = {seen.group: seen for seen in busiest}
        for gone in self.groups.keys() - kept.keys():
            del self.groups[gone]
        for name, seen in kept.items():
            point = GroupPoint(sample.at, seen.done, seen.waiting, seen.in_flight, seen.dead)
            self.groups.setdefault(name, deque(maxlen=GROUP_POINTS)).append(point)

    def still_ms(self, group: str) -> int:
        """How long the group has had work and finished none."""
        if self.latest is None or group not in self._moved_at:
            return 0
        return self.latest.at - self._moved_at[group]

    def rates(self) -> list[Rate]:
        """Messages a second between samples. A counter that went back (a restart) is left out."""
        found = []
        for before, after in pairwise(self.totals):
            seconds = (after.at - before.at) / 1000
            came, went = after.put - before.put, after.got - before.got
            if seconds >= 1 and came >= 0 and went >= 0:
                found.append(Rate(after.at, came / seconds, went / seconds))
        return found

    def done_rate(self, group: str) -> float | None:
        """Messages a second that the group got behind it, over the last minute seen."""
        points = self.groups.get(group)
        if not points or len(points) < 2:
            return None
        last = points[-1]
        first = next(point for point in points if last.at - point.at <= RATE_MS)
        seconds = (last.at - first.at) / 1000
        return max(0, last.done - first.done) / seconds if seconds >= 1 else None


def group_seen(lag: GroupLag) -> GroupSeen:
    return GroupSeen(
        group=lag.group,
        online=lag.online,
        ready=lag.ready,
        in_flight=lag.in_flight,
        retrying=lag.retrying + lag.delayed,
        dead=lag.dead,
        oldest_ms=lag.oldest_ms,
        done=sum(queue.max_offset - queue.ready - queue.in_flight for queue in lag.queues),
        conflicts=tuple(lag.conflicts),
        pops="POP" in lag.modes.values(),
    )


def _moved(before: GroupSeen | None, after: GroupSeen) -> bool:
    """Without work nobody stands still; with new work the wait begins."""
    return before is None or after.done != before.done or not after.unfinished or not before.unfinished


def _total(sample: Sample) -> Total:
    groups = sample.groups.values()
    disks = [broker.disk for broker in sample.brokers if broker.disk is not None]
    lates = [broker.late_ms for broker in sample.brokers if broker.late_ms is not None]
    return Total(
        at=sample.at,
        put=sum(broker.put for broker in sample.brokers),
        got=sum(broker.got for broker in sample.brokers),
        ready=sum(seen.ready for seen in groups),
        in_flight=sum(seen.in_flight for seen in groups),
        retrying=sum(seen.retrying for seen in groups),
        dead=sum(seen.dead for seen in groups),
        disk=max(disks, default=None),
        late_ms=max(lates, default=None),
    )
