# SPDX-License-Identifier: Apache-2.0
"""One send by its parts: which connection it takes, when it need not wait, what its answer means."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from aerobee.client.message import Message, SendStatus
from aerobee.client.options import Options
from aerobee.client.produce.merging import MOST_MEMBERS, SAME_TIME_MS, results_of
from aerobee.client.produce.producer import Producer
from aerobee.client.produce.sender import BATCH, SINGLE, Sender, result_of
from aerobee.client.produce.tries import NotAsWished
from aerobee.errors import (
    NetworkError,
    NoPermission,
    NoRoute,
    RequestTimeout,
    SystemBusy,
    TopicNotFound,
    TopicNotWritable,
)
from aerobee.protocol import accounts, batch
from aerobee.protocol import command as wire
from aerobee.protocol.bodies import BrokerData, MessageQueue, QueueData, TopicRoute
from aerobee.protocol.codes import Perm
from aerobee.protocol.command import Command, header_fields
from aerobee.protocol.fast_frames import Sending
from aerobee.protocol.headers.produce import SendMessageV2
from aerobee.protocol.headers.produce import SendResult as SendResultHeader

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = MessageQueue("a", 2, "T")


class Line:
    """A connection: what is written to it is kept, and answered by hand."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_open = True
        self.written: list[bytes] = []
        self.waiting: list[Any] = []

    @property
    def awaits_nothing(self) -> bool:
        return not any(not each.done() for each in self.waiting)

    def rendered(self, render: Callable[[int], bytes], waiting: Any) -> bytes:
        if not self.is_open:
            raise NetworkError("lost")
        self.waiting.append(waiting)
        return render(len(self.waiting))

    def write(self, frame: bytes) -> None:
        self.written.append(frame)

    write_at_once = write

    def ask_at_once(
        self, render: Callable[[int, int, Any], bytes], queue_id: int, what: Any, waiting: Any
    ) -> None:
        self.write(self.rendered(lambda opaque: render(opaque, queue_id, what), waiting))

    def send(self, command: Command) -> None:
        self.written.append(wire.encode(command))

    def frames(self) -> list[Command]:
        found, data = [], b"".join(self.written)
        while data:
            size = int.from_bytes(data[:4], "big")
            found.append(wire.decode(memoryview(data)[4 : 4 + size]))
            data = data[4 + size :]
        return found


@pytest.fixture
def lines(session: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Line]:
    """Open connections by address; a test may take one away."""
    found = {address: Line(address) for address in ("a:1", "b:1")}

    async def connection(address: str) -> Line:
        line = found.get(address)
        if line is None or not line.is_open:
            raise NetworkError(f"cannot connect to {address}")
        return line

    monkeypatch.setattr(session, "open_connection", found.get)
    monkeypatch.setattr(session, "connection", connection, raising=False)
    return found


@pytest.fixture
def sender(session: Any, lines: dict[str, Line]) -> Sender:
    session.know("T", queues=4, brokers=("a", "b"))
    return Sender(session, "p")


def sending(session: Any, body: bytes = b"x", *, may_merge: bool = False, topic: str = "T") -> Sending:
    made = Sending(topic, body, "UNIQ_KEY\x01ID\x02", "ID", session.clock.wall())
    made.may_merge = may_merge
    return made


def stored(
    queue_id: int = 2, offset: int = 7, code: int = 0, msg_id: str = "OFFSET-ID", **more: Any
) -> Command:
    header = SendResultHeader(msg_id=msg_id, queue_id=queue_id, queue_offset=offset, **more)
    return Command(code, ext=header_fields(header))


# -- without waiting -------------------------------------------------------------------------------------------


