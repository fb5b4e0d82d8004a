# SPDX-License-Identifier: Apache-2.0
"""Start and end of a read, as offsets: what names a topic or queue that is not read fails and says what there is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aerobee.spark import options
from aerobee.spark.options import OptionError
from aerobee.spark.reading import resolve
from aerobee.spark.reading.plan import Look

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aerobee.spark.reading.plan import Bounds, Place

BOUNDS: Bounds = {
    "orders": {"broker-a": {"0": (5, 20), "1": (0, 10)}},
    "bills": {"broker-b": {"0": (0, 3)}},
}


class ByTheThousand:
    """Offset n is from second n."""

    def topics(self) -> list[str]:
        return list(BOUNDS)

    def existing(self, topics: Sequence[str]) -> list[str]:
        return [topic for topic in topics if topic in self.topics()]

    def look(self, topics: Iterable[str], carried: frozenset[tuple[str, str]] = frozenset()) -> Look:
        return Look(BOUNDS, {}, {}, frozenset())

    def forget_routes(self) -> None:
        """There are none."""

    def offsets_at(self, places: Sequence[Place], timestamps: Sequence[int]) -> list[int]:
        return [timestamp // 1000 for timestamp in timestamps]


def read(**given: str) -> options.Read:
    return options.for_batch({"namesrv": "127.0.0.1:9876", "subscribe": "orders,bills", **given})


def offsets(topic: str = "orders", broker: str = "broker-a", **queues: int) -> str:
    return json.dumps({topic: {broker: {name[1:]: offset for name, offset in queues.items()}}})


def check(given: options.Read, bounds: Bounds = BOUNDS) -> None:
    resolve.check_names(given, list(given.topics), bounds)


def test_json_offsets_with_words_for_the_edges_and_defaults_for_the_rest() -> None:
    given = read(startingOffsets=offsets(q0=-2, q1=4), endingOffsets=offsets(q0=12, q1=-1))
    check(given)
    assert resolve.start(given, ByTheThousand(), BOUNDS) == {
        "bills": {"broker-b": {"0": 0}},
        "orders": {"broker-a": {"0": 5, "1": 4}},
    }
    assert resolve.end(given, ByTheThousand(), BOUNDS) == {
        "bills": {"broker-b": {"0": 3}},
        "orders": {"broker-a": {"0": 12, "1": 10}},
    }


def test_times_stay_within_the_queue() -> None:
    given = read(
        startingTimestamp="8000", endingTimestamp="15000", startingOffsetsByTimestampStrategy="latest"
    )
    assert resolve.start(given, ByTheThousand(), BOUNDS)["orders"] == {"broker-a": {"0": 8, "1": 8}}
    assert resolve.end(given, ByTheThousand(), BOUNDS)["orders"] == {"broker-a": {"0": 15, "1": 10}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"startingOffsets": offsets("ordres", q0=1)},
            "'startingOffsets' names topic 'ordres'.*orders, bills",
        ),
        (
            {"startingOffsets": offsets(broker="broker-x", q0=1)},
            "queue broker-x/0 of 'orders', which has: broker-a/0",
        ),
        ({"endingOffsets": offsets(q0=9, q7=9)}, "'endingOffsets' names queue broker-a/7 of 'orders'"),
        (
            {"startingOffsetsByTimestamp": '{"ordres": 5}'},
            "'startingOffsetsByTimestamp' names topic 'ordres'",
        ),
    ],
)
def test_names_of_what_is_not_read_are_refused_unless_loss_is_allowed(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        check(read(**given))
    check(read(**given, failOnDataLoss="false"))


def test_a_topic_that_the_query_filters_out_may_be_named() -> None:
    given = read(startingOffsets=offsets(broker="broker-a", q0=7))
    check(given, {"bills": BOUNDS["bills"]})


def test_times_must_cover_every_topic() -> None:
    with pytest.raises(OptionError, match="names no time for topic 'bills'"):
        resolve.start(read(startingOffsetsByTimestamp='{"orders": 1000}'), ByTheThousand(), BOUNDS)


@pytest.mark.parametrize(
    ("option", "value"),
    [("startingTimestamp", "15000"), ("startingOffsetsByTimestamp", '{"orders": 15000, "bills": 1000}')],
)
def test_a_time_that_no_message_reaches_is_an_error_unless_the_strategy_says_latest(
    option: str, value: str
) -> None:
    with pytest.raises(
        OptionError, match=f"{option}.*no message of .* is as late as 15000;.*Strategy=latest"
    ):
        resolve.start(read(**{option: value}), ByTheThousand(), BOUNDS)
    given = read(**{option: value}, startingOffsetsByTimestampStrategy="latest")
    assert resolve.start(given, ByTheThousand(), BOUNDS)["orders"] == {"broker-a": {"0": 15, "1": 10}}


def test_an_empty_queue_has_no_message_that_could_be_late() -> None:
    empty: Bounds = {"orders": {"broker-a": {"0": (7, 7)}}}
    assert resolve.start(read(startingTimestamp="15000"), ByTheThousand(), empty) == {
        "orders": {"broker-a": {"0": 7}}
    }


def test_an_ending_time_may_lie_in_the_future() -> None:
    assert resolve.end(read(endingTimestamp="99000"), ByTheThousand(), BOUNDS) == {
        "bills": {"broker-b": {"0": 3}},
        "orders": {"broker-a": {"0": 20, "1": 10}},
    }


@pytest.mark.parametrize("side", ["starting", "ending"])
def test_an_offset_past_the_end_is_the_users_mistake_and_said_so(side: str) -> None:
    resolved = resolve.start if side == "starting" else resolve.end
    with pytest.raises(OptionError) as caught:
        resolved(read(**{f"{side}Offsets": offsets(q0=21)}), ByTheThousand(), BOUNDS)
    assert str(caught.value) == (
        f"option '{side}Offsets': offset 21 of orders/broker-a/0 is past its end, which is 20"
    )
    given = read(**{f"{side}Offsets": offsets(q0=20)})
    assert resolved(given, ByTheThousand(), BOUNDS)["orders"]["broker-a"]["0"] == 20
    given = read(**{f"{side}Offsets": offsets(q0=21)}, failOnDataLoss="false")
    assert resolved(given, ByTheThousand(), BOUNDS)["orders"]["broker-a"]["0"] == 21


class OfAGroup(ByTheThousand):
    def group_offsets(self, places: Sequence[Place]) -> list[int | None]:
        known = {("orders", "broker-a", 0): 12, ("orders", "broker-a", 1): None, ("bills", "broker-b", 0): 2}
        return [known[place] for place in places]


def test_a_group_goes_on_where_it_was_and_begins_at_the_first_where_it_never_was() -> None:
    given = read(startingOffsets="group", group="g")
    assert resolve.start(given, OfAGroup(), BOUNDS) == {
        "bills": {"broker-b": {"0": 2}},
        "orders": {"broker-a": {"0": 12, "1": 0}},
    }
    later: Bounds = {"orders": {"broker-a": {"0": (15, 20), "1": (4, 10)}}}
    assert resolve.start(given, OfAGroup(), later) == {"orders": {"broker-a": {"0": 15, "1": 4}}}
