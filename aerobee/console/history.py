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


class BrokerSeen(NamedTuple):
    """Of one broker; None where it does not tell."""

    name: str
    address: str
    version: str = ""
    put: int = 0  # messages stored and handed out since midnight, at least
    got: int = 0
    disk: float | None = None
    late_ms: int | None = None  # how late its loop is, or its queues are
    started_at: int = 0
    answers: bool = True


class GroupPoint(NamedTuple):
    at: int
    done: int  # messages behind the group: grows while it works
    waiting: int  # ready, and retrying or delayed
    in_flight: int
    dead: int
    online: bool


class Total(NamedTuple):
    at: int
    put: int
    got: int
    waiting: int
    in_flight: int
    retrying: int
    dead: int
    disk: float | None
    late_ms: int | None


class Rate(NamedTuple):
    at: int
    came: float
    went: float


@dataclass
class Sample:
    """The whole cluster at one time."""

    at: int
    brokers: list[BrokerSeen] = field(default_factory=list)
    groups: dict[str, GroupLag] = field(default_factory=dict)
    switched_off: set[str] = field(default_factory=set)  # groups that may not consume
    unread: dict[str, int] = field(default_factory=dict)  # topics that no group reads, and their messages
    took_ms: int = 0


class History:
    def __init__(self) -> None:
        self.latest: Sample | None = None
        self.totals: deque[Total] = deque(maxlen=SAMPLES)
        self.groups: dict[str, deque[GroupPoint]] = {}

    def add(self, sample: Sample) -> None:
        self.latest = sample
        self.totals.append(_total(sample))
        busiest = sorted(sample.groups.values(), key=lambda lag: -lag.lag)[:MAX_GROUPS]
        kept = {lag.group: lag for lag in busiest}
        for gone in self.groups.keys() - kept.keys():
            del self.groups[gone]
        for name, lag in kept.items():
            self.groups.setdefault(name, deque(maxlen=GROUP_POINTS)).append(_point(sample.at, lag))

    def rates(self) -> list[Rate]:
        """Messages a second between samples. A counter that went back (midnight, a restart) is left out."""
        found = []
        for before, after in pairwise(self.totals):
            seconds = (after.at - before.at) / 1000
            came, went = after.put - before.put, after.got - before.got
            if seconds > 0 and came >= 0 and went >= 0:
                found.append(Rate(after.at, came / seconds, went / seconds))
        return found

    def done_rate(self, group: str) -> float | None:
        """Messages a second that the group got behind it, over the last minute seen."""
        points = self.groups.get(group)
        if not points or len(points) < 2:
            return None
        last = points[-1]
        first = next(point for point in points if last.at - point.at <= 60_000)
        seconds = (last.at - first.at) / 1000
        return max(0, last.done - first.done) / seconds if seconds > 0 else None


def done_of(lag: GroupLag) -> int:
    return sum(queue.max_offset - queue.ready - queue.in_flight for queue in lag.queues)


def _point(at: int, lag: GroupLag) -> GroupPoint:
    waiting = lag.ready + lag.retrying + lag.delayed
    return GroupPoint(at, done_of(lag), waiting, lag.in_flight, lag.dead, lag.online)


def _total(sample: Sample) -> Total:
    groups = sample.groups.values()
    disks = [broker.disk for broker in sample.brokers if broker.disk is not None]
    lates = [broker.late_ms for broker in sample.brokers if broker.late_ms is not None]
    return Total(
        at=sample.at,
        put=sum(broker.put for broker in sample.brokers),
        got=sum(broker.got for broker in sample.brokers),
        waiting=sum(lag.ready for lag in groups),
        in_flight=sum(lag.in_flight for lag in groups),
        retrying=sum(lag.retrying + lag.delayed for lag in groups),
        dead=sum(lag.dead for lag in groups),
        disk=max(disks, default=None),
        late_ms=max(lates, default=None),
    )