async def test_a_first_try_leaves_at_once_when_nobody_is_waited_for(
    session: Any, sender: Sender, lines: dict[str, Line]
) -> None:
    started = sender.start_now(sending(session), QUEUE)
    assert started is not None
    call, chosen = started
    assert (chosen, call.done()) == (QUEUE, False)
    (frame,) = lines["a:1"].frames()
    header = frame.fields(SendMessageV2)
    assert (frame.code, header.queue_id, header.producer_group, header.topic) == (SINGLE, 2, "p", "T")
    assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
    lines["a:1"].waiting[0].set_result(stored())
    result = sender.finish(await call, sending(session), QUEUE)
    assert (result.queue, result.queue_offset, result.offset_id) == (QUEUE, 7, "OFFSET-ID")


async def test_a_connection_is_used_as_long_as_it_is_open_and_the_route_the_same(
    session: Any, sender: Sender, lines: dict[str, Line]
) -> None:
    first = lines["a:1"]
    assert sender.start_now(sending(session), QUEUE) is not None
    first.is_open = False
    second = lines["a:1"] = Line("a:1")
    assert sender.start_now(sending(session), QUEUE) is not None
    assert (len(first.frames()), len(second.frames())) == (1, 1)
    moved = lines["c:1"] = Line("c:1")
    session.routes.put(
        "T",
        TopicRoute(
            broker_datas=[BrokerData(broker_name="a", cluster="c", broker_addrs={0: "c:1"})],
            queue_datas=[QueueData(broker_name="a", perm=6, read_queue_nums=4, write_queue_nums=4)],
        ),
    )
    assert sender.start_now(sending(session), QUEUE) is not None
    assert (len(second.frames()), len(moved.frames())) == (1, 1), "the broker lives elsewhere now"


async def test_what_has_to_be_waited_for_is_not_begun(
    session: Any, sender: Sender, lines: dict[str, Line]
) -> None:
    assert sender.start_now(sending(session, topic="unknown"), None) is None
    session.know("read-only", queues=0)
    assert sender.start_now(sending(session, topic="read-only"), None) is None
    assert sender.start_now(sending(session), MessageQueue("nobody", 0, "T")) is None
    del lines["a:1"]
    assert sender.start_now(sending(session), QUEUE) is None
    sender._lines.lead(QUEUE)
    lines["a:1"] = Line("a:1")
    assert sender.start_now(sending(session), QUEUE) is None, "others of its queue wait already"
    assert sender.way(sending(session), QUEUE) is None
    assert sender.start_now(sending(session), MessageQueue("a", 1, "T")) is not None


async def test_queues_take_turns_and_each_topic_has_its_own(
    session: Any, sender: Sender, lines: dict[str, Line]
) -> None:
    session.know("U", queues=4, brokers=("a", "b"))
    for topic in ("T", "U"):
        chosen = []
        for _ in range(16):
            started = sender.start_now(sending(session, topic=topic), None)
            assert started is not None
            chosen.append(started[1])
        assert sorted(chosen) == sorted(2 * list(session.routes.get(topic).writable))
        assert len(set(chosen[:8])) == 8


async def test_sends_of_a_busy_connection_go_together_by_queue_and_in_order(
    session: Any, sender: Sender, lines: dict[str, Line], settle: Any
) -> None:
    only = MessageQueue("a", 0, "S")
    session.know("S", queues=1, brokers=("a",))
    line = lines["a:1"]
    first = sender.start_now(sending(session, b"0", may_merge=True, topic="S"), None)
    assert first is not None
    assert len(line.frames()) == 1, "nobody was waited for"
    calls = []
    for body in (b"1", b"2"):
        started = sender.start_now(sending(session, body, may_merge=True, topic="S"), None)
        assert started is not None
        calls.append(started[0])
    started = sender.start_now(sending(session, b"3", may_merge=True, topic="S"), only)
    assert started is not None
    started = sender.start_now(sending(session, b"4", may_merge=True, topic="S"), None)
    assert started is not None
    assert len(line.frames()) == 1, "at the end of the turn"
    await settle()
    codes = [frame.code for frame in line.frames()]
    assert codes == [SINGLE, BATCH, SINGLE, SINGLE]
    assert [item.body for item in batch.decode(line.frames()[1].body)] == [b"1", b"2"]
    assert [bytes(frame.body) for frame in line.frames()[2:]] == [b"3", b"4"]
    assert len(line.written) == 2, "one piece a turn"
    line.waiting[1].set_result(stored(0, 40, msg_id="P1,P2"))
    results = [await call for call in calls]
    assert [(each.queue_offset, each.offset_id) for each in results] == [(40, "P1"), (41, "P2")]  # type: ignore[union-attr]


