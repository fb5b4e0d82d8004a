# SPDX-License-Identifier: Apache-2.0
"""Routes to queues, keys to queues, name servers in turn."""

from __future__ import annotations

import pytest

from aerobee.client.produce.queue_selector import by_sharding_key
from aerobee.protocol.bodies import BrokerData, MessageQueue, QueueData, TopicRoute
from aerobee.protocol.routing import NameServers, limited, place_of_key, unfold


def route(**more: object) -> TopicRoute:
    return TopicRoute(
        broker_datas=[
            BrokerData(broker_name="a", broker_addrs={0: "a:1"}),
            BrokerData(broker_name="b", broker_addrs={0: "b:1", 1: "b:2"}),
            BrokerData(broker_name="c", broker_addrs={1: "c:2"}),
        ],
        queue_datas=[
            QueueData(broker_name="c", perm=6, read_queue_nums=1, write_queue_nums=1),
            QueueData(broker_name="b", perm=4, read_queue_nums=2, write_queue_nums=2),
            QueueData(broker_name="a", perm=6, read_queue_nums=1, write_queue_nums=3),
        ],
        **more,  # type: ignore[arg-type]
    )


def places(queues: tuple[MessageQueue, ...]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def test_queues_come_in_the_order_of_their_brokers_and_are_written_only_where_a_master_is() -> None:
    found = unfold("t", route())
    assert places(found.readable) == [("a", 0), ("b", 0), ("b", 1), ("c", 0)]
    assert places(found.writable) == [("a", 0), ("a", 1), ("a", 2)]
    assert found.masters == {"a": "a:1", "b": "b:1"}
    assert not found.ordered


def test_an_ordered_topic_keeps_its_list_of_queues_while_a_broker_is_away() -> None:
    found = unfold("t", route(order_topic_conf="c:2;a:1;broken;x:²;z:100000;y:" + "9" * 5000))
    assert places(found.writable) == [("c", 0), ("c", 1), ("a", 0)]
    assert found.ordered
    assert len(unfold("t", route(order_topic_conf="c:65536")).writable) == 65_536


def test_a_new_topic_has_at_most_the_queues_asked_for() -> None:
    cut = limited(route(), 2)
    assert [(data.broker_name, data.read_queue_nums, data.write_queue_nums) for data in cut.queue_datas] == [
        ("c", 1, 1), ("b", 2, 2), ("a", 1, 2),
    ]  # fmt: skip


# What Math.abs(key.hashCode() % queues) gives in Java, the last ones for negative hashes and the smallest of all.
@pytest.mark.parametrize(
    ("key", "queues", "place"),
    [("a", 8, 1), ("user-7", 8, 3), ("user-7", 5, 4), ("polygenelubricants", 3, 2), ("订单", 7, 2)],
)
def test_the_queue_of_a_key_is_the_java_clients(key: str, queues: int, place: int) -> None:
    assert place_of_key(key, queues) == place
    every = [MessageQueue("broker", i, "t") for i in range(queues)]
    assert by_sharding_key(every, key).queue_id == place


def test_a_name_server_that_failed_is_asked_last() -> None:
    servers = NameServers(["a:1", "b:1", "c:1"])
    asked = []
    for address in servers:  # a list of its own: what fails meanwhile is not asked twice
        asked.append(address)
        servers.failed(address)
    assert asked == ["a:1", "b:1", "c:1"]
    servers.failed("a:1")
    assert list(servers) == ["b:1", "c:1", "a:1"]
