# SPDX-License-Identifier: Apache-2.0
"""`aerobee access`: users, their rights, why somebody may or may not, and a secured server to begin with."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import access_rules, audit_lines, connect, output, times
from aerobee.cli.access_init import init, renew
from aerobee.cli.each_broker import on_each
from aerobee.cli.secrets import typed
from aerobee.client.admin.access import acl_of, need_of
from aerobee.protocol.access import USER_PREFIX
from aerobee.protocol.bodies import UserInfo
from aerobee.protocol.plain_acl import as_policies, as_user, parse_plain_acl

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aerobee.client.admin import Admin
    from aerobee.protocol.bodies import AclInfo

    Work = Callable[[Admin, str], Awaitable[None]]
    Rows = Callable[[Admin, str], Awaitable[list[output.Row]]]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Users, their rights, and who may do what."
)

Name = Annotated[str, typer.Argument(help="user name")]
Cluster = Annotated[str | None, typer.Option("--cluster", help="of one cluster [all]")]
Actions = Annotated[str, typer.Argument(help="Pub,Sub,Create,Update,Delete,Get,List or All")]
What = Annotated[str, typer.Argument(help="Topic:orders, Topic:ord*, Group:*, Cluster:name, or *")]
Source = Annotated[str, typer.Option("--from", help="only from these addresses and networks: 10.0.0.0/8,::1")]

Replace = Annotated[
    bool, typer.Option("--replace", help="in place of the user's rule about the resource, not beside it")
]


def _each(cluster: str | None, namesrv: str | None, work: Work, done: str) -> None:
    """On every broker, and say so."""

    def say(name: str, address: str, nothing: None) -> None:
        output.note(f"{done} on {name}")

    on_each(namesrv, lambda admin: admin.masters(cluster), work, say)


def _rows(cluster: str | None, namesrv: str | None, of: Rows) -> list[output.Row]:
    """What each broker has, with its name in front."""
    rows: list[output.Row] = []

    def say(name: str, address: str, found: list[output.Row]) -> None:
        rows.extend({"broker": name, **each} for each in found)

    on_each(namesrv, lambda admin: admin.masters(cluster), of, say)
    return rows


# -- users -------------------------------------------------------------------------------------------------------


@app.command()
def users(
    part: Annotated[str, typer.Argument(help="only names with this in them")] = "",
    cluster: Cluster = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Users by broker; never their passwords.

    aerobee access users
    """

    async def of(admin: Admin, address: str) -> list[output.Row]:
        return [_row(each) for each in await admin.users(address, part)]

    rows = _rows(cluster, namesrv, of)
    _show(rows, {"broker": "broker", "user": "user", "type": "type", "status": "status"}, json=json)


def _row(user: UserInfo) -> output.Row:
    return {"user": user.username, "type": user.user_type, "status": user.user_status}


def _show(rows: list[output.Row], columns: dict[str, str], *, json: bool) -> None:
    if output.wants_json(json):
        output.line(output.pretty_json(rows))
    else:
        output.table(rows, columns)


