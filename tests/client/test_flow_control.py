# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from aerobee.client.consume.inbox import FlowLimits, Full, Inbox, Warnings, full
from aerobee.client.message import ReceivedMessage
from aerobee.client.options import Options

MIB = 1024 * 1024
LIMITS = FlowLimits.of(Options(), span=Options().span)


def inbox_with(*offsets: int, body: bytes = b"x") -> Inbox:
    inbox = Inbox(0)
    inbox.put([ReceivedMessage("T", body, queue_offset=n) for n in offsets])
    return inbox


@pytest.mark.seed("S001-10", "S004-62", "S004-89")
def test_more_than_1000_messages_stop_fetching() -> None:
    assert full(inbox_with(*range(1000)), LIMITS) is None
    assert full(inbox_with(*range(1001)), LIMITS) is Full.COUNT


@pytest.mark.seed("S001-11")
def test_the_size_limit_counts_whole_mebibytes() -> None:
    limits = FlowLimits(messages=1000, mebibytes=2, span=2000)
    assert full(inbox_with(0, 1, body=b"x" * MIB), limits) is None
    almost = inbox_with(0, 1, body=b"x" * MIB)
    almost.put([ReceivedMessage("T", b"x" * (MIB - 1), queue_offset=2)])
    assert full(almost, limits) is None, "2.99 MiB are 2"
    assert full(inbox_with(0, 1, 2, body=b"x" * MIB), limits) is Full.SIZE


@pytest.mark.seed("S001-12", "S004-62", "S004-89")
def test_a_span_over_2000_stops_fetching_unless_ordered() -> None:
    assert full(inbox_with(0, 2000), LIMITS) is None
    assert full(inbox_with(0, 2001), LIMITS) is Full.SPAN
    assert full(inbox_with(0, 2001), FlowLimits.of(Options(), span=None)) is None


@pytest.mark.seed("S003-9")
def test_a_limit_per_topic_is_spread_over_the_queues_owned() -> None:
    options = Options(topic_messages=100, topic_mebibytes=10)
    assert FlowLimits.of(options, owned_queues=8, span=None) == FlowLimits(12, 1, None)
    assert FlowLimits.of(options, owned_queues=1000, span=None) == FlowLimits(1, 1, None)


@pytest.mark.seed("S001-28", "S001-10")
def test_the_first_and_every_1000th_hit_is_logged_with_one_counter_for_count_and_size() -> None:
    warnings = Warnings()
    hits = [warnings.hit(Full.COUNT if n % 2 else Full.SIZE) for n in range(2001)]
    assert [n for n, worth in enumerate(hits) if worth] == [0, 1000, 2000]
    assert warnings.hit(Full.SPAN), "span has a counter of its own"
