# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from aerobee.client.consume.fetch_loop import FetchLoop
from aerobee.client.message import ReceivedMessage
from aerobee.client.options import Options
from aerobee.client.session.route_cache import RouteCache
from aerobee.errors import NetworkError
from aerobee.protocol.bodies import MessageModel, MessageQueue
from aerobee.protocol.headers.consume import PullMessage, PullResult
from aerobee.protocol.headers.offsets import OffsetResult, QueryConsumerOffset

EMPTY = (19, PullResult(next_begin_offset=0, min_offset=0, max_offset=0), b"")


def answer(code: int, following: int, body: bytes = b"", **more: Any) -> Any:
    return code, PullResult(next_begin_offset=following, min_offset=0, max_offset=following, **more), body


class Loop:
    def __init__(self, member: Any) -> None:
        self.submitted: list[list[int]] = []
        self.repaired: list[Any] = []
        self.loop = FetchLoop(member, self._submit, lambda *moved: self.repaired.append(moved))

    def _submit(self, owned: Any, messages: Any) -> None:
        self.submitted.append([message.queue_offset for message in messages])


@pytest.fixture
def pull(make_member: Any, own: Any, session: Any) -> Any:
    """One pull of a fresh queue at offset 10."""

    class Pull:
        def __init__(self, **member: Any) -> None:
            self.member = make_member(**member)
            self.owned = own(self.member, offset=10)
            self.loop = Loop(self.member)

        async def once(self, *answers: Any) -> int | None:
            session.answers[PullMessage] += answers
            return await self.loop.loop.pull_once(self.owned)

        @property
        def request(self) -> PullMessage:
            return session.headers(PullMessage)[-1]

    return Pull


@pytest.mark.seed("S001-6", "S003-6")
async def test_step_1_a_dropped_queue_is_pulled_no_more(pull: Any, session: Any) -> None:
    p = pull()
    p.owned.inbox.dropped = True
    assert await p.once() is None
    assert session.asked == []


def suspended(p: Any) -> None:
    p.member.suspended = True


def stopped(p: Any) -> None:
    p.member.running = False


def filled(p: Any) -> None:
    p.owned.inbox.put([ReceivedMessage("T", b"x", queue_offset=n) for n in range(1001)])


def unlocked(p: Any) -> None:
    p.owned.inbox.locked = False


def unsubscribed(p: Any) -> None:
    p.member.subscriptions.remove("T")


@pytest.mark.seed("S001-7", "S001-30")
@pytest.mark.parametrize("delay", [suspended, stopped, filled, unlocked, unsubscribed])
async def test_step_2_the_pull_is_stamped_before_anything_delays_it(
    pull: Any, session: Any, delay: Any
) -> None:
    p = pull(ordered=delay is unlocked)
    session.clock.set_wall(session.clock.wall() - 3_600_000)  # which changes no waiting
    session.clock.advance(5_000)
    delay(p)
    assert await p.once()
    assert session.asked == []
    assert p.owned.inbox.last_pull == session.clock.now()


async def test_a_dropped_queue_is_not_stamped_again(pull: Any, session: Any) -> None:
    p = pull()
    p.owned.inbox.dropped = True
    session.clock.advance(5_000)
    await p.once()
    assert p.owned.inbox.last_pull == session.clock.now() - 5_000


@pytest.mark.seed("S001-8", "S001-3")
async def test_step_3_a_consumer_that_does_not_run_waits(pull: Any, session: Any) -> None:
    p = pull()
    p.member.running = False
    assert await p.once() == 3_000
    assert session.asked == []


@pytest.mark.seed("S001-9")
async def test_step_4_a_suspended_consumer_waits_a_second(pull: Any, session: Any) -> None:
    p = pull()
    p.member.suspended = True
    assert await p.once() == 1_000
    assert session.asked == []


