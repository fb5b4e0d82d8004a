# SPDX-License-Identifier: Apache-2.0
"""`aerobee groups`: where each group's messages are, who consumes, and moving them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import complete, connect, output, owners
from aerobee.cli.dead_letters import dead, resend
from aerobee.cli.reset import reset
from aerobee.protocol.versions import version_text

if TYPE_CHECKING:
    from aerobee.client.admin import Admin, GroupLag
    from aerobee.protocol.bodies import ConsumerConnection

app = typer.Typer(
    add_completion=False, help="Consumer groups: exact lag, members, reset, pull or POP, dead letters."
)

Group = Annotated[str, typer.Argument(help="consumer group", autocompletion=complete.groups)]
Topic = Annotated[str, typer.Option("--topic", "-t", help="topic", autocompletion=complete.topics)]
Cluster = Annotated[str | None, typer.Option("--cluster", "-c", help="only the brokers of this cluster")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]

app.command()(dead)
app.command()(resend)
app.command()(reset)

FIGURES = {
    "group": "group", "members": "members", "mode": "mode", "ready": "ready", "inFlight": "in flight",
    "retrying": "retrying", "delayed": "delayed", "dead": "dead", "oldestMs": "oldest",
    "conflicts": "conflicts",
}  # fmt: skip


@app.callback(invoke_without_command=True)
def groups(ctx: typer.Context, namesrv: connect.Namesrv = None, json: output.Json = False) -> None:
    """Consumer groups: exact lag, members, reset, pull or POP, dead letters; alone it lists them.

    aerobee groups
    """
    connect.remember_namesrv(namesrv)
    output.remember_json(json)
    if ctx.invoked_subcommand is None:
        connect.run(_list(connect.address_of(None), every=False, json=output.wants_json(json)))


@app.command("list")
def list_(
    every: Annotated[bool, typer.Option("--all", "-a", help="with RocketMQ's own groups")] = False,
    watch: connect.Watch = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Every group, connected or not: messages ready, in flight, retrying, delayed, dead, and the oldest one's age.

    Delayed are failed ones until their next try; OLDEST leaves them out (`aerobee messages delayed` has them). Finished
    ones are in flight until who pulls tells of them, every 5 s.

    aerobee groups list --json
    """
    address, as_json = connect.address_of(namesrv), output.wants_json(json)
    connect.run(connect.watched(lambda: _list(address, every=every, json=as_json), watch))


async def _list(address: str, *, every: bool, json: bool) -> None:
    from aerobee.protocol import names

    async with connect.connected(address) as admin:
        known = [name for name in await admin.groups() if every or not names.is_system_group(name)]
        rows = [await _figures(admin, group) for group in known]
    if json:
        output.line(output.pretty_json(rows))
        return
    if not rows:
        output.note("no groups yet; `aerobee consume TOPIC -g GROUP` makes one")
    output.table([_readable(row) for row in rows], FIGURES)
    for row in rows:
        _warn(row["group"], row["conflicts"])


async def _figures(admin: Admin, group: str) -> dict[str, Any]:
    lag = await admin.lag(group)
    members = await admin.members(group) if lag.online else None
    return figures_row(lag, 0 if members is None else len(members.connection_set))


def figures_row(lag: GroupLag, members: int) -> dict[str, Any]:
    modes = sorted(set(lag.modes.values()))
    return {
        "group": lag.group,
        "members": members,
        "mode": "+".join(modes) if modes else None,
        "ready": lag.ready,
        "inFlight": lag.in_flight,
        "retrying": lag.retrying,
        "delayed": lag.delayed,
        "dead": lag.dead,
        "oldestMs": lag.oldest_ms,
        "exact": lag.exact and lag.delayed_is_exact,
        "conflicts": lag.conflicts,
    }


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "oldestMs": output.age(row["oldestMs"]),
        "conflicts": ", ".join(row["conflicts"]) if row["conflicts"] else None,
    }


