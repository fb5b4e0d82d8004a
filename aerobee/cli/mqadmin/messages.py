# SPDX-License-Identifier: Apache-2.0
"""mqadmin's commands that look at messages."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Annotated

import typer

from aerobee.cli import connect, output, times
from aerobee.cli.messages import queues_of, track
from aerobee.cli.mqadmin import common
from aerobee.errors import QueryNotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee.client.admin import Admin
    from aerobee.client.message import ReceivedMessage
    from aerobee.protocol.bodies import MessageQueue

Id = Annotated[str, typer.Option("-i", "--msgId", help="message id")]
Begin = Annotated[str | None, typer.Option("-b", "--beginTimestamp", help="not before")]
End = Annotated[str | None, typer.Option("-e", "--endTimestamp", help="not after")]
Tags = Annotated[str, typer.Option("-s", "--subExpression", help="'TagA || TagB'")]
Body = Annotated[str, typer.Option("-d", "--printBody", help="true: the body too")]
Charset = Annotated[str, typer.Option("-c", "--charsetName", help="of the body")]
BrokerName = Annotated[str, typer.Option("-b", "--brokerName", help="broker name")]
QueueId = Annotated[int, typer.Option("-i", "--queueId", help="queue id", min=0)]
FOREVER = 2**63 - 1
# How a track's words begin, and mqadmin's word. One that failed is past its group's offset, whatever comes of its copy.
TRACKS = {
    "consumed": "CONSUMED",
    "failed": "CONSUMED",
    "dead": "CONSUMED",
    "in flight": "NOT_CONSUME_YET",
    "handed out": "NOT_CONSUME_YET",
    "waiting": "NOT_CONSUME_YET",
}


def query_by_id(message_id: Id, topic: common.Topic, namesrv: connect.Namesrv = None) -> None:
    """A message by either of its ids.

    aerobee admin queryMsgById -t orders -i 7F0000010A2B3C4D5E6F00000000
    """

    async def work(admin: Admin) -> None:
        for each in message_id.split(","):
            await show(admin, await admin.message_by_id(each.strip(), topic))

    common.ask(namesrv, work)


def query_by_unique_key(message_id: Id, topic: common.Topic, namesrv: connect.Namesrv = None) -> None:
    """A message by its producer's id.

    aerobee admin queryMsgByUniqueKey -t orders -i 7F0000010A2B3C4D5E6F00000000
    """
    query_by_id(message_id, topic, namesrv)


def query_by_offset(
    topic: common.Topic,
    broker: BrokerName,
    queue: QueueId,
    offset: Annotated[int, typer.Option("-o", "--offset", help="offset in the queue", min=0)],
    namesrv: connect.Namesrv = None,
) -> None:
    """The message at an offset of a queue.

    aerobee admin queryMsgByOffset -t orders -b broker-a -i 0 -o 120
    """

    async def work(admin: Admin) -> None:
        place = (await queues_of(admin, topic, broker, queue))[0]
        await show(admin, await admin.message_at(place, offset))

    common.ask(namesrv, work)


async def show(admin: Admin, message: ReceivedMessage) -> None:
    """As Java prints one, the groups' states at the end."""
    facts = {
        "OffsetID": message.offset_id,
        "Topic": message.topic,
        "Tags": f"[{message.tags or 'null'}]",
        "Keys": f"[{' '.join(message.keys) or 'null'}]",
        "Queue ID": message.queue_id,
        "Queue Offset": message.queue_offset,
        "CommitLog Offset": message.physical_offset,
        "Reconsume Times": message.reconsume_times,
        "Born Timestamp": common.when(message.born_timestamp),
        "Store Timestamp": common.when(message.store_timestamp),
        "Born Host": message.born_address,
        "Store Host": _store_host(message),
        "System Flag": message.sys_flag,
        "Properties": common.java(message.properties),
        "Message Body": output.shown_body(message.body, 4_096),
    }
    for name, value in facts.items():
        output.line(f"{name + ':':<20} {value}")
    output.line()
    for group, state in (await track(admin, message)).items():
        output.line(f"MessageTrack [consumerGroup={group}, trackType={_kind(state)}, exceptionDesc=null]")


def _kind(state: str) -> str:
    if state.endswith("nobody consumes"):
        return "NOT_ONLINE"
    return next((kind for word, kind in TRACKS.items() if state.startswith(word)), "UNKNOWN")


def _store_host(message: ReceivedMessage) -> str:
    from aerobee.protocol.message import host_text

    return host_text(message.store_host)


def query_by_key(
    topic: common.Topic,
    key: Annotated[str, typer.Option("-k", "--msgKey", help="one of the message's keys")],
    begin: Begin = None,
    end: End = None,
    number: Annotated[int, typer.Option("-m", "--maxNum", help="at most so many", min=1, max=64)] = 64,
    namesrv: connect.Namesrv = None,
) -> None:
    """Messages with a key.

    aerobee admin queryMsgByKey -t orders -k o-7
    """
    span = _span(begin, end)

    async def work(admin: Admin) -> None:
        found = await admin.messages_by_key(topic, key, max_messages=number, begin=span[0], end=span[1])
        if not found:
            raise QueryNotFound(
                f"query message by key finished, but no message: topic {topic!r}, key {key!r}"
            )
        common.row(("#Message ID", 50), ("#QID", -4), ("#Offset", -40))
        for message in found:
            common.row((message.message_id, 50), (message.queue_id, -4), (message.queue_offset, -40))

    common.ask(namesrv, work)


