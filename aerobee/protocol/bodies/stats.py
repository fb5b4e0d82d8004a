# SPDX-License-Identifier: Apache-2.0
"""Figures of a broker, and the inside of a consume queue."""

from __future__ import annotations

from msgspec import field

from aerobee.protocol.bodies.clients import SubscriptionData  # noqa: TC001 read at run time
from aerobee.protocol.bodies.values import Body, DataVersion


class StatsItem(Body):
    average: float = field(default=0.0, name="avgpt")
    sum: int = 0
    tps: float = 0.0


class BrokerStatsData(Body):
    """Code 315."""

    stats_day: StatsItem = field(default_factory=StatsItem)
    stats_hour: StatsItem = field(default_factory=StatsItem)
    stats_minute: StatsItem = field(default_factory=StatsItem)


class TimerCount(Body):
    """Messages that wait for their time, and when there were last more or fewer."""

    count: int = 0
    timestamp: int = field(default=0, name="timeStamp")


class TimerCounts(Body):
    """Code 61, by the topic they are for; those that waited when the broker started are of the empty name."""

    data_version: DataVersion = field(default_factory=DataVersion)
    timing_count: dict[str, TimerCount] = field(default_factory=dict)


class ConsumeQueueUnit(Body):
    eval: bool = False
    msg: str | None = None
    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0


class ConsumeQueueView(Body):
    """Code 321."""

    filter_data: str | None = None
    max_queue_index: int = 0
    min_queue_index: int = 0
    queue_data: list[ConsumeQueueUnit] = field(default_factory=list)
    subscription_data: SubscriptionData | None = None
