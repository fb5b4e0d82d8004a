# SPDX-License-Identifier: Apache-2.0
"""Heads of queues in bulk: all of the topics named, or what moved since a stamp, and never less than that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.broker.operations import bulk
from aerobee.broker.operations.bulk import heads_of, log_from, moved_heads, units_of
from aerobee.errors import NoPermission
from aerobee.protocol.codes import Perm

if TYPE_CHECKING:
    from tests.broker.conftest import Bench


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.broker.topics.ensure("orders", 2)
    bench.broker.topics.ensure("bills", 1)
    return bench


def moved(bench: Bench, since: str) -> dict[str, list[tuple[int, int, int]]]:
    found = moved_heads(since, bench.broker)
    assert found.since == since, "it cannot be told from there"
    return found.topics


def test_named_topics_are_told_whole_and_unknown_ones_not_at_all(bench: Bench) -> None:
    for _ in range(3):
        bench.send("orders", queue_id=1)
    found = heads_of(["bills", "nothing", "orders"], "", bench.broker)
    assert found.topics == {"bills": [(0, 0, 0)], "orders": [(0, 0, 0), (1, 0, 3)]}
    assert found.since == ""


def test_while_nothing_is_appended_nothing_is_told(bench: Bench) -> None:
    bench.send("orders")
    stamp = heads_of(["orders"], "", bench.broker).stamp
    assert heads_of(["orders"], stamp, bench.broker) == (stamp, stamp, {})
    assert moved_heads(stamp, bench.broker) == (stamp, stamp, {})
    bench.send("bills")
    assert heads_of(["orders"], stamp, bench.broker).topics == {"orders": [(0, 0, 1), (1, 0, 0)]}


@pytest.mark.parametrize("written", [False, True], ids=["units in memory", "units in files"])
def test_what_moved_since_a_stamp_is_told_by_queue(bench: Bench, written: bool) -> None:
    bench.send("orders", queue_id=0)
    bench.send("bills")
    stamp = moved_heads("", bench.broker).stamp
    bench.send("orders", queue_id=1)
    bench.send("orders", queue_id=1)
    if written:
        bench.broker.store.flush()
    assert moved(bench, stamp) == {"orders": [(1, 0, 2)]}
    later = moved_heads(stamp, bench.broker).stamp
    assert moved(bench, later) == {}
    bench.send("bills")
    if written:
        bench.broker.store.flush()
    assert moved(bench, later) == {"bills": [(0, 0, 2)]}
    assert moved(bench, stamp) == {"bills": [(0, 0, 2)], "orders": [(1, 0, 2)]}


def delete(bench: Bench) -> None:
    bench.broker.topics.delete("bills")
    bench.broker.store.delete_topic("bills")


def restart(bench: Bench) -> None:
    bench.clock.advance(1)
    bench.restart()


@pytest.mark.parametrize(
    "happens",
    [lambda bench: bench.broker.topics.ensure("new", 1), delete, restart],
    ids=["created", "deleted", "restarted"],
)
def test_more_than_appends_cannot_be_told_from_a_stamp(bench: Bench, happens: Any) -> None:
    bench.send("bills")
    stamp = moved_heads("", bench.broker).stamp
    happens(bench)
    found = moved_heads(stamp, bench.broker)
    assert (found.since, found.topics) == ("", {})
    assert "orders" in heads_of(["orders"], stamp, bench.broker).topics


@pytest.mark.parametrize("tail", ["", "x", "-1", "\u00b2", "9" * 19, "9" * 5000])
def test_a_stamp_that_is_none_tells_nothing(bench: Bench, tail: str) -> None:
    stamp = moved_heads("", bench.broker).stamp.rpartition(".")[0]
    assert moved_heads(f"{stamp}.{tail}", bench.broker).since == ""
    assert moved_heads(tail, bench.broker).since == ""


def test_topics_that_may_not_be_read_are_left_out(bench: Bench) -> None:
    topics = bench.broker.topics
    topics.put(msgspec.structs.replace(topics.require("bills"), perm=int(Perm.WRITE)))
    stamp = moved_heads("", bench.broker).stamp
    bench.send("bills")
    assert heads_of(["bills"], "", bench.broker).topics == {}
    assert moved(bench, stamp) == {}
    topics.put(msgspec.structs.replace(topics.require("orders"), read_queue_nums=1))
    stamp = moved_heads("", bench.broker).stamp
    bench.send("orders", queue_id=1)
    assert moved(bench, stamp) == {}
    assert heads_of(["orders"], "", bench.broker).topics == {"orders": [(0, 0, 0)]}


def test_a_broker_that_may_not_be_read_refuses(bench: Bench) -> None:
    settings = bench.broker.settings
    settings.value = msgspec.structs.replace(settings.value, perm=int(Perm.WRITE))
    for ask in (lambda: heads_of(["orders"], "", bench.broker), lambda: moved_heads("", bench.broker)):
        with pytest.raises(NoPermission):
            ask()


# -- units and bytes -----------------------------------------------------------------------------------------

UNIT = 20


def test_units_are_told_from_the_first_that_is_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(10):
        bench.send("orders")
    whole = bench.broker.store.units("orders", 0, 0, 10, 1)
    assert len(whole) == 10 * UNIT
    for step in (1, 0, -1):
        assert units_of("orders", 0, 2, 3, step, bench.broker) == (2, whole[2 * UNIT : 5 * UNIT])
    monkeypatch.setattr(bench.broker.store, "min_offset", lambda topic, queue: 4)
    assert units_of("orders", 0, 2, 4, 1, bench.broker) == (4, whole[4 * UNIT : 6 * UNIT])


def test_no_more_units_and_bytes_are_told_at_once_than_a_frame_holds(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        bench.send("orders")
    whole = bench.broker.store.units("orders", 0, 0, 10, 1)
    monkeypatch.setattr(bulk, "MOST_UNITS", 3)
    monkeypatch.setattr(bulk, "MOST_SAMPLES", 2)
    monkeypatch.setattr(bulk, "MOST_BYTES", 100)
    assert units_of("orders", 0, 0, 10, 1, bench.broker) == (0, whole[: 3 * UNIT])
    samples = [whole[at * UNIT : (at + 1) * UNIT] for at in (0, 3)]
    assert units_of("orders", 0, 0, 10, 3, bench.broker) == (0, b"".join(samples))
    assert len(log_from(0, 1_000, bench.broker)) == 100


def test_a_broker_that_may_not_be_read_tells_no_units_and_no_bytes(make_bench: Any) -> None:
    bench = make_bench(perm=2)
    bench.broker.topics.ensure("orders", 2)
    for ask in (
        lambda: units_of("orders", 0, 0, 1, 1, bench.broker),
        lambda: log_from(0, 100, bench.broker),
    ):
        with pytest.raises(NoPermission):
            ask()