def _warn(group: str, conflicts: dict[str, dict[str, list[str]]]) -> None:
    for topic, by_expression in conflicts.items():
        said = "; ".join(
            f"{text or '(not at all)'} by {', '.join(ids)}" for text, ids in by_expression.items()
        )
        output.note(
            f"conflict: members of {group} subscribe to {topic} differently and lose messages: {said}. "
            f"Give all consumers of a group the same subscription."
        )


@app.command()
def show(
    group: Group,
    watch: connect.Watch = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """One group: its figures, each queue, its members and what they subscribe to.

    aerobee groups show billing
    """
    address, as_json = connect.address_of(namesrv), output.wants_json(json)
    connect.run(connect.watched(lambda: _show(address, group, json=as_json), watch))


async def _show(address: str, group: str, *, json: bool) -> None:
    async with connect.connected(address) as admin:
        await connect.existing_group(admin, group)
        lag = await admin.lag(group)
        members = await admin.members(group)
        told = await owners.told(admin, group, members)
    row = figures_row(lag, 0 if members is None else len(members.connection_set))
    queues = [row | owners.of_queue(row, told) for row in map(_queue_row, lag.queues)]
    people = _members(members, told)
    if json:
        shown = {**row, "modes": lag.modes, "queues": queues, **people}
        output.line(output.pretty_json(shown))
        return
    output.table([_readable(row)], FIGURES, title=f"Group {group}")
    output.line()
    output.table(
        [{**each, "oldestMs": output.age(each["oldestMs"])} for each in queues],
        {"topic": "topic", "brokerName": "broker", "queueId": "queue", "committed": "committed",
         "position": "position", "maxOffset": "max", "ready": "ready", "inFlight": "in flight",
         "oldestMs": "oldest", "held": "holds", "owner": "owner"},
        title="Queues",
    )  # fmt: skip
    _print_members(people)
    _warn(group, lag.conflicts)


def _queue_row(queue: Any) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
        "committed": queue.committed,
        "position": queue.position,
        "minOffset": queue.min_offset,
        "maxOffset": queue.max_offset,
        "ready": queue.ready,
        "inFlight": queue.in_flight,
        "oldestMs": max(queue.oldest_ready_ms, queue.oldest_in_flight_ms),
    }


def _members(found: ConsumerConnection | None, told: owners.Told) -> dict[str, Any]:
    if found is None:
        return {"clients": [], "subscriptions": {}}
    return {
        "clients": [
            {"clientId": each.client_id, "address": each.client_addr, "language": each.language,
             "version": version_text(each.version), **owners.of_member(each.client_id, told)}
            for each in found.connection_set
        ],
        "consumeType": found.consume_type,
        "messageModel": found.message_model,
        "subscriptions": {topic: data.sub_string for topic, data in found.subscription_table.items()},
    }  # fmt: skip


def _print_members(people: dict[str, Any]) -> None:
    output.line()
    if not people["clients"]:
        output.line("nobody consumes in this group now")
        return
    columns = {
        "clientId": "client", "queues": "queues", "held": "holds", "doneRate": "done/s", "failedRate": "failed/s",
        "address": "address", "language": "language", "version": "version",
    }  # fmt: skip
    output.table(people["clients"], columns, title="Members")
    output.line()
    rows = [{"topic": topic, "expression": text} for topic, text in sorted(people["subscriptions"].items())]
    output.table(rows, {"topic": "topic", "expression": "expression"}, title="Subscriptions")


# -- changing ----------------------------------------------------------------------------------------------


