# SPDX-License-Identifier: Apache-2.0
"""What mqadmin's commands share: flags, choosing brokers, and Java's way of writing values."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import connect, output
from aerobee.cli.each_broker import on_each
from aerobee.cli.mqadmin import as_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aerobee.client.admin import Admin
    from aerobee.client.message import ReceivedMessage

Command = dict[str, "Callable[..., None]"]

Cluster = Annotated[str | None, typer.Option("-c", "--clusterName", help="cluster: all its masters")]
BrokerAddr = Annotated[str | None, typer.Option("-b", "--brokerAddr", help="one broker's address")]
Topic = Annotated[str, typer.Option("-t", "--topic", help="topic name")]
Group = Annotated[str, typer.Option("-g", "--groupName", help="consumer group name")]
ConsumerGroup = Annotated[str, typer.Option("-g", "--consumerGroup", help="consumer group name")]


def ask(namesrv: str | None, work: Callable[[Admin], Awaitable[None]]) -> None:
    """Run a command's coroutine with an admin client."""

    async def connected() -> None:
        async with connect.connected(connect.address_of(namesrv)) as admin:
            await work(admin)

    connect.run(connected())


async def chosen(admin: Admin, broker: str | None, cluster: str | None) -> list[str]:
    """Addresses: the one broker, or the cluster's masters."""
    if broker:
        return [broker]
    if not cluster:
        raise typer.BadParameter(
            "say where: -b BROKER_ADDRESS or -c CLUSTER (`aerobee admin clusterList` lists both)"
        )
    return list((await admin.masters(cluster)).values())


def at_each(
    namesrv: str | None,
    broker: str | None,
    cluster: str | None,
    done: str,
    work: Callable[[Admin, str], Awaitable[None]],
) -> None:
    """And say where it is done, as mqadmin does."""

    async def where(admin: Admin) -> dict[str, str]:
        return {address: address for address in await chosen(admin, broker, cluster)}

    def say(name: str, address: str, nothing: None) -> None:
        output.line(f"{done} {address} success.")

    on_each(namesrv, where, work, say)


# -- Java's way of writing values --------------------------------------------------------------------------


def java(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case dict():
            return "{" + ", ".join(f"{key}={java(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(java(each) for each in value) + "]"
    return str(value)


def truth(text: str, flag: str) -> bool:
    """Java's flags take true or false as their value."""
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise typer.BadParameter(f"{flag} {text!r}: it is true or false")


def perm_text(perm: int) -> str:
    return f"{'R' if perm & 4 else '-'}{'W' if perm & 2 else '-'}{'X' if perm & 1 else '-'}"


def when(timestamp_ms: int) -> str:
    """`2026-08-01 12:30:00,123`; blank for never."""
    if timestamp_ms <= 0:
        return ""
    text = datetime.fromtimestamp(timestamp_ms / 1000).isoformat(" ", "milliseconds")
    return text.replace(".", ",")


def seconds(timestamp_ms: int) -> str:
    """`2026-08-01 12:30:00`, and N/A for never."""
    return when(timestamp_ms).partition(",")[0] or "N/A"


def row(*cells: tuple[Any, int]) -> None:
    """Cells with their widths, left or (negative) right, two blanks between, as Java's printf."""
    if (record := as_json.current()) is not None:
        record.row([value for value, _ in cells])
        return
    texts = [str(value).ljust(width) if width >= 0 else str(value).rjust(-width) for value, width in cells]
    output.line("  ".join(texts).rstrip())


def settings(values: Mapping[str, Any]) -> None:
    if (record := as_json.current()) is not None:
        record.settings(values)
        return
    for name, value in values.items():
        output.line(f"{name:<50}=  {value}")


def title(text: str) -> None:
    output.line(f"============{text}============")


def describe(message: ReceivedMessage) -> str:
    """As Java prints a MessageExt."""
    properties = java(message.properties)
    return (
        f"MessageExt [brokerName={message.broker_name}, queueId={message.queue_id}, storeSize={message.size}, "
        f"queueOffset={message.queue_offset}, sysFlag={message.sys_flag}, bornTimestamp={message.born_timestamp}, "
        f"bornHost=/{message.born_address}, storeTimestamp={message.store_timestamp}, "
        f"msgId={message.message_id}, commitLogOffset={message.physical_offset}, bodyCRC={message.body_crc}, "
        f"reconsumeTimes={message.reconsume_times}, preparedTransactionOffset={message.prepared_offset}, "
        f"toString()=Message{{topic='{message.topic}', flag={message.flag}, properties={properties}, "
        f"body=[{len(message.body)} bytes], transactionId='null'}}]"
    )


def said(message: ReceivedMessage, *, body: bool, charset: str = "UTF-8") -> None:
    text = message.body.decode(charset, errors="replace") if body else "NOT PRINT BODY"
    output.line(f"MSGID: {message.message_id} {describe(message)} BODY: {text}")
