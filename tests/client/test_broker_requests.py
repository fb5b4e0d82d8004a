# SPDX-License-Identifier: Apache-2.0
"""What brokers ask of a client: each request reaches the consumer or producer it is for, and is answered."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from aerobee.client.consume.membership import OwnedQueue
from aerobee.client.consume.pull_consumer import PullConsumer
from aerobee.client.consume.push_consumer import PushConsumer
from aerobee.client.consume.simple_consumer import SimpleConsumer
from aerobee.client.session import broker_requests
from aerobee.errors import RequestCodeNotSupported, SystemFailure
from aerobee.protocol import bodies, message
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.command import Command, header_fields
from aerobee.protocol.headers.consume import ConsumeDirectly, NotifyIdsChanged
from aerobee.protocol.headers.groups import RunningInfo
from aerobee.protocol.headers.offsets import ClientConsumerStatus, ResetClientOffset, UpdateConsumerOffset
from aerobee.protocol.headers.transaction import CheckTransaction
from aerobee.protocol.message import Record

Q0, Q1, OTHER = MessageQueue("a", 0, "T"), MessageQueue("a", 1, "T"), MessageQueue("a", 0, "U")
CONNECTION = SimpleNamespace(remote_text="10.0.0.7:10911", attributes={"address": "10.0.0.7:10911"})


class Asked:
    """A consumer and producer that notes what it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def members_changed(self) -> None:
        self.calls.append(("members",))

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        self.calls.append(("reset", topic, offsets))

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {Q0: 7} if topic == "T" else {}

    def running_info(self) -> bodies.ConsumerRunningInfo:
        return bodies.ConsumerRunningInfo(properties={"who": "me"})

    async def consume_directly(self, record: Record, broker_name: str) -> bodies.ConsumeDirectlyResult:
        self.calls.append(("consume", record.body, broker_name))
        return bodies.ConsumeDirectlyResult(consume_result="CR_SUCCESS")

    async def check_transaction(self, address: str, header: CheckTransaction, record: Record) -> None:
        self.calls.append(("check", address, header.transaction_id, record.body))


async def ask(session: Any, header: Any, body: bytes = b"") -> Any:
    answer = broker_requests.handle(
        session, CONNECTION, Command(header.code, ext=header_fields(header), body=body)  # type: ignore[arg-type]
    )  # fmt: skip
    return await answer if inspect.iscoroutine(answer) else answer


@pytest.fixture
def asked(session: Any) -> Asked:
    session.consumers["g"] = session.producers["p"] = found = Asked()
    return found


@pytest.mark.seed("S001-5")
async def test_news_of_members_and_offsets_reach_the_group_they_are_for(session: Any, asked: Asked) -> None:
    table = bodies.encode(bodies.ResetOffsetBody(offset_table={Q0: 3}))
    for group in ("g", "unknown"):
        assert await ask(session, NotifyIdsChanged(consumer_group=group)) is None
        reset = ResetClientOffset(topic="T", group=group, timestamp=0, is_force=True)
        assert await ask(session, reset, table) is None
    assert asked.calls == [("members",), ("reset", "T", {Q0: 3})]


async def test_an_operator_sees_progress_and_state_of_a_group_that_is_here(
    session: Any, asked: Asked
) -> None:
    for topic, expected in (("T", {Q0: 7}), ("U", {})):
        answer = await ask(session, ClientConsumerStatus(topic=topic, group="g"))
        assert bodies.decode(answer.body, bodies.QueueOffsets).message_queue_table == expected
    answer = await ask(session, RunningInfo(consumer_group="g", client_id="me"))
    assert bodies.decode(answer.body, bodies.ConsumerRunningInfo).properties == {"who": "me"}
    with pytest.raises(SystemFailure, match="group 'other' does not exist in this client"):
        await ask(session, ClientConsumerStatus(topic="T", group="other"))


async def test_a_message_is_consumed_at_an_operators_word(session: Any, asked: Asked) -> None:
    header = ConsumeDirectly(consumer_group="g", client_id="me", msg_id="ID", broker_name="a")
    answer = await ask(session, header, message.encode(Record("T", b"body")))
    assert bodies.decode(answer.body, bodies.ConsumeDirectlyResult).consume_result == "CR_SUCCESS"
    assert asked.calls == [("consume", b"body", "a")]


async def test_a_transaction_is_checked_by_the_group_that_sent_it(
    session: Any, asked: Asked, caplog: Any
) -> None:
    header = CheckTransaction(tran_state_table_offset=1, commit_log_offset=2, transaction_id="TX")
    for group in ("p", "gone"):
        record = Record("T", b"half", f"PGROUP\x01{group}\x02")
        assert await ask(session, header, message.encode(record)) is None
    await ask(session, header, message.encode(Record("T", b"half")))
    assert asked.calls == [("check", "10.0.0.7:10911", "TX", b"half")]
    assert "group=gone: no such producer here" in caplog.text


