# SPDX-License-Identifier: Apache-2.0
"""Start and end of a read, as offsets: what names a topic or queue that is not read fails and says what there is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from aerobee.spark import options
from aerobee.spark.options import OptionError
from aerobee.spark.reading import resolve

if TYPE_CHECKING:
    from aerobee.spark.reading.plan import Bounds

BOUNDS: Bounds = {
    "orders": {"broker-a": {"0": (5, 20), "1": (0, 10)}},
    "bills": {"broker-b": {"0": (0, 3)}},
}


class ByTheThousand:
    """Offset n is from second n."""

    def topics(self) -> list[str]:
        return list(BOUNDS)

    def queues(self, topic: str) -> dict[str, dict[str, tuple[int, int]]]:
        return BOUNDS[topic]

    def offset_at(self, topic: str, broker: str, queue: int, timestamp: int) -> int:
        return timestamp // 1000

    def forget_routes(self) -> None:
        pass


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
    given = read(startingTimestamp="8000", endingTimestamp="15000")
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


def test_times_must_cover_every_topic_and_be_reached() -> None:
    with pytest.raises(OptionError, match="names no time for topic 'bills'"):
        resolve.start(read(startingOffsetsByTimestamp='{"orders": 1000}'), ByTheThousand(), BOUNDS)
    late = '{"orders": 15000, "bills": 1000}'
    with pytest.raises(OptionError, match="no message of orders/broker-a/1 is as late as 15000"):
        resolve.start(read(startingOffsetsByTimestamp=late), ByTheThousand(), BOUNDS)
    given = read(startingOffsetsByTimestamp=late, startingOffsetsByTimestampStrategy="latest")
    assert resolve.start(given, ByTheThousand(), BOUNDS)["orders"] == {"broker-a": {"0": 15, "1": 10}}
