# SPDX-License-Identifier: Apache-2.0
"""`aerobee topics`: list, show, create, change, delete, and how busy they are."""

from __future__ import annotations

import fnmatch
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import complete, connect, output, topic_retention, wrong
from aerobee.cli.pairs import pairs_of
from aerobee.protocol.codes import perm_text

if TYPE_CHECKING:
    from aerobee.client.admin import Admin
    from aerobee.protocol.bodies import TopicConfig

app = typer.Typer(add_completion=False, help="Topics: list, show, create, change, delete.")

PERMS = {"rw": 6, "r": 4, "w": 2, "none": 0}
Topic = Annotated[str, typer.Argument(help="topic", autocompletion=complete.topics)]
Queues = Annotated[
    int | None, typer.Option("--queues", "-q", help="queues on each broker", min=1, max=16_384)
]
NewQueues = Annotated[
    int | None,
    typer.Option(
        "--queues", "-q", help="queues on each broker [the brokers' default_queues]", min=1, max=16_384
    ),
]
Perm = Annotated[str | None, typer.Option("--perm", help="rw, r (consume only), w (send only) or none")]
Cluster = Annotated[str | None, typer.Option("--cluster", "-c", help="only the brokers of this cluster")]
Attribute = Annotated[
    list[str] | None, typer.Option("--attribute", help="as name=value, such as message.type=FIFO; repeatable")
]
All = Annotated[bool, typer.Option("--all", "-a", help="with retry, dead-letter and system topics")]
Pattern = Annotated[str | None, typer.Argument(help="only names like this: 'order*'")]


@app.callback(invoke_without_command=True)
def topics(ctx: typer.Context, namesrv: connect.Namesrv = None, json: output.Json = False) -> None:
    """List, show, create, change and delete topics; alone it lists them.

    aerobee topics
    """
    connect.remember_namesrv(namesrv)
    output.remember_json(json)
    if ctx.invoked_subcommand is None:
        connect.run(_list(connect.address_of(None), None, every=False, json=output.wants_json(json)))