@pytest.mark.seed("S001-10", "S001-11", "S001-12", "S004-89", "S004-62")
@pytest.mark.parametrize("offsets", [range(1001), (0, 2001)])
async def test_steps_5_to_7_a_full_inbox_waits_50_ms(pull: Any, session: Any, offsets: Any) -> None:
    p = pull()
    p.owned.inbox.put([ReceivedMessage("T", b"x", queue_offset=n) for n in offsets])
    assert await p.once() == 50
    assert session.asked == []


@pytest.mark.seed("S001-12")
async def test_step_7_an_ordered_consumer_is_not_held_back_by_a_wide_span(pull: Any, session: Any) -> None:
    p = pull(ordered=True)
    p.owned.previously_locked = True
    p.owned.inbox.put([ReceivedMessage("T", b"x", queue_offset=n) for n in (0, 5_000)])
    assert await p.once(answer(19, 10)) == 0
    assert p.request.queue_offset == 10


@pytest.mark.parametrize(
    ("offsets", "told"),
    [
        (range(1001), "messages; messages=1001 bytes=1001 span=1000"),
        ((3, 2004), "span; messages=2 bytes=2 span=2001"),
    ],
)
async def test_a_full_inbox_is_told_once_with_what_is_in_it(
    pull: Any, caplog: Any, offsets: Any, told: str
) -> None:
    p = pull()
    p.owned.inbox.put([ReceivedMessage("T", b"x", queue_offset=n) for n in offsets])
    for _ in range(3):
        await p.once()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"not pulling queue=T/a/0: too many unfinished {told}"


@pytest.mark.seed("S001-14")
async def test_step_8_an_ordered_queue_without_lock_waits(pull: Any, session: Any) -> None:
    p = pull(ordered=True)
    p.owned.inbox.locked = False
    assert await p.once() == 3_000
    assert session.asked == []


@pytest.mark.seed("S001-13")
async def test_step_8_the_first_ordered_pull_asks_again_where_to_begin(pull: Any, session: Any) -> None:
    p = pull(ordered=True)
    session.answers[QueryConsumerOffset] = [(0, OffsetResult(offset=4), b"")]
    assert await p.once(answer(19, 4), answer(19, 4)) == 0
    assert p.request.queue_offset == 4, "lower than before, and still taken"
    await p.once()
    assert len(session.headers(QueryConsumerOffset)) == 1, "only the first time"


@pytest.mark.seed("S001-13")
async def test_step_8_without_an_answer_the_ordered_pull_waits(pull: Any, session: Any) -> None:
    p = pull(ordered=True)
    session.answers[QueryConsumerOffset] = [NetworkError("gone")]
    assert await p.once() == 3_000
    assert not p.owned.previously_locked


@pytest.mark.parametrize(
    ("options", "bulk"), [(Options(pull_batch=32), None), (Options(pull_batch=33), True)]
)
async def test_a_bigger_batch_than_brokers_give_is_asked_for_as_bulk(
    pull: Any, options: Options, bulk: bool | None
) -> None:
    p = pull()
    await p.once(answer(19, 10))
    assert p.request.bulk is bulk


@pytest.mark.parametrize(
    ("backlog", "unfinished", "asked"),
    [
        (0, 0, 32),
        (32, 0, 32),
        (33, 0, 256),  # more than a pull takes
        (5_000, 900, 100),  # no more than the limit of unfinished ones leaves room for
        (5_000, 990, 32),
    ],
)
async def test_a_backlog_is_asked_for_in_larger_pieces(
    pull: Any, make_message: Any, backlog: int, unfinished: int, asked: int
) -> None:
    p = pull()
    p.owned.inbox.put([make_message(n) for n in range(unfinished)])
    p.owned.inbox.backlog = backlog
    await p.once(EMPTY)
    assert p.request.max_msg_nums == asked
    assert p.request.bulk == (True if asked > 32 else None)


@pytest.mark.seed("S001-15", "S004-6")
async def test_step_9_without_subscription_the_pull_waits(pull: Any, session: Any) -> None:
    p = pull()
    p.member.subscriptions.remove("T")
    assert await p.once() == 3_000
    assert session.asked == []


