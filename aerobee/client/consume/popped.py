# SPDX-License-Identifier: Apache-2.0
"""POP from a client's side: asking, the receipts of what came, and answering for each message."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from aerobee.client.consume.decoding import decode_messages
from aerobee.client.message import Origin, ReceivedMessage
from aerobee.client.session.ack_turns import Ack, ack_header
from aerobee.client.session.once_more import once_more_if_lost
from aerobee.client.session.refusal import refusal
from aerobee.protocol import properties as props
from aerobee.protocol import receipt as receipts
from aerobee.protocol.codes import ResponseCode
from aerobee.protocol.headers.consume import (
    ChangeInvisible,
    ChangeInvisibleResult,
    PopMessage,
    PopResult,
)
from aerobee.protocol.reading import EXTRA_WAIT_MS
from aerobee.protocol.receipt import Receipt, retry_flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.client.session.session import Session
    from aerobee.net.connection import Waiting
    from aerobee.protocol.command import Command

log = logging.getLogger("aerobee.client.pop")

ANSWERS = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.POLLING_FULL,
        ResponseCode.POLLING_TIMEOUT,
        ResponseCode.PULL_NOT_FOUND,
    }
)


class Lease:
    """The right to finish one popped message, until its invisible time has passed: `until`, by this client's clock.
    The receipt's own times are the broker's, whose clock may be another's or have been set."""

    __slots__ = ("_group", "_session", "_topic", "_until", "receipt")

    def __init__(self, session: Session, group: str, topic: str, receipt: str, until: int) -> None:
        self._session = session
        self._group = group
        self._topic = topic
        self._until = until
        self.receipt = receipt

    def expired(self, now: int) -> bool:
        return now >= self._until

    async def ack(self) -> None:
        """Asked twice it is the same: the broker knows what it has by the receipt."""
        await once_more_if_lost(self._ack)

    async def _ack(self) -> None:
        session = self._session
        call: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        if not self.ack_soon(call):
            header = ack_header(self._group, self._topic, self.receipt)
            await session.call(await session.master(header.broker_name or "", self._topic), header)
            return
        answer = await call
        if answer.code:
            raise refusal(answer)

    def ack_soon(self, waiting: Waiting) -> bool:
        """Start the ack without waiting; False when there is no open connection to do it on."""
        ack = Ack(self._group, self._topic, self.receipt, waiting)
        in_time = not self.expired(self._session.clock.now())
        return self._session.acks.add(ack) if in_time else self._session.acks.add_alone(ack)

    async def hide(self, invisible_ms: int, failure: str = "") -> None:
        """Visible again `invisible_ms` from now; from here on the new receipt counts. `failure` is why, for the copy
        that then comes."""
        parsed = Receipt.parse(self.receipt)
        header = ChangeInvisible(
            consumer_group=self._group,
            topic=parsed.real_topic(self._topic, self._group),
            queue_id=parsed.queue_id,
            extra_info=self.receipt,
            offset=parsed.offset,
            invisible_time=invisible_ms,
            broker_name=parsed.broker_name,
            failure=failure or None,
        )
        address = await self._session.master(parsed.broker_name, self._topic)
        began = self._session.clock.now()
        # Of a receipt that was used already the broker changes nothing: at worst the message comes once more.
        answer = await once_more_if_lost(partial(self._session.call, address, header))
        result = answer.fields(ChangeInvisibleResult)
        self._until = began + invisible_ms
        self.receipt = parsed._replace(
            start_offset=parsed.offset,
            pop_time=result.pop_time,
            invisible_time=result.invisible_time,
            revive_qid=result.revive_qid,
            commit_log_offset=-1,
        ).text


class PopAnswer(msgspec.Struct, frozen=True):
    """An answer to a pop. `full`: the broker holds too many requests already."""

    messages: list[ReceivedMessage]
    rest: int
    full: bool
    until: int  # by our clock
    came: int = 0  # how many messages, wanted or not


async def pop(session: Session, address: str, request: PopMessage) -> PopAnswer:
    answer = await session.call(
        address, request, timeout_ms=request.poll_time + EXTRA_WAIT_MS, accept=ANSWERS
    )
    result = answer.fields(PopResult)
    messages: list[ReceivedMessage] = []
    until = session.clock.now() + result.invisible_time
    if answer.code == ResponseCode.SUCCESS:
        broker_name = request.broker_name or session.routes.name_of(address) or ""
        messages = decode_messages(answer.body, Origin(broker_name))
        handles = add_receipts(messages, result, broker_name, request.topic)
        for message, handle in zip(messages, handles, strict=True):
            message.lease = Lease(session, request.consumer_group, request.topic, handle, until)
    full = answer.code == ResponseCode.POLLING_FULL
    return PopAnswer(messages, result.rest_num, full, until, len(messages))


def add_receipts(
    messages: list[ReceivedMessage], result: PopResult, broker_name: str, topic: str
) -> list[str]:
    """Give every message its handle, from the info strings of the answer; the handles, in order."""
    starts = receipts.parse_start_offsets(result.start_offset_info)
    offsets = receipts.parse_msg_offsets(result.msg_offset_info)
    counts = receipts.parse_order_counts(result.order_count_info)
    taken: dict[tuple[str, int], _Taken] = {}
    first_popped = f"{props.FIRST_POP_TIME}\x01{result.pop_time}\x02"
    handles = []
    for message in messages:
        text = message.properties_text
        present = props.get(text, props.POP_CK) if _HANDLE in text else None
        retry = present.split(" ")[4] if present else retry_flag(message.topic)
        if present is None or not starts:
            key = retry, message.queue_id
            queue = taken.get(key)
            if queue is None:
                own = offsets.get(key, [])
                start = starts.get(key, own[0] if own else message.queue_offset)  # no info: an old broker
                head = f"{start} {result.pop_time} {result.invisible_time} {result.revive_qid}"
                queue = taken[key] = _Taken(f"{head} {retry} {broker_name} {message.queue_id} ", iter(own))
            handle = f"{queue.head}{next(queue.offsets, message.queue_offset)}"
            text += f"{_HANDLE}{handle}\x02"
        handles.append(present or handle)
        if counts:
            _count(message, retry, counts)
        if _FIRST_POPPED not in text or props.get(text, props.FIRST_POP_TIME) is None:
            text += first_popped
        message.properties_text = text
        if message.topic != topic:
            message.call_it(topic)
    return handles


_HANDLE = f"{props.POP_CK}\x01"
_FIRST_POPPED = f"{props.FIRST_POP_TIME}\x01"


class _Taken(NamedTuple):
    """Of one queue: what its handles begin with, and the offsets they end with."""

    head: str
    offsets: Iterator[int]


def _count(message: ReceivedMessage, retry: str, counts: dict[tuple[str, str], int]) -> None:
    count = counts.get(
        (retry, f"qo{message.queue_id}%{message.queue_offset}"),
        counts.get((retry, str(message.queue_id)), 0),
    )
    if count > 0:
        message.reconsume_times = count