@app.command("list")
def list_(
    pattern: Pattern = None,
    every: All = False,
    watch: connect.Watch = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """All topics with their queues, permission and number of messages.

    aerobee topics list 'order*'
    """
    address, as_json = connect.address_of(namesrv), output.wants_json(json)
    connect.run(connect.watched(lambda: _list(address, pattern, every=every, json=as_json), watch))


async def _list(address: str, pattern: str | None, *, every: bool, json: bool) -> None:
    async with connect.connected(address) as admin:
        names = await (admin.topics() if every else admin.user_topics())
        rows = [await _summary(admin, name) for name in names if fnmatch.fnmatch(name, pattern or "*")]
        gone = await wrong.gone_brokers(admin)
    for sentence in wrong.of_gone(gone):  # whose queues and messages are not counted
        output.note(sentence)
    if json:
        output.line(output.pretty_json(rows))
        return
    if not rows:
        output.note("no topics yet; `aerobee topics create NAME`, or just send to one")
    columns = {
        "topic": "topic", "brokers": "brokers", "queues": "queues", "perm": "perm", "messages": "messages",
        "lastStored": "last stored",
    }  # fmt: skip
    output.table([{**row, "lastStored": output.local_time(row["lastStored"])} for row in rows], columns)


async def _summary(admin: Admin, topic: str) -> dict[str, Any]:
    found = await admin.route(topic)
    datas = found.route.queue_datas
    stats = await admin.topic_stats(topic)
    return {
        "topic": topic,
        "brokers": len(datas),
        "queues": sum(data.read_queue_nums for data in datas),
        "perm": perm_text(datas[0].perm) if datas else "none",
        "messages": sum(entry.max_offset - entry.min_offset for entry in stats.values()),
        "lastStored": max((entry.last_update_timestamp for entry in stats.values()), default=0),
    }


@app.command()
def show(topic: Topic, namesrv: connect.Namesrv = None, json: output.Json = False) -> None:
    """One topic: settings, queues with their offsets, and the groups that consume it.

    aerobee topics show orders
    """
    connect.run(_show(connect.address_of(namesrv), topic, json=output.wants_json(json)))


async def _show(address: str, topic: str, *, json: bool) -> None:
    async with connect.connected(address) as admin:
        await connect.existing_topic(admin, topic)
        configs = await admin.topic_config(topic)
        stats = await admin.topic_stats(topic)
        groups = [await _lag_row(admin, group, topic) for group in await user_groups(admin, topic)]
    queues = [
        {
            "brokerName": queue.broker_name,
            "queueId": queue.queue_id,
            "minOffset": entry.min_offset,
            "maxOffset": entry.max_offset,
            "messages": entry.max_offset - entry.min_offset,
            "lastStored": entry.last_update_timestamp,
        }
        for queue, entry in sorted(stats.items(), key=lambda each: (each[0].broker_name, each[0].queue_id))
    ]
    brokers = [_config_row(name, config) for name, config in sorted(configs.items())]
    if json:
        shown = {"topic": topic, "brokers": brokers, "queues": queues, "groups": groups}
        output.line(output.pretty_json(shown))
        return
    _print_topic(topic, brokers, queues, groups)


def _print_topic(
    topic: str, brokers: list[dict[str, Any]], queues: list[dict[str, Any]], groups: list[dict[str, Any]]
) -> None:
    output.table(
        brokers,
        {"brokerName": "broker", "readQueues": "read queues", "writeQueues": "write queues", "perm": "perm",
         "order": "ordered", "retention": "retention", "attributes": "attributes"},
        title=f"Topic {topic}",
    )  # fmt: skip
    output.line()
    output.table(
        [{**row, "lastStored": output.local_time(row["lastStored"])} for row in queues],
        {"brokerName": "broker", "queueId": "queue", "minOffset": "min", "maxOffset": "max",
         "messages": "messages", "lastStored": "last stored"},
        title="Queues",
    )  # fmt: skip
    output.line()
    if not groups:
        output.note("no group consumes it")
        return
    output.table(
        [{**row, "oldestMs": output.age(row["oldestMs"])} for row in groups],
        {"group": "group", "online": "online", "ready": "ready", "inFlight": "in flight",
         "retrying": "retrying", "dead": "dead", "oldestMs": "oldest"},
        title="Groups",
    )  # fmt: skip


def _config_row(name: str, config: TopicConfig) -> dict[str, Any]:
    return {
        "brokerName": name,
        "readQueues": config.read_queue_nums,
        "writeQueues": config.write_queue_nums,
        "perm": perm_text(config.perm),
        "order": config.order,
        "retention": topic_retention.shown(config.attributes),
        "attributes": config.attributes,
    }


async def user_groups(admin: Admin, topic: str) -> list[str]:
    """Those that consume it, without RocketMQ's tools."""
    from aerobee.protocol import names

    return [group for group in await admin.groups_of(topic) if not names.is_system_group(group)]


async def _lag_row(admin: Admin, group: str, topic: str) -> dict[str, Any]:
    lag = await admin.lag(group, topic)
    return {
        "group": group,
        "online": lag.online,
        "ready": lag.ready,
        "inFlight": lag.in_flight,
        "retrying": lag.retrying + lag.delayed,
        "dead": lag.dead,
        "oldestMs": lag.oldest_ms,
    }


# -- changing ----------------------------------------------------------------------------------------------


@app.command()
def create(
    topic: Topic,
    queues: NewQueues = None,
    perm: Perm = None,
    cluster: Cluster = None,
    retention: topic_retention.Retention = None,
    attribute: Attribute = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Create a topic on every broker. Where some have it already, those that have not get it with the same settings.

    aerobee topics create orders --queues 16
    """
    attributes = _attributes(attribute) | topic_retention.attribute(retention)
    connect.run(_create(connect.address_of(namesrv), topic, queues, perm, cluster, attributes))


async def _create(
    address: str,
    topic: str,
    queues: int | None,
    perm: str | None,
    cluster: str | None,
    attributes: dict[str, str],
) -> None:
    value = parse_perm(perm or "rw")
    async with connect.connected(address) as admin:
        if await admin.topic_exists(topic):
            await _complete(admin, topic, cluster)
            return
        queues = queues or await admin.default_queues(cluster)
        brokers = sorted(await admin.masters(cluster))
        await admin.create_topic(
            topic, queues=queues, perm=value, cluster=cluster, brokers=brokers, attributes=attributes
        )
        await topic_retention.warn_past_the_log(admin, attributes, cluster)
    output.line(f"created topic {topic} with {queues} queues on {', '.join(brokers)}")


async def _complete(admin: Admin, topic: str, cluster: str | None) -> None:
    """A broker that was away when the topic was made gets it as the others have it."""
    known = await admin.topic_config(topic)
    missing = sorted((await admin.masters(cluster)).keys() - known.keys())
    if not missing or not known:
        raise connect.Failed(
            f"topic {topic!r} exists; change it with `aerobee topics update {shlex.quote(topic)}`"
        )
    model = next(iter(known.values()))
    await admin.create_topic(
        topic,
        queues=model.write_queue_nums,
        perm=model.perm,
        cluster=cluster,
        brokers=missing,
        attributes=model.attributes,
    )
    output.line(
        f"created topic {topic} with {model.write_queue_nums} queues on {', '.join(missing)}, "
        f"as {', '.join(sorted(known))} has it"
    )


@app.command()
def update(
    topic: Topic,
    queues: Queues = None,
    perm: Perm = None,
    cluster: Cluster = None,
    retention: topic_retention.Retention = None,
    attribute: Attribute = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Change the queues, the permission, the retention or attributes of a topic.

    aerobee topics update orders --retention 12h
    """
    changes = _attributes(attribute) | topic_retention.attribute(retention)
    if queues is None and perm is None and not changes:
        raise typer.BadParameter("nothing to change: give --queues, --perm, --retention or --attribute")
    connect.run(_update(connect.address_of(namesrv), topic, queues, perm, cluster, changes))


async def _update(
    address: str,
    topic: str,
    queues: int | None,
    perm: str | None,
    cluster: str | None,
    attributes: dict[str, str],
) -> None:
    value = None if perm is None else parse_perm(perm)
    async with connect.connected(address) as admin:
        await connect.existing_topic(admin, topic)
        known = next(iter((await admin.topic_config(topic)).values()))
        await admin.create_topic(
            topic,
            queues=queues or known.write_queue_nums,
            perm=known.perm if value is None else value,
            cluster=cluster,
            attributes=attributes,
        )
        await topic_retention.warn_past_the_log(admin, attributes, cluster)
    output.line(f"changed topic {topic}")


def parse_perm(text: str) -> int:
    try:
        return PERMS[text.lower()]
    except KeyError:
        raise typer.BadParameter(f"--perm {text!r}: it is {', '.join(PERMS)}") from None


def _attributes(pairs: list[str] | None) -> dict[str, str]:
    return {name: value.strip() for name, value in pairs_of(pairs, "--attribute").items()}


@app.command()
def delete(
    topic: Topic,
    cluster: Cluster = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
    namesrv: connect.Namesrv = None,
) -> None:
    """Delete a topic and its messages.

    aerobee topics delete orders --yes
    """
    connect.run(_delete(connect.address_of(namesrv), topic, cluster, yes=yes))


async def _delete(address: str, topic: str, cluster: str | None, *, yes: bool) -> None:
    async with connect.connected(address) as admin:
        await connect.existing_topic(admin, topic)
        stats = await admin.topic_stats(topic)
        number = sum(entry.max_offset - entry.min_offset for entry in stats.values())
        output.confirmed(f"Delete topic {topic!r} and its {number:,} messages?", yes)
        await admin.delete_topic(topic, cluster=cluster)
    output.line(f"deleted topic {topic}")


# -- how busy ----------------------------------------------------------------------------------------------


@app.command()
def stats(
    pattern: Pattern = None,
    watch: connect.Watch = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Messages in and out a second (over the last minute) and in the last 24 hours, by topic and group.

    aerobee topics stats orders
    """
    address, as_json = connect.address_of(namesrv), output.wants_json(json)
    connect.run(connect.watched(lambda: _stats(address, pattern, json=as_json), watch))


async def _stats(address: str, pattern: str | None, *, json: bool) -> None:
    rows = []
    async with connect.connected(address) as admin:
        for topic in await admin.user_topics():
            if fnmatch.fnmatch(topic, pattern or "*"):
                rows += await traffic(admin, topic)
    if json:
        output.line(output.pretty_json(rows))
        return
    output.table(
        rows,
        {"topic": "topic", "group": "group", "inTps": "in/s", "in24h": "in 24 h", "outTps": "out/s",
         "out24h": "out 24 h", "accumulation": "waiting"},
    )  # fmt: skip


async def traffic(admin: Admin, topic: str) -> list[dict[str, Any]]:
    """A row per group of the topic, or one without a group."""
    in_tps, in_day = await _counter(admin, topic, "TOPIC_PUT_NUMS", topic)
    rows: list[dict[str, Any]] = []
    for group in await user_groups(admin, topic):
        out_tps, out_day = await _counter(admin, topic, "GROUP_GET_NUMS", f"{topic}@{group}")
        progress = await admin.progress(group, topic)
        waiting = sum(max(0, entry.broker_offset - entry.consumer_offset) for entry in progress.values())
        rows.append(
            {"topic": topic, "group": group, "inTps": in_tps, "in24h": in_day, "outTps": out_tps,
             "out24h": out_day, "accumulation": waiting}
        )  # fmt: skip
    none = {"topic": topic, "group": None, "inTps": in_tps, "in24h": in_day, "outTps": 0.0, "out24h": 0}
    return rows or [{**none, "accumulation": 0}]


async def _counter(admin: Admin, topic: str, name: str, key: str) -> tuple[float, int]:
    """Messages a second in the last minute, and in the last day; 0 where the broker has not counted any."""
    from aerobee.errors import BrokerError

    tps, day = 0.0, 0
    for data in (await admin.route(topic)).route.broker_datas:
        if data.master is None:
            continue
        try:
            found = await admin.broker_stats(data.master, name, key)
        except BrokerError:
            continue
        tps += found.stats_minute.tps
        day += found.stats_day.sum
    return round(tps, 2), day
