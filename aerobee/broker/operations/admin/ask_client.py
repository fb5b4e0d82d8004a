# SPDX-License-Identifier: Apache-2.0
"""Questions of operators that only a client can answer; the broker passes them on over the client's connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aerobee.broker.operations.query import view_message
from aerobee.errors import ConsumeTimeout, NetworkError, RequestTimeout, SystemFailure, error_for
from aerobee.protocol import command
from aerobee.protocol import message as wire
from aerobee.protocol.bodies import ConsumerStatusTable, QueueOffsets, decode
from aerobee.protocol.headers.consume import ConsumeDirectly
from aerobee.protocol.headers.groups import RunningInfo
from aerobee.protocol.headers.offsets import ClientConsumerStatus

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.broker.state.clients import Member
    from aerobee.protocol.command import Command

CALL_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000
_CALLABLE_SINCE = 62  # 3.1.8
_STATUS_SINCE = 28  # 3.0.7


async def running_info(group: str, client_id: str, broker: Broker, *, jstack: bool) -> bytes:
    """What a consumer says about itself: JSON of ConsumerRunningInfo."""
    member = _consumer(group, client_id, _CALLABLE_SINCE, broker)
    header = RunningInfo(consumer_group=group, client_id=client_id, jstack_enable=jstack)
    return (await _ask(member, command.request(header), CALL_TIMEOUT_MS)).body


async def consume_directly(
    group: str, client_id: str, message_id: str, topic: str | None, broker: Broker
) -> bytes:
    """Have one consumer consume one message now: JSON of its result."""
    member = _consumer(group, client_id, _CALLABLE_SINCE, broker)
    try:
        _, physical_offset = wire.parse_offset_message_id(message_id)
    except ValueError as error:
        raise SystemFailure(str(error)) from None
    raw = view_message(physical_offset, broker)
    header = ConsumeDirectly(
        consumer_group=group,
        client_id=client_id,
        msg_id=message_id,
        broker_name=broker.config.name,
        topic=topic,
    )
    return (await _ask(member, command.request(header, raw), CALL_TIMEOUT_MS)).body


async def consumer_status(
    group: str, topic: str, client_id: str | None, broker: Broker
) -> ConsumerStatusTable:
    """The offsets that the group's clients (or one of them) hold in their memory."""
    online = broker.clients.group(group)
    members = list(online.members.values()) if online else []
    if client_id:
        members = [member for member in members if member.client_id == client_id]
    if not members:
        raise SystemFailure(f"group '{group}' has no such consumer online")
    header = ClientConsumerStatus(topic=topic, group=group)
    answers = await asyncio.gather(
        *(_ask(_new_enough(m, _STATUS_SINCE), command.request(header), STATUS_TIMEOUT_MS) for m in members)
    )
    return ConsumerStatusTable(
        consumer_table={
            member.client_id: decode(answer.body, QueueOffsets).message_queue_table
            for member, answer in zip(members, answers, strict=True)
        }
    )


def _consumer(group: str, client_id: str, since: int, broker: Broker) -> Member:
    online = broker.clients.group(group)
    member = online.members.get(client_id) if online else None
    if member is None:
        raise SystemFailure(f"consumer '{client_id}' of group '{group}' is not online")
    return _new_enough(member, since)


def _new_enough(member: Member, since: int) -> Member:
    if member.version < since:
        raise SystemFailure(f"client '{member.client_id}' is too old (version {member.version}) to be asked")
    return member


async def _ask(member: Member, question: Command, timeout_ms: int) -> Command:
    try:
        answer = await member.link.call(question, timeout_ms)
    except RequestTimeout as error:
        raise ConsumeTimeout(f"client '{member.client_id}': {error}") from None
    except NetworkError as error:
        raise SystemFailure(f"client '{member.client_id}' could not be asked: {error}") from None
    if answer.code:
        raise error_for(answer.code, answer.remark)
    return answer
