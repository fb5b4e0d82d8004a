# SPDX-License-Identifier: Apache-2.0
"""mqadmin's commands about topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from aerobee.cli import connect, output
from aerobee.cli.mqadmin import common
from aerobee.protocol import bodies

if TYPE_CHECKING:
    from aerobee.client.admin import Admin

Perm = Annotated[int, typer.Option("-p", "--perm", help="2 = W, 4 = R, 6 = RW")]
Number = Annotated[int, typer.Option("-r", "--readQueueNums", help="read queues", min=1)]
KNOWN_PERMS = (2, 4, 6)


def topic_list(
    clusters: Annotated[
        bool, typer.Option("-c", "--clusterModel", help="with cluster and consumer groups")
    ] = False,
    namesrv: connect.Namesrv = None,
) -> None:
    """Names of all topics.

    aerobee admin topicList
    """

    async def work(admin: Admin) -> None:
        if not clusters:
            output.line("\n".join(await admin.topics()))
            return
        common.row(("#Cluster Name", 20), ("#Topic", 48), ("#Consumer Group", 48))
        for topic in await admin.user_topics():
            names = sorted({data.cluster for data in (await admin.route(topic)).route.broker_datas})
            for group in await admin.groups_of(topic) or [""]:
                common.row((",".join(names), 20), (topic, 48), (group, 48))

    common.ask(namesrv, work)


def topic_route(
    topic: common.Topic,
    as_list: Annotated[bool, typer.Option("-l", "--list", help="as a table")] = False,
    namesrv: connect.Namesrv = None,
) -> None:
    """Brokers and queues of a topic.

    aerobee admin topicRoute -t orders -l
    """

    async def work(admin: Admin) -> None:
        route = (await admin.route(topic)).route
        if not as_list:
            output.line(output.to_json(route).replace(": ", ":").replace(", ", ","))
            return
        common.row(("#ClusterName", 45), ("#BrokerName", 32), ("#BrokerAddrs", 50), ("#ReadQueue", 11),
                   ("#WriteQueue", 11), ("#Perm", 5))  # fmt: skip
        queues = {data.broker_name: data for data in route.queue_datas}
        for broker in route.broker_datas:
            data = queues[broker.broker_name]
            common.row((broker.cluster, 45), (broker.broker_name, 32), (common.java(broker.broker_addrs), 50),
                       (data.read_queue_nums, 11), (data.write_queue_nums, 11), (data.perm, 5))  # fmt: skip
        output.line("-" * 158)
        common.row(("Total:", 45), (len(queues), 32), ("", 50),
                   (sum(data.read_queue_nums for data in queues.values()), 11),
                   (sum(data.write_queue_nums for data in queues.values()), 11))  # fmt: skip

    common.ask(namesrv, work)


def topic_status(
    topic: common.Topic,
    cluster: Annotated[str | None, typer.Option("-c", "--cluster", help="not needed here")] = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """First and next offset of every queue of a topic.

    aerobee admin topicStatus -t orders
    """

    async def work(admin: Admin) -> None:
        common.row(
            ("#Broker Name", 32), ("#QID", 4), ("#Min Offset", 20), ("#Max Offset", 20), ("#Last Updated", 0)
        )
        for queue, entry in (await admin.topic_stats(topic)).items():
            common.row((queue.broker_name, 32), (queue.queue_id, 4), (entry.min_offset, 20),
                       (entry.max_offset, 20), (common.when(entry.last_update_timestamp), 0))  # fmt: skip

    common.ask(namesrv, work)


def topic_cluster_list(topic: common.Topic, namesrv: connect.Namesrv = None) -> None:
    """Clusters that have a topic.

    aerobee admin topicClusterList -t orders
    """

    async def work(admin: Admin) -> None:
        names = {data.cluster for data in (await admin.route(topic)).route.broker_datas}
        output.line("\n".join(sorted(names)))

    common.ask(namesrv, work)


def update_topic(
    topic: common.Topic,
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    read: Number = 8,
    write: Annotated[int, typer.Option("-w", "--writeQueueNums", help="write queues", min=1)] = 8,
    perm: Perm = 6,
    order: Annotated[str, typer.Option("-o", "--order", help="true: ordered")] = "false",
    attributes: Annotated[str, typer.Option("-a", "--attributes", help="+key=value,-key")] = "",
    namesrv: connect.Namesrv = None,
) -> None:
    """Create a topic, or change it.

    aerobee admin updateTopic -c DefaultCluster -t orders -r 8 -w 8
    """
    config = bodies.TopicConfig(
        topic_name=topic, read_queue_nums=read, write_queue_nums=write, perm=_known(perm),
        order=common.truth(order, "-o"),
    )  # fmt: skip

    async def work(admin: Admin) -> None:
        for address in await common.chosen(admin, broker, cluster):
            await put_topic(admin, address, config, attributes)
            output.line(f"create topic to {address} success.")
        output.line(described(config))

    common.ask(namesrv, work)


def _known(perm: int) -> int:
    if perm not in KNOWN_PERMS:
        raise typer.BadParameter(f"-p {perm}: it is 2 (W), 4 (R) or 6 (RW)")
    return perm


async def put_topic(admin: Admin, address: str, config: bodies.TopicConfig, attributes: str = "") -> None:
    from aerobee.protocol import names
    from aerobee.protocol.headers.topics import CreateTopic

    names.check_topic(config.topic_name)
    header = CreateTopic(
        topic=config.topic_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=attributes,
    )
    await admin.session.call(address, header)


def described(config: bodies.TopicConfig) -> str:
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={common.perm_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={common.java(config.order)}, attributes={common.java(config.attributes)}]"
    )


def update_topic_perm(
    topic: common.Topic,
    perm: Perm,
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Change a topic's permission.

    aerobee admin updateTopicPerm -c DefaultCluster -t orders -p 4
    """

    async def work(admin: Admin) -> None:
        configs = await admin.topic_config(topic)
        masters = await admin.masters()
        for address in await common.chosen(admin, broker, cluster):
            name = next((name for name, at in masters.items() if at == address), "")
            if name not in configs:
                raise connect.Failed(f"broker {address} does not have topic {topic!r}")
            config = configs[name]
            if config.perm == _known(perm):
                output.line(f"new perm equals to the old one! topic={topic} perm={perm}")
                continue
            await put_topic(admin, address, msgspec.structs.replace(config, perm=perm))
            output.line(f"update topic perm from {config.perm} to {perm} in {address} success.")

    common.ask(namesrv, work)


