# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from aerobee.client.consume.assignment import as_the_broker_says, divided_here
from aerobee.client.consume.offset_keeper import RemoteOffsets
from aerobee.client.consume.ownership import Ownership
from aerobee.client.consume.queue_locks import QueueLocks
from aerobee.client.consume.rebalance import Strategy
from aerobee.client.consume.rebalancer import Rebalancer
from aerobee.client.options import Options
from aerobee.errors import NetworkError, NoRoute, SystemFailure
from aerobee.protocol import bodies, names
from aerobee.protocol.bodies import (
    AssignedQueue,
    Assignment,
    BrokerData,
    ConsumerIds,
    LockedQueues,
    MessageModel,
    MessageQueue,
    Mode,
    QueueData,
    TopicRoute,
)
from aerobee.protocol.headers.consume import ConsumerList, LockQueues, QueryAssignment, UnlockQueues
from aerobee.protocol.headers.offsets import (
    GetMaxOffset,
    OffsetResult,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)


@pytest.fixture
def group(make_member: Any, session: Any) -> Any:
    class Group:
        """A member whose broker says who else there is."""

        def __init__(self, assign: Any = divided_here, idle_ms: int = 120_000, **member: Any) -> None:
            self.member = make_member(**member)
            self.ids: Any = ["me"]
            self.offsets: Any = lambda queue_id: (0, OffsetResult(offset=100 + queue_id), b"")
            self.pulling: list[int] = []
            self.popping: list[int] = []
            self.changes: list[tuple[str, int, list[int]]] = []
            self.locks = QueueLocks(self.member)
            self.ownership = Ownership(
                self.member,
                self.locks,
                lambda owned: self.pulling.append(owned.queue.queue_id),
                lambda popped: self.popping.append(popped.queue.queue_id),
            )
            self.rebalancer = Rebalancer(self.member, self.ownership, self._changed, assign, idle_ms)
            session.answers[ConsumerList] = lambda *_: self._ids()
            session.answers[QueryConsumerOffset] = lambda a, header, b: self.offsets(header.queue_id)
            session.answers[LockQueues] = self._lock
            session.answers[UnlockQueues] = lambda *_: (0, None, b"")
            self.lockable = True

        def _changed(self, topic: str, every: Any, own: Any) -> None:
            self.changes.append((topic, len(every), sorted(queue.queue_id for queue in own)))

        def _ids(self) -> Any:
            if isinstance(self.ids, Exception):
                return self.ids
            return (
                (0, None, bodies.encode(ConsumerIds(consumer_id_list=self.ids)))
                if self.ids
                else (1, None, b"")
            )

        def _lock(self, address: str, header: Any, body: bytes) -> Any:
            wanted = bodies.decode(body, bodies.LockBatch).mq_set if self.lockable else []
            return 0, None, bodies.encode(LockedQueues(lock_ok_mq_set=wanted))

        @property
        def queues(self) -> list[int]:
            return sorted(queue.queue_id for queue in self.member.pulled)

    return Group


@pytest.mark.seed("S003-8")
@pytest.mark.seed("S003-11", "S003-14", "S003-16", "S003-17", "S003-18", "S003-22", "S003-23", "S003-24", "S004-8",
                  "S004-10", "S004-82")  # fmt: skip
async def test_a_consumer_takes_its_share_and_pulls_at_once(group: Any, session: Any) -> None:
    g = group()
    g.ids = ["zz", "me"]
    assert await g.rebalancer.rebalance()
    assert g.queues == [0, 1]
    assert g.pulling == [0, 1]
    assert {owned.next_offset for owned in g.member.pulled.values()} == {100, 101}
    assert g.changes == [("T", 4, [0, 1])]
    assert session.headers(ConsumerList)[0].consumer_group == "g"


@pytest.mark.seed("S003-39", "S004-13")
async def test_nothing_changes_when_nothing_changed(group: Any) -> None:
    g = group()
    await g.rebalancer.rebalance()
    before = dict(g.member.pulled)
    await g.rebalancer.rebalance()
    assert dict(g.member.pulled) == before
    assert len(g.changes) == 1


@pytest.mark.seed("S003-20", "S003-25", "S003-26", "S003-29", "S004-80", "S004-88")
async def test_a_lost_queue_is_reported_forgotten_and_dropped(group: Any, session: Any) -> None:
    g = group()
    await g.rebalancer.rebalance()
    lost = g.member.pulled[MessageQueue("a", 3, "T")]
    g.member.offsets.memory.set(lost.queue, 555)
    g.ids = ["me", "zz"]
    await g.rebalancer.rebalance()
    assert g.queues == [0, 1]
    assert lost.inbox.dropped
    assert g.member.offsets.memory.get(lost.queue) is None
    updates = {header.queue_id: header.commit_offset for _, header, _ in session.sent}
    assert updates[3] == 555
    assert type(session.sent[0][1]) is UpdateConsumerOffset


@pytest.mark.seed("S003-15", "S003-14")
@pytest.mark.parametrize("answer", [[], NetworkError("gone")])
async def test_without_a_member_list_everything_stays(group: Any, answer: Any) -> None:
    g = group()
    await g.rebalancer.rebalance()
    g.ids = answer
    assert not await g.rebalancer.rebalance()
    assert g.queues == [0, 1, 2, 3]


@pytest.mark.seed("S003-23", "S003-35")
async def test_a_queue_without_start_offset_waits_for_the_next_round(group: Any) -> None:
    g = group()
    g.offsets = lambda queue_id: NetworkError("gone") if queue_id == 2 else (0, OffsetResult(offset=1), b"")
    assert not await g.rebalancer.rebalance(), "so the next round comes soon"
    assert g.queues == [0, 1, 3]
    g.offsets = lambda queue_id: (0, OffsetResult(offset=1), b"")
    assert await g.rebalancer.rebalance()
    assert g.queues == [0, 1, 2, 3]


