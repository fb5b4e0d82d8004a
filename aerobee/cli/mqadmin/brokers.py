# SPDX-License-Identifier: Apache-2.0
"""mqadmin's commands about brokers: figures, settings, housekeeping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aerobee.cli import connect, output
from aerobee.cli.cluster import today
from aerobee.cli.mqadmin import as_json, common
from aerobee.errors import AerobeeError

if TYPE_CHECKING:
    from aerobee.client.admin import Admin
    from aerobee.protocol.command import Header


def cluster_list(
    more: Annotated[bool, typer.Option("-m", "--moreStats", help="messages of today and yesterday")] = False,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Clusters and their brokers.

    aerobee admin clusterList
    """

    async def work(admin: Admin) -> None:
        info = await admin.cluster()
        places = [
            (name, broker, broker_id, address)
            for name, brokers in sorted(info.cluster_addr_table.items())
            if cluster in (None, name)
            for broker in sorted(brokers)
            for broker_id, address in sorted(info.broker_addr_table[broker].broker_addrs.items())
        ]
        if not places:
            raise connect.Failed(f"no cluster {cluster!r}; there are {', '.join(info.cluster_addr_table)}")
        await (_more(admin, places) if more else _base(admin, places))

    common.ask(namesrv, work)


Place = tuple[str, str, int, str]


async def _base(admin: Admin, places: list[Place]) -> None:
    common.row(("#Cluster Name", 22), ("#Broker Name", 22), ("#BID", 4), ("#Addr", 22), ("#Version", 16),
               ("#InTPS(LOAD)", -16), ("#OutTPS(LOAD)", -30), ("#Timer(Progress)", 22), ("#PCWait(ms)", 11),
               ("#Hour", 12), ("#SPACE", 8), ("#ACTIVATED", 10))  # fmt: skip
    for name, broker, broker_id, address in places:
        try:
            found = await admin.broker_runtime(address)
        except AerobeeError as error:
            output.note(f"{address}: {error}")
            found = {}
        sends = f"({_load(found, 'send')})"
        pulls = f"({_load(found, 'pull')}|{_load(found, 'ack')})"
        timer = (
            f"{found.get('timerReadBehind', '0')}-{found.get('timerOffsetBehind', '0')}"
            f"({int(found.get('timerCongestNum', '0')) / 10_000:.1f}w, {float(found.get('timerEnqueueTps', 0)):.1f}, "
            f"{float(found.get('timerDequeueTps', 0)):.1f})"
        )
        oldest = int(found.get("earliestMessageTimeStamp", 0))
        hours = max(0, connect.clock.now() - oldest) / 3_600_000 if oldest > 0 else 0.0
        common.row((name, 22), (broker, 22), (broker_id, 4), (address, 22),
                   (found.get("brokerVersionDesc", ""), 16), (_tps(found, "putTps") + sends, -16),
                   (_tps(found, "getTransferredTps") + pulls, -30), (timer, 22),
                   (found.get("pageCacheLockTimeMills", "0"), 11), (f"{hours:.2f}", 12),
                   (found.get("commitLogDiskRatio", "0.0"), 8), (found.get("brokerActive", "false"), 10))  # fmt: skip


def _load(found: dict[str, str], pool: str) -> str:
    queue = f"{pool}ThreadPoolQueue"
    return f"{found.get(queue + 'Size', '0')},{found.get(queue + 'HeadWaitTimeMills', '0')}ms"


def _tps(found: dict[str, str], name: str) -> str:
    return f"{float((found.get(name) or '0').split()[0]):.2f}"


async def _more(admin: Admin, places: list[Place]) -> None:
    common.row(("#Cluster Name", 16), ("#Broker Name", 32), ("#InTotalYest", -14), ("#OutTotalYest", -14),
               ("#InTotalToday", -14), ("#OutTotalToday", -14))  # fmt: skip
    for name, broker, _, address in places:
        found = await admin.broker_runtime(address)
        common.row((name, 16), (broker, 32), (_yesterday(found, "msgPut"), -14), (_yesterday(found, "msgGet"), -14),
                   (today(found, "msgPut"), -14), (today(found, "msgGet"), -14))  # fmt: skip


def _yesterday(found: dict[str, str], name: str) -> int:
    return int(found.get(f"{name}TotalTodayMorning", 0)) - int(found.get(f"{name}TotalYesterdayMorning", 0))


def broker_status(
    broker: common.BrokerAddr = None, cluster: common.Cluster = None, namesrv: connect.Namesrv = None
) -> None:
    """Every figure of a broker.

    aerobee admin brokerStatus -b 127.0.0.1:10911
    """

    async def work(admin: Admin) -> None:
        for address in await common.chosen(admin, broker, cluster):
            found = dict(sorted((await admin.broker_runtime(address)).items()))
            if (record := as_json.current()) is not None:
                record.settings(found if broker else {address: found})
                continue
            for name, value in found.items():
                output.line(f"{name:<32}: {value}" if broker else f"{address:<24} {name:<32}: {value}")

    common.ask(namesrv, work)


def get_broker_config(
    broker: common.BrokerAddr = None, cluster: common.Cluster = None, namesrv: connect.Namesrv = None
) -> None:
    """A broker's settings.

    aerobee admin getBrokerConfig -b 127.0.0.1:10911
    """

    async def work(admin: Admin) -> None:
        for address in await common.chosen(admin, broker, cluster):
            common.title(address)
            common.settings(await admin.broker_config(address))

    common.ask(namesrv, work)


def update_broker_config(
    key: Annotated[str, typer.Option("-k", "--key", help="setting")],
    value: Annotated[str, typer.Option("-v", "--value", help="its new value")],
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Change a setting of a running broker.

    aerobee admin updateBrokerConfig -b 127.0.0.1:10911 -k longPollingEnable -v true
    """

    async def work(admin: Admin) -> None:
        for address in await common.chosen(admin, broker, cluster):
            await admin.update_broker_config(address, {key: value})
            output.line(f"update broker config success, {address}")

    common.ask(namesrv, work)


def _cleaning(what: str, header: type[Header], example: str) -> common.Command:
    def clean(
        broker: common.BrokerAddr = None, cluster: common.Cluster = None, namesrv: connect.Namesrv = None
    ) -> None:
        async def work(admin: Admin) -> None:
            places = await common.chosen(admin, broker, cluster) if broker or cluster else None
            for address in places or (await admin.masters()).values():
                await admin.session.call(address, header())
            output.line("success")

        common.ask(namesrv, work)

    clean.__doc__ = f"{what}\n\naerobee admin {example} -c DefaultCluster"
    return {example: clean}


def _cleanings() -> common.Command:
    from aerobee.protocol.headers.cluster import CleanExpiredQueues, CleanUnusedTopics, DeleteExpiredLog

    return {
        **_cleaning("Remove expired consume queue files.", CleanExpiredQueues, "cleanExpiredCQ"),
        **_cleaning("Remove queues of topics that are gone.", CleanUnusedTopics, "cleanUnusedTopic"),
        **_cleaning("Remove expired commit log files.", DeleteExpiredLog, "deleteExpiredCommitLog"),
    }


COMMANDS: common.Command = {
    "clusterList": cluster_list,
    "brokerStatus": broker_status,
    "getBrokerConfig": get_broker_config,
    "updateBrokerConfig": update_broker_config,
    **_cleanings(),
}
