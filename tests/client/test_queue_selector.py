# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter

import pytest

from aerobee.client.message import Message
from aerobee.client.produce.queue_selector import Faults, InTurn, by_selector, by_sharding_key
from aerobee.protocol.bodies import MessageQueue

QUEUES = [MessageQueue(broker, n, "T") for broker in ("a", "b") for n in range(2)]


def test_queues_take_turns() -> None:
    turn = InTurn(start=2**31)
    assert Counter(turn.choose(QUEUES) for _ in range(40)) == dict.fromkeys(QUEUES, 10)


def test_a_retry_avoids_the_broker_that_failed_if_there_is_another() -> None:
    turn = InTurn()
    assert {turn.choose(QUEUES, avoid="a").broker_name for _ in range(10)} == {"b"}
    assert turn.choose(QUEUES[:2], avoid="a").broker_name == "a", "there is no other"


def test_a_sharding_key_keeps_its_queue_and_keys_spread() -> None:
    assert len({by_sharding_key(QUEUES, "user-7") for _ in range(5)}) == 1
    assert {by_sharding_key(QUEUES, f"user-{n}") for n in range(50)} == set(QUEUES)


class TestFaults:
    @pytest.mark.parametrize(
        ("latency_ms", "away_ms"),
        [
            (0, 0),
            (549, 0),
            (550, 2_000),
            (1_799, 2_000),
            (1_800, 5_000),
            (2_999, 5_000),
            (3_000, 6_000),
            (4_999, 6_000),
            (5_000, 10_000),
            (14_999, 10_000),
            (15_000, 30_000),
            (99_000, 30_000),
        ],
    )
    def test_a_slow_broker_is_kept_away_from_for_a_time(self, latency_ms: int, away_ms: int) -> None:
        faults = Faults()
        faults.answered("a", latency_ms, now=100_000)
        assert faults.available("a", 100_000) is (away_ms == 0)
        assert faults.available("a", 100_000 + away_ms)
        assert not away_ms or not faults.available("a", 100_000 + away_ms - 1)
        assert faults.reachable("a"), "it answered"

    def test_a_failed_broker_counts_as_ten_seconds_slow_and_unreachable(self) -> None:
        faults = Faults()
        faults.failed("a", now=0)
        assert not faults.available("a", 9_999)
        assert faults.available("a", 10_000)
        assert not faults.reachable("a")
        faults.answered("a", 10, now=1)
        assert faults.available("a", 1)
        assert faults.reachable("a")

    def test_queues_of_available_then_reachable_then_any_brokers(self) -> None:
        faults = Faults()
        assert faults.allowed(QUEUES, 0) is QUEUES
        faults.failed("a", now=0)
        assert {queue.broker_name for queue in faults.allowed(QUEUES, 1)} == {"b"}
        faults.answered("b", 20_000, now=0)
        assert {queue.broker_name for queue in faults.allowed(QUEUES, 1)} == {"b"}, "slow, but it answers"
        faults.failed("b", now=0)
        assert faults.allowed(QUEUES, 1) == QUEUES


def test_a_selector_chooses_a_queue_of_the_topic_and_nothing_else() -> None:
    message = Message("T", b"x")
    assert by_selector(QUEUES, message, lambda queues, given, at: queues[at], 3) is QUEUES[3]
    seen: list[object] = []
    by_selector(QUEUES, message, lambda *told: seen.append(told) or QUEUES[0], 7)  # type: ignore[func-returns-value]
    assert seen == [(QUEUES, message, 7)]
    with pytest.raises(ValueError, match="the selector chose None, which is no queue of topic 'T'"):
        by_selector(QUEUES, message, lambda *_: None, None)  # type: ignore[arg-type, return-value]