@pytest.mark.seed("S004-12")
async def test_a_stale_offset_in_memory_is_not_used(group: Any) -> None:
    g = group()
    queue = MessageQueue("a", 0, "T")
    g.member.offsets.memory.set(queue, 9_999)
    await g.rebalancer.rebalance()
    assert g.member.pulled[queue].next_offset == 100
    assert g.member.offsets.memory.get(queue) == 100


@pytest.mark.seed("S004-12")
async def test_what_was_remembered_of_a_queue_is_gone_when_it_is_taken(group: Any, session: Any) -> None:
    """Else it would be reported as the group's progress, though nobody has one: the group begins at the end."""
    g = group()
    queue = MessageQueue("a", 0, "T")
    g.member.offsets.memory.freeze(queue, 9_999)
    g.offsets = lambda queue_id: (22, None, b"")
    session.answers[GetMaxOffset] = lambda *_: (0, OffsetResult(offset=7), b"")
    await g.rebalancer.rebalance()
    assert g.member.pulled[queue].next_offset == 7
    assert g.member.offsets.memory.get(queue) is None
    g.member.offsets.memory.raise_to(queue, 8)
    assert g.member.offsets.memory.get(queue) == 8, "nor is it frozen any more"


@pytest.mark.seed("S003-21", "S001-27")
@pytest.mark.parametrize("set_by_ms", [0, -3_600_000, 3_600_000], ids=["", "set back", "set on"])
async def test_a_queue_not_pulled_for_two_minutes_is_taken_anew(
    group: Any, session: Any, set_by_ms: int
) -> None:
    g = group()
    session.clock.set_wall(session.clock.wall() + set_by_ms)
    await g.rebalancer.rebalance()
    before = dict(g.member.pulled)
    session.clock.advance(120_000)
    await g.rebalancer.rebalance()
    assert dict(g.member.pulled) == before, "not yet"
    session.clock.advance(1)
    for queue, owned in before.items():
        if queue.queue_id != 1:
            owned.inbox.last_pull = session.clock.now()
    await g.rebalancer.rebalance()
    renewed = [queue.queue_id for queue, owned in g.member.pulled.items() if before[queue] is not owned]
    assert renewed == [1]
    assert before[MessageQueue("a", 1, "T")].inbox.dropped


@pytest.mark.seed("S003-7", "S003-40")
async def test_a_broadcast_consumer_owns_every_queue(group: Any, session: Any) -> None:
    g = group(model=MessageModel.BROADCASTING)
    g.member.offsets = RemoteOffsets(session, "g")
    await g.rebalancer.rebalance()
    assert g.queues == [0, 1, 2, 3]
    assert g.changes == [("T", 4, [0, 1, 2, 3])]
    assert session.headers(ConsumerList) == []


@pytest.mark.seed("S003-4", "S003-19", "S003-43", "S003-11")
async def test_topics_are_divided_separately_and_routes_are_followed(group: Any, session: Any) -> None:
    g = group(topics={"T": "*", "U": "*"})
    session.know("U", queues=2)
    await g.rebalancer.rebalance()
    assert {(q.topic, q.queue_id) for q in g.member.pulled} == {("T", n) for n in range(4)} | {
        ("U", 0),
        ("U", 1),
    }
    session.know("T", queues=2)
    session.know("U", queues=3)
    await g.rebalancer.rebalance()
    assert {(q.topic, q.queue_id) for q in g.member.pulled} == {
        ("T", 0),
        ("T", 1),
        ("U", 0),
        ("U", 1),
        ("U", 2),
    }


@pytest.mark.seed("S003-4", "S003-5")
@pytest.mark.parametrize("away", ["a:1", "b:1"])
async def test_a_topic_that_cannot_be_asked_for_keeps_no_other_from_its_queues(
    group: Any, session: Any, away: str
) -> None:
    g = group(topics={"T": "*", "U": "*", "V": "*"})
    session.know("U", queues=2, brokers=("b",))
    session.know("V", queues=1, brokers=("c",))
    await g.rebalancer.rebalance()
    g.member.subscriptions.remove("V")
    session.know("T", queues=6)
    session.know("U", queues=3, brokers=("b",))
    ids = session.answers[ConsumerList]
    session.answers[ConsumerList] = lambda to, *_: NetworkError("gone") if to == away else ids()
    assert not await g.rebalancer.rebalance(), "so the next round comes soon"
    owned = Counter(queue.topic for queue in g.member.pulled)
    assert owned == ({"T": 4, "U": 3} if away == "a:1" else {"T": 6, "U": 2})


@pytest.mark.seed("S003-5", "S003-38")
async def test_queues_of_an_unsubscribed_topic_are_dropped_without_a_report(group: Any, session: Any) -> None:
    g = group(ordered=True)
    await g.rebalancer.rebalance()
    owned = list(g.member.pulled.values())
    for one in owned:
        g.member.offsets.memory.set(one.queue, 555)
        one.fetching = asyncio.get_running_loop().create_future()
    g.member.subscriptions.remove("T")
    await g.rebalancer.rebalance()
    assert g.member.pulled == {}
    assert all(one.inbox.dropped and one.fetching.cancelled() for one in owned)
    assert session.sent == []
    assert session.headers(UnlockQueues) == [], "as RocketMQ does: its lock runs out"


@pytest.mark.seed("S003-15", "S003-42")
async def test_where_nothing_can_be_said_nothing_changes(group: Any, session: Any) -> None:
    g = group()
    g.ids = ["me", "zz"]
    await g.rebalancer.rebalance()
    session.answers[ConsumerList] = lambda *_: (0, None, bodies.encode(ConsumerIds(consumer_id_list=[])))
    assert await g.rebalancer.rebalance(), "no member known to the broker, not even us: it has just started"
    assert g.queues == [0, 1], "and the others are not ours for that"
    asked = len(session.asked)
    assert await divided_here(g.member, "T", []) is None
    assert len(session.asked) == asked
    session.routes.forget("T")
    with pytest.raises(NoRoute, match="topic 'T' has no broker with an address"):
        await divided_here(g.member, "T", [MessageQueue("a", 0, "T")])


