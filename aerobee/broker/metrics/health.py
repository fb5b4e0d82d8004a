# SPDX-License-Identifier: Apache-2.0
"""The broker itself: who is connected, how long requests take, what it holds; and what RocketMQ has no name for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from aerobee import __version__, native
from aerobee.broker.metrics.family import Distribution, counter, gauge, histogram
from aerobee.broker.metrics.pops import late_ms
from aerobee.broker.metrics.shown import OTHER
from aerobee.clock import MS_NS
from aerobee.protocol import names
from aerobee.protocol.bodies import ConsumeType
from aerobee.protocol.codes import RequestCode, ResponseCode
from aerobee.protocol.versions import version_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.broker.broker import Broker
    from aerobee.broker.metrics.collect import Asked
    from aerobee.broker.metrics.family import Labels
    from aerobee.broker.state.clients import Member

WATERMARK = gauge(
    "rocketmq_processor_watermark", "Requests in a queue of their own: none here, one loop serves all."
)
PERMISSION = gauge("rocketmq_broker_permission", "2 write, 4 read, 6 both.")
TOPICS = gauge("rocketmq_topic_number", "Topics, the broker's own among them.")
GROUPS = gauge("rocketmq_consumer_group_number", "Groups of consumers.")
PRODUCERS = gauge("rocketmq_producer_connections", "Producers connected.")
CONSUMERS = gauge("rocketmq_consumer_connections", "Consumers connected.")
RPC = histogram("rocketmq_rpc_latency_milliseconds", "How long requests took.", "milliseconds")
TOPIC_MADE = histogram(
    "rocketmq_topic_create_execution_time_milliseconds", "Changes of topics by operators.", "milliseconds"
)
GROUP_MADE = histogram(
    "rocketmq_consumer_group_create_execution_time_milliseconds", "The same of groups.", "milliseconds"
)

BUILD = gauge("aerobee_build_info", "Always 1.")
LOOP_LAG = histogram("aerobee_loop_lag_seconds", "How late turns of the loop were.", "seconds")
HELD = gauge("aerobee_held_requests", "Requests that wait for messages.")
LEASED = gauge("aerobee_leases_inflight_messages", "Messages leased by POP and not acked.")
REVIVE_LATE = gauge("aerobee_revive_lateness_seconds", "How late redelivery is.", "seconds")
SYNC = histogram("aerobee_fsync_seconds", "How long syncs of the log took.", "seconds")
COLD = counter("aerobee_cold_reads_total", "Reads of messages that have probably left the page cache.")
REFUSED = counter("aerobee_refused_logins_total", "Requests with a wrong or no signature.")
SKIPPED = counter("aerobee_skipped_records_total", "Records that background jobs could not handle.")
REFUSED_PUTS = counter("aerobee_refused_puts_total", "Messages that the store did not take.")

_PROCESSORS = (
    *("send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull"),
    *("transaction", "consumer_manager", "admin", "reply"),
)
_MODES = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
_REQUESTS = {code.value: code.name.lower() for code in RequestCode}
_RESPONSES = {code.value: code.name.lower() for code in ResponseCode}


def collect(broker: Broker, asked: Asked) -> Iterator[None]:
    scrape = asked.scrape
    for processor in _PROCESSORS:
        scrape.add(WATERMARK, 0, (("processor", processor),))
    scrape.add(PERMISSION, broker.config.perm)
    scrape.add(TOPICS, len(broker.topics.all()))
    scrape.add(GROUPS, len(broker.groups.all()))
    yield from _connections(broker, asked)
    yield from _times(broker, asked)
    yield from _own(broker, asked)


def _connections(broker: Broker, asked: Asked) -> Iterator[None]:
    producers: Counter[Labels] = Counter()
    for members in list(broker.clients.producer_groups().values()):
        producers.update(_client(member) for member in members.values())
        yield
    consumers: Counter[Labels] = Counter()
    for group in list(broker.clients.groups().values()):
        of = (
            ("consumer_group", asked.shown_group(group.name)),
            ("consume_mode", _MODES[group.consume_type]),
            ("is_system", "true" if names.is_system_group(group.name) else "false"),
        )
        consumers.update(of + _client(member) for member in group.members.values())
        yield
    for family, table in ((PRODUCERS, producers), (CONSUMERS, consumers)):
        for labels, count in table.items():
            asked.scrape.add(family, count, labels)


def _client(member: Member) -> Labels:
    return (
        ("language", member.language.lower()),
        ("version", version_text(member.version).lower()),
        ("protocol_type", str(member.link.attributes.get("protocol", "remoting"))),
    )


def _times(broker: Broker, asked: Asked) -> Iterator[None]:
    counted, scrape = broker.stats.counted, asked.scrape
    for (code, response, held), times in counted.rpc:
        labels = (
            ("protocol_type", "remoting"),
            ("request_code", _REQUESTS.get(code, OTHER)),
            ("response_code", _RESPONSES.get(max(0, response), str(response))),
            ("is_long_polling", "true" if held else "false"),
            ("result", "oneway" if response < 0 else "success"),
        )
        scrape.add(RPC, Distribution.of(times, MS_NS), labels)
        yield
    status = {True: ("invocation_status", "success"), False: ("invocation_status", "failure")}
    for went_well, times in counted.topic_create_ms:
        scrape.add(TOPIC_MADE, Distribution.of(times), (status[went_well], ("is_system", "false")))
    for went_well, times in counted.group_create_ms:
        scrape.add(GROUP_MADE, Distribution.of(times), (status[went_well],))
    yield


def _own(broker: Broker, asked: Asked) -> Iterator[None]:
    scrape, store = asked.scrape, broker.store
    scrape.add(BUILD, 1, (("version", __version__), ("native", "on" if native.is_on else "off")))
    scrape.add(LOOP_LAG, Distribution.of(broker.stats.counted.late_ms, 1000))
    scrape.add(HELD, broker.parked.count, (("kind", "pull"),))
    scrape.add(HELD, broker.pops.parked.count, (("kind", "pop"),))
    scrape.add(LEASED, broker.pops.leases.in_flight.messages)
    scrape.add(REVIVE_LATE, late_ms(broker) / 1000)
    scrape.add(SYNC, Distribution.of(store.sync_ms, 1000))
    scrape.add(COLD, store.cold_reads)
    scrape.add(REFUSED, 0 if broker.guard is None else broker.guard.refused_logins)
    scrape.add(SKIPPED, broker.stats.skipped.count)
    scrape.add(REFUSED_PUTS, store.refused_puts)
    yield
