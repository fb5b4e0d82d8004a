# SPDX-License-Identifier: Apache-2.0
"""Requests of the client as they are on the wire, every field of them: what a peer reads is more than what we need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aerobee.client.consume.send_back import retry_copy, send_back, send_to_retry_topic
from aerobee.client.message import SendResult, SendStatus
from aerobee.client.options import Options
from aerobee.client.produce.transaction_producer import TransactionProducer, TransactionState
from aerobee.errors import NetworkError
from aerobee.protocol import properties as props
from aerobee.protocol.bodies import MessageQueue
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import header_fields
from aerobee.protocol.headers.produce import SendBack, SendMessageV2
from aerobee.protocol.headers.transaction import CheckTransaction
from aerobee.protocol.message import Record, offset_message_id

if TYPE_CHECKING:
    from collections.abc import Callable

OFFSET_ID = offset_message_id(b"\x7f\0\0\x01\0\0\x2a\x9f", 4_096)
EVERY_SYS_FLAG = 0x2 | 0x8 | 0x10 | 0x20  # several tags, committed, both hosts of IPv6


async def test_a_message_sent_back_is_named_by_place_and_id(session: Any, make_message: Any) -> None:
    session.answers[SendBack] = [(0, None, b"")]
    await send_back(session, "g", make_message(5), 3, 16)
    ((address, header, timeout_ms),) = session.asked
    assert (address, timeout_ms, header.code) == ("a:1", 5_000, RequestCode.CONSUMER_SEND_MSG_BACK)
    assert header_fields(header) == {
        "offset": "500",
        "group": "g",
        "delayLevel": "3",
        "originMsgId": "ID5",
        "originTopic": "T",
        "unitMode": "false",
        "maxReconsumeTimes": "16",
        "bname": "a",
    }


async def test_a_message_sent_back_says_why_as_far_as_the_options_allow(
    session: Any, make_message: Any
) -> None:
    session.answers[SendBack] = lambda *_: (0, None, b"")
    await send_back(session, "g", make_message(5), 3, 16, KeyError("no\ncard"))
    assert session.asked[-1][1].failure == r"KeyError: 'no\ncard'"
    await send_back(session, "g", make_message(5), 3, 16, ValueError("x" * 300))
    assert session.asked[-1][1].failure == "ValueError: " + "x" * 187 + "…"
    session.options = Options(failure_text_length=0)
    await send_back(session, "g", make_message(5), 3, 16, ValueError("secret"))
    assert session.asked[-1][1].failure is None


async def test_sent_to_the_retry_topic_by_hand_it_says_why_too(session: Any, make_message: Any) -> None:
    session.know("%RETRY%g", queues=2, brokers=("a",))
    session.answers[SendMessageV2] = lambda *_: (0, None, b"")
    await send_to_retry_topic(session, "g", make_message(5), 16, ValueError("late"))
    assert props.parse(session.asked[-1][1].properties)["AEROBEE_LAST_ERROR"] == "ValueError: late"


async def test_sent_to_the_retry_topic_by_hand_it_goes_to_its_own_broker_or_else_the_first(
    session: Any, make_message: Any
) -> None:
    session.answers[SendBack] = lambda *_: NetworkError("gone")
    session.answers[SendMessageV2] = lambda *_: (0, None, b"")
    for brokers, taken in ((("a", "b"), "a"), (("b", "c"), "b")):
        session.know("%RETRY%g", queues=2, brokers=brokers)
        await send_back(session, "g", make_message(5, flag=9, reconsume_times=2, born_timestamp=77), 0, 16)
        address, header, timeout_ms = session.asked[-1]
        assert (address, timeout_ms, session.bodies[-1]) == (f"{taken}:1", 3_000, b"body")
        sent = header_fields(header)
        text = sent.pop("i")
        assert sent == {
            "a": "CLIENT_INNER_PRODUCER",
            "b": "%RETRY%g",
            "c": "TBW102",
            "d": "4",
            "e": "0",
            "f": "0",
            "g": "77",
            "h": "9",
            "j": "3",
            "k": "false",
            "l": "16",
            "m": "false",
            "n": taken,
        }
        assert props.parse(text)["DELAY"] == "5"


def test_the_copy_for_the_retry_topic_loses_what_was_true_of_one_delivery_only(make_message: Any) -> None:
    once = {"TRAN_MSG": "true", "DELAY": "9", "MIN_OFFSET": "1", "MAX_OFFSET": "7", "POP_CK": "0 1 2"}
    kept = {"KEYS": "k", "ORIGIN_MESSAGE_ID": "first", "RETRY_TOPIC": "before"}
    message = make_message(
        5, properties=props.render(once | kept), sys_flag=EVERY_SYS_FLAG, reconsume_times=1
    )
    copy = retry_copy(message, "g", 4)
    assert props.parse(copy.properties_text) == {"UNIQ_KEY": "ID5", "DELAY": "4", **kept}
    assert copy.sys_flag == 0x2, "neither a transaction's nor of other hosts"
    assert (copy.topic, copy.message_id, copy.body) == ("%RETRY%g", "ID5", b"body")
    assert (copy.reconsume_times, copy.max_reconsume) == (2, 4)
    plain = props.parse(retry_copy(make_message(5), "g", 4).properties_text)
    assert plain == {
        "UNIQ_KEY": "ID5",
        "DELAY": "3",
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": make_message(5).offset_id,
    }


@pytest.fixture
def producer(session: Any) -> Callable[..., TransactionProducer]:
    def make(check: Any = lambda message: TransactionState.COMMIT) -> TransactionProducer:
        made = TransactionProducer("127.0.0.1:1", group="shop", check=check, options=Options())
        made.session = session
        return made

    return make


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize(("transaction_id", "told"), [("TX", "TX"), (None, "ID"), ("", "ID")])
async def test_the_end_of_a_transaction_names_its_half_message(
    producer: Any, session: Any, state: TransactionState, transaction_id: str | None, told: str
) -> None:
    sent = SendResult(SendStatus.OK, "ID", OFFSET_ID, MessageQueue("a", 1, "T"), 12, transaction_id)
    await producer()._end(sent, state)
    ((address, header, body),) = session.sent
    assert (address, body, header.code) == ("a:1", b"", RequestCode.END_TRANSACTION)
    assert header_fields(header) == {
        "topic": "T",
        "producerGroup": "shop",
        "tranStateTableOffset": "12",
        "commitLogOffset": "4096",
        "commitOrRollback": str(int(state)),
        "fromTransactionCheck": "false",
        "msgId": "ID",
        "transactionId": told,
        "bname": "a",
    }


def undecided(message: object) -> TransactionState:
    raise RuntimeError("the database is away")


@pytest.mark.parametrize(
    ("check", "outcome"),
    [(lambda m: TransactionState.ROLLBACK, "12"), (lambda m: None, "0"), (undecided, "0")],
)
async def test_a_check_is_answered_with_what_the_broker_asked_by(
    producer: Any, session: Any, check: Any, outcome: str
) -> None:
    asked = CheckTransaction(
        tran_state_table_offset=12, commit_log_offset=4_096, transaction_id="TX", broker_name="a"
    )
    record = Record("T", b"half", "UNIQ_KEY\x01ID\x02")
    await producer(check).check_transaction("10.0.0.7:10911", asked, record)
    ((address, header, _),) = session.sent
    assert address == "10.0.0.7:10911", "whoever asked, not the one the route names"
    assert header_fields(header) == {
        "topic": "T",
        "producerGroup": "shop",
        "tranStateTableOffset": "12",
        "commitLogOffset": "4096",
        "commitOrRollback": outcome,
        "fromTransactionCheck": "true",
        "msgId": "ID",
        "transactionId": "TX",
        "bname": "a",
    }