@pytest.mark.seed("S003-11")
async def test_the_queues_shared_out_are_those_that_may_be_read(group: Any, session: Any) -> None:
    counts = {"a": (4, 3, 1), "b": (2, 2, 2), "c": (6, 1, 4)}  # perm, to read, to write
    route = TopicRoute(
        broker_datas=[
            BrokerData(broker_name=name, cluster="c", broker_addrs={0: f"{name}:1"}) for name in counts
        ],
        queue_datas=[
            QueueData(broker_name=name, perm=perm, read_queue_nums=read, write_queue_nums=write)
            for name, (perm, read, write) in counts.items()
        ],
    )
    session.routes.put("T", route)
    g = group()
    await g.rebalancer.rebalance()
    assert [str(queue) for queue in sorted(g.member.pulled)] == ["T/a/0", "T/a/1", "T/a/2", "T/c/0"]


async def test_a_topic_without_route_is_told_and_tried_again_soon(group: Any) -> None:
    g = group(topics={"unknown": "*"})
    assert not await g.rebalancer.rebalance()
    assert g.changes == [("unknown", 0, [])]


async def test_a_topic_without_route_is_told_once_and_again_when_it_was_there_meanwhile(
    group: Any, session: Any, caplog: Any
) -> None:
    g = group(topics={"late": "*"})
    for _ in range(3):
        assert not await g.rebalancer.rebalance()
    assert g.rebalancer.unrouted == {"late"}
    session.know("late", queues=1)
    assert await g.rebalancer.rebalance()
    assert (g.rebalancer.unrouted, g.queues) == (set(), [0])
    session.routes.forget("late")
    for _ in range(3):
        assert not await g.rebalancer.rebalance()
    told = [record.getMessage() for record in caplog.records if record.name == "aerobee.client.rebalance"]
    assert [line for line in told if "has no route yet" in line] == [
        "topic=late of group=g has no route yet"
    ] * 2


async def test_a_missing_retry_topic_is_no_trouble(group: Any) -> None:
    g = group(topics={"%RETRY%g": "*"})
    assert await g.rebalancer.rebalance()
    assert g.changes == []


@pytest.mark.seed("S003-12")
async def test_any_broker_of_the_topic_is_asked_master_first(group: Any, session: Any) -> None:
    session.know("T", queues=1, brokers=("a", "b", "c"))
    g = group()
    for _ in range(40):
        await g.rebalancer.rebalance()
    asked = {address for address, header, _ in session.asked if type(header) is ConsumerList}
    assert asked == {"a:1", "b:1", "c:1"}


@pytest.mark.seed("S003-12")
async def test_a_slave_is_asked_where_there_is_no_master(group: Any, session: Any) -> None:
    route = TopicRoute(
        broker_datas=[BrokerData(broker_name="a", cluster="c", broker_addrs={1: "a-slave:1", 2: "second:1"})],
        queue_datas=[QueueData(broker_name="a", perm=6, read_queue_nums=2, write_queue_nums=2)],
    )
    session.routes.put("T", route)
    await divided_here(group().member, "T", [MessageQueue("a", 0, "T")])
    assert [address for address, header, _ in session.asked if type(header) is ConsumerList] == ["a-slave:1"]


@pytest.mark.seed("S003-12", "S003-42")
async def test_a_broker_that_has_no_address_is_not_asked_as_long_as_another_has(
    group: Any, session: Any
) -> None:
    addresses = {"a": {0: "a:1"}, "b": {}}
    route = TopicRoute(
        broker_datas=[
            BrokerData(broker_name=name, cluster="c", broker_addrs=at) for name, at in addresses.items()
        ],
        queue_datas=[
            QueueData(broker_name=name, perm=6, read_queue_nums=1, write_queue_nums=1) for name in addresses
        ],
    )
    session.routes.put("T", route)
    member = group().member
    for _ in range(30):
        await divided_here(member, "T", [MessageQueue("a", 0, "T")])
    assert {address for address, _, _ in session.asked} == {"a:1"}


@pytest.mark.seed("S003-19", "S003-18")
async def test_a_round_of_one_topic_leaves_the_queues_of_others_as_they_are(group: Any, session: Any) -> None:
    g = group(topics={"T": "*", "U": "*"})
    session.know("U", queues=2)
    await g.rebalancer.rebalance()
    kept = {queue: owned for queue, owned in g.member.pulled.items() if queue.topic == "U"}
    offsets = len(session.headers(QueryConsumerOffset))
    session.know("T", queues=1)
    await g.rebalancer.rebalance()
    after = {queue: owned for queue, owned in g.member.pulled.items() if queue.topic == "U"}
    assert after.keys() == kept.keys()
    assert all(after[queue] is owned and not owned.inbox.dropped for queue, owned in kept.items())
    assert {header.topic for _, header, _ in session.sent} <= {"T"}
    assert len(session.headers(QueryConsumerOffset)) == offsets, "nobody is begun anew"
    assert sorted(g.pulling) == sorted([0, 1, 2, 3, 0, 1])
    assert g.changes[2:] == [("T", 1, [0])]


@pytest.mark.seed("S003-29")
@pytest.mark.parametrize("idle_ms", [0, 120_000], ids=["pulled by hand", "pushed"])
async def test_a_lost_queue_that_nobody_locked_is_not_unlocked(
    group: Any, session: Any, idle_ms: int
) -> None:
    g = group(idle_ms=idle_ms)
    await g.rebalancer.rebalance()
    queue = MessageQueue("a", 3, "T")
    g.member.offsets.memory.set(queue, 555)
    g.ids = ["me", "zz"]
    assert await g.rebalancer.rebalance()
    assert [header.commit_offset for _, header, _ in session.sent if header.queue_id == 3] == [555]
    assert g.member.offsets.memory.get(queue) is None
    assert session.headers(UnlockQueues) == session.headers(LockQueues) == []