@pytest.mark.seed("S001-15")
async def test_step_9_each_queue_is_pulled_by_the_subscription_of_its_topic(
    make_member: Any, own: Any, session: Any, encode_messages: Any
) -> None:
    member = make_member(topics={"T": "A", "U": "B"})
    member.subscriptions.told({"T": 77, "U": 78})
    session.know("U")
    for topic, version, mine, other in (("U", 78, "B", "A"), ("T", 77, "A", "B")):
        loop = Loop(member)
        session.answers[PullMessage] = [
            answer(0, 12, encode_messages(10, topic=topic, tags=mine) + encode_messages(11, tags=other))
        ]
        await loop.loop.pull_once(own(member, offset=10, topic=topic))
        request = session.headers(PullMessage)[-1]
        assert (request.topic, request.sub_version) == (topic, version)
        assert loop.submitted == [[10]]


@pytest.mark.seed(
    "S001-21", "S001-22", "S001-23", "S002-6", "S002-30", "S004-1", "S004-2", "S004-4", "S004-38"
)
async def test_steps_11_and_12_the_request_carries_all_conditions(pull: Any, session: Any) -> None:
    p = pull(topics={"T": "A||B"})
    p.member.subscriptions.told({"T": 77})
    p.member.offsets.memory.set(p.owned.queue, 9)
    await p.once(answer(19, 10))
    request, timeout_ms = p.request, session.asked[-1][2]
    assert (request.consumer_group, request.topic, request.queue_id, request.queue_offset) == (
        "g",
        "T",
        0,
        10,
    )
    assert (request.max_msg_nums, request.suspend_timeout_millis, timeout_ms) == (32, 15_000, 30_000)
    assert (request.sys_flag, request.commit_offset) == (3, 9), "commit and suspend"
    assert (request.sub_version, request.expression_type, request.subscription) == (77, "TAG", None)
    assert (request.broker_name, request.max_msg_bytes) == ("a", 262_144)


@pytest.mark.seed("S001-22")
@pytest.mark.parametrize(("model", "offset"), [(MessageModel.CLUSTERING, 0), (MessageModel.BROADCASTING, 9)])
async def test_nothing_is_committed_with_a_pull_when_there_is_nothing_or_it_is_broadcast(
    pull: Any, model: MessageModel, offset: int
) -> None:
    p = pull(model=model)
    p.member.offsets.memory.set(p.owned.queue, offset)
    await p.once(answer(19, 10))
    assert (p.request.sys_flag, p.request.commit_offset) == (2, 0)


@pytest.mark.seed("S004-86", "S004-59")
async def test_a_suggested_slave_is_asked_next_and_gets_no_offsets(pull: Any, session: Any) -> None:
    p = pull()
    p.member.offsets.memory.set(p.owned.queue, 9)
    await p.once(answer(19, 10, suggest_which_broker_id=1), answer(19, 10))
    await p.once()
    assert [address for address, *_ in session.asked] == ["a:1", "a-slave:1"]
    assert p.request.sys_flag == 2


@pytest.mark.seed("S001-16", "S001-29", "S004-18", "S001-4")
async def test_found_messages_are_put_away_and_the_next_pull_follows_at_once(
    pull: Any, encode_messages: Any
) -> None:
    p = pull()
    assert await p.once(answer(0, 12, encode_messages(10, 11))) == 0
    assert p.loop.submitted == [[10, 11]]
    assert p.owned.next_offset == 12
    assert p.owned.inbox.count == 2, "consuming is not waited for"
    assert await p.once(answer(0, 90, encode_messages(12))) == 0
    assert (p.request.queue_offset, p.owned.next_offset) == (12, 90), "the broker has looked further"


