# SPDX-License-Identifier: Apache-2.0
"""A transaction from its half message to its end: what is sent, what is told, and what the caller sees."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from aerobee import Server
from aerobee.client.message import Message, SendResult, SendStatus
from aerobee.client.options import Options
from aerobee.client.produce.transaction_producer import TransactionProducer, TransactionState
from aerobee.errors import NetworkError
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import RequestCode, SysFlag
from aerobee.protocol.compression import decompress
from aerobee.protocol.headers.transaction import CheckTransaction, EndTransaction
from aerobee.protocol.message import Record, offset_message_id
from aerobee.testing import eventually

if TYPE_CHECKING:
    from aerobee.client.message import ReceivedMessage
    from aerobee.testing import TestServer

OFFSET_ID = offset_message_id(b"\x7f\0\0\x01\0\0\x2a\x9f", 4_096)
COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN


class Sending:
    """Stands in for the sender: every send is stored with `status`."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.status = SendStatus.OK
        self.sent: list[tuple[Any, int, Any]] = []

    async def queues(self, topic: str) -> Any:
        return (await self._session.route(topic)).writable

    async def send(self, sending: Any, code: int, queue: Any) -> SendResult:
        self.sent.append((sending, code, queue))
        self._session.story.append("send")
        place = queue or MessageQueue("a", 1, sending.topic)
        return SendResult(self.status, sending.message_id, OFFSET_ID, place, 12, "TX")


@pytest.fixture
def producer(session: Any) -> TransactionProducer:
    made = TransactionProducer(
        "127.0.0.1:1", group="shop", check=lambda m: COMMIT, options=Options(), clock=session.clock
    )
    made.session = session
    made._sender = Sending(session)  # type: ignore[assignment]
    made._open = True
    return made


def ended(session: Any) -> list[TransactionState]:
    return [
        TransactionState(header.commit_or_rollback)
        for _, header, _ in session.sent
        if isinstance(header, EndTransaction)
    ]


async def later(message: Message, argument: Any) -> TransactionState:
    await asyncio.sleep(0)
    return COMMIT


@pytest.mark.parametrize(
    ("execute", "state"),
    [
        (lambda m, a: COMMIT, COMMIT),
        (lambda m, a: ROLLBACK, ROLLBACK),
        (lambda m, a: UNKNOWN, UNKNOWN),
        (lambda m, a: None, UNKNOWN),
        (later, COMMIT),
    ],
)
async def test_the_broker_is_told_what_the_local_work_came_to(
    producer: Any, session: Any, execute: Any, state: TransactionState
) -> None:
    result = await producer.send_in_transaction(Message("T", b"x", keys=["k"]), execute)
    assert (result.state, ended(session)) == (state, [state])
    assert (result.status, result.offset_id, result.queue_offset) == (SendStatus.OK, OFFSET_ID, 12)
    assert (result.queue, result.transaction_id) == (MessageQueue("a", 1, "T"), "TX")
    ((sending, code, queue),) = producer._sender.sent
    assert (code, queue, sending.sys_flag & 0xC) == (RequestCode.SEND_MESSAGE_V2, None, 0x4)
    text = props.parse(sending.properties_text)
    assert (text["TRAN_MSG"], text["PGROUP"], text["KEYS"]) == ("true", "shop", "k")
    assert result.message_id == text["UNIQ_KEY"]
    assert session.story.index("heartbeat") < session.story.index("send"), "the broker must know whom to ask"


async def test_the_local_work_sees_the_message_and_its_argument(producer: Any) -> None:
    seen: list[Any] = []
    message = Message("T", b"x", message_id="MINE")

    def execute(given: Message, argument: Any) -> TransactionState:
        seen.append((given, argument))
        return COMMIT

    await producer.send_in_transaction(message, execute, argument=7)
    assert seen == [(message, 7)]
    assert message.message_id == "MINE"


async def test_work_that_fails_leaves_it_open_and_its_error_is_raised(producer: Any, session: Any) -> None:
    def fail(message: Message, argument: Any) -> TransactionState:
        raise LookupError("no card")

    with pytest.raises(LookupError, match="no card"):
        await producer.send_in_transaction(Message("T", b"x"), fail)
    assert ended(session) == [UNKNOWN]
    with pytest.raises(TypeError, match="ends with a TransactionState, not with 'yes'"):
        await producer.send_in_transaction(Message("T", b"x"), lambda m, a: "yes")
    assert ended(session) == [UNKNOWN, UNKNOWN]


@pytest.mark.parametrize("status", [each for each in SendStatus if each is not SendStatus.OK])
async def test_a_half_message_that_is_not_safe_is_rolled_back_and_no_work_is_done(
    producer: Any, session: Any, status: SendStatus
) -> None:
    producer._sender.status = status

    def execute(message: Message, argument: Any) -> TransactionState:
        raise AssertionError("nothing may be done")

    result = await producer.send_in_transaction(Message("T", b"x"), execute)
    assert (result.state, result.status, ended(session)) == (ROLLBACK, status, [ROLLBACK])