@app.command()
def create(
    group: Group,
    retries: Annotated[
        int,
        typer.Option(
            "--retries",
            help="retries before the dead letters; a client that pulls has its own (max_reconsume), which goes before",
            min=0,
        ),
    ] = 16,
    ordered: Annotated[bool, typer.Option("--ordered", help="for ordered consumers")] = False,
    broadcast: Annotated[
        bool, typer.Option("--broadcast/--no-broadcast", help="may its consumers broadcast?")
    ] = True,
    enabled: Annotated[bool, typer.Option("--enabled/--disabled", help="may it consume?")] = True,
    cluster: Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Create a group, or change its settings.

    aerobee groups create billing --retries 3
    """
    settings = {
        "retry_max_times": retries,
        "consume_message_orderly": ordered,
        "consume_broadcast_enable": broadcast,
        "consume_enable": enabled,
    }
    connect.run(_create(connect.address_of(namesrv), group, cluster, settings))


async def _create(address: str, group: str, cluster: str | None, settings: dict[str, Any]) -> None:
    async with connect.connected(address) as admin:
        await admin.create_group(group, cluster=cluster, **settings)
    output.line(f"group {group} is set up")


@app.command()
def delete(group: Group, cluster: Cluster = None, yes: Yes = False, namesrv: connect.Namesrv = None) -> None:
    """Delete a group and its progress. Its retry and dead-letter topics stay.

    aerobee groups delete billing --yes
    """
    connect.run(_delete(connect.address_of(namesrv), group, cluster, yes=yes))


async def _delete(address: str, group: str, cluster: str | None, *, yes: bool) -> None:
    async with connect.connected(address) as admin:
        await connect.existing_group(admin, group)
        output.confirmed(f"Delete group {group!r} and its progress?", yes)
        await admin.delete_group(group, cluster=cluster)
    output.line(f"deleted group {group}")


@app.command()
def clone(
    source: Annotated[str, typer.Argument(help="group to copy the progress of")],
    target: Annotated[str, typer.Argument(help="group that shall go on there")],
    topic: Topic,
    namesrv: connect.Namesrv = None,
) -> None:
    """Have a group go on where another one stands.

    aerobee groups clone billing billing-v2 -t orders
    """
    connect.run(_clone(connect.address_of(namesrv), source, target, topic))
    output.line(f"{target} goes on in {topic} where {source} stands")


async def _clone(address: str, source: str, target: str, topic: str) -> None:
    async with connect.connected(address) as admin:
        await connect.existing_topic(admin, topic)
        await admin.clone_offsets(source, target, topic)


@app.command()
def mode(
    group: Group,
    how: Annotated[str | None, typer.Argument(help="pull or pop [show it]")] = None,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="topic")] = None,
    share: Annotated[
        int, typer.Option("--share", "-q", help="pop: how many more consumers share a queue, 0 = all", min=0)
    ] = 0,
    cluster: Cluster = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Show or set how a group's push consumers fetch: pull (queues divided) or pop (shared).

    aerobee groups mode billing pop -t orders
    """
    address = connect.address_of(namesrv)
    if how is None:
        connect.run(_modes(address, group, json=output.wants_json(json)))
        return
    if how.upper() not in ("PULL", "POP"):
        raise typer.BadParameter(f"{how!r}: it is pull or pop")
    if topic is None:
        raise typer.BadParameter("which topic? Say so with --topic")
    connect.run(_set_mode(address, group, topic, how.upper(), share, cluster))
    output.line(f"group {group} fetches {topic} by {how.upper()}")


async def _set_mode(address: str, group: str, topic: str, how: str, share: int, cluster: str | None) -> None:
    async with connect.connected(address) as admin:
        await connect.existing_topic(admin, topic)
        if group not in await admin.groups():
            await admin.create_group(group, cluster=cluster)  # the mode is best set before the first consumer
        await admin.set_consume_mode(topic, group, how, share, cluster=cluster)


async def _modes(address: str, group: str, *, json: bool) -> None:
    async with connect.connected(address) as admin:
        await connect.existing_group(admin, group)
        modes = (await admin.lag(group)).modes
    if json:
        output.line(output.pretty_json(modes))
        return
    output.table(
        [{"topic": t, "mode": m} for t, m in sorted(modes.items())], {"topic": "topic", "mode": "mode"}
    )
