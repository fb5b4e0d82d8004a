# SPDX-License-Identifier: Apache-2.0
"""Transactions: a half message that nobody sees until the local work has succeeded."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from aerobee.client.consume.decoding import received
from aerobee.client.message import Message, Origin, ReceivedMessage, SendResult, SendStatus
from aerobee.client.produce.outgoing import prepare
from aerobee.client.produce.producer import Producer
from aerobee.errors import AerobeeError
from aerobee.protocol import names
from aerobee.protocol import properties as props
from aerobee.protocol.codes import RequestCode, SysFlag
from aerobee.protocol.headers.transaction import COMMIT, ROLLBACK, UNKNOWN, EndTransaction
from aerobee.protocol.message import parse_offset_message_id

if TYPE_CHECKING:
    from aerobee.client.options import ProducerOptions
    from aerobee.client.session.session import Session
    from aerobee.clock import Clock
    from aerobee.protocol.headers.transaction import CheckTransaction
    from aerobee.protocol.message import Record

log = logging.getLogger("aerobee.client.producer")


class TransactionState(IntEnum):
    COMMIT = COMMIT
    ROLLBACK = ROLLBACK
    UNKNOWN = UNKNOWN  # the broker will ask again


# (message, argument) -> state, when a transaction begins; (message) -> state, when the broker asks later.
Execute = Callable[[Message, Any], TransactionState | Awaitable[TransactionState]]
Check = Callable[[ReceivedMessage], TransactionState | Awaitable[TransactionState]]


class TransactionResult(SendResult, gc=False):
    state: TransactionState = TransactionState.UNKNOWN


class TransactionProducer(Producer):
    """Sends messages that become visible only when local work commits.

    `execute` and `check` are plain or async; plain ones run on the loop, where nothing else happens meanwhile. `check`
    is asked from 6 s after the send on, be `execute` still at work: what is not there yet is UNKNOWN, and asked again.

    >>> async def check(message):                       # asked by the broker when it never heard the outcome
    ...     return TransactionState.COMMIT if order_exists(message.keys[0]) else TransactionState.UNKNOWN
    >>> async with TransactionProducer("127.0.0.1:9876", group="shop-tx", check=check) as producer:
    ...     await producer.send_in_transaction(Message("orders", b"{}", keys=["o-1"]), execute=save_order)
    """

    def __init__(
        self,
        namesrv: str | Session | None = None,
        *,
        group: str,
        check: Check,
        options: ProducerOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not callable(check):
            raise TypeError(f"check is {check!r}, which cannot be called")
        super().__init__(namesrv, group=group, options=options, clock=clock)
        self._check = check

    async def start(self) -> None:
        """Brokers know us from now on, whatever we send and when: they ask us what an earlier process left undecided."""
        await super().start()
        with suppress(AerobeeError):  # brokers that come later are told when they do
            await self.session.route(names.SELF_TEST_TOPIC)  # every broker has it
            await self.session.heartbeat()

    async def send_in_transaction(
        self, message: Message, execute: Execute, argument: Any = None
    ) -> TransactionResult:
        """Send the half message, run `execute(message, argument)`, and tell the broker what came of it. When
        `execute` raises, the message is left undecided, the broker asks `check` later, and the error is raised.
        What comes back is a `SendResult` with the `state`."""
        self._check_open()
        if message.delay_level or message.deliver_at is not None or message.delay_ms is not None:
            raise ValueError("a transaction message cannot be delayed; it becomes visible when it commits")
        message.message_id = message.message_id or self._ids.next()
        await self._sender.queues(message.topic)
        await self.session.heartbeat()  # the broker must know us to ask us
        extra = props.render({props.TRAN_MSG: "true", props.PGROUP: self.group})
        sending = prepare(message, self._options, self._clock.wall(), extra)
        sending.sys_flag |= SysFlag.PREPARED
        queue = await self._select(message, None, None) if message.sharding_key else None
        sent = await self._sender.send(sending, RequestCode.SEND_MESSAGE_V2, queue)
        state = TransactionState.UNKNOWN
        try:
            state = TransactionState.ROLLBACK
            if sent.status is SendStatus.OK:
                state = TransactionState.UNKNOWN
                state = _state(await _maybe(execute(message, argument)))
        finally:
            await self._end(sent, state)
        return TransactionResult(
            sent.status, sent.message_id, sent.offset_id, sent.queue, sent.queue_offset, sent.transaction_id,
            state=state,
        )  # fmt: skip

    async def _end(self, sent: SendResult, state: TransactionState) -> None:
        header = EndTransaction(
            topic=sent.queue.topic,
            producer_group=self.group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=parse_offset_message_id(sent.offset_id)[1],
            commit_or_rollback=state,
            from_transaction_check=False,
            msg_id=sent.message_id,
            transaction_id=sent.transaction_id or sent.message_id,
            broker_name=sent.queue.broker_name,
        )
        try:
            address = await self.session.master(sent.queue.broker_name, sent.queue.topic)
            await self.session.send(address, header)
        except AerobeeError as error:
            # The local work is done; the broker asks when it hears nothing.
            log.warning("outcome of transaction=%s not told: %s", sent.message_id, error)

    async def check_transaction(self, address: str, header: CheckTransaction, record: Record) -> None:
        message = received(record, Origin(header.broker_name or self.session.routes.name_of(address) or ""))
        try:
            state = _state(await _maybe(self._check(message)))
        except Exception:
            log.exception("check of transaction=%s failed, the broker will ask again", message.message_id)
            state = TransactionState.UNKNOWN
        answer = EndTransaction(
            topic=message.topic,
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state,
            from_transaction_check=True,
            msg_id=message.message_id,
            transaction_id=header.transaction_id,
            broker_name=header.broker_name,
        )
        await self.session.send(address, answer)


def _state(returned: object) -> TransactionState:
    if returned is None:
        return TransactionState.UNKNOWN
    if not isinstance(returned, TransactionState):
        raise TypeError(f"a transaction ends with a TransactionState, not with {returned!r}")
    return returned


async def _maybe(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
