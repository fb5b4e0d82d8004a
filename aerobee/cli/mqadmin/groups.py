# SPDX-License-Identifier: Apache-2.0
"""mqadmin's commands about consumer groups: settings and how they fetch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from aerobee.cli import connect, output
from aerobee.cli.mqadmin import common
from aerobee.errors import AerobeeError, BrokerError, GroupNotFound, PartlyDone
from aerobee.protocol import bodies, names
from aerobee.protocol.bodies import Mode

if TYPE_CHECKING:
    from aerobee.client.admin import Admin

TIMEOUT_MS = 5_000


def set_consume_mode(
    topic: Annotated[str, typer.Option("-t", "--topicName", help="topic name")],
    group: common.Group,
    mode: Annotated[str, typer.Option("-m", "--mode", help="PULL or POP")],
    share: Annotated[
        int, typer.Option("-q", "--popShareQueueNum", help="POP: consumers a queue is shared with, 0 = all")
    ] = 0,
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Have a group's consumers fetch a topic by PULL or POP.

    aerobee admin setConsumeMode -c DefaultCluster -t orders -g billing -m POP -q 8
    """
    if mode not in (Mode.PULL, Mode.POP):
        raise typer.BadParameter(f"-m {mode!r}: it is PULL or POP, in capitals")

    async def work(admin: Admin) -> None:
        from aerobee.protocol.headers.consume import SetRequestMode

        body = bodies.RequestMode(
            topic=topic, consumer_group=group, mode=Mode(mode), pop_share_queue_num=share
        )
        done: list[str] = []
        failures: dict[str, AerobeeError] = {}
        for address in await common.chosen(admin, broker, cluster):
            try:
                await admin.session.call(
                    address, SetRequestMode(), bodies.encode(body), timeout_ms=TIMEOUT_MS
                )
            except AerobeeError as error:
                failures[address] = error  # the others are told all the same
            else:
                done.append(address)
                output.line(f"set consume mode to {address} success.")
        if failures and not done:
            raise next(iter(failures.values()))
        if failures:
            raise PartlyDone(f"set {group!r} on {topic!r} to {mode}", done, failures)
        output.line(f"topic[{topic}] group[{group}] consume mode[{mode}] popShareQueueNum[{share}]")

    common.ask(namesrv, work)


Flag = "true or false"


def update_sub_group(
    group: common.Group,
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    enable: Annotated[str, typer.Option("-s", "--consumeEnable", help=Flag)] = "true",
    from_min: Annotated[str, typer.Option("-m", "--consumeFromMinEnable", help=Flag)] = "true",
    broadcast: Annotated[str, typer.Option("-d", "--consumeBroadcastEnable", help=Flag)] = "true",
    orderly: Annotated[str, typer.Option("-o", "--consumeMessageOrderly", help=Flag)] = "false",
    retry_queues: Annotated[int, typer.Option("-q", "--retryQueueNums", help="retry queues", min=1)] = 1,
    retries: Annotated[int, typer.Option("-r", "--retryMaxTimes", help="attempts", min=0)] = 16,
    policy: Annotated[
        str | None, typer.Option("-p", "--groupRetryPolicy", help="JSON of a retry policy")
    ] = None,
    notify: Annotated[str, typer.Option("-a", "--notifyConsumerIdsChanged", help=Flag)] = "true",
    namesrv: connect.Namesrv = None,
) -> None:
    """Create a consumer group, or change it.

    aerobee admin updateSubGroup -c DefaultCluster -g billing -r 3
    """
    config = bodies.GroupConfig(
        group_name=group,
        consume_enable=common.truth(enable, "-s"),
        consume_from_min_enable=common.truth(from_min, "-m"),
        consume_broadcast_enable=common.truth(broadcast, "-d"),
        consume_message_orderly=common.truth(orderly, "-o"),
        retry_queue_nums=retry_queues,
        retry_max_times=retries,
        group_retry_policy=_policy(policy),
        notify_consumer_ids_changed_enable=common.truth(notify, "-a"),
    )
    names.check_group(group)

    async def work(admin: Admin) -> None:
        from aerobee.protocol.headers.groups import CreateGroup

        for address in await common.chosen(admin, broker, cluster):
            await admin.session.call(address, CreateGroup(), bodies.encode(config))
            output.line(f"create subscription group to {address} success.")
        values = ", ".join(f"{name}={value}" for name, value in _values(config).items())
        output.line(f"SubscriptionGroupConfig{{{values}}}")

    common.ask(namesrv, work)


def _policy(text: str | None) -> bodies.RetryPolicy:
    if text is None:
        return bodies.RetryPolicy()
    try:
        return msgspec.json.decode(text, type=bodies.RetryPolicy)
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"-p: no JSON of a retry policy: {error}") from None


def _values(config: bodies.GroupConfig) -> dict[str, str]:
    order = (
        "groupName", "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable",
        "consumeMessageOrderly", "retryQueueNums", "retryMaxTimes", "groupRetryPolicy", "brokerId",
        "whichBrokerWhenConsumeSlowly", "notifyConsumerIdsChangedEnable", "groupSysFlag",
        "consumeTimeoutMinute", "subscriptionDataSet", "attributes",
    )  # fmt: skip
    values = msgspec.to_builtins(config)
    return {name: common.java(values[name]) for name in order if name in values}


def get_consumer_config(group: common.Group, namesrv: connect.Namesrv = None) -> None:
    """A group's settings on every broker.

    aerobee admin getConsumerConfig -g billing
    """

    async def work(admin: Admin) -> None:
        from aerobee.protocol.headers.groups import GetGroupConfig

        found = False
        info = await admin.cluster()
        for name, address in (await admin.masters()).items():
            try:
                answer = await admin.session.call(address, GetGroupConfig(group=group))
            except GroupNotFound:
                continue
            found = True
            common.title(f"{info.broker_addr_table[name].cluster}:{name}")
            common.settings(_values(bodies.decode(answer.body, bodies.GroupConfig)))
        if not found:
            raise GroupNotFound(f"group {group!r} exists on no broker")

    common.ask(namesrv, work)


def delete_sub_group(
    group: common.Group,
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    offsets: Annotated[str, typer.Option("-r", "--removeOffset", help="its progress too")] = "false",
    namesrv: connect.Namesrv = None,
) -> None:
    """Delete a consumer group, its retry and its dead-letter topic.

    aerobee admin deleteSubGroup -c DefaultCluster -g billing
    """
    clean = common.truth(offsets, "-r")

    async def work(admin: Admin) -> None:
        from aerobee.protocol.headers.groups import DeleteGroup

        for address in await common.chosen(admin, broker, cluster):
            await admin.session.call(address, DeleteGroup(group_name=group, clean_offset=clean))
            place = f" in cluster [{cluster}]" if cluster else ""
            output.line(f"delete subscription group [{group}] from broker [{address}]{place} success.")
        if cluster:
            await _delete_derived(admin, group, cluster)

    common.ask(namesrv, work)


async def _delete_derived(admin: Admin, group: str, cluster: str) -> None:
    for topic in (names.retry_topic(group), names.dead_letter_topic(group)):
        if not await admin.topic_exists(topic):
            continue
        try:
            await admin.delete_topic(topic, cluster=cluster)
            output.line(f"delete topic [{topic}] from cluster [{cluster}] success.")
        except BrokerError as error:
            output.note(f"topic {topic} stays: {error}")


COMMANDS: common.Command = {
    "setConsumeMode": set_consume_mode,
    "updateSubGroup": update_sub_group,
    "getConsumerConfig": get_consumer_config,
    "deleteSubGroup": delete_sub_group,
}