@pytest.mark.parametrize(("later_ms", "together"), [(SAME_TIME_MS, True), (SAME_TIME_MS + 1, False)])
async def test_only_sends_of_about_the_same_time_share_a_batch(
    session: Any, sender: Sender, lines: dict[str, Line], settle: Any, later_ms: int, together: bool
) -> None:
    """A batch has one time of birth for all of its messages."""
    session.know("S", queues=1, brokers=("a",))
    sender.start_now(sending(session, topic="S"), None)
    sender.start_now(sending(session, b"1", may_merge=True, topic="S"), None)
    session.clock.advance(later_ms)
    sender.start_now(sending(session, b"2", may_merge=True, topic="S"), None)
    await settle()
    assert (BATCH in [frame.code for frame in lines["a:1"].frames()]) is together


async def test_a_batch_has_a_bound_of_members(
    session: Any, sender: Sender, lines: dict[str, Line], settle: Any
) -> None:
    session.know("S", queues=1, brokers=("a",))
    sender.start_now(sending(session, topic="S"), None)
    for _ in range(MOST_MEMBERS + 1):
        sender.start_now(sending(session, may_merge=True, topic="S"), None)
    await settle()
    frames = lines["a:1"].frames()[1:]
    assert [frame.code for frame in frames] == [BATCH, SINGLE]
    assert len(batch.decode(frames[0].body)) == MOST_MEMBERS


async def test_one_who_waits_too_long_is_told_and_the_clock_starts_with_the_message(
    session: Any, sender: Sender, lines: dict[str, Line], settle: Any
) -> None:
    session.clock.set_wall(session.clock.now() + 5_000_000)  # whose wall clock is another
    old = sending(session)
    session.clock.advance(1_000)
    started = sender.start_now(old, QUEUE)
    assert started is not None
    session.clock.advance(session.options.send_timeout_ms - 1_000 - 1)
    assert not started[0].done()
    session.clock.advance(101)
    with pytest.raises(RequestTimeout):
        started[0].result()
    sender.close()


# -- what an answer means --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, SendStatus.OK),
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_an_answer_says_where_it_is_and_how_safe(session: Any, code: int, status: SendStatus) -> None:
    answer = stored(3, 9, code, transaction_id="TX", recall_handle="H")
    result = result_of(answer, sending(session), QUEUE)
    assert (result.status, result.message_id, result.offset_id) == (status, "ID", "OFFSET-ID")
    assert (result.queue, result.queue_offset) == (MessageQueue("a", 3, "T"), 9)
    assert (result.transaction_id, result.recall_handle) == ("TX", "H")
    each = results_of(stored(3, 9, code, "P0,P1"), [sending(session), sending(session)], QUEUE)
    assert [(one.status, one.queue_offset, one.offset_id) for one in each] == [
        (status, 9, "P0"), (status, 10, "P1")
    ]  # fmt: skip
    assert {one.queue for one in each} == {MessageQueue("a", 3, "T")}
    assert {one.transaction_id for one in each} == {"ID"}
    (kept,) = results_of(stored(2, 9, code, "P0,P1,P2"), [sending(session)], QUEUE)
    assert (kept.queue, kept.offset_id) == (QUEUE, "P0,P1,P2"), "a batch topic keeps them as one record"


