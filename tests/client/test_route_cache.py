# SPDX-License-Identifier: Apache-2.0
"""What routes say of brokers: their masters, their slaves, who they are by their address, and when that is news."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee.client.produce.tries import worth_a_retry
from aerobee.client.session.route_cache import RouteCache
from aerobee.errors import (
    AerobeeError,
    BrokerError,
    NetworkError,
    NoRoute,
    RequestTimeout,
    UnknownResponse,
    error_for,
)
from aerobee.protocol.bodies import BrokerData, QueueData, TopicRoute

if TYPE_CHECKING:
    from collections.abc import Mapping


def route(queues: int = 2, **brokers: Mapping[int, str]) -> TopicRoute:
    return TopicRoute(
        broker_datas=[BrokerData(broker_name=name, broker_addrs=dict(at)) for name, at in brokers.items()],
        queue_datas=[
            QueueData(broker_name=name, perm=6, read_queue_nums=queues, write_queue_nums=queues)
            for name in brokers
        ],
    )


def test_a_route_is_news_when_it_is_another_and_only_then() -> None:
    routes = RouteCache()
    assert routes.get("t") is None
    assert routes.put("t", route(a={0: "a:1"})) is True
    first = routes.version
    assert routes.put("t", route(a={0: "a:1"})) is False
    assert routes.version == first, "what was derived from it is still good"
    assert routes.put("t", route(3, a={0: "a:1"})) is True
    assert routes.version > first
    found = routes.get("t")
    assert found is not None
    assert len(found.writable) == 3


def test_a_broker_that_moved_is_news_to_every_topic() -> None:
    routes = RouteCache()
    routes.put("t", route(a={0: "a:1"}))
    routes.put("u", route(a={0: "a:1"}))
    before = routes.version
    assert routes.put("u", route(a={0: "a:2"})) is True
    assert routes.version > before
    assert routes.master("a") == "a:2"
    before = routes.version
    assert routes.put("t", route(a={0: "a:1", 1: "s:1"})) is True
    assert routes.version > before
    moved = routes.version
    routes.put("u", route(a={0: "a:2"}))
    assert routes.version > moved, "though the route of the topic itself is what it was"


def test_a_master_that_went_is_no_master_and_its_slaves_stay() -> None:
    routes = RouteCache()
    routes.put("t", route(a={0: "a:1", 1: "s:1"}))
    assert routes.is_master("a", "a:1")
    assert not routes.is_master("a", "s:1")
    routes.put("t", route(a={1: "s:1"}))
    assert routes.master("a") is None
    assert not routes.is_master("a", "a:1")
    assert routes.address("a") == "s:1"


@pytest.mark.parametrize(("asked", "found"), [(0, "m:1"), (1, "s2:1"), (2, "s2:1"), (3, "s3:1"), (4, "m:1")])
def test_a_slave_that_is_missing_is_stood_in_for_by_the_next_or_by_any(asked: int, found: str) -> None:
    routes = RouteCache()
    routes.put("t", route(a={0: "m:1", 2: "s2:1", 3: "s3:1"}))
    assert routes.address("a", asked) == found
    assert routes.address("nobody", asked) is None


def test_who_asks_for_a_master_is_not_given_the_first_slave_by_its_number() -> None:
    routes = RouteCache()
    routes.put("t", route(a={5: "s5:1", 1: "s1:1"}))
    assert routes.address("a", 0) == "s5:1", "any of them"
    assert routes.address("a") == "s5:1"


def test_a_broker_is_known_by_any_of_its_addresses() -> None:
    routes = RouteCache()
    routes.put("t", route(a={0: "a:1", 1: "s:1"}, b={0: "b:1"}))
    assert [routes.name_of(address) for address in ("a:1", "s:1", "b:1", "c:1")] == ["a", "a", "b", None]


def test_topics_that_were_known_once_are_told_from_those_that_never_were() -> None:
    routes = RouteCache()
    routes.put("t", route(a={0: "a:1"}))
    routes.put("u", route(b={0: "b:1"}))
    before = routes.version
    routes.forget("t")
    assert (routes.get("t"), routes.topics()) == (None, ["u"])
    assert (routes.had("t"), routes.had("u"), routes.had("never")) == (True, True, False)
    assert routes.version > before
    assert routes.put("t", route(a={0: "a:1"})) is True, "the same route is news again"


def test_brokers_of_topics_are_told_once_with_all_their_addresses() -> None:
    routes = RouteCache()
    routes.put("t", route(a={0: "a:1", 1: "s:1"}, b={0: "b:1"}))
    routes.put("u", route(b={0: "b:1"}, c={1: "c-slave:1"}))
    assert routes.brokers_of(["t"]) == {"a": {0: "a:1", 1: "s:1"}, "b": {0: "b:1"}}
    assert routes.brokers_of(["u", "unknown", "t"]).keys() == {"a", "b", "c"}
    assert routes.brokers_of([]) == {}


# -- which refusals another try may cure ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", range(1, 260))
def test_refusals_that_another_broker_may_not_share_are_worth_another_try(code: int) -> None:
    assert worth_a_retry(error_for(code, "no")) is (code in (1, 2, 14, 16, 17, 204, 205))


@pytest.mark.parametrize(
    ("error", "worth"),
    [
        (NetworkError("gone"), True),
        (RequestTimeout("late"), True),
        (NoRoute("none"), True),
        (AerobeeError("what?"), False),
        (error_for(1500, "no"), True),
        (error_for(1501, "no"), False),
    ],
)
def test_what_never_reached_a_broker_is_worth_another_try(error: AerobeeError, worth: bool) -> None:
    assert worth_a_retry(error) is worth
    assert isinstance(error_for(204, "no"), (BrokerError, UnknownResponse))
