# SPDX-License-Identifier: Apache-2.0
"""POP: what is leased, and what the revive log has to do."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from aerobee.broker.metrics.family import Distribution, counter, gauge, histogram
from aerobee.protocol.receipt import CHECKPOINT_TAG

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.broker import Broker
    from aerobee.broker.metrics.collect import Asked
    from aerobee.broker.metrics.family import Labels

SCAN = histogram(
    "rocketmq_pop_buffer_scan_time_consume_milliseconds", "Looks at leases that are due.", "milliseconds"
)
REVIVE_IN = counter("rocketmq_pop_revive_in_message_total", "Leases and acks written to the revive log.")
REVIVE_OUT = counter("rocketmq_pop_revive_out_message_total", "Leases taken from the revive log.")
RETRIED = counter("rocketmq_pop_revive_retry_messages_total", "Messages that were not acked in time.")
OFFSETS = gauge("rocketmq_pop_offset_buffer_size", "Leases whose end a group's offset waits for.")
CHECKPOINTS = gauge("rocketmq_pop_checkpoint_buffer_size", "Leases in memory only.")
# Messages, though the name says otherwise.
LAG = gauge(
    "rocketmq_pop_revive_lag_milliseconds",
    "Messages of the revive log that are not done with.",
    "milliseconds",
)
LATENCY = gauge("rocketmq_pop_revive_latency_milliseconds", "How late redelivery is.", "milliseconds")

OK = ("put_status", "PUT_OK")


def collect(broker: Broker, asked: Asked) -> Iterator[None]:
    leases, counted, scrape = broker.pops.leases, broker.stats.counted, asked.scrape
    scrape.add(SCAN, Distribution.of(counted.scan_ms))
    scrape.add(OFFSETS, sum(len(lane.line) for lane in list(leases.in_flight.lanes.values())))
    scrape.add(CHECKPOINTS, leases.in_flight.young)
    yield
    late = late_ms(broker)
    for queue_id in range(leases.log.queues):
        queue = (("queue_id", str(queue_id)),)
        scrape.add(LAG, max(0, leases.log.behind_in(queue_id)), queue)
        scrape.add(LATENCY, late, queue)
    yield
    written: defaultdict[Labels, int] = defaultdict(int)
    for (group, topic, tag), count in list(leases.log.written.items()):
        kind = "CK" if tag == CHECKPOINT_TAG else "ACK"
        written[(*_pair(group, topic, asked), ("revive_message_type", kind), OK)] += count
    taken: defaultdict[Labels, int] = defaultdict(int)
    for (group, topic, queue_id), count in list(counted.revived.items()):
        of = (("queue_id", str(queue_id)), ("revive_message_type", "CK"))
        taken[(*_pair(group, topic, asked), *of)] += count
    retried: defaultdict[Labels, int] = defaultdict(int)
    for (group, topic), count in list(counted.retried.items()):
        retried[(*_pair(group, topic, asked), OK)] += count
    for family, table in ((REVIVE_IN, written), (REVIVE_OUT, taken), (RETRIED, retried)):
        for labels, count in table.items():
            scrape.add(family, count, labels)
            yield


def late_ms(broker: Broker) -> int:
    """By how much the lease that is due longest is not redelivered yet."""
    in_flight = broker.pops.leases.in_flight
    due = in_flight.due.next_due()
    return 0 if due is None else max(0, broker.clock.now() - due)


def _pair(group: str, topic: str, asked: Asked) -> Labels:
    labels = dict(asked.pair(group, topic))
    return (("consumer_group", labels["consumer_group"]), ("topic", labels["topic"]))
