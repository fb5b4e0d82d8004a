# SPDX-License-Identifier: Apache-2.0
"""mqadmin's commands about who is connected, and how far groups are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import connect, output
from aerobee.cli.mqadmin import common
from aerobee.errors import AerobeeError, ConsumerNotOnline
from aerobee.protocol import bodies, names
from aerobee.protocol.versions import version_text

if TYPE_CHECKING:
    from aerobee.client.admin import Admin
    from aerobee.protocol.bodies import MessageQueue

TYPES = {"CONSUME_PASSIVELY": "PUSH", "CONSUME_ACTIVELY": "PULL", "CONSUME_POP": "POP"}


def consumer_connection(
    group: common.ConsumerGroup, broker: common.BrokerAddr = None, namesrv: connect.Namesrv = None
) -> None:
    """Clients of a consumer group and what they subscribe to.

    aerobee admin consumerConnection -g billing
    """

    async def work(admin: Admin) -> None:
        found = await online(admin, group)
        common.row(("#ClientId", 36), ("#ClientAddr", 22), ("#Language", 10), ("#Version", 0))
        for each in found.connection_set:
            common.row((each.client_id, 36), (each.client_addr, 22), (each.language, 10),
                       (version_text(each.version), 0))  # fmt: skip
        output.line("\nBelow is subscription:")
        common.row(("#Topic", 20), ("#SubExpression", 0))
        for topic, data in sorted(found.subscription_table.items()):
            common.row((topic, 20), (data.sub_string, 0))
        output.line(f"\nConsumeType: {found.consume_type}")
        output.line(f"MessageModel: {found.message_model}")
        output.line(f"ConsumeFromWhere: {found.consume_from_where}")

    common.ask(namesrv, work)


async def online(admin: Admin, group: str) -> bodies.ConsumerConnection:
    found = await admin.members(group)
    if found is None:
        raise ConsumerNotOnline(f"the consumer group[{group}] not online")
    return found


def producer_connection(
    group: Annotated[str, typer.Option("-g", "--producerGroup", help="producer group name")],
    topic: common.Topic,
    namesrv: connect.Namesrv = None,
) -> None:
    """Clients of a producer group.

    aerobee admin producerConnection -g shop -t orders
    """

    async def work(admin: Admin) -> None:
        found = await admin.producers(group)
        if not found:
            raise connect.Failed(f"the producer group {group!r} is not online")
        for number, each in enumerate(found, 1):
            common.row((f"{number:04}", 4), (each.client_id, 32), (each.client_addr, 22), (each.language, 8),
                       (version_text(each.version), 0))  # fmt: skip

    common.ask(namesrv, work)


def consumer_status(
    group: common.ConsumerGroup,
    client: Annotated[str | None, typer.Option("-i", "--clientId", help="only this consumer")] = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """What consumers say about themselves; whether they subscribe alike.

    aerobee admin consumerStatus -g billing
    """

    async def work(admin: Admin) -> None:
        found = await online(admin, group)
        if client is not None:
            report(await admin.running_info(group, client))
            return
        common.row(("#Index", 10), ("#ClientId", 40), ("#Version", 20), ("#Queues", 0))
        said: dict[str, dict[str, str]] = {}
        for number, each in enumerate(found.connection_set, 1):
            info = await admin.running_info(group, each.client_id)
            said[each.client_id] = {data.topic: data.sub_string for data in info.subscription_set}
            common.row((number, 10), (each.client_id, 40), (version_text(each.version), 20),
                       (len(info.mq_table) + len(info.mq_pop_table), 0))  # fmt: skip
        alike = len({tuple(sorted(each.items())) for each in said.values()}) <= 1
        output.line()
        if alike:
            output.line("Same subscription in the same group of consumer")
        else:
            output.line("WARN: Different subscription in the same group of consumer!!!")

    common.ask(namesrv, work)


def report(info: bodies.ConsumerRunningInfo) -> None:
    output.line("#Consumer Properties#")
    for name, value in sorted(info.properties.items()):
        output.line(f"{name:<40}: {value}")
    output.line("\n#Consumer Subscription#")
    for number, data in enumerate(info.subscription_set, 1):
        output.line(
            f"{number:03}  Topic: {data.topic:<40} ClassFilter: false    SubExpression: {data.sub_string}"
        )
    output.line("\n#Consumer Offset#")
    common.row(("#Topic", 64), ("#Broker Name", 32), ("#QID", 4), ("#Consumer Offset", 20))
    for queue, held in sorted(info.mq_table.items()):
        common.row((queue.topic, 64), (queue.broker_name, 32), (queue.queue_id, 4), (held.commit_offset, 20))
    output.line("\n#Pop Detail#")
    common.row(("#Topic", 64), ("#Broker Name", 32), ("#QID", 4), ("#ProcessQueueInfo", 20))
    for queue, popped in sorted(info.mq_pop_table.items()):
        common.row((queue.topic, 64), (queue.broker_name, 32), (queue.queue_id, 4),
                   (f"waitAckCount: {popped.wait_ack_count}, droped: {common.java(popped.dropped)}", 20))  # fmt: skip
    output.line("\n#Consumer RT&TPS#")
    for topic, figures in sorted(info.status_table.items()):
        common.row((topic, 64), (f"{figures.consume_rt:.2f}", 14), (f"{figures.consume_ok_tps:.2f}", 14))
    output.line("\n#User Consume Info#")
    for name, value in sorted(info.user_consumer_info.items()):
        output.line(f"{name}: {value}")


def consumer_progress(
    group: Annotated[str | None, typer.Option("-g", "--groupName", help="one group [all]")] = None,
    topic: Annotated[str | None, typer.Option("-t", "--topicName", help="only this topic")] = None,
    show_ip: Annotated[str, typer.Option("-s", "--showClientIP", help="true: who has each queue")] = "false",
    cluster: Annotated[str | None, typer.Option("-c", "--cluster", help="not needed here")] = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """How far groups are: offsets and what is left.

    aerobee admin consumerProgress -g billing
    """
    with_ip = common.truth(show_ip, "-s")

    async def work(admin: Admin) -> None:
        if group is None:
            await _all_groups(admin)
            return
        await connect.existing_group(admin, group)
        stats = await consume_stats(admin, group, topic)
        _print_progress(stats, await _owners(admin, group) if with_ip else None)

    common.ask(namesrv, work)


async def consume_stats(admin: Admin, group: str, topic: str | None) -> bodies.ConsumeStats:
    """Of all brokers together."""
    from aerobee.protocol.headers.groups import ConsumeStatsQuery

    whole = bodies.ConsumeStats()
    for address in (await admin.masters()).values():
        answer = await admin.session.call(address, ConsumeStatsQuery(consumer_group=group, topic=topic))
        part = bodies.decode(answer.body, bodies.ConsumeStats)
        whole.offset_table.update(part.offset_table)
        whole.consume_tps += part.consume_tps
    return whole


def _print_progress(stats: bodies.ConsumeStats, owners: dict[MessageQueue, str] | None) -> None:
    who: list[tuple[Any, int]] = [] if owners is None else [("#Client IP", 20)]
    common.row(("#Topic", 64), ("#Broker Name", 32), ("#QID", 4), ("#Broker Offset", 20),
               ("#Consumer Offset", 20), *who, ("#Diff", 20), ("#Inflight", 20), ("#LastTime", 0))  # fmt: skip
    left = flying = 0
    for queue, entry in sorted(stats.offset_table.items()):
        diff = entry.broker_offset - entry.consumer_offset
        flight = max(0, entry.pull_offset - entry.consumer_offset)
        left, flying = left + diff, flying + flight
        who = [] if owners is None else [(owners.get(queue, "N/A"), 20)]
        common.row((queue.topic, 64), (queue.broker_name, 32), (queue.queue_id, 4), (entry.broker_offset, 20),
                   (entry.consumer_offset, 20), *who, (diff, 20), (flight, 20),
                   (common.seconds(entry.last_timestamp), 0))  # fmt: skip
    output.line()
    output.line(f"Consume TPS: {stats.consume_tps:.2f}")
    output.line(f"Consume Diff Total: {left}")
    output.line(f"Consume Inflight Total: {flying}")


async def _owners(admin: Admin, group: str) -> dict[MessageQueue, str]:
    found: dict[MessageQueue, str] = {}
    members = await admin.members(group)
    for each in members.connection_set if members else ():
        try:
            info = await admin.running_info(group, each.client_id)
        except AerobeeError as error:
            output.note(f"consumer {each.client_id} does not say what it has: {error}")
            continue
        found.update(dict.fromkeys(info.mq_table, each.client_id.partition("@")[0]))
    return found


async def _all_groups(admin: Admin) -> None:
    common.row(("#Group", 64), ("#Count", 6), ("#Version", 24), ("#Type", 5), ("#Model", 14), ("#TPS", 5),
               ("#Diff Total", 0))  # fmt: skip
    for group in await admin.groups():
        if names.is_system_group(group):
            continue
        members = await admin.members(group)
        stats = await consume_stats(admin, group, None)
        entries = stats.offset_table.values()
        left = sum(max(0, entry.broker_offset - entry.consumer_offset) for entry in entries)
        people = members.connection_set if members else []
        version = version_text(min(each.version for each in people)) if people else "OFFLINE"
        kind = TYPES.get(members.consume_type, "") if members else ""
        model = members.message_model if members else ""
        common.row((group, 64), (len(people), 6), (version, 24), (kind, 5), (model, 14),
                   (round(stats.consume_tps), 5), (left, 0))  # fmt: skip


COMMANDS: common.Command = {
    "consumerConnection": consumer_connection,
    "producerConnection": producer_connection,
    "consumerStatus": consumer_status,
    "consumerProgress": consumer_progress,
}
