# SPDX-License-Identifier: Apache-2.0
"""`aerobee cluster`: brokers, their figures, their settings, their write permission."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import connect, output, wrong
from aerobee.cli.pairs import pairs_of

if TYPE_CHECKING:
    from aerobee.client.admin import Admin

app = typer.Typer(add_completion=False, help="Brokers: figures, settings, write permission.")

Broker = Annotated[str | None, typer.Option("--broker", "-b", help="broker name or address [all]")]
Name = Annotated[str, typer.Argument(help="broker name")]


@app.callback(invoke_without_command=True)
def cluster(ctx: typer.Context, namesrv: connect.Namesrv = None, json: output.Json = False) -> None:
    """The cluster at a glance: each broker, its version, traffic and disk.

    aerobee cluster
    """
    connect.remember_namesrv(namesrv)
    output.remember_json(json)
    if ctx.invoked_subcommand is None:
        connect.run(_list(connect.address_of(None), json=output.wants_json(json)))


@app.command("list")
def list_(watch: connect.Watch = None, namesrv: connect.Namesrv = None, json: output.Json = False) -> None:
    """Each broker with its version, messages in and out, and disk.

    aerobee cluster list --json
    """
    address, as_json = connect.address_of(namesrv), output.wants_json(json)
    connect.run(connect.watched(lambda: _list(address, json=as_json), watch))


async def _list(address: str, *, json: bool) -> None:
    rows = []
    async with connect.connected(address) as admin:
        info = await admin.cluster()
        for name, members in sorted(info.cluster_addr_table.items()):
            for broker in sorted(members):
                data = info.broker_addr_table[broker]
                rows += [await _row(admin, name, broker, *each) for each in sorted(data.broker_addrs.items())]
        gone = await wrong.gone_brokers(admin)
        rows += [
            {"cluster": each.cluster, "brokerName": each.broker_name, "brokerId": each.broker_id,
             "address": each.broker_addr, "version": None, "goneSince": each.since, "up": "gone"}
            for each in gone
        ]  # fmt: skip
    if json:
        output.line(output.pretty_json(rows))
        return
    if not rows:
        output.note(f"the name server at {address} knows no broker; `aerobee broker` starts one")
    columns = {
        "cluster": "cluster", "brokerName": "broker", "brokerId": "id", "address": "address",
        "version": "version", "inTps": "in/s", "outTps": "out/s", "inToday": "in today",
        "outToday": "out today", "disk": "disk used", "up": "up",
    }  # fmt: skip
    output.table(rows, columns)
    for sentence in (*wrong.of_gone(gone), *wrong.of_refusing(rows)):
        output.line(sentence)


async def _row(admin: Admin, cluster: str, broker: str, broker_id: int, address: str) -> dict[str, Any]:
    from aerobee.errors import NetworkError

    row: dict[str, Any] = {
        "cluster": cluster, "brokerName": broker, "brokerId": broker_id, "address": address,
    }  # fmt: skip
    try:
        figures = await admin.broker_runtime(address)
    except NetworkError:
        return {**row, "version": None, "up": "does not answer"}
    boot = int(figures.get("bootTimestamp", 0))
    return {
        **row,
        "version": _version(figures),
        "inTps": _first(figures.get("putTps")),
        "outTps": _first(figures.get("getTransferredTps") or figures.get("getTransferedTps")),
        "inToday": today(figures, "msgPut"),
        "outToday": today(figures, "msgGet"),
        "disk": f"{float(figures.get('commitLogDiskRatio', 0)):.0%}",
        "up": output.age(connect.clock.now() - boot) if boot else None,
        **({"refuses": refusal} if (refusal := figures.get("refusesMessages")) else {}),
    }


def _version(figures: dict[str, str]) -> str | None:
    """Ours, and else the RocketMQ it says it is."""
    own = figures.get("aerobeeVersion")
    return f"Aerobee {own}" if own else figures.get("brokerVersionDesc")


def _first(text: str | None) -> float:
    """RocketMQ writes the figures of the last 10 s, 1 min and 10 min one after another."""
    return round(float(text.split()[0]), 2) if text else 0.0


def today(figures: dict[str, str], name: str) -> int:
    return int(figures.get(f"{name}TotalTodayNow", 0)) - int(figures.get(f"{name}TotalTodayMorning", 0))


@app.command()
def status(
    pattern: Annotated[str | None, typer.Argument(help="only figures like this: '*Tps'")] = None,
    broker: Broker = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Every figure a broker gives, by RocketMQ's names.

    aerobee cluster status '*Tps'
    """
    connect.run(
        _figures(connect.address_of(namesrv), broker, pattern, "runtime", json=output.wants_json(json))
    )


