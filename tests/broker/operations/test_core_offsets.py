# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.broker.operations import offsets as op
from aerobee.broker.operations.reset_offset import Reset, offsets_body, reset_offset
from aerobee.errors import (
    ConsumerNotOnline,
    GroupNotFound,
    InvalidParameter,
    QueryNotFound,
    SystemFailure,
    TopicNotFound,
)
from aerobee.protocol.bodies import ConsumerData, Heartbeat, MessageQueue, TopicConfig
from aerobee.protocol.headers.offsets import ResetClientOffset
from aerobee.store.results import Boundary

if TYPE_CHECKING:
    from aerobee.protocol.command import Command


class Link:
    remote_text = "10.0.0.1:1"
    is_open = True

    def __init__(self, language: str = "JAVA", version: int = 479) -> None:
        self.attributes: dict[str, Any] = {"language": language, "version": version}
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)


def fill(bench: Any, clock: Any, count: int = 5) -> int:
    """One message a second; returns the time of the first."""
    began = int(clock.now())
    for _ in range(count):
        bench.send()
        clock.advance(seconds=1)
    return began


@pytest.mark.seed("S003-34")
def test_committed_offset_is_what_a_query_gives(bench: Any) -> None:
    bench.send()
    bench.broker.groups.require("billing")
    assert op.query_offset("billing", "orders", 0, bench.broker) == -1
    op.update_offset("billing", "orders", 0, 7, bench.broker)
    assert op.query_offset("billing", "orders", 0, bench.broker) == 7
    op.update_offset("billing", "orders", 0, 3, bench.broker)  # may go back
    assert op.query_offset("billing", "orders", 0, bench.broker) == 3


def test_group_without_offset_starts_at_zero_while_the_first_message_is_in_memory(bench: Any) -> None:
    bench.send()
    assert op.first_offset("orders", 0, bench.broker) == 0
    bench.broker.store.memory_bytes = 0
    with pytest.raises(QueryNotFound):
        op.first_offset("orders", 0, bench.broker)


def test_group_without_offset_starts_a_queue_never_written_at_zero(bench: Any) -> None:
    """Or a message stored between the question and the one for the queue's end would be skipped."""
    bench.broker.topics.ensure("orders", 4)
    bench.broker.store.memory_bytes = 0
    assert op.first_offset("orders", 0, bench.broker) == 0


def test_update_is_refused_with_the_official_code(bench: Any) -> None:
    bench.send()
    with pytest.raises(GroupNotFound):
        op.update_offset("billing", "orders", 0, 1, bench.broker)
    bench.broker.groups.require("billing")
    with pytest.raises(TopicNotFound):
        op.update_offset("billing", "missing", 0, 1, bench.broker)
    with pytest.raises(InvalidParameter):
        op.update_offset("billing", "orders", 0, -1, bench.broker)


async def test_commits_are_ignored_while_a_reset_is_pending(bench: Any) -> None:
    bench.send()
    bench.broker.groups.require("billing")
    await reset_offset(Reset("billing", "orders", queue_id=0, offset=0), bench.broker)
    op.update_offset("billing", "orders", 0, 1, bench.broker)
    assert op.query_offset("billing", "orders", 0, bench.broker) == 0


def test_search_by_time_finds_both_ends(bench: Any, clock: Any) -> None:
    began = fill(bench, clock)
    assert op.search_offset("orders", 0, began + 1500, Boundary.LOWER, bench.broker) == 2
    assert op.search_offset("orders", 0, began + 1500, Boundary.UPPER, bench.broker) == 1
    assert op.search_offset("orders", 0, began - 1, Boundary.LOWER, bench.broker) == 0
    assert op.search_offset("orders", 0, began + 99_000, Boundary.LOWER, bench.broker) == 5
    assert op.earliest_store_time("orders", 0, bench.broker) == began
    assert op.earliest_store_time("orders", 1, bench.broker) == -1


# -- resets -----------------------------------------------------------------------------------------------


async def test_reset_moves_all_queues_to_a_time_or_to_the_end(bench: Any, clock: Any) -> None:
    began = fill(bench, clock)
    bench.broker.groups.require("billing")
    table = await reset_offset(Reset("billing", "orders", timestamp=began + 1500), bench.broker)
    assert table[MessageQueue("broker-a", 0, "orders")] == 2
    assert len(table) == 4
    assert bench.broker.offsets.get("billing", "orders", 0) == 2
    assert (await reset_offset(Reset("billing", "orders"), bench.broker))[
        MessageQueue("broker-a", 0, "orders")
    ] == 5