@pytest.mark.seed("S001-16")
@pytest.mark.parametrize("options", [Options(pull_interval_ms=250)])
async def test_a_pull_interval_is_kept_after_messages(pull: Any, encode_messages: Any) -> None:
    p = pull(topics={"T": "A"})
    assert await p.once(answer(0, 11, encode_messages(10, tags="A")), answer(19, 11)) == 250
    assert await p.once() == 0
    assert await p.once(answer(0, 12, encode_messages(11, tags="B"))) == 0, "none of them is ours"


@pytest.mark.seed("S001-16", "S001-24")
async def test_tags_are_compared_as_text_and_an_empty_rest_is_pulled_past(
    pull: Any, encode_messages: Any
) -> None:
    p = pull(topics={"T": "AaAa||B"})
    # AaAa and BBBB have the same Java hash, which is all the broker compared.
    assert await p.once(answer(0, 12, encode_messages(10, tags="BBBB") + encode_messages(11))) == 0
    assert p.loop.submitted == []
    assert p.owned.next_offset == 12
    await p.once(answer(0, 14, encode_messages(12, tags="AaAa") + encode_messages(13, tags="B")))
    assert p.loop.submitted == [[12, 13]]


@pytest.mark.seed("S001-17")
async def test_an_answer_that_goes_back_is_logged(pull: Any, encode_messages: Any, caplog: Any) -> None:
    p = pull()
    await p.once(answer(0, 12, encode_messages(10, 11)), answer(0, 12, encode_messages(12)))
    await p.once()
    assert "goes back" not in caplog.text
    await p.once(answer(0, 13, encode_messages(11, 12)))
    assert "answer of queue=a/T/0 goes back to offset=11" in caplog.text.replace(str(p.owned.queue), "a/T/0")
    await p.once(answer(0, 3, encode_messages(2)))
    assert "goes back to offset=2" in caplog.text
    assert p.owned.next_offset == 3, "it is taken all the same"
    p.owned.next_offset = 9
    await p.once(answer(0, 8))
    assert "goes back to offset=8" in caplog.text
    p.owned.next_offset = 9
    await p.once(answer(0, 7, encode_messages(9)))
    assert "goes back to offset=7" in caplog.text, "whichever of both is lower"


@pytest.mark.seed("S001-18", "S004-39", "S004-18")
@pytest.mark.parametrize("code", [19, 20])
async def test_without_messages_the_offset_of_an_empty_inbox_is_corrected(pull: Any, code: int) -> None:
    p = pull()
    assert await p.once(answer(code, 500)) == 0
    assert p.owned.next_offset == 500
    assert p.member.offsets.memory.get(p.owned.queue) == 500


@pytest.mark.seed("S001-18")
async def test_unfinished_messages_keep_the_offset_where_it_is(pull: Any) -> None:
    p = pull()
    p.owned.inbox.put([ReceivedMessage("T", b"x", queue_offset=10)])
    await p.once(answer(20, 500))
    assert p.member.offsets.memory.get(p.owned.queue) is None


@pytest.mark.seed("S001-18")
async def test_the_stored_offset_follows_upwards_only_and_not_for_a_queue_that_was_lost(pull: Any) -> None:
    p = pull()
    p.member.offsets.memory.set(p.owned.queue, 700)
    await p.once(answer(19, 500))
    assert p.member.offsets.memory.get(p.owned.queue) == 700
    lost = pull()
    lost.member.offsets.memory.remove(lost.owned.queue)
    await lost.once(dropping(lost, answer(19, 500)))
    assert lost.member.offsets.memory.get(lost.owned.queue) is None


async def dropping(p: Any, answered: Any) -> Any:
    """The queue is given to somebody else while the broker holds the pull."""
    p.owned.inbox.dropped = True
    return answered


async def test_messages_of_a_queue_that_was_lost_meanwhile_are_the_next_owners(
    pull: Any, encode_messages: Any
) -> None:
    p = pull()
    await p.once(dropping(p, answer(0, 12, encode_messages(10, 11))))
    assert (p.owned.inbox.count, p.loop.submitted) == (0, [])
    assert await p.once() is None