def delete_topic(
    topic: common.Topic,
    cluster: Annotated[str, typer.Option("-c", "--clusterName", help="cluster")],
    namesrv: connect.Namesrv = None,
) -> None:
    """Delete a topic and its messages.

    aerobee admin deleteTopic -c DefaultCluster -t orders
    """

    async def work(admin: Admin) -> None:
        await admin.delete_topic(topic, cluster=cluster)
        output.line(f"delete topic [{topic}] from cluster [{cluster}] success.")
        output.line(f"delete topic [{topic}] from NameServer success.")

    common.ask(namesrv, work)


def allocate(
    topic: common.Topic,
    ips: Annotated[str, typer.Option("-i", "--ipList", help="consumers, ',' between them")],
    namesrv: connect.Namesrv = None,
) -> None:
    """How the averaging strategy would divide a topic's queues.

    aerobee admin allocateMQ -t orders -i 10.0.0.1,10.0.0.2
    """
    people = sorted({ip.strip() for ip in ips.split(",") if ip.strip()})
    if not people:
        raise typer.BadParameter("-i: name at least one consumer")

    async def work(admin: Admin) -> None:
        from aerobee.client.consume.rebalance import BY_NAME

        queues = sorted((await admin.route(topic)).readable)
        shares = {person: BY_NAME["AVG"].divide(person, queues, people) for person in people}
        output.line(output.to_json({"result": shares}).replace(": ", ":").replace(", ", ","))

    common.ask(namesrv, work)


COMMANDS: common.Command = {
    "topicList": topic_list,
    "topicRoute": topic_route,
    "topicStatus": topic_status,
    "topicClusterList": topic_cluster_list,
    "updateTopic": update_topic,
    "updateTopicPerm": update_topic_perm,
    "deleteTopic": delete_topic,
    "allocateMQ": allocate,
}