@app.command()
def config(
    pattern: Annotated[str | None, typer.Argument(help="only settings like this: 'pop*'")] = None,
    broker: Broker = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """A broker's settings, by RocketMQ's names.

    aerobee cluster config 'max*'
    """
    connect.run(
        _figures(connect.address_of(namesrv), broker, pattern, "config", json=output.wants_json(json))
    )


async def _figures(address: str, broker: str | None, pattern: str | None, what: str, *, json: bool) -> None:
    found = {}
    async with connect.connected(address) as admin:
        for name, where in (await chosen(admin, broker)).items():
            values = await (admin.broker_runtime(where) if what == "runtime" else admin.broker_config(where))
            found[name] = {
                key: value
                for key, value in sorted(values.items())
                if fnmatch.fnmatch(key.lower(), (pattern or "*").lower())
            }
    if json:
        output.line(output.pretty_json(found))
        return
    if not any(found.values()):
        raise connect.Failed(f"no broker has anything like {pattern!r}")
    for name, values in found.items():
        output.line(f"# {name}")
        output.facts(values)


async def chosen(admin: Admin, broker: str | None) -> dict[str, str]:
    """Master address by name: of the broker named (or addressed), or all."""
    masters = await admin.masters()
    found = {name: at for name, at in masters.items() if broker in (None, name, at)}
    if not found:
        raise connect.Failed(f"no broker {broker!r}; there are {', '.join(masters)}")
    return found


@app.command("set")
def set_(
    pairs: Annotated[list[str], typer.Argument(help="settings, as name=value")],
    broker: Broker = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Change settings of a running broker.

    aerobee cluster set longPollingEnable=true
    """
    settings = {name: value.strip() for name, value in pairs_of(pairs).items()}
    connect.run(_set(connect.address_of(namesrv), broker, settings))


async def _set(address: str, broker: str | None, settings: dict[str, str]) -> None:
    async with connect.connected(address) as admin:
        for name, where in (await chosen(admin, broker)).items():
            before = await admin.broker_config(where)
            await admin.update_broker_config(where, settings)
            after = await admin.broker_config(where)
            for line in _differences(name, before, after, settings):
                output.line(line)


def _differences(
    broker: str, before: dict[str, str], after: dict[str, str], asked: dict[str, str]
) -> list[str]:
    """Under the names as they were typed. Secrets are not told, and one may have been that already."""
    changed, same = [], []
    for name, value in asked.items():
        was, now = _told(name, value, before), _told(name, value, after)
        if now is None:
            changed.append(name)
        elif was == now:
            same.append(f"{name} of {broker} is {now} already")
        else:
            changed.append(f"{name}: {was} -> {now}")
    return [*([f"changed {', '.join(changed)} of {broker}, until its next start"] if changed else []), *same]


def _told(name: str, value: str, config: dict[str, str]) -> str | None:
    """What a broker says a setting is: in RocketMQ's unit for RocketMQ's name, in ours for ours. None: not told."""
    from aerobee.settings.names import find

    try:
        field = find(name, value, ("broker", "store"))
    except ValueError:  # a setting of Apache's alone
        field = None
    if field is None or name in config:
        return config.get(name)
    text = config.get(field.official)
    if text is None:
        return None
    told = field.told(field.read(text, field.official))
    return str(told).lower() if isinstance(told, bool) else str(told)


@app.command("stop-writes")
def stop_writes(broker: Name, namesrv: connect.Namesrv = None) -> None:
    """Take a broker out of producers' routes, before it is stopped; consumers go on.

    aerobee cluster stop-writes broker-a
    """
    connect.run(_writes(connect.address_of(namesrv), broker, "off"))


@app.command("allow-writes")
def allow_writes(broker: Name, namesrv: connect.Namesrv = None) -> None:
    """Put a broker back into producers' routes.

    aerobee cluster allow-writes broker-a
    """
    connect.run(_writes(connect.address_of(namesrv), broker, "on"))


async def _writes(address: str, broker: str, to: str) -> None:
    async with connect.connected(address) as admin:
        await chosen(admin, broker)
        await (admin.allow_writes(broker) if to == "on" else admin.forbid_writes(broker))
    output.line(f"writes to {broker} are {to}")
