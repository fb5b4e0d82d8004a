# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.client.consume.rebalance import (
    AVG,
    AVG_BY_CIRCLE,
    BY_NAME,
    CONSISTENT_HASH,
    Strategy,
    configured,
    consistent_hash,
    machine_room,
    machine_room_nearby,
)
from aerobee.protocol.bodies import MessageQueue

ROOM = machine_room(["r"])


def queues(count: int, broker: str = "broker-a", topic: str = "TopicTest") -> list[MessageQueue]:
    return [MessageQueue(broker, i, topic) for i in range(count)]


def clients(count: int) -> list[str]:
    return [f"c{i}" for i in range(count)]


def divide(strategy: Strategy, queue_count: int, client_count: int, broker: str = "broker-a") -> str:
    """The share of each client: `0 1 / 2 3`."""
    every, ids = queues(queue_count, broker), clients(client_count)
    own = [strategy.divide(client, every, ids) for client in ids]
    return " / ".join(" ".join(str(queue.queue_id) for queue in part) or "–" for part in own)


@pytest.mark.seed("S003-16")
def test_strategies_have_the_names_that_brokers_know_them_by() -> None:
    assert list(BY_NAME) == ["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"]
    assert machine_room(["r"]).name == "MACHINE_ROOM"
    assert configured([]).name == "CONFIG"
    assert machine_room_nearby(str, str).name == "MACHINE_ROOM_NEARBY-AVG"
    assert machine_room_nearby(str, str, AVG_BY_CIRCLE).name == "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"
    with pytest.raises(ValueError, match="virtual_nodes is 0; at least 1 is needed"):
        consistent_hash(0)
    assert consistent_hash(1).divide("c", queues(3), ["c"]) == queues(3)


@pytest.mark.seed("S004-41", "S004-70", "S004-71", "S003-16")
@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (4, 2, "0 1 / 2 3"),
        (4, 3, "0 1 / 2 / 3"),
        (4, 5, "0 / 1 / 2 / 3 / –"),
        (8, 3, "0 1 2 / 3 4 5 / 6 7"),
        (9, 5, "0 1 / 2 3 / 4 5 / 6 7 / 8"),
        (10, 4, "0 1 2 / 3 4 5 / 6 7 / 8 9"),
    ],
)
def test_average_gives_contiguous_blocks_as_in_the_worked_table(
    count: int, members: int, expected: str
) -> None:
    assert divide(AVG, count, members) == expected


@pytest.mark.seed("S004-45")
@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (4, 2, "0 2 / 1 3"),
        (4, 3, "0 3 / 1 / 2"),
        (4, 5, "0 / 1 / 2 / 3 / –"),
        (8, 3, "0 3 6 / 1 4 7 / 2 5"),
        (9, 5, "0 5 / 1 6 / 2 7 / 3 8 / 4"),
        (10, 4, "0 4 8 / 1 5 9 / 2 6 / 3 7"),
    ],
)
def test_circle_deals_queues_in_turn(count: int, members: int, expected: str) -> None:
    assert divide(AVG_BY_CIRCLE, count, members) == expected


@pytest.mark.seed("S004-46")
@pytest.mark.parametrize(
    ("count", "members", "expected"),
    [
        (4, 2, "0 1 / 2 3"),
        (4, 3, "0 3 / 1 / 2"),
        (4, 5, "0 / 1 / 2 / 3 / –"),
        (8, 3, "0 1 6 / 2 3 7 / 4 5"),
        (9, 5, "0 5 / 1 6 / 2 7 / 3 8 / 4"),
        (10, 4, "0 1 8 / 2 3 9 / 4 5 / 6 7"),
    ],
)
def test_machine_room_gives_equal_blocks_and_the_rest_one_each(
    count: int, members: int, expected: str
) -> None:
    assert divide(ROOM, count, members, broker="r@b") == expected


@pytest.mark.seed("S004-46")
def test_machine_room_leaves_out_queues_of_other_rooms() -> None:
    every = queues(2, "r@b") + queues(2, "elsewhere@b") + queues(2, "no-room")
    assert ROOM.divide("c0", every, ["c0"]) == queues(2, "r@b")


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (2, "1 6 / 0 2 3 4 5 7"),
        (3, "1 / 0 3 4 5 7 / 2 6"),
        (4, "1 / 0 4 5 7 / 6 / 2 3"),
    ],
)
def test_consistent_hash_agrees_with_java(members: int, expected: str) -> None:
    assert divide(CONSISTENT_HASH, 8, members) == expected


