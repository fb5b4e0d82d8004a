# SPDX-License-Identifier: Apache-2.0
"""A request is prepared, announced and sent before its reply is waited for; and messages as tables of plain values."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aerobee.client.consume.inbox import Inbox
from aerobee.client.message import Message, as_dict
from aerobee.client.produce.producer import Producer, UnderWay
from aerobee.errors import RequestTimeout
from aerobee.protocol import properties as props
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.headers.produce import PushReply


class Asking(Producer):
    """A producer whose sends are noted; each is answered by a reply when `replies` says so."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:1", group="p")
        self._open = True
        self.story: list[str] = []
        self.sent: list[Any] = []
        self.answers = True

        async def queues(topic: str) -> list[str]:
            self.story.append(f"queues of {topic}")
            return ["a queue"]

        async def heartbeat() -> int:
            self.story.append("heartbeat")
            return 1

        async def send(sending: Any, code: int, queue: Any) -> str:
            self.story.append("send")
            self.sent.append((sending, code, queue))
            if self.answers and code == RequestCode.SEND_MESSAGE_V2:
                asked = props.parse(sending.properties_text)
                text = props.render({"CORRELATION_ID": asked["CORRELATION_ID"]})
                assert self.reply_arrived(PushReply(topic="r", properties=text), b"the answer")
            return "sent"

        self._sender.queues = queues  # type: ignore[method-assign, assignment]
        self._sender.send = send  # type: ignore[method-assign, assignment]
        self.session.heartbeat = heartbeat  # type: ignore[method-assign]


async def test_a_request_is_announced_and_sent_before_its_reply_is_waited_for() -> None:
    producer = Asking()
    message = Message("T", b"question")
    assert (await producer.request(message, timeout_ms=7_000)).body == b"the answer"
    assert producer.story == ["queues of T", "heartbeat", "send"]
    ((sending, code, queue),) = producer.sent
    assert (code, queue, sending.message_id) == (RequestCode.SEND_MESSAGE_V2, None, message.message_id)
    assert message.message_id
    told = props.parse(sending.properties_text)
    assert (told["REPLY_TO_CLIENT"], told["TTL"]) == (producer.session.client_id, "7000")
    assert (told["UNIQ_KEY"], sending.body) == (message.message_id, b"question")
    assert not sending.may_merge


async def test_a_request_with_a_key_goes_to_its_queue_and_keeps_its_own_id() -> None:
    producer = Asking()
    await producer.request(Message("T", b"question", sharding_key="k", message_id="MINE"))
    assert (producer.sent[0][2], producer.sent[0][0].message_id) == ("a queue", "MINE")
    producer.answers = False
    with pytest.raises(RequestTimeout, match="within 1 ms"):
        await producer.request(Message("T", b"question"), timeout_ms=1)
    assert producer._replies._waiting == {}


async def test_a_reply_is_a_message_of_its_own_kind(make_message: Any) -> None:
    producer = Asking()
    asked = {"CORRELATION_ID": "c", "REPLY_TO_CLIENT": "me", "CLUSTER": "east"}
    await producer.reply(make_message(1, properties=props.render(asked)), b"answer")
    ((sending, code, queue),) = producer.sent
    assert (sending.topic, sending.body, queue) == ("east_REPLY_TOPIC", b"answer", None)
    assert code == RequestCode.SEND_REPLY_MESSAGE_V2
    assert sending.message_id
    assert props.parse(sending.properties_text)["CORRELATION_ID"] == "c"
    producer._open = False
    for work in (producer.request(Message("T", b"x")), producer.reply(make_message(1), b"x")):
        with pytest.raises(RuntimeError, match="is not started, or stopped"):
            await work


async def test_who_leaves_after_the_last_has_been_told_does_no_harm() -> None:
    gate = UnderWay(5, 10)
    gate.try_enter(1)
    waiting = asyncio.ensure_future(gate.empty(60_000))
    await asyncio.sleep(0)
    gate.leave(1)
    gate.try_enter(1)
    gate.leave(1)  # empty once more, before anybody has looked
    assert await waiting
    gate.try_enter(1)
    gate.leave(1)


def test_what_was_put_in_again_is_there_once(make_message: Any) -> None:
    inbox = Inbox(0)
    first, again = make_message(5), make_message(5)
    inbox.put([first, make_message(6)])
    inbox.put([again])
    assert (inbox.offsets(), inbox.size_bytes, inbox.count) == ([5, 6], 8, 2)
    assert first in inbox
    assert again not in inbox
    assert inbox.remove([first]) == 6
    inbox.put([make_message(6, b"another")])
    assert (inbox.size_bytes, inbox.highest) == (4, 6)


def test_a_message_is_a_table_of_plain_values(make_message: Any) -> None:
    message = make_message(
        5, b"body", tags="red", queue_id=3, born_timestamp=11, store_timestamp=12, reconsume_times=2,
        properties="KEYS\x01k1 k2\x02",
    )  # fmt: skip
    assert as_dict(message) == {
        "topic": "T",
        "broker": "a",
        "queue": 3,
        "offset": 5,
        "message_id": "ID5",
        "tags": "red",
        "keys": ["k1", "k2"],
        "attempt": 3,
        "born": 11,
        "stored": 12,
        "properties": {"UNIQ_KEY": "ID5", "TAGS": "red", "KEYS": "k1 k2"},
        "body": b"body",
    }