def test_a_refusal_is_an_error(session: Any) -> None:
    with pytest.raises(SystemBusy):
        result_of(Command(2, remark="busy"), sending(session), QUEUE)


async def test_less_than_ok_is_tried_again_only_where_that_is_wished(
    session: Any, lines: dict[str, Line], settle: Any
) -> None:
    session.know("T", queues=4, brokers=("a", "b"))
    plain = Sender(session, "p")
    assert plain.finish(stored(code=10), sending(session), QUEUE).status is SendStatus.FLUSH_DISK_TIMEOUT
    session.options = Options(retry_unless_ok=True, send_retries=1)
    strict = Sender(session, "p")
    asked = asyncio.ensure_future(strict.send(sending(session), SINGLE, None))
    await settle()
    seen = [each for line in lines.values() for each in line.waiting]
    seen[0].set_result(stored(code=10))
    await settle()
    again = [each for line in lines.values() for each in line.waiting if not each.done()]
    assert len(again) == 1
    again[0].set_result(stored(code=12))
    result = await asked
    assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT, "it is stored, if not as wished"
    assert [len(line.waiting) for line in lines.values()] == [1, 1], "each broker was tried"


# -- queues ----------------------------------------------------------------------------------------------------


@pytest.mark.seed("S004-44")
async def test_an_unknown_topic_has_the_queues_of_the_template_and_no_more_than_a_new_one_gets(
    session: Any, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopted: dict[str, TopicRoute] = {}

    def adopt(topic: str, route: TopicRoute) -> Any:
        adopted[topic] = route
        session.routes.put(topic, route)
        return session.routes.get(topic)

    monkeypatch.setattr(session, "adopt_route", adopt, raising=False)
    with pytest.raises(NoRoute, match="topic 'new' is unknown and the brokers create no topics"):
        await sender.queues("new")
    session.know("TBW102", queues=8, brokers=("a",))
    assert [queue.queue_id for queue in await sender.queues("new")] == [0, 1, 2, 3]
    assert list(adopted) == ["new"]
    sender._options = msgspec.structs.replace(sender._options, new_topic_queues=6)
    assert len(await sender.queues("newer")) == 6, "as the options say"
    session.know("full", queues=0)
    with pytest.raises(NoRoute, match="topic 'full' has no queue that may be written"):
        await sender.queues("full")
    assert session.refreshed[-1] == "full", "a fresh route was looked at first"


async def test_a_topic_that_may_only_be_read_is_told_at_once_and_with_what_opens_it(
    session: Any, sender: Sender
) -> None:
    session.know("closed", perm=Perm.READ)
    began = session.clock.now()
    with pytest.raises(TopicNotWritable) as told:
        await sender.send(sending(session, topic="closed"), SINGLE, None)
    assert session.clock.now() == began and session.refreshed == ["closed"], "one fresh look at the route"
    assert "its permission is r: `aerobee topics update closed --perm rw` opens it" in str(told.value)
    assert "None" not in str(told.value) and "send_timeout_ms" not in str(told.value)


async def test_a_topic_whose_master_is_away_is_not_called_closed(session: Any, sender: Sender) -> None:
    session.know("orphan", masters=())
    with pytest.raises(NoRoute, match="topic 'orphan' has no broker with a master now") as told:
        await sender.queues("orphan")
    assert told.value.retryable, "it is waited for"


async def test_a_blocking_caller_is_shown_the_way_of_a_first_try(
    session: Any, sender: Sender, lines: dict[str, Line]
) -> None:
    for _ in range(2):
        shown = sender.way(sending(session), QUEUE)
        assert shown is not None
        chosen, address, render = shown
        assert (chosen, address) == (QUEUE, "a:1")
        frame = wire.decode(memoryview(render(9))[4:])
        assert (frame.opaque, frame.fields(SendMessageV2).queue_id) == (9, 2)
        sender.start_now(sending(session), QUEUE)  # now there is a warm connection too
    assert sender.way(sending(session, topic="unknown"), None) is None
    assert sender.way(sending(session), MessageQueue("nobody", 0, "T")) is None
    assert len({sender.way(sending(session), None)[0] for _ in range(8)}) == 8  # type: ignore[index]


async def test_a_send_without_an_answer_is_written_where_its_broker_is(
    session: Any, sender: Sender, lines: dict[str, Line]
) -> None:
    await sender.send_oneway(sending(session), QUEUE)
    (frame,) = lines["a:1"].frames()
    assert (frame.opaque, frame.fields(SendMessageV2).queue_id) == (0, 2)
    assert lines["a:1"].waiting == []
    with pytest.raises(NoRoute, match="broker 'nobody' has no master now"):
        await sender.send_oneway(sending(session), MessageQueue("nobody", 0, "T"))


@pytest.mark.parametrize("queue", [None, QUEUE], ids=["any queue", "this queue"])
async def test_a_first_try_that_failed_goes_to_another_broker_or_waits_for_the_only_one(
    session: Any, sender: Sender, lines: dict[str, Line], settle: Any, queue: MessageQueue | None
) -> None:
    asked = asyncio.ensure_future(sender.send_elsewhere(NetworkError("lost"), sending(session), queue, QUEUE))
    await settle()
    if queue is None:
        assert [len(line.waiting) for line in lines.values()] == [0, 1], "at once, and elsewhere"
        lines["b:1"].waiting[0].set_result(stored())
    else:
        assert [len(line.waiting) for line in lines.values()] == [0, 0], "no other has the queue"
        session.clock.advance(20)
        await settle()
        assert [len(line.waiting) for line in lines.values()] == [1, 0]
        lines["a:1"].waiting[0].set_result(stored())
    assert (await asked).queue_offset == 7


@pytest.mark.parametrize("failed", ["a", "b"])
async def test_whichever_broker_failed_the_next_try_goes_to_the_other(
    session: Any, sender: Sender, lines: dict[str, Line], settle: Any, failed: str
) -> None:
    """Also where it would have been its turn."""
    chosen = MessageQueue(failed, 2, "T")
    asked = asyncio.ensure_future(sender.send_elsewhere(NetworkError("lost"), sending(session), None, chosen))
    await settle()
    assert {address: len(line.waiting) for address, line in lines.items()} == {
        f"{name}:1": int(name != failed) for name in ("a", "b")
    }
    asked.cancel()


async def test_who_waits_on_a_lost_connection_goes_before_the_one_that_finds_it_lost(
    session: Any, sender: Sender, lines: dict[str, Line], settle: Any
) -> None:
    """Sends to one queue keep their order: the earlier one has not heard yet that it must be tried again."""
    lost = lines["a:1"]

    def tell_if_lost() -> bool:
        waiting = [each for each in lost.waiting if not each.done()]
        for each in waiting:
            each.set_exception(NetworkError("lost"))
        return bool(waiting)

    lost.tell_if_lost = tell_if_lost  # type: ignore[attr-defined]
    producer = Producer("127.0.0.1:1", group="p", clock=session.clock)
    producer._sender, producer._open = sender, True
    earlier = asyncio.ensure_future(producer.send(Message("T", b"earlier"), queue=QUEUE))
    await settle()
    assert [frame.body for frame in lost.frames()] == [b"earlier"]
    lost.is_open = False
    del lines["a:1"]
    later = asyncio.ensure_future(producer.send(Message("T", b"later"), queue=QUEUE))
    await settle()
    again = lines["a:1"] = Line("a:1")
    bodies: list[bytes] = []
    for _ in range(2):
        session.clock.advance(20)
        await settle()
        bodies = [frame.body for frame in again.frames()]
        again.waiting[-1].set_result(stored(offset=len(bodies)))
    assert bodies == [b"earlier", b"later"]
    assert [(await each).queue_offset for each in (earlier, later)] == [1, 2]


async def test_without_retries_an_error_is_told_at_once(
    session: Any, lines: dict[str, Line], settle: Any
) -> None:
    session.know("T", queues=4, brokers=("a", "b"))
    session.options = Options(send_retries=0)
    one = Sender(session, "p")
    both = [
        one.send_elsewhere(NetworkError("lost"), sending(session), queue, QUEUE)
        for queue in (None, QUEUE, QUEUE)
    ]
    told = await asyncio.gather(*both, return_exceptions=True)
    assert [str(error) for error in told] == ["lost"] * 3, "and none stands in line for another try"
    assert [len(line.waiting) for line in lines.values()] == [0, 0]


@pytest.mark.parametrize("ends", ["answered", "failed"])
async def test_a_send_that_is_over_leaves_no_deadline_behind(
    session: Any, sender: Sender, lines: dict[str, Line], settle: Any, ends: str
) -> None:
    asked = asyncio.ensure_future(sender.send(sending(session), SINGLE, QUEUE))
    await settle()
    (call,) = lines["a:1"].waiting
    assert [when - session.clock.now() for when, _, _ in session.clock._timers] == [3_000]
    call.set_result(stored() if ends == "answered" else Command(13, remark="no"))
    await asyncio.wait([asked])
    assert (asked.exception() is None) is (ends == "answered")
    assert all(timer.cancelled for *_, timer in session.clock._timers)


async def test_a_send_that_is_not_answered_by_its_deadline_is_told_then(
    session: Any, sender: Sender, lines: dict[str, Line], settle: Any
) -> None:
    made = sending(session)
    session.clock.advance(1_000)
    asked = asyncio.ensure_future(sender.send(made, SINGLE, QUEUE))
    await settle()
    session.clock.advance(1_999)
    await settle()
    assert not asked.done(), "three seconds from its birth"
    session.clock.advance(1)
    await settle()
    assert isinstance(asked.exception(), RequestTimeout)


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (NetworkError("gone"), ["T"]),
        (TopicNotFound("no such topic"), ["T"]),
        (SystemBusy("busy"), []),
    ],
)
async def test_a_route_that_may_be_old_is_asked_for_anew_before_the_next_try(
    session: Any, sender: Sender, error: Any, asked: list[str]
) -> None:
    await sender._after_failure("T", "a", error)
    assert session.refreshed == asked
    session.routes.forget("T")
    await sender._after_failure("T", "a", error)  # the route we have is the best there is


