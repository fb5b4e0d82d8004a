# SPDX-License-Identifier: Apache-2.0
"""mqadmin's commands that move groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aerobee.cli import connect, output, times
from aerobee.cli.mqadmin import common

if TYPE_CHECKING:
    from aerobee.client.admin import Admin

GroupOption = Annotated[str, typer.Option("-g", "--group", help="consumer group name")]
Force = Annotated[str, typer.Option("-f", "--force", help="true: also backwards")]


def reset_offset_by_time(
    group: GroupOption,
    topic: common.Topic,
    timestamp: Annotated[
        str, typer.Option("-s", "--timestamp", help="now, epoch ms, or yyyy-MM-dd#HH:mm:ss:SSS")
    ],
    force: Force = "true",
    queue: Annotated[int, typer.Option("-q", "--queue", help="only this queue")] = -1,
    offset: Annotated[int, typer.Option("-o", "--offset", help="with -q: there")] = -1,
    namesrv: connect.Namesrv = None,
) -> None:
    """Move a group to where a topic was at a time.

    aerobee admin resetOffsetByTime -g billing -t orders -s 2026-08-01#12:30:00:000
    """
    at = _timestamp(timestamp)
    forced = common.truth(force, "-f")
    if offset >= 0 and queue < 0:
        raise typer.BadParameter("-o needs -q: an offset is one of a queue")

    async def work(admin: Admin) -> None:
        output.line(
            f"start reset consumer offset by specified, group[{group}], topic[{topic}], "
            f"force[{common.java(forced)}], timestamp(string)[{timestamp}], timestamp(long)[{at}]"
        )
        await reset(admin, group, topic, at, (queue, offset), forced=forced)

    common.ask(namesrv, work)


def _timestamp(text: str) -> int:
    if text.strip().lstrip("-").isdigit():
        return int(text)  # Java takes any number as milliseconds
    return times.parse_time(text, connect.clock.now())


async def reset(
    admin: Admin, group: str, topic: str, timestamp: int, place: tuple[int, int], *, forced: bool
) -> None:
    from aerobee.protocol import bodies
    from aerobee.protocol.headers.offsets import ResetOffset

    await connect.existing_topic(admin, topic)
    header = ResetOffset(
        topic=topic, group=group, timestamp=timestamp, is_force=forced, queue_id=place[0], offset=place[1]
    )
    common.row(("#brokerName", 40), ("#queueId", 40), ("#offset", 40))
    for data in (await admin.route(topic)).route.broker_datas:
        if data.master is None:
            continue
        answer = await admin.session.call(data.master, header)
        moved = bodies.decode(answer.body, bodies.ResetOffsetBody).offset_table
        for queue, offset in sorted(moved.items()):
            common.row((queue.broker_name, 40), (queue.queue_id, 40), (offset, 40))


def skip_accumulated_message(
    group: GroupOption, topic: common.Topic, force: Force = "true", namesrv: connect.Namesrv = None
) -> None:
    """Move a group to the end of a topic: what waits is never consumed.

    aerobee admin skipAccumulatedMessage -g billing -t orders
    """
    forced = common.truth(force, "-f")

    async def work(admin: Admin) -> None:
        await reset(admin, group, topic, -1, (-1, -1), forced=forced)

    common.ask(namesrv, work)


def clone_group_offset(
    source: Annotated[str, typer.Option("-s", "--srcGroup", help="group to copy from")],
    target: Annotated[str, typer.Option("-d", "--destGroup", help="group to set")],
    topic: common.Topic,
    offline: Annotated[str, typer.Option("-o", "--offline", help="the group is offline")] = "false",
    namesrv: connect.Namesrv = None,
) -> None:
    """Have a group go on where another one stands.

    aerobee admin cloneGroupOffset -s billing -d billing-v2 -t orders -o true
    """
    common.truth(offline, "-o")

    async def work(admin: Admin) -> None:
        await connect.existing_topic(admin, topic)
        await admin.clone_offsets(source, target, topic)
        output.line(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")

    common.ask(namesrv, work)


COMMANDS: common.Command = {
    "resetOffsetByTime": reset_offset_by_time,
    "skipAccumulatedMessage": skip_accumulated_message,
    "cloneGroupOffset": clone_group_offset,
}