@app.command("add-user")
def add_user(
    name: Name,
    super_user: Annotated[bool, typer.Option("--super", help="may do everything")] = False,
    cluster: Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Make a user; the password is asked for, or read from stdin.

    aerobee access add-user shop
    """
    info = UserInfo(
        username=name, password=typed(f"password of {name}: "), user_type="Super" if super_user else "Normal"
    )
    _each(cluster, namesrv, lambda admin, address: admin.create_user(address, info), f"made user {name}")


@app.command("set-user")
def set_user(
    name: Name,
    password: Annotated[
        bool, typer.Option("--password", help="another one: asked for, or read from stdin")
    ] = False,
    status: Annotated[str | None, typer.Option("--status", help="enable or disable")] = None,
    kind: Annotated[str | None, typer.Option("--type", help="Super or Normal")] = None,
    cluster: Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Change a user. A password is asked for, or read from stdin; the old one is refused from then on.

    aerobee access set-user shop --password

    aerobee access set-user shop --status disable
    """
    if not password and status is None and kind is None:
        raise typer.BadParameter("say what changes: --password, --status or --type")
    secret = typed(f"new password of {name}: ") if password else None
    info = UserInfo(username=name, password=secret, user_status=status, user_type=kind)
    _each(cluster, namesrv, lambda admin, address: admin.update_user(address, info), f"changed user {name}")


@app.command("remove-user")
def remove_user(name: Name, cluster: Cluster = None, namesrv: connect.Namesrv = None) -> None:
    """Delete a user with all its rights.

    aerobee access remove-user shop
    """
    _each(cluster, namesrv, lambda admin, address: admin.delete_user(address, name), f"deleted user {name}")


# -- rights ------------------------------------------------------------------------------------------------------


@app.command()
def policies(
    user: Annotated[str, typer.Argument(help="only of this user")] = "",
    cluster: Cluster = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Who may do what, by broker.

    aerobee access policies shop
    """

    async def of(admin: Admin, address: str) -> list[output.Row]:
        found = await admin.acls(address)
        wanted = (acl for acl in found if user in ("", (acl.subject or "").removeprefix(USER_PREFIX)))
        return [each for acl in wanted for each in _entries(acl)]

    rows = _rows(cluster, namesrv, of)
    titles = ("broker", "user", "policy", "decision", "actions", "resource", "from")
    _show(rows, {each: each for each in titles}, json=json)


def _entries(acl: AclInfo) -> list[dict[str, Any]]:
    return [
        {
            "user": (acl.subject or "").removeprefix(USER_PREFIX),
            "policy": policy.policy_type,
            "decision": entry.decision,
            "actions": ",".join(entry.actions),
            "resource": entry.resource,
            "from": ",".join(entry.source_ips or []) or "everywhere",
        }
        for policy in acl.policies
        for entry in policy.entries
    ]


def _put(
    decision: str,
    given: tuple[str, str, str, str],
    cluster: str | None,
    namesrv: str | None,
    *,
    replace: bool,
) -> None:
    user, actions, what, source = given
    acl = acl_of(user, [what], actions.split(","), decision, [each for each in source.split(",") if each])
    [policy] = acl.policies
    [rule] = policy.entries

    async def put(admin: Admin, address: str) -> str:
        try:
            before = access_rules.standing(await admin.acl(address, user), what)
            now = rule if replace else access_rules.added(rule, before)
        except ValueError as error:
            raise connect.Failed(str(error)) from None
        policy.entries = [now]
        await admin.update_acl(address, acl)
        was = f" (before: {access_rules.in_words(before)})" if before else ""
        return f"{now.decision} {','.join(now.actions)} on {what} for {user}{was}"

    def say(name: str, address: str, done: str) -> None:
        output.note(f"{done} on {name}")

    on_each(namesrv, lambda admin: admin.masters(cluster), put, say)


@app.command()
def allow(
    user: Name,
    actions: Actions,
    what: What,
    source: Source = "",
    replace: Replace = False,
    cluster: Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Give a user a right, beside those it has; what its rule about the resource was before is said.

    aerobee access allow shop Pub Topic:orders

    aerobee access allow shop Get Topic:orders --replace
    """
    _put("Allow", (user, actions, what, source), cluster, namesrv, replace=replace)


@app.command()
def deny(
    user: Name,
    actions: Actions,
    what: What,
    source: Source = "",
    replace: Replace = False,
    cluster: Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Forbid a user something that a wider rule allows, beside what the rule about the resource forbids already.

    aerobee access deny shop All Topic:payroll
    """
    _put("Deny", (user, actions, what, source), cluster, namesrv, replace=replace)


@app.command()
def revoke(
    user: Name,
    what: Annotated[str, typer.Argument(help="the resource [all]")] = "",
    cluster: Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Take a user's rule about a resource away, or all its rules.

    aerobee access revoke shop Topic:orders
    """
    done = f"revoked {what or 'all'} of {user}"
    _each(cluster, namesrv, lambda admin, address: admin.delete_acl(address, user, what), done)


@app.command()
def can(
    user: Name,
    action: Annotated[str, typer.Argument(help="Pub, Sub, Create, Update, Delete, Get or List")],
    what: Annotated[str, typer.Argument(help="Topic:orders, Group:billing, Cluster:name")],
    source: Annotated[str, typer.Option("--from", help="asking from this address")] = "127.0.0.1",
    cluster: Cluster = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Whether a user may, and which rule says so. Exit code 1 when not.

    aerobee access can shop Pub Topic:orders
    """
    try:
        need_of(action, what)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None

    async def of(admin: Admin, address: str) -> list[output.Row]:
        answer = await admin.may(address, user, action, what, source)
        return [{"allowed": answer.allowed, "why": answer.why}]

    rows = _rows(cluster, namesrv, of)
    if output.wants_json(json):
        output.line(output.pretty_json(rows))
    else:
        for row in rows:
            output.line(f"{row['broker']}: {'yes' if row['allowed'] else 'no'}, {row['why']}")
    if not all(row["allowed"] for row in rows):
        raise typer.Exit(1)


@app.command()
def audit(
    last: Annotated[int, typer.Option("--last", min=1, help="so many lines of each broker")] = 100,
    user: Annotated[str | None, typer.Option("--user", help="only of this user")] = None,
    request: Annotated[str | None, typer.Option("--request", help="only requests like this: '*User'")] = None,
    refused: Annotated[bool, typer.Option("--refused", help="only what was refused")] = False,
    since: Annotated[str | None, typer.Option("--since", help=f"only since then: {times.EXAMPLES}")] = None,
    cluster: Cluster = None,
    namesrv: connect.Namesrv = None,
    json: output.Json = False,
) -> None:
    """Who changed what, and who was refused: the newest lines of the brokers' audit logs.

    aerobee access audit --last 20

    aerobee access audit --user shop --refused --since -1h
    """
    after = times.parse_time(since, connect.clock.now()) if since else 0
    wanted = audit_lines.Wanted(user, request, "refused" if refused else None, after)
    asked = last if wanted == audit_lines.Wanted() else audit_lines.MOST
    once = audit_lines.Once()

    async def of(admin: Admin, address: str) -> list[output.Row]:
        return once.of(wanted.newest(await admin.audit(address, asked), last))

    titles = (
        "time",
        "broker",
        "user",
        "from",
        "request",
        "action",
        "resources",
        "target",
        "change",
        "result",
        "why",
    )
    rows = _rows(cluster, namesrv, of)
    if not output.wants_json(json):  # whose lines are as the file has them
        rows = [
            {**row, "time": audit_lines.local_time(row), "resources": ",".join(row.get("resources", ()))}
            for row in rows
        ]
    _show(rows, {each: each for each in titles}, json=json)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="plain_acl.yml of RocketMQ 4", exists=True, dir_okay=False)],
    cluster: Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Make users and rights of the accounts of a plain_acl.yml; users that are there already stay as they are.

    aerobee access import /opt/rocketmq/conf/plain_acl.yml
    """
    accounts = parse_plain_acl(file.read_text()).accounts

    async def made(admin: Admin, address: str) -> None:
        for account in accounts:
            if await admin.user(address, account.access_key) is not None:
                output.note(f"{account.access_key} is there already at {address}")
                continue
            await admin.create_user(address, as_user(account))
            policies = as_policies(account)
            if policies is not None:
                await admin.update_acl(address, policies)
            output.note(f"made user {account.access_key} at {address}")

    _each(cluster, namesrv, made, f"imported {file}")


app.command()(init)
app.command()(renew)
