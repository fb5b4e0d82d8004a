# SPDX-License-Identifier: Apache-2.0
"""How much one request gets at most, and to where a group may be moved: each limit, just within and just beyond."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aerobee.broker.delivery.reading import ordinary_limit
from aerobee.broker.operations.admin.settings import change_settings
from aerobee.broker.operations.pull import Pull, _limit, plain, settle, suggested_broker
from aerobee.broker.operations.reset_offset import Reset, reset_offset
from aerobee.errors import SystemFailure
from aerobee.protocol.bodies import ConsumerData, Heartbeat, MessageQueue
from aerobee.settings import BrokerConfig
from aerobee.store.results import Found, ReadLimit, ReadStatus

CONFIG = BrokerConfig(
    pull_messages=32,
    pull_bytes=200_000,
    cold_pull_messages=8,
    cold_pull_bytes=60_000,
    max_pull_messages=1_000,
    max_pull_bytes=500_000,
)


@pytest.mark.parametrize(
    ("wanted", "max_bytes", "limit"),
    [
        (5, None, ReadLimit(5, 200_000, 800, 5, 60_000)),
        (8, None, ReadLimit(8, 200_000, 800, 8, 60_000)),
        (9, None, ReadLimit(9, 200_000, 800, 8, 60_000)),
        (33, None, ReadLimit(32, 200_000, 800, 8, 60_000)),
        (900, None, ReadLimit(32, 200_000, 900, 8, 60_000)),
        (2_000, None, ReadLimit(32, 200_000, 1_000, 8, 60_000)),
        (5, 0, ReadLimit(5, 200_000, 800, 5, 60_000)),
        (5, -1, ReadLimit(5, 200_000, 800, 5, 60_000)),
        (5, 1, ReadLimit(5, 100, 800, 5, 100)),
        (5, 101, ReadLimit(5, 101, 800, 5, 101)),
        (5, 70_000, ReadLimit(5, 70_000, 800, 5, 60_000)),
        (5, 300_000, ReadLimit(5, 200_000, 800, 5, 60_000)),
    ],
)
def test_what_an_ordinary_reader_gets_at_once(wanted: int, max_bytes: int | None, limit: ReadLimit) -> None:
    assert ordinary_limit(wanted, CONFIG, max_bytes) == limit


def test_a_filter_looks_at_a_stretch_however_few_messages_are_allowed() -> None:
    few = msgspec.structs.replace(CONFIG, max_pull_messages=50)
    assert ordinary_limit(2_000, few).max_scan == 800


@pytest.mark.parametrize("how", [{"bulk": True}, {"as_stored": True}])
@pytest.mark.parametrize(
    ("wanted", "max_bytes", "limit"),
    [
        (0, None, ReadLimit(1, 500_000, 800)),
        (-5, None, ReadLimit(1, 500_000, 800)),
        (50, None, ReadLimit(50, 500_000, 800)),
        (900, None, ReadLimit(900, 500_000, 900)),
        (1_001, None, ReadLimit(1_000, 500_000, 1_000)),
        (50, 0, ReadLimit(50, 500_000, 800)),
        (50, -1, ReadLimit(50, 500_000, 800)),
        (50, 1, ReadLimit(50, 1, 800)),
        (50, 499_999, ReadLimit(50, 499_999, 800)),
        (50, 500_001, ReadLimit(50, 500_000, 800)),
    ],
)
def test_what_a_bulk_reader_gets_at_once(
    make_bench: Any, how: dict[str, bool], wanted: int, max_bytes: int | None, limit: ReadLimit
) -> None:
    bench = make_bench(max_pull_messages=1_000, max_pull_bytes=500_000)
    request = Pull("g", "t", 0, 0, max_messages=wanted, max_bytes=max_bytes, **how)  # type: ignore[arg-type]
    assert _limit(request, bench.broker) == limit


def test_a_pull_of_no_messages_asks_for_one(make_bench: Any) -> None:
    bench = make_bench()
    for wanted in (0, -1, 1):
        assert _limit(Pull("g", "t", 0, 0, max_messages=wanted), bench.broker).max_messages == 1
    assert _limit(Pull("g", "t", 0, 0, max_messages=2), bench.broker).max_messages == 2


def test_a_reader_is_slow_from_the_first_byte_beyond_memory(make_bench: Any) -> None:
    bench = make_bench(slave_read=True)
    bench.broker.store.memory_bytes = 1_000
    bench.broker.groups.require("g")
    for behind, broker_id in ((0, 0), (1_000, 0), (1_001, 1)):
        found = Found(ReadStatus.FOUND, 0, 0, 0, behind_bytes=behind)
        assert suggested_broker("g", found, bench.broker) == broker_id


@pytest.mark.parametrize(
    ("offset", "queue_id", "refused"),
    [
        (2, 0, ""),
        (5, 0, ""),
        (6, 0, ""),
        (1, 0, "holds offsets 2 to 5; asked for 1"),
        (7, 0, "holds offsets 2 to 5; asked for 7"),
        (2, 3, ""),
        (2, 4, "has 4 queues; asked for 4"),
    ],
)
async def test_to_which_offset_a_group_may_be_moved(
    bench: Any, offset: int, queue_id: int, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.send()
    bench.broker.groups.require("billing")
    monkeypatch.setattr(bench.broker.store, "min_offset", lambda topic, queue_id: 2)
    monkeypatch.setattr(bench.broker.store, "max_offset", lambda topic, queue_id: 5)
    reset = Reset("billing", "orders", timestamp=123, queue_id=queue_id, offset=offset)
    if refused:
        with pytest.raises(SystemFailure, match=refused):
            await reset_offset(reset, bench.broker)
        return
    assert await reset_offset(reset, bench.broker) == {MessageQueue("broker-a", queue_id, "orders"): offset}
    assert bench.broker.offsets.take_reset("billing", "orders", queue_id) == offset
    assert bench.broker.offsets.get("billing", "orders", queue_id) == offset


async def test_a_time_is_a_time_from_the_epoch_on_and_anything_below_is_the_end(
    bench: Any, clock: Any
) -> None:
    for _ in range(3):
        bench.send()
    bench.broker.groups.require("billing")
    moved = {}
    for timestamp in (-2, -1, 0, clock.now(), clock.now() + 1):
        reset = Reset("billing", "orders", timestamp=timestamp, queue_id=0)
        (moved[timestamp],) = (await reset_offset(reset, bench.broker)).values()
    assert list(moved.values()) == [3, 3, 0, 0, 3]
    assert list(await reset_offset(Reset("billing", "orders"), bench.broker)) == [
        MessageQueue("broker-a", queue_id, "orders") for queue_id in range(4)
    ]


class Link:
    is_open, remote_text = True, "10.0.0.1:1"

    def __init__(self, version: int) -> None:
        self.attributes = {"language": "JAVA", "version": version}
        self.sent: list[Any] = []

    def send(self, command: Any) -> None:
        self.sent.append(command)


@pytest.mark.parametrize(
    ("at", "force", "moved"), [(1, True, 2), (1, False, 1), (2, False, 2), (4, False, 2), (0, False, 0)]
)
async def test_clients_are_told_where_to_go_if_they_understand_it(
    make_bench: Any, clock: Any, at: int, force: bool, moved: int
) -> None:
    bench = make_bench(server_side_reset=False)
    for _ in range(5):
        bench.send()
    bench.broker.groups.require("billing")
    bench.broker.offsets.set("billing", "orders", 0, at)
    links = {version: Link(version) for version in (27, 28, 29)}
    for version, link in links.items():
        beat = Heartbeat(client_id=str(version), consumer_data_set=[ConsumerData(group_name="billing")])
        bench.broker.clients.heartbeat(link, beat, clock.now())
    for link in links.values():  # they were told of each other
        link.sent.clear()
    reset = Reset("billing", "orders", timestamp=77, queue_id=0, offset=2, force=force)
    assert list((await reset_offset(reset, bench.broker)).values()) == [moved]
    told = {version: [command.ext_dict() for command in link.sent] for version, link in links.items()}
    fields = {"topic": "orders", "group": "billing", "timestamp": "77", "isForce": str(force).lower()}
    assert told[27] == []
    for version in (28, 29):
        assert [{key: each.get(key) for key in fields} for each in told[version]] == [fields]


def test_what_a_request_is_when_it_says_nothing() -> None:
    """The defaults of requests: what a front leaves out."""
    assert msgspec.structs.asdict(Reset("g", "t")) == {
        "group": "g",
        "topic": "t",
        "timestamp": -1,
        "queue_id": -1,
        "offset": -1,
        "force": True,
    }
    pulled = msgspec.structs.asdict(Pull("g", "t", 0, 0))
    assert (pulled["max_messages"], pulled["hold_ms"], pulled["sub_version"]) == (32, 0, 0)
    assert not any(pulled[name] for name in ("max_bytes", "commit_offset", "as_stored", "bulk", "expression"))


# -- many pulls of one reader ------------------------------------------------------------------------------------


class Served(msgspec.Struct):
    request: Pull
    commit_offset: int
    next_offset: int
    count: int
    size_bytes: int
    end: int
    stored_at: int


def test_pulls_served_together_leave_behind_what_each_alone_would(bench: Any, clock: Any) -> None:
    bench.send(body=b"x" * 500)
    broker, wall = bench.broker, clock.wall()
    asked = Pull("billing", "orders", 0, 0, expression="a", commit_offset=0)
    silent = Pull("audit", "orders", 1, 0, expression="*")
    end = broker.store.log_max
    settle(
        [Served(asked, 3, 7, 4, 900, end - 40, wall - 25), Served(silent, 3, 9, 2, 100, end, wall + 5)],
        broker,
    )
    offsets, stats = broker.offsets, broker.stats
    assert (offsets.get("billing", "orders", 0), offsets.get("audit", "orders", 1)) == (3, -1)
    assert offsets.pull_offset("billing", "orders", 0) == 7
    assert offsets.pull_offset("audit", "orders", 1) == 9
    assert stats.behind("billing", "orders", 0) == (40, 25)
    assert stats.behind("audit", "orders", 1) == (0, 0)
    got = {key: (meter.calls, meter.count, meter.size_bytes) for key, meter in stats.meters("GROUP_GET")}
    assert got == {"orders@billing": (1, 4, 900), "orders@audit": (1, 2, 100)}
    assert broker.clients.subscription("billing", "orders").sub_string == "a"


def test_who_needs_more_than_units_and_records_takes_the_whole_way(bench: Any) -> None:
    bench.send()
    asked = Pull("billing", "orders", 0, 0, expression="*", max_messages=5)
    assert plain(asked, bench.broker) is None, "the first of a group makes it"
    bench.broker.groups.require("billing")
    known = plain(asked, bench.broker)
    assert known is not None
    assert (known.request, known.accept, known.limit) == (asked, None, _limit(asked, bench.broker))
    change = msgspec.structs.replace
    for special in ({"bulk": True}, {"as_stored": True}, {"queue_id": 9}, {"topic": "nowhere"}):
        assert plain(change(asked, **special), bench.broker) is None, special
    sql = {"expression": "a = 1", "expression_type": "SQL92"}
    assert plain(change(asked, **sql), bench.broker) is None
    change_settings("slaveReadEnable=true", bench.broker)
    assert plain(asked, bench.broker) is None