def _span(begin: str | None, end: str | None) -> tuple[int, int]:
    now = connect.clock.now()
    first = 0 if begin is None else times.parse_time(begin, now)
    return first, FOREVER if end is None else times.parse_time(end, now)


def print_messages(
    topic: common.Topic,
    charset: Charset = "UTF-8",
    tags: Tags = "*",
    begin: Begin = None,
    end: End = None,
    body: Body = "true",
    namesrv: connect.Namesrv = None,
) -> None:
    """All messages of a topic.

    aerobee admin printMsg -t orders -d true
    """
    span, with_body = _span(begin, end), common.truth(body, "-d")
    check_charset(charset)

    async def work(admin: Admin) -> None:
        for queue in await queues_of(admin, topic, None, None):
            low, high = await admin.offset_range(queue)
            output.line(
                f"minOffset={low}, maxOffset={high}, MessageQueue [topic={queue.topic}, "
                f"brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            )
            async for message in between(admin, queue, span, tags):
                common.said(message, body=with_body, charset=charset)

    common.ask(namesrv, work)


def print_by_queue(
    topic: common.Topic,
    broker: Annotated[str, typer.Option("-a", "--brokerName", help="broker name")],
    queue: QueueId,
    charset: Charset = "UTF-8",
    tags: Tags = "*",
    begin: Begin = None,
    end: End = None,
    printed: Annotated[str, typer.Option("-p", "--print", help="true: print the messages")] = "false",
    body: Body = "false",
    by_tag: Annotated[str, typer.Option("-f", "--calculate", help="true: count by tag")] = "false",
    namesrv: connect.Namesrv = None,
) -> None:
    """Messages of one queue, or how many there are by tag.

    aerobee admin printMsgByQueue -t orders -a broker-a -i 0 -p true -d true
    """
    span, with_body = _span(begin, end), common.truth(body, "-d")
    shown, counted = common.truth(printed, "-p"), common.truth(by_tag, "-f")
    check_charset(charset)

    async def work(admin: Admin) -> None:
        counts: dict[str, int] = {}
        place = (await queues_of(admin, topic, broker, queue))[0]
        async for message in between(admin, place, span, tags):
            counts[message.tags or ""] = counts.get(message.tags or "", 0) + 1
            if shown:
                common.said(message, body=with_body, charset=charset)
        if counted:
            for tag, number in sorted(counts.items(), key=lambda item: -item[1]):
                output.line(f"Tag: {tag:<30} Count: {number}")

    common.ask(namesrv, work)


def check_charset(name: str) -> None:
    try:
        codecs.lookup(name)
    except LookupError:
        raise typer.BadParameter(f"-c {name!r}: no such charset; UTF-8, GBK ...") from None


async def between(
    admin: Admin, queue: MessageQueue, span: tuple[int, int], tags: str
) -> AsyncIterator[ReceivedMessage]:
    """Messages stored within a span of time, of the tags wanted."""
    wanted = {tag.strip() for tag in tags.split("||")}
    low, high = await admin.offset_range(queue)
    first = low if span[0] == 0 else await admin.offset_at(queue, span[0])
    async for message in admin.browse(queue, first, high):
        if message.store_timestamp > span[1]:
            return
        if "*" in wanted or message.tags in wanted:
            yield message


def consume_message(
    topic: common.Topic,
    broker: Annotated[str | None, typer.Option("-b", "--brokerName", help="broker name")] = None,
    queue: Annotated[int | None, typer.Option("-i", "--queueId", help="queue id", min=0)] = None,
    offset: Annotated[int | None, typer.Option("-o", "--offset", help="from there", min=0)] = None,
    number: Annotated[int, typer.Option("-c", "--MessageNumber", help="of each queue", min=1)] = 128,
    group: Annotated[str | None, typer.Option("-g", "--consumerGroup", help="not needed here")] = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """The oldest messages of a topic, a broker or a queue; no group's progress changes.

    aerobee admin consumeMessage -t orders -c 10
    """
    if offset is not None and (broker is None or queue is None):
        raise typer.BadParameter("-o needs -b and -i: an offset is one of a queue")

    async def work(admin: Admin) -> None:
        places = await queues_of(admin, topic, broker, queue)
        for place in places:
            low, high = await admin.offset_range(place)
            first = low if offset is None else offset
            if first < high:
                output.line(
                    f"The older {min(number, high - first)} message of the {place.queue_id} queue will be provided"
                )
            async for message in admin.browse(place, first, min(high, first + number)):
                output.line("Consume ok")
                common.said(message, body=True)

    common.ask(namesrv, work)


COMMANDS: common.Command = {
    "queryMsgById": query_by_id,
    "queryMsgByUniqueKey": query_by_unique_key,
    "queryMsgByKey": query_by_key,
    "queryMsgByOffset": query_by_offset,
    "printMsg": print_messages,
    "printMsgByQueue": print_by_queue,
    "consumeMessage": consume_message,
}
