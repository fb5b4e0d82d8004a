# SPDX-License-Identifier: Apache-2.0
"""What a consumer subscribes to: topic -> expression, with the version that tells newer from older."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from aerobee.protocol import bodies, names
from aerobee.protocol.filters.sql_parser import parse as parse_sql
from aerobee.protocol.filters.tags import SQL92, TAG, Subscription, subscribe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Sql(msgspec.Struct, frozen=True):
    """An SQL92 filter over message properties: `topics={"orders": Sql("amount > 100")}`."""

    expression: str


Expression = str | Sql


class Subscriptions:
    def __init__(self, topics: Mapping[str, Expression], now: int) -> None:
        if not isinstance(topics, Mapping):
            raise TypeError(f"topics is {topics!r}; give a mapping: topics={{'orders': '*'}}")
        self._topics: dict[str, Subscription] = {}
        self.get: Callable[[str], Subscription | None] = self._topics.get
        self._told: dict[str, int] = {}
        for topic, expression in topics.items():
            self.add(topic, expression, now)

    def add(self, topic: str, expression: Expression, now: int) -> None:
        """Subscribe, or replace the expression, which makes a new version."""
        names.check_topic(topic)
        if isinstance(expression, Sql):
            if not expression.expression.strip():
                raise ValueError(f"the SQL expression for topic {topic!r} is empty")
            parse_sql(expression.expression)
            self._topics[topic] = subscribe(topic, expression.expression, now, SQL92)
        elif isinstance(expression, str):
            self._topics[topic] = subscribe(topic, expression, now, TAG)
        else:
            raise TypeError(
                f"the expression for topic {topic!r} is {expression!r}; give tags as text, or Sql(...)"
            )

    def remove(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def renew(self, topic: str, now: int) -> None:
        """A higher version, so that this consumer's expression wins at the broker."""
        known = self._topics.get(topic)
        if known is not None:
            self._topics[topic] = msgspec.structs.replace(known, version=max(now, known.version + 1))

    def versions(self) -> dict[str, int]:
        return {topic: subscription.version for topic, subscription in self._topics.items()}

    def told(self, versions: Mapping[str, int]) -> None:
        """Brokers know these versions now; a pull must not name a later one."""
        self._told.update(versions)

    def told_version(self, topic: str) -> int:
        return self._told.get(topic, 0)

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._topics))

    def sql(self) -> list[Subscription]:
        return [subscription for subscription in self._topics.values() if subscription.kind != TAG]

    def data(self) -> list[bodies.SubscriptionData]:
        return [to_data(subscription) for subscription in self._topics.values()]


def to_data(subscription: Subscription) -> bodies.SubscriptionData:
    return bodies.SubscriptionData(
        topic=subscription.topic,
        sub_string=subscription.expression,
        tags_set=sorted(subscription.tags),
        code_set=sorted(subscription.codes),
        sub_version=subscription.version,
        expression_type=subscription.kind,
    )