def test_nearby_keeps_queues_in_their_room_and_shares_orphans() -> None:
    rooms = {"k0": "A", "k1": "A", "k2": "B"}
    every = sorted(queues(4, "A") + queues(4, "B") + queues(4, "C"))
    strategy = machine_room_nearby(lambda queue: queue.broker_name, rooms.__getitem__, AVG)
    own = {
        k: [f"{q.broker_name}{q.queue_id}" for q in strategy.divide(k, every, sorted(rooms))] for k in rooms
    }
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"
    assert own == {
        "k0": ["A0", "A1", "C0", "C1"],
        "k1": ["A2", "A3", "C2"],
        "k2": ["B0", "B1", "B2", "B3", "C3"],
    }


def test_rooms_without_clients_are_shared_in_the_order_of_their_names() -> None:
    names = [f"room{n}" for n in range(9)]
    strategy = machine_room_nearby(lambda queue: queue.broker_name, lambda client: "elsewhere", AVG)
    every = [queue for name in reversed(names) for queue in queues(1, name)]
    assert [queue.broker_name for queue in strategy.divide("k", every, ["k"])] == names


def test_nearby_refuses_a_client_without_room() -> None:
    strategy = machine_room_nearby(lambda queue: "A", lambda client: "", AVG)
    with pytest.raises(ValueError, match="no machine room"):
        strategy.divide("k", queues(1), ["k"])


@pytest.mark.seed("S004-47")
def test_configured_is_a_fixed_list() -> None:
    mine = queues(3)[1:]
    assert configured(mine).divide("anyone", queues(8), clients(3)) == mine


@pytest.mark.parametrize("strategy", [*BY_NAME.values(), ROOM])
def test_a_client_the_group_does_not_know_gets_nothing(strategy: Strategy) -> None:
    assert strategy.divide("stranger", queues(4, "r@b"), clients(2)) == []


@pytest.mark.parametrize("strategy", [*BY_NAME.values(), ROOM])
def test_missing_input_is_an_error(strategy: Strategy) -> None:
    with pytest.raises(ValueError, match="no queues"):
        strategy.divide("c0", [], ["c0"])
    with pytest.raises(ValueError, match="no clients"):
        strategy.divide("c0", queues(1), [])
    with pytest.raises(ValueError, match="client id"):
        strategy.divide("", queues(1), ["c0"])


@given(
    count=st.integers(1, 60),
    ids=st.sets(st.text("abcdef0123456789.@#", min_size=1, max_size=20), min_size=1, max_size=20),
    strategy=st.sampled_from([AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, ROOM]),
)
def test_every_queue_goes_to_exactly_one_client(count: int, ids: set[str], strategy: Strategy) -> None:
    every, members = queues(count, "r@b"), sorted(ids)
    shares = [strategy.divide(client, every, members) for client in members]
    assert sorted(queue for share in shares for queue in share) == every


@pytest.mark.seed("S004-71")
@given(
    count=st.integers(1, 100),
    members=st.integers(1, 40),
    strategy=st.sampled_from([AVG, AVG_BY_CIRCLE, ROOM]),
)
def test_shares_differ_by_at_most_one(count: int, members: int, strategy: Strategy) -> None:
    ids = sorted(clients(members))
    sizes = [len(strategy.divide(client, queues(count, "r@b"), ids)) for client in ids]
    assert max(sizes) - min(sizes) <= 1


@given(count=st.integers(1, 40), members=st.integers(2, 10), gone=st.integers(0, 9))
def test_consistent_hash_moves_only_the_queues_of_the_client_that_left(
    count: int, members: int, gone: int
) -> None:
    ids = clients(members)
    left = [client for index, client in enumerate(ids) if index != gone % members]
    for client in left:
        before = set(CONSISTENT_HASH.divide(client, queues(count), ids))
        assert before <= set(CONSISTENT_HASH.divide(client, queues(count), left))
