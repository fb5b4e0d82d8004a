# SPDX-License-Identifier: Apache-2.0
"""Looking messages up by place, by key and by queue unit."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.operations.query import KeyQuery, query_by_key, query_queue, view_message
from aerobee.errors import QueryNotFound, SystemFailure
from aerobee.protocol import message
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import ConsumerData, Heartbeat, SubscriptionData


def bodies(found: list[bytes]) -> list[bytes]:
    return [message.decode(raw).body for raw in found]


def test_a_message_is_seen_by_its_place_in_the_log(bench: Any) -> None:
    bench.send(body=b"one")
    sent = bench.send(body=b"two")
    assert message.decode(view_message(sent.physical_offset, bench.broker)).body == b"two"
    for nowhere in (-1, sent.physical_offset + 1, 10**12):
        with pytest.raises(SystemFailure, match="no message at"):
            view_message(nowhere, bench.broker)


def test_messages_are_found_by_each_of_their_keys(bench: Any) -> None:
    bench.send(body=b"one", properties={"KEYS": "k1 k2"})
    bench.send(body=b"two", properties={"KEYS": "k2"})
    bench.send("other", b"three", properties={"KEYS": "k2"})
    found = query_by_key(KeyQuery("orders", "k2"), bench.broker)
    assert sorted(bodies(found.messages)) == [b"one", b"two"]
    assert found.index_time == bench.clock.now()
    assert bodies(query_by_key(KeyQuery("orders", "k1"), bench.broker).messages) == [b"one"]
    bench.restart()
    assert bodies(query_by_key(KeyQuery("orders", "k1"), bench.broker).messages) == [b"one"]


def test_messages_are_found_by_their_unique_key(bench: Any) -> None:
    sent = bench.send(body=b"one")
    found = query_by_key(KeyQuery("orders", sent.unique_key, max_messages=1, unique=True), bench.broker)
    assert bodies(found.messages) == [b"one"]


def test_of_those_with_one_unique_key_32_are_told(bench: Any) -> None:
    for _ in range(40):
        bench.send(properties={"UNIQ_KEY": "A1"})
    asked = KeyQuery("orders", "A1", max_messages=64, unique=True)
    assert len(query_by_key(asked, bench.broker).messages) == 32


def test_of_a_queue_a_thousand_units_are_shown_at_once(bench: Any) -> None:
    for _ in range(1_001):
        bench.send()
    shown = query_queue("orders", 0, 0, 5_000, "", bench.broker)
    assert (len(shown.queue_data), shown.max_queue_index) == (1_000, 1_001)


def test_a_key_query_is_limited_in_time_and_number(bench: Any) -> None:
    start = bench.clock.now()
    for second in range(100):
        bench.clock.jump(start + second * 1000)
        bench.send(body=b"%d" % second, properties={"KEYS": "k"})
    assert len(query_by_key(KeyQuery("orders", "k", 1000), bench.broker).messages) == 64
    assert len(query_by_key(KeyQuery("orders", "k", 3), bench.broker).messages) == 3
    early = query_by_key(KeyQuery("orders", "k", 64, start, start + 2000), bench.broker)
    assert sorted(bodies(early.messages)) == [b"0", b"1", b"2"]
    for nothing in (KeyQuery("orders", "nokey"), KeyQuery("orders", "k", 64, 0, start - 1)):
        with pytest.raises(QueryNotFound, match="no message with key"):
            query_by_key(nothing, bench.broker)


def test_queue_units_show_what_a_groups_filter_takes(bench: Any) -> None:
    class Link:
        remote_text, is_open = "10.0.0.9:1", True
        attributes: dict[str, Any] = {}  # noqa: RUF012

        def send(self, command: Any) -> None: ...

    for tag in ("A", "B", "A"):
        bench.send(properties={"TAGS": tag, "colour": tag.lower()})
    by_tag = SubscriptionData(topic="orders", sub_string="A", code_set=[65], tags_set=["A"])
    by_sql = SubscriptionData(topic="orders", sub_string="colour = 'b'", expression_type="SQL92")
    for group, subscription in (("tags", by_tag), ("sql", by_sql)):
        data = ConsumerData(group_name=group, subscription_data_set=[subscription])
        beat = Heartbeat(client_id=group, consumer_data_set=[data])
        bench.broker.clients.heartbeat(Link(), beat, bench.clock.now())  # type: ignore[arg-type]
    view = query_queue("orders", 0, 0, 10, "tags", bench.broker)
    assert (view.min_queue_index, view.max_queue_index) == (0, 3)
    assert [unit.eval for unit in view.queue_data] == [True, False, True]
    assert view.queue_data[0].tags_code == props.tag_code("A")
    sql = query_queue("orders", 0, 1, 10, "sql", bench.broker)
    assert [unit.eval for unit in sql.queue_data] == [True, False]
    assert [unit.eval for unit in query_queue("orders", 0, 0, 2, "", bench.broker).queue_data] == [True, True]
    with pytest.raises(SystemFailure, match="no queue 3"):
        query_queue("orders", 3, 0, 10, "", bench.broker)


@pytest.mark.parametrize(
    ("start", "count", "units"), [(0, 2, 2), (0, 9, 3), (2, 2, 2), (3, 1, 1), (4, 5, 1), (5, 5, 0)]
)
def test_queue_units_begin_where_the_queue_does(
    bench: Any, monkeypatch: pytest.MonkeyPatch, start: int, count: int, units: int
) -> None:
    """The first two are cleaned away: whoever asks for those gets as many as he asked for all the same."""
    for _ in range(5):
        bench.send()
    monkeypatch.setattr(bench.broker.store, "min_offset", lambda topic, queue_id: 2)
    view = query_queue("orders", 0, start, count, "", bench.broker)
    assert (view.min_queue_index, view.max_queue_index, len(view.queue_data)) == (2, 5, units)
    if units:
        first = bench.records("orders")[max(start, 2)]
        shown = view.queue_data[0]
        assert (shown.physic_offset, shown.physic_size) == (first.physical_offset, first.size)


def test_a_key_query_says_how_far_the_index_is(bench: Any) -> None:
    bench.send(properties={"KEYS": "k"})
    bench.clock.advance(5)
    last = bench.send(properties={"KEYS": "k"})
    found = query_by_key(KeyQuery("orders", "k"), bench.broker)
    assert (found.index_time, found.index_offset) == (bench.clock.wall(), last.physical_offset)
    assert view_message(0, bench.broker), "the first of all lies at 0"
