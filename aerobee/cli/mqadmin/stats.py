# SPDX-License-Identifier: Apache-2.0
"""mqadmin's commands about traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aerobee.cli import connect, output
from aerobee.cli.mqadmin import common
from aerobee.cli.topics import traffic
from aerobee.protocol import bodies, names

if TYPE_CHECKING:
    from aerobee.client.admin import Admin


def stats_all(
    active: Annotated[bool, typer.Option("-a", "--activeTopic", help="only topics with traffic")] = False,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="only this topic")] = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Traffic and what waits, by topic and group.

    aerobee admin statsAll
    """

    async def work(admin: Admin) -> None:
        common.row(("#Topic", 64), ("#Consumer Group", 64), ("#Accumulation", -12), ("#InTPS", -11),
                   ("#OutTPS", -11), ("#InMsg24Hour", -14), ("#OutMsg24Hour", -14))  # fmt: skip
        if topic is not None:
            await connect.existing_topic(admin, topic)
        for name in [topic] if topic else await admin.topics():
            if names.is_retry(name) or names.is_dead_letter(name):
                continue
            for each in await traffic(admin, name):
                if active and not (each["inTps"] or each["outTps"]):
                    continue
                group = "" if each["group"] is None else each["group"]
                last = "NO_CONSUMER" if each["group"] is None else each["out24h"]
                common.row((name, 64), (group, 64), (each["accumulation"], -12), (f"{each['inTps']:.2f}", -11),
                           *([] if not group else [(f"{each['outTps']:.2f}", -11)]),
                           (each["in24h"], -14), (last, -14))  # fmt: skip

    common.ask(namesrv, work)


def broker_consume_stats(
    broker: Annotated[str, typer.Option("-b", "--brokerAddr", help="broker address")],
    level: Annotated[int, typer.Option("-l", "--level", help="only what lags more than this")] = 0,
    order: Annotated[str, typer.Option("-o", "--order", help="true: ordered topics")] = "false",
    namesrv: connect.Namesrv = None,
) -> None:
    """Progress of every group on one broker.

    aerobee admin brokerConsumeStats -b 127.0.0.1:10911
    """
    ordered = common.truth(order, "-o")

    async def work(admin: Admin) -> None:
        from aerobee.protocol.headers.cluster import BrokerConsumeStats

        answer = await admin.session.call(broker, BrokerConsumeStats(is_order=ordered))
        found = bodies.decode(answer.body, bodies.ConsumeStatsList)
        common.row(("#Topic", 64), ("#Group", 64), ("#Broker Name", 32), ("#QID", 4), ("#Broker Offset", 20),
                   ("#Consumer Offset", 20), ("#Diff", 20), ("#LastTime", 0))  # fmt: skip
        for item in found.consume_stats_list:
            for group, parts in item.items():
                for part in parts:
                    _print_part(group, part, level)
        output.line()
        output.line(f"Diff Total: {found.total_diff}")

    common.ask(namesrv, work)


def _print_part(group: str, part: bodies.ConsumeStats, level: int) -> None:
    for queue, entry in sorted(part.offset_table.items()):
        diff = entry.broker_offset - entry.consumer_offset
        if diff >= level:
            common.row((queue.topic, 64), (group, 64), (queue.broker_name, 32), (queue.queue_id, 4),
                       (entry.broker_offset, 20), (entry.consumer_offset, 20), (diff, 20),
                       (common.seconds(entry.last_timestamp), 0))  # fmt: skip


COMMANDS: common.Command = {"statsAll": stats_all, "brokerConsumeStats": broker_consume_stats}
