# SPDX-License-Identifier: Apache-2.0
"""Small choices of a client that only show where two things differ at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.client.message import Message
from aerobee.client.options import ProducerOptions
from aerobee.client.produce.outgoing import check_batch, merge, prepare, prepare_batch, split
from aerobee.client.produce.producer import Producer
from aerobee.client.produce.queue_selector import Faults, InTurn
from aerobee.client.session.ack_turns import Ack, AckTurns
from aerobee.client.session.outages import Outages, level
from aerobee.clock import ManualClock
from aerobee.errors import NetworkError, SystemFailure
from aerobee.protocol import batch
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.fast_frames import Sending
from aerobee.protocol.headers.consume import Notification, NotificationResult

QUEUES = [MessageQueue(broker, number, "T") for broker in "ab" for number in range(2)]


# -- which broker -----------------------------------------------------------------------------------------------


def test_a_broker_that_is_slow_is_kept_away_from_though_it_answers() -> None:
    faults = Faults()
    faults.answered("a", 20_000, now=0)
    assert [queue.broker_name for queue in faults.allowed(QUEUES, 1)] == ["b", "b"]
    faults.answered("b", 20_000, now=0)
    assert faults.allowed(QUEUES, 1) == QUEUES, "all of them are slow, none is gone"


def test_turns_go_round_and_avoid_one_broker_where_there_is_another() -> None:
    turn = InTurn(1)
    assert [QUEUES.index(turn.choose(QUEUES)) for _ in range(6)] == [2, 3, 0, 1, 2, 3]
    assert [QUEUES.index(turn.choose(QUEUES, "a")) for _ in range(4)] == [2, 3, 2, 3]
    only = QUEUES[:2]
    assert [turn.choose(only, "a").broker_name for _ in range(3)] == ["a"] * 3
    assert QUEUES.index(InTurn().choose(QUEUES)) == 1


# -- one-way sends ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sharding_key", "queue", "chosen"),
    [
        (None, None, None),
        (None, QUEUES[3], QUEUES[3]),
        ("k", QUEUES[3], QUEUES[3]),
        ("k", None, "by its key"),
    ],
)
async def test_a_message_without_an_answer_goes_where_it_is_told_or_to_the_queue_of_its_key(
    sharding_key: str | None, queue: MessageQueue | None, chosen: Any
) -> None:
    producer = Producer("127.0.0.1:1", group="g")
    sent: list[tuple[Sending, Any]] = []
    selected: list[Any] = []

    async def select(message: Message, *_: Any) -> Any:
        selected.append(message)
        return "by its key"

    async def send_oneway(sending: Sending, queue: Any) -> None:
        sent.append((sending, queue))

    producer._open = True
    producer._select = select  # type: ignore[method-assign, assignment]
    producer._sender.send_oneway = send_oneway  # type: ignore[method-assign]
    message = Message("T", b"x", sharding_key=sharding_key)
    await producer.send_oneway(message, queue=queue)
    ((sending, went_to),) = sent
    assert went_to == chosen
    assert len(selected) == (chosen == "by its key")
    assert sending.command_flag == 2, "no answer is asked for"
    assert message.message_id == sending.message_id
    named = Message("T", b"x", message_id="MINE")
    await producer.send_oneway(named)
    assert (named.message_id, sent[1][0].message_id) == ("MINE", "MINE")


# -- made ready for the wire ------------------------------------------------------------------------------------


def prepared(message: Message, extra: str = "", **given: Any) -> Sending:
    message.message_id = "ID"
    return prepare(message, ProducerOptions(**given), 77, extra)


def test_a_body_is_packed_from_the_size_on_that_is_asked_for_and_when_that_helps() -> None:
    same = b"a" * 100
    assert prepared(Message("T", same), compress_over_bytes=101).body == same
    packed = prepared(Message("T", same), compress_over_bytes=100)
    assert len(packed.body) < 100
    assert packed.sys_flag & 1
    assert not packed.may_merge, "a batch holds no packed bodies"
    assert prepared(Message("T", same), compress_over_bytes=1, compression="none").body == same
    short = prepared(Message("T", b"ab"), compress_over_bytes=1)
    assert (short.body, short.sys_flag) == (b"ab", 0)
    assert (short.born, short.message_id, short.flag) == (77, "ID", 0)
    assert prepared(Message("T", b"ab", flag=9)).flag == 9


def test_a_body_may_be_as_large_as_is_allowed() -> None:
    assert prepared(Message("T", bytes(10)), max_message_bytes=10)
    with pytest.raises(ValueError, match="has 11 bytes, max_message_bytes is 10"):
        prepared(Message("T", bytes(11)), max_message_bytes=10)


def test_properties_may_be_as_long_as_a_record_can_hold() -> None:
    one = len(prepared(Message("T", b"x", properties={"p": "v"})).properties_text)
    room = 32_767 - one + 1
    assert prepared(Message("T", b"x", properties={"p": "v" * room}))
    with pytest.raises(ValueError, match="have 32768 bytes, limit 32767"):
        prepared(Message("T", b"x", properties={"p": "v" * (room + 1)}))
    with pytest.raises(ValueError, match="limit 32767"):
        prepared(Message("T", b"x", properties={"p": "\N{CJK UNIFIED IDEOGRAPH-4E00}" * 11_000}))


@pytest.mark.parametrize(
    ("message", "extra", "merges"),
    [
        (Message("T", b"x"), "", True),
        (Message("T", b"x"), "A\x01b\x02", False),
        (Message("T", b"x", delay_level=1), "", False),
        (Message("T", b"x", deliver_at=1), "", False),
        (Message("T", b"x", delay_ms=0), "", False),
        (Message("%RETRY%g", b"x"), "", False),
    ],
)
def test_only_plain_messages_go_together(message: Message, extra: str, merges: bool) -> None:
    sending = prepared(message, extra)
    assert bool(sending.may_merge) is merges
    assert sending.properties_text.endswith(extra)
    assert not prepared(Message("T", b"x"), merge_sends=False).may_merge


def test_batches_are_cut_where_the_next_message_would_pass_the_limit() -> None:
    messages = [Message("T", bytes(size), message_id="ID") for size in (10, 10, 10, 200, 10)]
    one = batch.OVERHEAD + 10 + len("UNIQ_KEY\x01ID\x02WAIT\x01true\x02")

    def sizes(limit: int) -> list[list[int]]:
        return [[len(message.body) for message in part] for part in split(messages, limit)]

    assert sizes(2 * one) == [[10, 10], [10], [200], [10]]
    assert sizes(2 * one - 1) == [[10], [10], [10], [200], [10]]
    assert sizes(10_000) == [[10, 10, 10, 200, 10]]
    assert split([], 100) == []


def test_a_batch_has_the_first_id_and_tells_all_of_them() -> None:
    messages = [Message("T", b"one", message_id="A", flag=3), Message("T", b"two", message_id="B", tags="x")]
    sending = prepare_batch(messages, 5)
    assert (sending.topic, sending.message_id, sending.born) == ("T", "A,B", 5)
    assert sending.properties_text == "UNIQ_KEY\x01A\x02WAIT\x01true\x02"
    items = batch.decode(sending.body)
    assert [(item.flag, item.body) for item in items] == [(3, b"one"), (0, b"two")]
    assert items[1].properties_text.endswith("TAGS\x01x\x02")
    assert check_batch(messages) == "T"
    merged = merge([Sending("T", b"1", "p", "A", 9, 0, 4), Sending("T", b"2", "q", "B", 9)])
    assert (merged.topic, merged.message_id, merged.born, merged.properties_text) == (
        "T",
        "",
        9,
        "WAIT\x01true\x02",
    )
    assert [(item.flag, item.body, item.properties_text) for item in batch.decode(merged.body)] == [
        (4, b"1", "p"),
        (0, b"2", "q"),
    ]


# -- acks without a way -----------------------------------------------------------------------------------------


async def test_an_ack_that_no_open_connection_takes_is_told(session: Any) -> None:
    turns = AckTurns(session)
    waiting = asyncio.get_running_loop().create_future()
    for receipt in ("0 1 2 3 0 a 0 0", "0 1 2 999 0 a 0 0", "0 1 2 3 0 nobody 0 0"):
        assert turns.add(Ack("g", "T", receipt, waiting)) is False
        assert turns.add_alone(Ack("g", "T", receipt, waiting)) is False


# -- servers that are away --------------------------------------------------------------------------------------


def test_an_outage_is_told_when_it_begins_each_minute_and_when_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    outages = Outages(clock)

    def said() -> list[str]:
        found = [each.message for each in caplog.records]
        caplog.clear()
        return found

    outages.answered("a:1")
    assert said() == []
    outages.failed("a:1", NetworkError("refused"))
    assert said() == ["server=a:1 does not answer, trying on: refused"]
    clock.advance(59_999)
    outages.failed("a:1", NetworkError("refused"))
    assert said() == []
    clock.advance(1)
    outages.failed("a:1", NetworkError("refused"))
    assert said() == [
        "server=a:1 has not answered for s=60; failed attempts of this process's clients: 3, the last with: refused"
    ]
    clock.advance(59_999)
    outages.failed("a:1", NetworkError("refused"))
    outages.failed("b:1", NetworkError("refused"))
    assert len(said()) == 1, "of the other"
    clock.advance(1)
    outages.failed("a:1", NetworkError("refused"))
    assert said() == [
        "server=a:1 has not answered for s=120; failed attempts of this process's clients: 5, the last with: refused"
    ]
    clock.advance(500)
    outages.answered("a:1")
    assert said() == ["server=a:1 answers again after s=120.5; failed attempts of this process's clients: 5"]
    assert list(outages.open) == ["b:1"]
    outages.answered("a:1")
    assert said() == []
    assert (level(NetworkError("x")), level(SystemFailure("x"))) == (10, 30)


async def test_a_broker_that_has_something_says_so(session: Any) -> None:
    from aerobee.client.consume.simple_consumer import SimpleConsumer

    consumer = SimpleConsumer("127.0.0.1:1", group="g", topics={"T": "*"}, clock=session.clock)
    consumer.session = session
    for has in (True, False):
        session.answers[Notification] = [(0, NotificationResult(has_msg=has), b"")]
        assert await consumer._ask(("T", "a"), 4_000) is has
    header = session.headers(Notification)[0]
    assert (header.consumer_group, header.topic, header.queue_id) == ("g", "T", -1)
    assert (header.poll_time, header.born_time, header.order) == (4_000, session.clock.wall(), False)
