# SPDX-License-Identifier: Apache-2.0
"""Messages in and out: by topic and kind as producers sent them, by topic and group as consumers got them."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from aerobee.broker.metrics.family import Distribution, counter, gauge, histogram
from aerobee.broker.metrics.shown import OTHER
from aerobee.broker.state.counted import SIZES
from aerobee.broker.state.stats import GROUP_GET, TOPIC_PUT
from aerobee.protocol import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aerobee.broker.broker import Broker
    from aerobee.broker.metrics.collect import Asked
    from aerobee.broker.metrics.family import Labels
    from aerobee.broker.state.counted import Came
    from aerobee.broker.state.stats import Meter

MESSAGES_IN = counter("rocketmq_messages_in_total", "Messages that producers sent.")
BYTES_IN = counter("rocketmq_throughput_in_total", "Bytes that they take in the store.")
SIZE = histogram("rocketmq_message_size", "How many bytes a message takes in the store.")
MESSAGES_OUT = counter("rocketmq_messages_out_total", "Messages that consumers got.")
BYTES_OUT = counter("rocketmq_throughput_out_total", "Bytes of those.")
DEAD = counter("rocketmq_send_to_dlq_messages_total", "Messages that went to the dead letters.")
HALVES = gauge("rocketmq_half_messages", "Messages of transactions that are not decided.")
COMMITTED = counter("rocketmq_commit_messages_total", "Transactions that were committed.")
ROLLED_BACK = counter("rocketmq_rollback_messages_total", "Transactions that were rolled back.")
# RocketMQ says milliseconds and counts seconds; boards made for it expect that.
FINISHED = histogram(
    "rocketmq_finish_message_latency_milliseconds",
    "Seconds from a message's birth to its commit.",
    "milliseconds",
)

NORMAL, FIFO, DELAY, TRANSACTION = "normal", "fifo", "delay", "transaction"
# The same tuples scrape after scrape: made anew, hundreds of thousands of them would have to be looked through by the
# garbage collector, which holds the loop for as long.
LABELS_KEPT = 65_536


class In(NamedTuple):
    topic: str
    kind: str
    system: str


def collect(broker: Broker, asked: Asked) -> Iterator[None]:
    yield from _messages_in(broker, asked)
    yield from _messages_out(broker, asked)
    yield from _dead(broker, asked)
    yield from _transactions(broker, asked)


# -- in ----------------------------------------------------------------------------------------------------


def _messages_in(broker: Broker, asked: Asked) -> Iterator[None]:
    came = broker.stats.counted.came
    summed: dict[In, Distribution] = {}
    meters = dict(broker.stats.meters(TOPIC_PUT))
    for topic in [*meters, *(each for each in list(came) if each not in meters)]:
        for key, sizes in _of_topic(topic, meters.get(topic), came.get(topic), broker):
            if topic in asked.topics or key.system == "true":
                _show(key, sizes, asked)
            else:
                other = key._replace(topic=OTHER)
                summed[other] = _added(summed.get(other), sizes)
        yield
    for key, sizes in summed.items():
        _show(key, sizes, asked)


def _of_topic(
    topic: str, meter: Meter | None, came: Came | None, broker: Broker
) -> Iterator[tuple[In, Distribution]]:
    system = _yes(names.is_system_topic(topic))
    if meter is not None:
        count, size_bytes = meter.count, meter.size_bytes
        large = (0,) * len(SIZES)
        if came is not None:
            count, size_bytes, large = (
                count - came.moved_count,
                size_bytes - came.moved_bytes,
                tuple(came.large),
            )
        if count > 0:
            sizes = Distribution(SIZES, (count - sum(large), *large), size_bytes)
            yield In(topic, _plain_kind(topic, broker), system), sizes
    if came is not None:
        for kind, held in ((DELAY, came.delayed), (TRANSACTION, came.transactional)):
            if any(held.counts):
                yield In(topic, kind, system), Distribution.of(held)


def _plain_kind(topic: str, broker: Broker) -> str:
    """Of messages that go straight to their topic: what the topic says it takes. Looking for the sharding key of each
    would cost more than all that is counted."""
    config = broker.topics.get(topic)
    declared = "" if config is None else config.attributes.get("message.type", "")
    return FIFO if declared == "FIFO" else NORMAL


def _show(key: In, sizes: Distribution, asked: Asked) -> None:
    labels = _in(*key)
    asked.scrape.add(MESSAGES_IN, sizes.total, labels)
    asked.scrape.add(BYTES_IN, int(sizes.sum), labels)
    asked.scrape.add(SIZE, sizes, labels)


@lru_cache(maxsize=LABELS_KEPT)
def _in(topic: str, kind: str, system: str) -> Labels:
    return ("topic", topic), ("message_type", kind), ("is_system", system)


def _added(before: Distribution | None, more: Distribution) -> Distribution:
    if before is None:
        return more
    counts = [a + b for a, b in zip(before.counts, more.counts, strict=True)]
    return Distribution(more.ends, counts, before.sum + more.sum)


# -- out ---------------------------------------------------------------------------------------------------


def _messages_out(broker: Broker, asked: Asked) -> Iterator[None]:
    totals: defaultdict[Labels, list[int]] = defaultdict(lambda: [0, 0])
    for key, meter in broker.stats.meters(GROUP_GET):
        topic, _, group = key.partition("@")
        total = totals[asked.pair(group, topic)]
        total[0] += meter.count
        total[1] += meter.size_bytes
        yield
    for labels, (count, size_bytes) in totals.items():
        asked.scrape.add(MESSAGES_OUT, count, labels)
        asked.scrape.add(BYTES_OUT, size_bytes, labels)
        yield


def _dead(broker: Broker, asked: Asked) -> Iterator[None]:
    totals: defaultdict[Labels, int] = defaultdict(int)
    for (group, topic), count in list(broker.stats.counted.dead.items()):
        shown, of = asked.shown_group(group), asked.shown_topic(topic)
        totals[("consumer_group", shown), ("topic", of), ("is_system", is_system(topic, group))] += count
    for labels, count in totals.items():
        asked.scrape.add(DEAD, count, labels)
        yield


# -- transactions ------------------------------------------------------------------------------------------


def _transactions(broker: Broker, asked: Asked) -> Iterator[None]:
    counted = broker.stats.counted
    for family, table in (
        (HALVES, broker.transactions.by_topic),
        (COMMITTED, counted.committed),
        (ROLLED_BACK, counted.rolled_back),
    ):
        for topic, count in by_topic(table, asked).items():
            asked.scrape.add(family, count, (("topic", topic),))
            yield
    finished: dict[str, Distribution] = {}
    for topic, held in counted.finish_s:
        shown = asked.shown_topic(topic)
        finished[shown] = _added(finished.get(shown), Distribution.of(held))
        yield
    for topic, sizes in finished.items():
        asked.scrape.add(FINISHED, sizes, (("topic", topic),))
        yield


def by_topic(table: Mapping[str, int], asked: Asked) -> dict[str, int]:
    """The same with the topics that are not shown summed."""
    found: defaultdict[str, int] = defaultdict(int)
    for topic, count in list(table.items()):
        found[asked.shown_topic(topic)] += count
    return found


def is_system(topic: str, group: str) -> str:
    return _yes(names.is_system_topic(topic) or names.is_system_group(group))


def _yes(value: object) -> str:
    return "true" if value else "false"