async def test_an_outcome_that_cannot_be_told_is_no_failure(
    producer: Any, session: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    async def lost(*_: Any) -> None:
        raise NetworkError("gone")

    monkeypatch.setattr(session, "send", lost)
    result = await producer.send_in_transaction(Message("T", b"x"), lambda m, a: COMMIT)
    assert result.state is COMMIT
    assert "not told: gone" in caplog.text


async def test_a_sharding_key_chooses_the_queue(producer: Any) -> None:
    await producer.send_in_transaction(Message("T", b"x", sharding_key="k"), lambda m, a: COMMIT)
    ((_, _, queue),) = producer._sender.sent
    assert queue in list(await producer._sender.queues("T"))


@pytest.mark.parametrize("delay", [{"delay_level": 1}, {"delay_ms": 0}, {"deliver_at": 5}])
async def test_what_is_refused(producer: Any, delay: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="a transaction message cannot be delayed"):
        await producer.send_in_transaction(Message("T", b"x", **delay), later)  # type: ignore[arg-type]
    producer._open = False
    with pytest.raises(RuntimeError, match="is not started, or stopped"):
        await producer.send_in_transaction(Message("T", b"x"), later)
    with pytest.raises(RuntimeError, match="is not started, or stopped"):
        await producer.recall("T", "handle")
    with pytest.raises(TypeError, match="check is 'no', which cannot be called"):
        TransactionProducer("127.0.0.1:1", group="shop", check="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "known", "seen"), [("b-said", "a:1", "b-said"), (None, "a:1", "a"), (None, "nobody:1", "")]
)
async def test_a_check_says_which_broker_asks_or_its_address_does(
    producer: Any, session: Any, said: str | None, known: str, seen: str
) -> None:
    asked: list[Any] = []
    producer._check = lambda message: asked.append(message) or ROLLBACK
    header = CheckTransaction(
        tran_state_table_offset=7,
        commit_log_offset=4_096,
        msg_id="ID",
        transaction_id="TX",
        offset_msg_id=OFFSET_ID,
        broker_name=said,
    )
    record = Record("T", b"half", props.render({props.UNIQ_KEY: "ID"}), queue_id=3, queue_offset=7)
    await producer.check_transaction(known, header, record)
    (message,) = asked
    assert (message.broker_name, message.body, message.queue_id, message.message_id) == (
        seen,
        b"half",
        3,
        "ID",
    )
    ((address, answer, _),) = session.sent
    assert (address, answer.topic, answer.producer_group, answer.broker_name) == (known, "T", "shop", said)
    assert (answer.tran_state_table_offset, answer.commit_log_offset) == (7, 4_096)
    assert (answer.msg_id, answer.transaction_id, answer.from_transaction_check) == ("ID", "TX", True)
    assert TransactionState(answer.commit_or_rollback) is ROLLBACK


async def test_a_check_that_fails_says_so_and_leaves_it_open(
    producer: Any, session: Any, caplog: Any
) -> None:
    producer._check = lambda message: 1 // 0
    header = CheckTransaction(tran_state_table_offset=7, commit_log_offset=4_096)
    await producer.check_transaction("a:1", header, Record("T", b"half"))
    assert ended(session) == [UNKNOWN]
    assert "the broker will ask again" in caplog.text


async def test_a_half_message_may_be_compressed(producer: Any) -> None:
    body = b"x" * 10_000
    await producer.send_in_transaction(Message("T", body), later)
    ((sending, _, _),) = producer._sender.sent
    assert len(sending.body) < len(body)
    assert decompress(sending.body, sending.sys_flag) == body, "and says so"
    assert sending.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.PREPARED


async def test_a_producer_that_has_sent_nothing_yet_is_asked_about_what_another_left(
    aerobee_manual_server: TestServer,
) -> None:
    """An order row was written, the program died, and runs again: nobody may send anything for hours."""
    server, asked = aerobee_manual_server, list[str]()

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.keys[0])
        return COMMIT

    server.create_topic("orders", queues=1)
    async with TransactionProducer(server.namesrv, group="shop", check=lambda m: UNKNOWN) as dies:
        await dies.send_in_transaction(Message("orders", b"tea", keys=["o-1"]), lambda m, a: UNKNOWN)
    async with TransactionProducer(server.namesrv, group="shop", check=check):
        server.clock.advance(minutes=1)
        await eventually(lambda: asked == ["o-1"])
        await eventually(lambda: [m.body for m in server.messages_of("orders")] == [b"tea"])


async def test_brokers_that_are_not_there_yet_keep_no_producer_from_starting() -> None:
    async with (
        Server(ephemeral=True, namesrv_port=0, broker_port=-1) as alone,
        TransactionProducer(alone.namesrv, group="shop", check=lambda m: UNKNOWN) as producer,
    ):
        assert producer.session.producers.keys() == {"shop"}