@pytest.mark.seed("S004-42")
async def test_every_member_sorts_queues_and_members_alike(group: Any, session: Any) -> None:
    """Whatever the order in which brokers and name servers tell them."""
    shares: dict[str, list[tuple[str, int]]] = {}
    for brokers, ids in ((("b", "a"), ["zz", "me", "aa"]), (("a", "b"), ["aa", "zz", "me"])):
        session.know("T", queues=3, brokers=brokers)
        for me in ("aa", "me", "zz"):
            session.client_id = me
            g = group()
            g.ids = ids
            await g.rebalancer.rebalance()
            share = sorted((queue.broker_name, queue.queue_id) for queue in g.member.pulled)
            assert shares.setdefault(me, share) == share
    assert shares == {
        "aa": [("a", 0), ("a", 1)],
        "me": [("a", 2), ("b", 0)],
        "zz": [("b", 1), ("b", 2)],
    }


@pytest.mark.seed("S004-88")
async def test_what_is_lost_is_reported_before_what_is_new_is_asked_for_and_pulled(
    group: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = group()
    g.ids = ["aa", "me"]
    await g.rebalancer.rebalance()
    assert g.queues == [2, 3]
    for queue in g.member.pulled:
        g.member.offsets.memory.set(queue, 50)
    told: list[tuple[str, int]] = []
    send = session.send

    async def noted(address: str, header: Any, body: bytes = b"") -> None:
        told.append(("report", header.queue_id))
        await send(address, header, body)

    def asked(queue_id: int) -> Any:
        told.append(("ask", queue_id))
        return 0, OffsetResult(offset=7), b""

    monkeypatch.setattr(session, "send", noted)
    g.offsets = asked
    g.pulling = _Noted(told)
    g.ids = ["me", "zz"]
    await g.rebalancer.rebalance()
    assert sorted(told[:2]) == [("report", 2), ("report", 3)]
    assert sorted(told[2:]) == [("ask", 0), ("ask", 1), ("pull", 0), ("pull", 1)]
    for queue_id in (0, 1):
        assert told.index(("ask", queue_id)) < told.index(("pull", queue_id))


class _Noted(list[int]):
    def __init__(self, told: list[tuple[str, int]]) -> None:
        self.told = told

    def append(self, queue_id: int) -> None:
        self.told.append(("pull", queue_id))


def unlocked(session: Any) -> list[tuple[str, str, str, list[str]]]:
    """Each unlock: at which broker, whose, of which queues."""
    return [
        (address, body.client_id, body.consumer_group, [str(queue) for queue in body.mq_set])
        for (address, header, _), text in zip(session.asked, session.bodies, strict=True)
        if type(header) is UnlockQueues
        for body in [bodies.decode(text, bodies.LockBatch)]
    ]


class TestOrdered:
    @pytest.mark.seed("S003-27", "S003-28")
    @pytest.mark.parametrize("away", ["a:1", "b:1"])
    async def test_the_locks_of_each_broker_are_kept_and_given_back_whatever_another_says(
        self, group: Any, session: Any, away: str
    ) -> None:
        session.know("T", queues=2, brokers=("a", "b"))
        g = group(ordered=True)
        await g.rebalancer.rebalance()
        session.clock.advance(5_000)
        session.answers[LockQueues] = lambda to, header, body: (
            NetworkError("gone") if to == away else g._lock(to, header, body)
        )
        await g.locks.renew()
        renewed = {
            queue.broker_name
            for queue, owned in g.member.pulled.items()
            if owned.inbox.last_lock == session.clock.now()
        }
        assert renewed == {"a", "b"} - {away[0]}
        session.answers[UnlockQueues] = lambda to, *_: NetworkError("gone") if to == away else (0, None, b"")
        await g.locks.unlock_all()
        told = {(address, *queues) for address, _, _, queues in unlocked(session)}
        assert told == {("a:1", "T/a/0", "T/a/1"), ("b:1", "T/b/0", "T/b/1")}

    @pytest.mark.seed("S004-11")
    async def test_a_queue_is_locked_before_it_is_taken(self, group: Any, session: Any) -> None:
        g = group(ordered=True)
        g.lockable = False
        assert not await g.rebalancer.rebalance()
        assert (g.queues, g.changes) == ([], [])
        assert session.headers(QueryConsumerOffset) == []
        g.lockable = True
        assert await g.rebalancer.rebalance()
        assert g.queues == [0, 1, 2, 3]
        assert all(owned.inbox.locked for owned in g.member.pulled.values())

    @pytest.mark.seed("S003-27", "S003-28")
    async def test_a_lost_queue_is_unlocked_when_its_handler_has_ended(
        self, group: Any, session: Any
    ) -> None:
        g = group(ordered=True)
        await g.rebalancer.rebalance()
        owned = g.member.pulled[MessageQueue("a", 3, "T")]
        owned.handling = asyncio.get_running_loop().create_future()
        g.member.session.options = Options(unlock_wait_ms=1)
        assert not await g.ownership.give_up(owned)
        assert owned.queue in g.member.pulled, "the entry stays for the next round"
        assert owned.inbox.unlock_attempts == 1
        assert session.headers(UnlockQueues) == []
        owned.handling = None
        assert await g.ownership.give_up(owned)
        assert unlocked(session) == [("a:1", "me", "g", ["T/a/3"])], "and no other"
        assert owned.queue not in g.member.pulled

    async def test_an_unlock_that_is_lost_is_repeated(self, group: Any, session: Any) -> None:
        g = group(ordered=True)
        await g.rebalancer.rebalance()
        session.answers[UnlockQueues] = [NetworkError("cut"), (0, None, b"")]
        await g.ownership.give_up(g.member.pulled[MessageQueue("a", 3, "T")])
        assert len(session.headers(UnlockQueues)) == 2

    async def test_a_queue_given_up_while_locks_are_renewed_is_unlocked_again(
        self, group: Any, session: Any
    ) -> None:
        g = group(ordered=True)
        await g.rebalancer.rebalance()
        lost = MessageQueue("a", 3, "T")

        def lock(address: str, header: Any, body: bytes) -> Any:
            g.member.pulled.pop(lost, None)
            return (
                0,
                None,
                bodies.encode(LockedQueues(lock_ok_mq_set=bodies.decode(body, bodies.LockBatch).mq_set)),
            )

        session.answers[LockQueues] = lock
        await g.locks.renew()
        assert len(session.headers(UnlockQueues)) == 1

    async def test_after_20_s_a_lost_queue_is_unlocked_anyway(self, group: Any, session: Any) -> None:
        g = group(ordered=True)
        await g.rebalancer.rebalance()
        owned = g.member.pulled[MessageQueue("a", 3, "T")]
        owned.handling = asyncio.get_running_loop().create_future()
        session.clock.advance(20_001)
        assert await g.ownership.give_up(owned)

    async def test_a_lock_is_asked_for_again_and_noted(self, group: Any, session: Any) -> None:
        g = group(ordered=True)
        await g.rebalancer.rebalance()
        owned = g.member.pulled[MessageQueue("a", 3, "T")]
        began = owned.inbox.last_lock
        session.clock.advance(5_000)
        g.lockable = False
        assert not await g.locks.lock(owned)
        assert (owned.inbox.locked, owned.inbox.last_lock) == (False, began)
        session.answers[LockQueues] = [NetworkError("gone")]
        assert not await g.locks.lock(owned)
        session.answers[LockQueues] = g._lock
        g.lockable = True
        assert await g.locks.lock(owned)
        assert (owned.inbox.locked, owned.inbox.last_lock) == (True, session.clock.now())
        address, _, timeout_ms = session.asked[-1]
        assert (address, timeout_ms) == ("a:1", 1_000)
        asked = bodies.decode(session.bodies[-1], bodies.LockBatch)
        assert (asked.client_id, asked.consumer_group, asked.mq_set) == ("me", "g", [owned.queue])

    async def test_renewing_tells_which_locks_are_lost(self, group: Any, session: Any) -> None:
        g = group(ordered=True)
        session.clock.set_wall(session.clock.wall() + 3_600_000)
        await g.rebalancer.rebalance()
        session.clock.advance(5_000)
        session.answers[LockQueues] = [
            (0, None, bodies.encode(LockedQueues(lock_ok_mq_set=[MessageQueue("a", 1, "T")])))
        ]
        await g.locks.renew()
        assert [q.queue_id for q, owned in g.member.pulled.items() if owned.inbox.locked] == [1]
        assert g.member.pulled[MessageQueue("a", 1, "T")].inbox.last_lock == session.clock.now()


class TestPop:
    def assign(self, session: Any, *queue_ids: int, mode: Mode = Mode.POP) -> None:
        entries = [AssignedQueue(message_queue=MessageQueue("a", n, "T"), mode=mode) for n in queue_ids]
        session.answers[QueryAssignment] = lambda *_: (
            0, None, bodies.encode(Assignment(message_queue_assignments=entries))
        )  # fmt: skip

    @pytest.mark.seed("S000-1", "S000-9", "S000-14", "S000-23", "S000-24", "S000-8")
    async def test_where_the_broker_says_pop_its_assignment_is_taken(self, group: Any, session: Any) -> None:
        g = group(as_the_broker_says)
        self.assign(session, -1)
        await g.rebalancer.rebalance()
        assert (g.popping, g.pulling) == ([-1], [])
        query = bodies.decode(session.bodies[0], bodies.AssignmentQuery)
        assert (query.strategy_name, query.consumer_group, query.topic) == ("AVG", "g", "T")
        assert (query.client_id, query.message_model) == ("me", MessageModel.CLUSTERING)
        assert session.story == ["QueryAssignment"], "the broker knows the members and keeps the progress"

    @pytest.mark.seed("S003-39")
    async def test_an_assignment_that_stays_is_told_once(self, group: Any, session: Any) -> None:
        g = group(as_the_broker_says)
        self.assign(session, -1)
        for _ in range(3):
            await g.rebalancer.rebalance()
        assert (len(g.changes), g.popping) == (1, [-1])

    @pytest.mark.seed("S000-38")
    async def test_where_it_says_pull_the_queues_are_divided_here(self, group: Any, session: Any) -> None:
        g = group(as_the_broker_says)
        self.assign(session, 0, 1, mode=Mode.PULL)
        await g.rebalancer.rebalance()
        assert g.queues == [0, 1, 2, 3]

    @pytest.mark.seed("S000-24")
    @pytest.mark.parametrize(
        ("rebalance", "own", "told"),
        [
            ("auto", "AVG_BY_CIRCLE", "AVG_BY_CIRCLE"),
            ("auto", "AVG", "AVG"),
            ("broker", "AVG_BY_CIRCLE", "AVG_BY_CIRCLE"),
            ("broker", "OF A USER", "OF A USER"),  # a broker may have it too
        ],
    )
    async def test_the_broker_is_told_the_strategy(
        self, group: Any, session: Any, rebalance: str, own: str, told: str
    ) -> None:
        g = group(as_the_broker_says)
        g.member.session.options = Options(rebalance=rebalance)
        g.member.strategy = Strategy(own, lambda me, queues, members: [])
        self.assign(session, -1)
        await g.rebalancer.rebalance()
        assert bodies.decode(session.bodies[0], bodies.AssignmentQuery).strategy_name == told

    @pytest.mark.seed("S000-2")
    async def test_pull_and_ordered_consumers_never_pop(self, group: Any, session: Any) -> None:
        self.assign(session, -1)
        for g in (group(divided_here), group(as_the_broker_says, ordered=True)):
            await g.rebalancer.rebalance()
            assert g.popping == []
        assert session.headers(QueryAssignment) == []

    @pytest.mark.seed("S000-34", "S000-76")
    @pytest.mark.parametrize("rebalance", ["auto", "broker"])
    async def test_null_changes_nothing_and_empty_drops_all(
        self, group: Any, session: Any, rebalance: str
    ) -> None:
        """Neither makes a consumer that pops pull: the broker that was asked may just not know it yet."""
        g = group(as_the_broker_says)
        g.member.session.options = Options(rebalance=rebalance)
        self.assign(session, -1)
        await g.rebalancer.rebalance()
        session.answers[QueryAssignment] = lambda *_: (0, None, b"{}")
        await g.rebalancer.rebalance()
        assert len(g.member.popped) == 1
        session.answers[QueryAssignment] = lambda *_: NetworkError("gone")
        await g.rebalancer.rebalance()
        assert len(g.member.popped) == 1
        self.assign(session)
        await g.rebalancer.rebalance()
        assert (g.member.popped, g.queues) == ({}, [])
        assert session.headers(ConsumerList) == []

    @pytest.mark.seed("S000-24", "S000-38")
    async def test_a_strategy_that_brokers_do_not_know_divides_here_and_pops_by_one_they_know(
        self, group: Any, session: Any
    ) -> None:
        """They say nothing about one that is unknown to them: its consumer would never get a queue."""
        asked: list[str] = []

        def say(address: str, header: Any, body: bytes) -> Any:
            asked.append(bodies.decode(body, bodies.AssignmentQuery).strategy_name)
            known = asked[-1] in ("AVG", "AVG_BY_CIRCLE")
            entries = [AssignedQueue(message_queue=MessageQueue("a", n, "T"), mode=mode) for n in queue_ids]
            found = Assignment(message_queue_assignments=entries if known else None)
            return 0, None, bodies.encode(found)

        mode, queue_ids = Mode.PULL, [0]
        session.answers[QueryAssignment] = say
        g = group(as_the_broker_says)
        g.member.strategy = Strategy("CONSISTENT_HASH", lambda me, queues, members: list(queues)[2:])
        await g.rebalancer.rebalance()
        assert (g.queues, asked) == ([2, 3], ["AVG"])
        mode, queue_ids = Mode.POP, [-1]
        await g.rebalancer.rebalance()
        assert (g.queues, g.popping) == ([], [-1])

    @pytest.mark.seed("S000-8")
    @pytest.mark.parametrize("options", [Options(rebalance="broker")])
    async def test_a_broker_that_is_to_decide_and_cannot_be_asked_is_waited_for(
        self, group: Any, session: Any
    ) -> None:
        g = group(as_the_broker_says)
        session.answers[QueryAssignment] = lambda *_: NetworkError("gone")
        assert await g.rebalancer.rebalance()
        assert (g.queues, session.headers(ConsumerList)) == ([], []), "nothing is divided here"
        self.assign(session, 0, mode=Mode.PULL)
        await g.rebalancer.rebalance()
        assert (g.queues, session.headers(ConsumerList)) == ([0], [])

    @pytest.mark.parametrize("trouble", [NetworkError("gone"), (1, None, b"")])
    async def test_an_outage_is_no_reason_to_change_from_pop_to_pull(
        self, group: Any, session: Any, trouble: Any
    ) -> None:
        g = group(as_the_broker_says)
        assert g.member.options.rebalance == "auto"
        self.assign(session, -1)
        await g.rebalancer.rebalance()
        (popped,) = g.member.popped.values()
        session.answers[QueryAssignment] = lambda *_: trouble
        for _ in range(3):
            await g.rebalancer.rebalance()
        assert list(g.member.popped.values()) == [popped]
        assert not popped.dropped
        assert (g.queues, g.popping) == ([], [-1])
        self.assign(session, -1)
        await g.rebalancer.rebalance()
        assert list(g.member.popped.values()) == [popped], "and goes on with the same"

    async def test_popped_queues_of_an_unsubscribed_topic_are_given_up(
        self, group: Any, session: Any
    ) -> None:
        g = group(as_the_broker_says)
        self.assign(session, 0, 1)
        await g.rebalancer.rebalance()
        popped = list(g.member.popped.values())
        for one in popped:
            one.fetching = asyncio.get_running_loop().create_future()
        g.member.subscriptions.remove("T")
        await g.rebalancer.rebalance()
        assert g.member.popped == {}
        assert len(popped) == 2
        assert all(one.dropped and one.fetching.cancelled() for one in popped)

    @pytest.mark.seed("S000-3", "S000-7")
    async def test_the_mode_may_change_while_running(self, group: Any, session: Any) -> None:
        g = group(as_the_broker_says)
        self.assign(session, 0, mode=Mode.PULL)
        await g.rebalancer.rebalance()
        self.assign(session, -1)
        await g.rebalancer.rebalance()
        assert (g.queues, list(g.member.popped)) == ([], [MessageQueue("a", -1, "T")])
        assert names.pop_retry_topic("T", g.member.group) not in g.member.subscriptions
        self.assign(session, 0, mode=Mode.PULL)
        await g.rebalancer.rebalance()
        assert (g.queues, g.member.popped) == ([0, 1, 2, 3], {})
        # Messages that POP was to try again are pulled from now on.
        assert g.member.subscriptions.get(names.pop_retry_topic("T", g.member.group)).expression == "*"
        self.assign(session, -1)
        await g.rebalancer.rebalance()
        assert names.pop_retry_topic("T", g.member.group) not in g.member.subscriptions

    async def test_an_old_broker_without_assignments_means_pull(self, group: Any, session: Any) -> None:
        g = group(as_the_broker_says)
        session.answers[QueryAssignment] = lambda *_: (3, None, b"")
        assert await g.rebalancer.rebalance()
        assert g.queues == [0, 1, 2, 3]


@pytest.mark.seed("S003-2", "S003-1", "S003-3")
async def test_it_runs_every_ten_seconds_soon_after_trouble_and_when_woken(
    group: Any, session: Any, settle: Any, tasks: Any
) -> None:
    g = group()
    rounds: list[int] = []
    session.answers[ConsumerList] = lambda *_: rounds.append(session.clock.now()) or g._ids()
    start = session.clock.now()
    tasks.start(g.rebalancer.run_forever(), "rebalance")

    async def at(ms: int) -> list[int]:
        session.clock.advance(start + ms - session.clock.now())
        await settle()
        return [moment - start for moment in rounds]

    assert await at(0) == [0]
    assert await at(9_999) == [0]
    assert await at(10_000) == [0, 10_000]
    g.rebalancer.wake()
    assert await at(10_500) == [0, 10_000], "not closer than a second to the last"
    assert await at(11_000) == [0, 10_000, 11_000]
    g.ids = NetworkError("gone")
    assert await at(21_000) == [0, 10_000, 11_000, 21_000]
    assert await at(22_000) == [0, 10_000, 11_000, 21_000, 22_000], "soon again, for it did not work"
    g.ids = ["me"]
    assert (await at(23_000))[-1] == 23_000
    assert (await at(23_999))[-1] == 23_000
    g.rebalancer.wake()
    assert (await at(23_999))[-1] == 23_000, "a millisecond too soon is too soon"
    assert (await at(24_000))[-1] == 24_000


async def test_a_suspended_consumer_is_not_rebalanced(group: Any, session: Any) -> None:
    g = group()
    g.member.suspended = True
    assert await g.rebalancer.rebalance()
    assert session.asked == []


@pytest.mark.seed("S003-35")
async def test_a_new_group_asks_for_the_end_of_each_queue(group: Any, session: Any) -> None:
    g = group()
    g.offsets = lambda queue_id: (22, None, b"")
    session.answers[GetMaxOffset] = lambda a, header, b: (0, OffsetResult(offset=7 + header.queue_id), b"")
    await g.rebalancer.rebalance()
    assert sorted(owned.next_offset for owned in g.member.pulled.values()) == [7, 8, 9, 10]


@pytest.mark.seed("S001-26")
async def test_a_queue_under_repair_is_left_alone(group: Any, session: Any) -> None:
    g = group()
    await g.rebalancer.rebalance()
    owned = g.member.pulled[MessageQueue("a", 1, "T")]
    g.member.offsets.memory.set(owned.queue, 9)
    owned.inbox.dropped = owned.repairing = True
    await g.rebalancer.rebalance()
    g.ids = ["aa", "me"]
    await g.rebalancer.rebalance()
    assert g.member.pulled[owned.queue] is owned
    assert [h for _, h, _ in session.sent if h.queue_id == 1] == [], "the wrong offset is not reported"


@pytest.mark.seed("S003-44")
async def test_a_pull_consumers_queue_may_rest_as_long_as_it_likes(group: Any, session: Any) -> None:
    g = group(idle_ms=0)
    await g.rebalancer.rebalance()
    before = dict(g.member.pulled)
    session.clock.advance(10 * 120_000)
    await g.rebalancer.rebalance()
    assert dict(g.member.pulled) == before


async def test_a_topic_is_balanced_when_its_own_queues_are_whatever_others_hold(
    group: Any, session: Any
) -> None:
    g = group(topics={"T": "*", "U": "*"})
    session.know("U", queues=2)
    await g.rebalancer.rebalance()
    assert await g.rebalancer._rebalance_topic("T") is True
    left = g.member.pulled[MessageQueue("a", 1, "U")]
    left.inbox.dropped = left.repairing = True
    assert await g.rebalancer._rebalance_topic("T") is True, "what happens to another topic is not its matter"
    assert await g.rebalancer._rebalance_topic("U") is False, "one of its queues is not ours now"
    assert await g.rebalancer.rebalance() is False


async def test_a_queue_that_was_given_up_is_neither_locked_nor_remembered(group: Any, session: Any) -> None:
    g = group(ordered=True)
    await g.rebalancer.rebalance()
    owned = g.member.pulled[MessageQueue("a", 3, "T")]
    owned.fetching = asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[assignment]
    g.member.offsets.memory.set(owned.queue, 42)
    reported = len(session.sent)
    assert await g.ownership.give_up(owned)
    assert (owned.inbox.locked, owned.inbox.dropped) == (False, True)
    assert g.member.offsets.memory.get(owned.queue) is None
    assert {header.commit_offset for _, header, _ in session.sent[reported:]} == {42}
    with pytest.raises(asyncio.CancelledError):
        await owned.fetching  # type: ignore[misc]


async def test_a_queue_of_a_topic_that_is_no_longer_wanted_is_dropped_in_silence(
    group: Any, session: Any
) -> None:
    g = group()
    await g.rebalancer.rebalance()
    queue = MessageQueue("a", 3, "T")
    owned = g.member.pulled[queue]
    owned.fetching = asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[assignment]
    g.ownership.drop(queue)
    assert (owned.inbox.dropped, queue in g.member.pulled, session.sent) == (True, False, [])
    with pytest.raises(asyncio.CancelledError):
        await owned.fetching  # type: ignore[misc]
    g.ownership.drop(queue)  # to drop it again is no harm


async def test_a_popped_queue_is_popped_until_it_is_given_up(group: Any, session: Any) -> None:
    g = group()
    queue = MessageQueue("a", -1, "T")
    g.ownership.take_popped(queue)
    popped = g.member.popped[queue]
    assert (g.popping, popped.dropped, popped.last_pop) == ([-1], False, session.clock.now())
    popped.fetching = asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[assignment]
    g.ownership.give_up_popped(queue)
    assert (popped.dropped, g.member.popped) == (True, {})
    with pytest.raises(asyncio.CancelledError):
        await popped.fetching  # type: ignore[misc]
    g.ownership.give_up_popped(queue)  # nor this


@pytest.mark.seed("S004-13")
async def test_a_queue_that_came_in_between_is_not_taken_twice(group: Any, session: Any) -> None:
    g = group()
    queue = MessageQueue("a", 1, "T")
    assert await g.ownership.take(queue)
    first = g.member.pulled[queue]
    assert await g.ownership.take(queue)
    assert g.member.pulled[queue] is first
    assert g.pulling == [1]
    assert first.inbox.locked


async def test_what_was_consumed_in_the_turn_of_a_loss_is_still_reported(group: Any, session: Any) -> None:
    g = group()
    await g.rebalancer.rebalance()
    owned = g.member.pulled[MessageQueue("a", 3, "T")]

    def settled() -> None:
        if not owned.inbox.dropped:
            g.member.offsets.memory.raise_to(owned.queue, 777)

    asyncio.get_running_loop().call_soon(settled)
    assert await g.ownership.give_up(owned)
    assert [header.commit_offset for _, header, _ in session.sent if header.queue_id == 3] == [777]


async def test_what_an_ordered_handler_finishes_while_it_is_waited_for_is_reported_before_the_lock_goes(
    group: Any, session: Any, settle: Any
) -> None:
    g = group(ordered=True)
    await g.rebalancer.rebalance()
    owned = g.member.pulled[MessageQueue("a", 3, "T")]
    owned.handling = handling = asyncio.get_running_loop().create_future()
    g.member.offsets.memory.set(owned.queue, 50)
    session.story.clear()
    giving_up = asyncio.ensure_future(g.ownership.give_up(owned))
    await settle()
    g.member.offsets.memory.set(owned.queue, 60)
    owned.handling = None
    handling.set_result(None)
    assert await giving_up
    reports = [header.commit_offset for _, header, _ in session.sent if header.queue_id == 3]
    assert reports[-2:] == [50, 60]
    assert session.story[-2:] == ["UpdateConsumerOffset", "UnlockQueues"]


async def test_a_listener_is_told_of_popped_queues_too(group: Any, session: Any) -> None:
    g = group(as_the_broker_says)
    queue = MessageQueue("a", -1, "T")
    assignment = Assignment(message_queue_assignments=[AssignedQueue(message_queue=queue, mode=Mode.POP)])
    session.answers[QueryAssignment] = lambda *_: (0, None, bodies.encode(assignment))
    await g.rebalancer.rebalance()
    assert g.changes == [("T", 4, [-1])]


async def test_a_loss_is_told_also_when_what_was_gained_could_not_be_taken(group: Any, session: Any) -> None:
    g = group()
    g.ids = ["aa", "me"]
    await g.rebalancer.rebalance()
    assert g.changes == [("T", 4, [2, 3])]
    g.offsets = lambda queue_id: NetworkError("gone")
    g.ids = ["me", "zz"]
    assert not await g.rebalancer.rebalance()
    assert (g.queues, g.changes[1:]) == ([], [("T", 4, [0, 1])])


async def test_a_lock_that_is_lost_is_told_once(group: Any, session: Any, caplog: Any) -> None:
    g = group(ordered=True)
    session.know("T", queues=1)
    await g.rebalancer.rebalance()
    (owned,) = g.member.pulled.values()
    session.clock.advance(20_000)
    await g.locks.renew()
    assert (owned.inbox.locked, owned.inbox.last_lock) == (True, session.clock.now())
    g.lockable = False
    for _ in range(3):
        await g.locks.renew()
    assert not owned.inbox.locked
    told = [record.getMessage() for record in caplog.records if "lock of" in record.getMessage()]
    assert told == ["lock of queue=T/a/0 is lost"]


async def test_a_strategy_that_fails_is_asked_again_and_the_other_topics_are_divided(
    group: Any, session: Any, caplog: Any
) -> None:
    """It is the user's own code: whatever it raises, the consumer must not stop taking part."""

    def divide(client_id: str, queues: Any, clients: Any) -> Any:
        return {"T": list(queues)}[queues[0].topic]

    session.know("A")
    g = group(topics={"A": "*", "T": "*"})
    g.member.strategy = Strategy("of a user", divide)
    assert not await g.rebalancer.rebalance()
    assert {queue.topic for queue in g.member.pulled} == {"T"}
    assert "rebalance failed group=g topic=A" in caplog.text
    assert "KeyError: 'A'" in caplog.text


async def test_a_listener_that_fails_ends_no_rebalancing(
    group: Any, session: Any, tasks: Any, settle: Any, caplog: Any
) -> None:
    g = group()

    def listener(topic: str, every: Any, own: Any) -> None:
        raise LookupError("a user's own mistake")

    g.rebalancer._changed = listener
    tasks.start(g.rebalancer.run_forever(), "rebalance")
    await settle()
    assert (g.queues, g.pulling) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert "a user's own mistake" in caplog.text
    g.ids = ["me", "zz"]
    session.clock.advance(session.options.rebalance_ms)
    await settle()
    assert g.queues == [0, 1], "members that come later get their share"


@pytest.mark.parametrize(("fails", "told"), [(2, 0), (3, 1)])
async def test_a_lock_that_could_not_be_given_back_is_told_once_nobody_tries_any_more(
    group: Any, session: Any, caplog: Any, fails: int, told: int
) -> None:
    """It keeps the next owner out for a minute."""
    g = group(ordered=True)
    await g.rebalancer.rebalance()
    session.answers[UnlockQueues] = [SystemFailure("not now")] * fails + [(0, None, b"")] * (3 - fails)
    await g.locks.unlock(MessageQueue("a", 3, "T"))
    assert caplog.text.count("unlock at broker=a failed: not now") == told


async def test_a_lost_queue_that_goes_while_another_is_given_up_is_no_trouble(
    group: Any, session: Any, caplog: Any
) -> None:
    """Its repair has ended meanwhile."""
    g = group()
    await g.rebalancer.rebalance()
    send = session.send

    async def repaired_meanwhile(*what: Any) -> None:
        await send(*what)
        g.member.pulled.pop(MessageQueue("a", 3, "T"), None)

    session.send = repaired_meanwhile
    g.ids = ["me", "zz"]
    assert await g.rebalancer.rebalance()
    assert (g.queues, g.changes[-1]) == ([0, 1], ("T", 4, [0, 1]))
    assert "failed" not in caplog.text
