# SPDX-License-Identifier: Apache-2.0
"""Where a reader of a queue goes on, and what it relies on that may change while it is remembered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.delivery.reading import accept_for, accept_for_pop, correct, peek_position, relied_on
from aerobee.broker.operations.admin.settings import change_settings
from aerobee.broker.operations.pop import plain, pop_again
from aerobee.protocol import names
from aerobee.protocol.bodies import ConsumerData, GroupConfig, Heartbeat, TopicConfig
from aerobee.protocol.codes import ResponseCode
from aerobee.settings import BrokerConfig
from aerobee.store.results import Found, ReadStatus

if TYPE_CHECKING:
    from collections.abc import Callable


class Link:
    remote_text, is_open = "10.0.0.9:50001", True

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}

    def send(self, command: object) -> None: ...


def join(broker: Any) -> None:
    beat = Heartbeat(client_id="c", consumer_data_set=[ConsumerData(group_name="billing")])
    broker.clients.heartbeat(Link(), beat, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda broker: change_settings("brokerPermission=4", broker),
        lambda broker: change_settings("maxTransferCountOnMessageInMemory=7", broker),
        lambda broker: broker.groups.put(GroupConfig(group_name="billing", consume_enable=False)),
        lambda broker: broker.groups.forbid("billing", "orders", 4),
        lambda broker: broker.topics.put(TopicConfig(topic_name="orders", perm=2)),
        lambda broker: broker.topics.delete("orders"),
        join,
    ],
)
def test_whatever_decides_how_a_reader_is_served_shows_when_it_changes(
    shop: Any, change: Callable[[Any], None]
) -> None:
    before = relied_on(shop.broker)
    assert relied_on(shop.broker) == before
    change(shop.broker)
    assert relied_on(shop.broker) != before


def test_a_member_that_leaves_shows_too(shop: Any) -> None:
    join(shop.broker)
    before = relied_on(shop.broker)
    shop.broker.clients.unregister("c", None, "billing")
    assert relied_on(shop.broker) != before


def test_one_who_looks_goes_by_a_reset_that_nobody_has_taken_yet(shop: Any) -> None:
    shop.send(*"abc")
    shop.pop(queue_id=0)
    assert peek_position("orders", "billing", 0, shop.broker) == 3
    shop.broker.offsets.set_reset("billing", "orders", 0, 1)
    assert peek_position("orders", "billing", 0, shop.broker) == 1


@pytest.mark.parametrize(("goes_on_at", "leased"), [(4, 3), (3, 3), (2, 2)])
def test_leases_are_void_only_where_the_queue_has_become_shorter(
    shop: Any, goes_on_at: int, leased: int
) -> None:
    shop.send(*"abc")
    for _ in "abc":
        shop.pop(queue_id=0, max_messages=1)
    lane = shop.broker.pops.leases.in_flight.lane("orders", "billing", 0)
    found = Found(ReadStatus.OFFSET_FOUND_NULL, goes_on_at, 0, 3, [], [], 0)
    assert correct(lane, 3, found, shop.broker) == goes_on_at
    assert shop.in_flight == leased
    assert peek_position("orders", "billing", 0, shop.broker) == goes_on_at


def test_an_ordinary_pop_is_remembered_and_one_that_needs_a_look_is_not(shop: Any) -> None:
    known = plain(shop.request(), shop.broker)
    assert known is not None
    assert (known.request, known.accept) == (shop.request(), None)
    for special in (
        {"ordered": True},
        {"attempt_id": "a"},
        {"group": "unknown"},
        {"topic": "nowhere"},
        {"queue_id": 4},
        {"max_messages": 33},
        {"expression": "a >", "expression_type": "SQL92"},
    ):
        assert plain(shop.request(**special), shop.broker) is None, special


async def test_a_pop_remembered_is_as_any_other(shop: Any) -> None:
    known = plain(shop.request(poll_ms=5_000), shop.broker)
    assert known is not None
    shop.send("a")
    found: Any = pop_again(known, shop.clock.now(), shop.broker)
    assert len(found.messages) == 1
    shop.send("b", "c")
    stale: Any = pop_again(known, shop.clock.now() - 5_501, shop.broker)
    assert (stale.code, stale.messages) == (ResponseCode.POLLING_TIMEOUT, [])
    just_in_time: Any = pop_again(known, shop.clock.now() - 5_500, shop.broker)
    assert len(just_in_time.messages) == 2
    held: Any = pop_again(known, shop.clock.now() - 4_000, shop.broker)
    waits = asyncio.ensure_future(held)
    await asyncio.sleep(0)
    shop.clock.advance(949)
    await asyncio.sleep(0)
    assert not waits.done(), "a second is left of its five, less the way back"
    shop.clock.advance(1)
    assert (await waits).code == ResponseCode.POLLING_TIMEOUT


def test_a_start_remembers_of_leases_only_what_lies_before_the_group(shop: Any) -> None:
    shop.send(*"abc")
    shop.pop(queue_id=0, invisible_ms=60_000)
    shop.restart()
    assert shop.committed() == 3
    lane = shop.broker.pops.leases.in_flight.lane("orders", "billing", 0)
    assert (lane.in_flight, lane.skip) == (3, set())


def test_leases_of_one_moment_come_back_in_the_order_they_were_made(shop: Any) -> None:
    shop.send(*"abcdef")
    for _ in "abcdef":
        shop.pop(queue_id=0, max_messages=1, invisible_ms=1_000)
    shop.wait(1_200)
    retried = shop.records(names.pop_retry_topic("orders", "billing"))
    assert [record.body for record in retried] == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_what_goes_into_the_revive_log_is_counted_by_kind(shop: Any) -> None:
    shop.send(*"abc")
    found = [shop.pop(queue_id=0, max_messages=1, invisible_ms=60_000)[0] for _ in "abc"]
    shop.wait(4_000)
    shop.ack(*found[:2])
    written = shop.broker.pops.leases.log.written
    assert written == {("billing", "orders", "ck"): 3, ("billing", "orders", "ack"): 2}


@pytest.mark.parametrize("kind", [None, "TAG", "SQL92"])
@pytest.mark.parametrize("expression", [None, "", "*"])
def test_who_names_nothing_reads_everything(kind: str | None, expression: str | None) -> None:
    assert accept_for(kind, expression, BrokerConfig(property_filter=False)) is None
    assert accept_for_pop(kind, expression) is None