async def test_reset_is_of_every_queue_that_is_written_and_no_other(bench: Any) -> None:
    bench.broker.topics.put(TopicConfig(topic_name="orders", read_queue_nums=2, write_queue_nums=3))
    bench.broker.groups.require("billing")
    table = await reset_offset(Reset("billing", "orders"), bench.broker)
    assert sorted(queue.queue_id for queue in table) == [0, 1, 2]
    await reset_offset(Reset("billing", "orders", queue_id=2), bench.broker)
    with pytest.raises(SystemFailure, match="has 3 queues; asked for 3"):
        await reset_offset(Reset("billing", "orders", queue_id=3), bench.broker)


@pytest.mark.parametrize(("offset", "is_refused"), [(0, False), (1, False), (2, False), (3, True)])
async def test_reset_goes_to_where_the_next_but_one_message_will_be_and_no_further(
    bench: Any, offset: int, is_refused: bool
) -> None:
    bench.send()
    bench.broker.groups.require("billing")
    reset = Reset("billing", "orders", queue_id=0, offset=offset)
    if is_refused:
        with pytest.raises(SystemFailure, match="holds offsets 0 to 1; asked for 3"):
            await reset_offset(reset, bench.broker)
    else:
        assert list((await reset_offset(reset, bench.broker)).values()) == [offset]


async def test_reset_is_refused_with_the_official_code(bench: Any) -> None:
    bench.send()
    with pytest.raises(GroupNotFound):
        await reset_offset(Reset("billing", "orders"), bench.broker)
    bench.broker.groups.require("billing")
    with pytest.raises(TopicNotFound):
        await reset_offset(Reset("billing", "missing"), bench.broker)
    with pytest.raises(SystemFailure, match="asked for 9"):
        await reset_offset(Reset("billing", "orders", queue_id=0, offset=9), bench.broker)
    with pytest.raises(SystemFailure, match="queues"):
        await reset_offset(Reset("billing", "orders", queue_id=99), bench.broker)


async def test_without_server_side_reset_the_consumers_are_told(make_bench: Any, clock: Any) -> None:
    bench = make_bench(server_side_reset=False)
    began = fill(bench, clock)
    bench.broker.groups.require("billing")
    reset = Reset("billing", "orders", timestamp=began + 1500, queue_id=0)
    with pytest.raises(SystemFailure, match="no offset"):
        await reset_offset(reset, bench.broker)
    bench.broker.offsets.set("billing", "orders", 0, 4)
    with pytest.raises(ConsumerNotOnline):
        await reset_offset(reset, bench.broker)
    java, cpp, oldest, old = Link(), Link("CPP"), Link(version=28), Link(version=27)
    for name, link in (("java", java), ("cpp", cpp), ("oldest", oldest), ("old", old)):
        beat = Heartbeat(client_id=name, consumer_data_set=[ConsumerData(group_name="billing")])
        bench.broker.clients.heartbeat(link, beat, clock.now())
    for link in (java, cpp, oldest, old):
        link.sent.clear()
    await reset_offset(reset, bench.broker)
    (told,) = java.sent
    assert told.code == 220
    assert told.body == b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:2}}'
    assert cpp.sent[0].body.startswith(b'{"offsetTable":[{')
    header = told.fields(ResetClientOffset)
    assert (header.topic, header.group, header.is_force) == ("orders", "billing", True)
    assert header.timestamp == began + 1500
    assert (len(oldest.sent), old.sent) == (1, [])
    assert bench.broker.offsets.get("billing", "orders", 0) == 4  # the consumers move themselves


async def test_reset_that_is_not_forced_only_moves_back(make_bench: Any, clock: Any) -> None:
    bench = make_bench(server_side_reset=False)
    began = fill(bench, clock)
    bench.broker.groups.require("billing")
    bench.broker.offsets.set("billing", "orders", 0, 1)
    beat = Heartbeat(client_id="c", consumer_data_set=[ConsumerData(group_name="billing")])
    link = Link()
    bench.broker.clients.heartbeat(link, beat, clock.now())
    reset = Reset("billing", "orders", timestamp=began + 2500, queue_id=0, force=False)
    assert list((await reset_offset(reset, bench.broker)).values()) == [1]
    assert link.sent[-1].fields(ResetClientOffset).is_force is False
    bench.broker.offsets.set("billing", "orders", 0, 5)
    assert list((await reset_offset(reset, bench.broker)).values()) == [3]


def test_body_for_cpp_clients_is_a_list() -> None:
    table = {MessageQueue("b", 1, "t"): 9}
    assert offsets_body(table, "CPP") == (
        b'{"offsetTable":[{"brokerName":"b","offset":9,"queueId":1,"topic":"t"}]}'
    )


def test_a_searched_offset_is_within_what_is_kept(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(6):
        bench.send()
    store = bench.broker.store
    monkeypatch.setattr(store, "min_offset", lambda topic, queue: 3)
    for by_time, told in ((1, 3), (4, 4), (9, 6)):
        monkeypatch.setattr(store, "offset_by_time", lambda *asked, found=by_time: found)
        assert op.search_offset("orders", 0, 0, Boundary.LOWER, bench.broker) == told