@pytest.mark.parametrize("options", [Options(avoid_slow_brokers=True)])
async def test_a_broker_that_failed_is_avoided_where_that_is_wished(
    session: Any, sender: Sender, lines: dict[str, Line]
) -> None:
    await sender._after_failure("T", "a", SystemBusy("busy"))
    queues = await sender.queues("T")
    assert {sender._choose(queues, "T", None).broker_name for _ in range(20)} == {"b"}
    await sender._after_failure("T", None, SystemBusy("busy"))
    assert {sender._choose(queues, "T", None).broker_name for _ in range(20)} == {"b"}


@pytest.mark.parametrize("ends", ["stored", "refused"])
async def test_a_line_is_over_when_its_head_is_through_or_gives_up(
    session: Any, sender: Sender, lines: dict[str, Line], settle: Any, ends: str
) -> None:
    head = asyncio.ensure_future(sender.send_elsewhere(NetworkError("lost"), sending(session), QUEUE, QUEUE))
    await settle()
    assert QUEUE in sender._lines
    assert sender.start_now(sending(session), QUEUE) is None, "nobody overtakes it"
    session.clock.advance(20)
    await settle()
    lines["a:1"].waiting[0].set_result(stored() if ends == "stored" else Command(13, remark="no"))
    await asyncio.wait([head])
    await settle()
    assert QUEUE not in sender._lines
    assert sender.start_now(sending(session), QUEUE) is not None
    assert (head.exception() is None) is (ends == "stored")