async def test_what_no_client_understands_is_refused(session: Any) -> None:
    with pytest.raises(RequestCodeNotSupported, match="request code 10 is not supported by this client"):
        broker_requests.handle(session, CONNECTION, Command(10))  # type: ignore[arg-type]


# -- what each kind of consumer makes of it ---------------------------------------------------------------------


def on(consumer: Any, session: Any) -> Any:
    """The consumer on the fake session."""
    consumer.session = consumer._member.session = consumer._member.offsets._session = session
    return consumer


async def test_a_reset_stops_the_queues_waits_for_an_ordered_handler_and_begins_again(
    session: Any, settle: Any
) -> None:
    consumer = on(
        PushConsumer("127.0.0.1:1", group="g", topics={"T": "*"}, handler=print, clock=session.clock), session
    )
    for queue in (Q0, Q1, OTHER):
        consumer._member.pulled[queue] = OwnedQueue(queue, 50, session.clock.now())
        consumer._member.offsets.memory.set(queue, 50)
    kept = consumer._member.pulled[Q1]
    moved = consumer._member.pulled[Q0]
    moved.handling = asyncio.get_running_loop().create_future()
    task = consumer._tasks.start(consumer.reset_offsets("T", {Q0: 3, OTHER: 4}), "reset")
    await settle()
    assert consumer._member.suspended
    assert (moved.inbox.dropped, kept.inbox.dropped) == (True, False)
    assert session.sent == [], "one handler of a queue at a time"
    moved.handling.set_result(None)
    await settle()
    assert task.done()
    ((_, header, _),) = session.sent
    assert type(header) is UpdateConsumerOffset
    assert (header.topic, header.queue_id, header.commit_offset) == ("T", 0, 3)
    assert not consumer._member.suspended
    assert set(consumer._member.pulled) == {Q1, OTHER}, "the other is taken anew, from the offset just stored"
    assert consumer.status("T") == {Q0: 3, Q1: 50}
    assert consumer.status("") == {Q0: 3, Q1: 50, OTHER: 50}
    await consumer._tasks.cancel()


async def test_a_pause_lets_go_of_pulls_that_are_held_and_a_resume_looks_anew(
    session: Any, settle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = on(
        PushConsumer("127.0.0.1:1", group="g", topics={"T": "*"}, handler=print, clock=session.clock), session
    )
    held, dropped, idle = (OwnedQueue(queue, 5, session.clock.now()) for queue in (Q0, Q1, OTHER))
    dropped.inbox.dropped = True
    for owned in (held, dropped):
        owned.fetching = asyncio.ensure_future(asyncio.Event().wait())  # type: ignore[arg-type]
    consumer._member.pulled.update({owned.queue: owned for owned in (held, dropped, idle)})
    first, left, wakes = held.fetching, dropped.fetching, []
    monkeypatch.setattr(consumer._rebalancer, "wake", lambda: wakes.append(1))
    consumer.pause()
    await settle()
    assert first.cancelled()
    assert not held.fetching.done(), "it waits until the consumer goes on"
    assert (left.cancelled(), idle.fetching) == (False, None)
    assert (consumer._member.suspended, wakes) == (True, [])
    consumer.resume()
    assert (consumer._member.suspended, wakes) == (False, [1])
    left.cancel()
    await consumer._tasks.cancel()


async def test_a_pull_consumer_is_reset_at_once_and_has_no_handler(session: Any) -> None:
    consumer = on(PullConsumer("127.0.0.1:1", group="g", topics={"T": "*"}, clock=session.clock), session)
    owned = {queue: OwnedQueue(queue, 50, session.clock.now()) for queue in (Q0, Q1, OTHER)}
    consumer._member.pulled.update(owned)
    await consumer.reset_offsets("T", {Q0: 3, OTHER: 4})
    assert [owned[queue].next_offset for queue in (Q0, Q1, OTHER)] == [3, 50, 50]
    assert consumer.status("T") == consumer.status("") == {Q0: 3}
    assert consumer.status("U") == {}
    said = consumer.running_info().properties
    assert (said["PROP_CONSUME_TYPE"], said["PROP_CONSUMEORDERLY"]) == ("CONSUME_ACTIVELY", "false")
    with pytest.raises(SystemFailure, match="group 'g' pulls its messages; there is no handler to call"):
        await consumer.consume_directly(Record("T", b"x"), "a")
    await consumer._tasks.cancel()


async def test_a_simple_consumer_keeps_no_progress_and_has_no_handler(session: Any) -> None:
    consumer = SimpleConsumer("127.0.0.1:1", group="g", topics={"T": "A"}, start="first")
    assert consumer.status("T") == {}
    info = consumer.running_info()
    assert info.properties == {"PROP_CONSUME_TYPE": "CONSUME_POP", "PROP_NAMESERVER_ADDR": "127.0.0.1:1"}
    assert [each.topic for each in info.subscription_set] == ["T"]
    told = consumer.heartbeat_data()
    assert (told.consume_type, told.group_name) == ("CONSUME_POP", "g")
    assert told.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    with pytest.raises(SystemFailure):
        await consumer.consume_directly(Record("T", b"x"), "a")