@pytest.mark.seed("S001-19", "S001-26")
async def test_an_illegal_offset_drops_the_queue_and_starts_its_repair(pull: Any) -> None:
    p = pull()
    moved = PullResult(next_begin_offset=300, min_offset=300, max_offset=400)
    assert await p.once((21, moved, b"")) is None
    assert p.owned.inbox.dropped
    assert p.owned.next_offset == 300
    assert p.loop.repaired == [(p.owned, 10_000)]


async def test_a_reset_by_an_operator_is_followed_at_once(pull: Any) -> None:
    p = pull()
    moved = PullResult(next_begin_offset=3, min_offset=0, max_offset=20)
    assert await p.once((21, moved, b"")) is None
    assert p.owned.inbox.dropped
    assert p.loop.repaired == [(p.owned, 0)]


@pytest.mark.seed("S001-20")
async def test_a_failed_pull_waits_and_flow_control_of_the_broker_waits_shortly(pull: Any) -> None:
    p = pull()
    assert await p.once(NetworkError("gone")) == 3_000
    assert await p.once((2, None, b"")) == 3_000
    assert await p.once((215, None, b"")) == 20


@pytest.mark.seed("S001-20")
@pytest.mark.parametrize(("topic", "warned"), [("%RETRY%g", False), ("T", True)])
async def test_failures_on_retry_topics_are_not_warned_about(
    make_member: Any, own: Any, session: Any, caplog: Any, topic: str, warned: bool
) -> None:
    member = make_member(topics={topic: "*"})
    session.know(topic)
    owned = own(member, topic=topic)
    session.answers[PullMessage] = [(2, None, b""), NetworkError("gone")]
    assert await Loop(member).loop.pull_once(owned) == 3_000
    assert any(record.levelno >= logging.WARNING for record in caplog.records) is warned
    caplog.clear()
    await Loop(member).loop.pull_once(owned)
    assert not any(record.levelno >= logging.WARNING for record in caplog.records), "outages are told once"


@pytest.mark.seed("S001-25")
async def test_an_unknown_answer_is_an_error_and_the_queue_is_pulled_again(pull: Any) -> None:
    # RocketMQ forgets the queue for 120 s here; retrying is the safe reading.
    assert await pull().once((777, None, b"")) == 3_000


@pytest.mark.seed("S003-13")
async def test_an_unknown_broker_is_looked_for_once_in_a_fresh_route(pull: Any, session: Any) -> None:
    p = pull()
    p.owned.queue = MessageQueue("elsewhere", 0, "T")
    assert await p.once() == 3_000
    assert session.refreshed == ["T"]


@pytest.mark.seed("S001-1", "S001-2", "S002-2", "S004-14", "S004-51", "S004-61")
async def test_the_loop_goes_on_until_dropped_whatever_a_pull_meets(
    pull: Any, session: Any, encode_messages: Any, settle: Any, tasks: Any, caplog: Any
) -> None:
    p = pull()
    session.answers[PullMessage] = [
        answer(0, 11, encode_messages(10)),
        RuntimeError("a mistake of ours"),
        answer(0, 12, encode_messages(11)),
        asyncio.get_running_loop().create_future(),
    ]
    task = tasks.start(p.loop.loop.run(p.owned), "pull")
    await settle()
    assert p.loop.submitted == [[10]]
    session.clock.advance(3_000)
    await settle()
    assert p.loop.submitted == [[10], [11]]
    held = session.answers[PullMessage]
    assert held == [], "the last one is held by the broker and nothing further is asked"
    task.cancel()


@pytest.mark.seed("S001-31", "S001-16")
async def test_the_time_of_a_pull_runs_from_its_request_to_its_answer(
    pull: Any, session: Any, encode_messages: Any
) -> None:
    p = pull()
    session.clock.set_wall(session.clock.wall() - 3_600_000)  # an operator's correction is no time

    async def slowly(ms: int, *offsets: int) -> Any:
        session.clock.advance(ms)
        return answer(0, offsets[-1] + 1, encode_messages(*offsets))

    await p.once(slowly(40, 10, 11))
    status = p.member.figures.status("T", session.clock.now())
    assert status.pull_rt == 40
    assert status.pull_tps > 0
    await p.once(slowly(20, 12))
    assert p.member.figures.status("T", session.clock.now()).pull_rt == 30, "of each, on average"