@pytest.mark.parametrize("options", [Options(avoid_slow_brokers=True)])
@pytest.mark.parametrize(("took_ms", "available"), [(549, True), (550, False)])
async def test_a_slow_broker_is_avoided_also_after_the_machines_clock_was_set(
    session: Any, sender: Sender, took_ms: int, available: bool
) -> None:
    session.clock.set_wall(session.clock.wall() + 3_600_000)
    made = sending(session)
    session.clock.advance(took_ms)
    assert sender._faults is not None
    sender._faults.failed("a", 0)  # known, so that it is noted either way
    sender.finish(stored(), made, QUEUE)
    assert sender._faults.available("a", session.clock.now()) is available


async def test_a_deadline_is_counted_from_the_birth_of_a_message_whatever_the_clock_says(
    session: Any, sender: Sender
) -> None:
    session.clock.set_wall(session.clock.wall() - 3_600_000)
    assert sender._deadline(sending(session)) == session.clock.now() + 3_000


async def test_who_asks_patiently_has_the_route_asked_for_anew_and_pauses_between(
    session: Any, sender: Sender, settle: Any
) -> None:
    answers: list[Any] = [NetworkError("gone"), NetworkError("gone"), "found"]

    async def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    asking = asyncio.ensure_future(sender.patiently("T", ask))
    for left in (2, 1):
        await settle()
        assert (len(answers), asking.done()) == (left, False)
        session.clock.advance(200)
    await settle()
    assert (asking.result(), session.refreshed) == ("found", ["T", "T"])