@pytest.mark.seed("S004-14", "S004-35", "S004-39", "S004-61")
async def test_a_queue_has_one_pull_under_way_and_waits_for_no_other_queue(
    make_member: Any, own: Any, session: Any, encode_messages: Any, settle: Any, tasks: Any
) -> None:
    member = make_member()
    silent, busy = own(member, 0, offset=10), own(member, 1, offset=10)
    held = asyncio.get_running_loop().create_future()
    answers = {0: [held], 1: [answer(0, 11 + n, encode_messages(10 + n)) for n in range(3)]}
    answers[1].append(asyncio.get_running_loop().create_future())
    session.answers[PullMessage] = lambda _, header, __: answers[header.queue_id].pop(0)
    loop = Loop(member)
    running = [tasks.start(loop.loop.run(owned), "pull") for owned in (silent, busy)]
    await settle()
    assert loop.submitted == [[10], [11], [12]], "while the other queue's pull is held"
    asked = [header.queue_id for header in session.headers(PullMessage)]
    assert (asked.count(0), asked.count(1)) == (1, 4)
    session.clock.advance(14_999)
    await settle()
    assert [header.queue_id for header in session.headers(PullMessage)].count(0) == 1, (
        "no second one meanwhile"
    )
    answers[0] = [asyncio.get_running_loop().create_future()]
    held.set_result(answer(19, 10))  # the broker's limit is over
    await settle()
    assert [header.queue_id for header in session.headers(PullMessage)].count(0) == 2, "and it is asked again"
    for task in running:
        task.cancel()


@pytest.mark.parametrize(("behind", "order"), [(0, ["handled", "asked"]), (5, ["asked", "handled"])])
async def test_what_is_all_there_is_gets_handled_before_more_is_asked_for_and_a_backlog_is_not_waited_with(
    pull: Any, session: Any, encode_messages: Any, settle: Any, tasks: Any, behind: int, order: list[str]
) -> None:
    p, seen = pull(), list[str]()
    loop = asyncio.get_running_loop()
    p.loop.loop._submit = lambda *_: loop.call_soon(seen.append, "handled")

    async def held() -> Any:
        seen.append("asked")
        await loop.create_future()

    found = PullResult(next_begin_offset=11, min_offset=0, max_offset=11 + behind)
    session.answers[PullMessage] += [(0, found, encode_messages(10)), held()]
    task = tasks.start(p.loop.loop.run(p.owned), "pull")
    await settle()
    assert seen == order
    task.cancel()


async def test_an_offset_below_nothing_is_not_committed(pull: Any) -> None:
    p = pull()
    p.member.offsets.memory.set(p.owned.queue, -1)
    await p.once(answer(19, 10))
    assert (p.request.sys_flag, p.request.commit_offset) == (2, 0)


async def test_the_broker_that_an_answer_with_messages_suggests_is_asked_next(
    pull: Any, session: Any, encode_messages: Any
) -> None:
    p = pull()
    await p.once(answer(0, 12, encode_messages(10, 11), suggest_which_broker_id=1), answer(19, 12))
    await p.once()
    assert [address for address, *_ in session.asked] == ["a:1", "a-slave:1"]


async def test_the_broker_that_was_suggested_is_pulled_from_also_when_its_address_had_to_be_looked_for(
    pull: Any, session: Any
) -> None:
    p = pull()
    p.owned.next_broker = 1
    session.routes = RouteCache()

    async def refresh(topic: str) -> None:
        session.know(topic)

    session.refresh_route = refresh
    await p.once(EMPTY)
    assert [address for address, _, _ in session.asked] == ["a-slave:1"]