async def test_who_asks_patiently_is_told_at_once_what_waiting_does_not_mend(
    session: Any, sender: Sender
) -> None:
    async def ask() -> str:
        raise NoPermission("not yours")

    with pytest.raises(NoPermission, match="not yours"):
        await sender.patiently("T", ask)
    assert session.refreshed == []


@pytest.mark.parametrize("options", [Options(retry_unless_ok=True)])
@pytest.mark.parametrize(("code", "good"), [(0, True), (10, False), (11, False), (12, False)])
async def test_what_is_safe_is_good_also_for_one_who_wishes_it_so(
    session: Any, sender: Sender, code: int, good: bool
) -> None:
    if good:
        assert sender._good(stored(code=code), sending(session), QUEUE).status is SendStatus.OK
    else:
        with pytest.raises(NotAsWished, match="stored with status"):
            sender._good(stored(code=code), sending(session), QUEUE)


@pytest.mark.parametrize("options", [Options(avoid_slow_brokers=True)])
@pytest.mark.parametrize(("took_ms", "available"), [(549, True), (550, False)])
async def test_a_broker_is_avoided_for_the_time_a_send_took_and_not_for_how_long_the_machine_runs(
    session: Any, sender: Sender, lines: dict[str, Line], settle: Any, took_ms: int, available: bool
) -> None:
    session.clock.advance(3_600_000)
    assert sender._faults is not None
    sender._faults.failed("a", 0)  # known, so that it is noted either way
    asked = asyncio.ensure_future(sender.send(sending(session), SINGLE, QUEUE))
    await settle()
    session.clock.advance(took_ms)
    lines["a:1"].waiting[0].set_result(stored())
    await asked
    assert sender._faults.available("a", session.clock.now()) is available


@pytest.mark.parametrize("options", [Options(access_key="me", secret_key="secret")])
async def test_a_send_without_an_answer_is_signed_too(
    session: Any, sender: Sender, lines: dict[str, Line]
) -> None:
    """Nobody would tell that it was refused."""
    await sender.send_oneway(sending(session), QUEUE)
    (frame,) = lines["a:1"].frames()
    assert accounts.is_signed("secret", frame.ext_dict(), frame.body, frame.version)
