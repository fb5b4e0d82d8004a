# SPDX-License-Identifier: Apache-2.0
"""mqadmin's commands about users and policies. A password given as `-` is asked for, or read from stdin: arguments are
seen by whoever lists processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aerobee.cli import connect, output
from aerobee.cli.mqadmin import common
from aerobee.cli.secrets import secret_given
from aerobee.client.admin.access import acl_of
from aerobee.protocol.access import HIDDEN_PASSWORD
from aerobee.protocol.bodies import UserInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.client.admin import Admin
    from aerobee.protocol.bodies import AclInfo

Username = Annotated[str, typer.Option("-u", "--username", help="the user's name")]
UserType = Annotated[str | None, typer.Option("-t", "--userType", help="Super or Normal")]
UserStatus = Annotated[str | None, typer.Option("-s", "--userStatus", help="enable or disable")]
Subject = Annotated[str, typer.Option("-s", "--subject", help="User:NAME")]
Resources = Annotated[str, typer.Option("-r", "--resources", help="Topic:a,Group:b*,*")]
Actions = Annotated[str, typer.Option("-a", "--actions", help="Pub,Sub,Create,Update,Delete,Get,List or All")]
Decision = Annotated[str, typer.Option("-d", "--decision", help="Allow or Deny")]
Sources = Annotated[
    str, typer.Option("-i", "--sourceIp", help="addresses and networks it is for; none = all")
]
FromBroker = Annotated[str, typer.Option("-f", "--fromBroker", help="broker to copy from")]
ToBroker = Annotated[str, typer.Option("-t", "--toBroker", help="broker to copy to")]

_WHO_IS_TOLD = "super users are told passwords, of a broker without hide_passwords"


def _parts(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


# -- users -------------------------------------------------------------------------------------------------------


def create_user(
    username: Username,
    password: Annotated[str, typer.Option("-p", "--password", help="its password; - asks for it")],
    user_type: UserType = None,
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Create a user.

    aerobee admin createUser -c DefaultCluster -u shop -p -
    """
    info = UserInfo(username=username.strip(), password=secret_given(password), user_type=user_type)
    common.at_each(
        namesrv, broker, cluster, "create user to", lambda admin, address: admin.create_user(address, info)
    )


def update_user(
    username: Username,
    password: Annotated[
        str | None, typer.Option("-p", "--password", help="another password; - asks for it")
    ] = None,
    user_type: UserType = None,
    user_status: UserStatus = None,
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Change a user's password, type or status.

    aerobee admin updateUser -c DefaultCluster -u shop -s disable
    """
    if password is None and user_type is None and user_status is None:
        raise typer.BadParameter("say what changes: -p PASSWORD, -t TYPE or -s STATUS")
    info = UserInfo(
        username=username.strip(),
        password=None if password is None else secret_given(password),
        user_type=user_type,
        user_status=user_status,
    )
    common.at_each(
        namesrv, broker, cluster, "update user to", lambda admin, address: admin.update_user(address, info)
    )


def delete_user(
    username: Username,
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Delete a user and its policies.

    aerobee admin deleteUser -c DefaultCluster -u shop
    """
    name = username.strip()
    common.at_each(
        namesrv, broker, cluster, "delete user to", lambda admin, address: admin.delete_user(address, name)
    )


def _print_users(users: list[UserInfo]) -> None:
    common.row(("#UserName", 16), ("#Password", 22), ("#UserType", 22), ("#UserStatus", 22))
    for each in users:
        common.row((each.username, 16), (each.password, 22), (each.user_type, 22), (each.user_status, 22))


def get_user(
    username: Username,
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Show a user.

    aerobee admin getUser -c DefaultCluster -u shop
    """

    async def work(admin: Admin) -> None:
        for address in await common.chosen(admin, broker, cluster):
            found = await admin.user(address, username.strip())
            if found is not None:
                _print_users([found])
                return

    common.ask(namesrv, work)


def list_users(
    part: Annotated[str, typer.Option("-f", "--filter", help="only names with this in them")] = "",
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """List users.

    aerobee admin listUser -c DefaultCluster
    """

    async def work(admin: Admin) -> None:
        for address in await common.chosen(admin, broker, cluster):
            found = await admin.users(address, part)
            if found:
                _print_users(found)
                if broker is None:
                    output.line(f"get user from {address} success.")
                return

    common.ask(namesrv, work)


def copy_users(
    source: FromBroker,
    target: ToBroker,
    usernames: Annotated[str, typer.Option("-u", "--usernames", help="only these")] = "",
    namesrv: connect.Namesrv = None,
) -> None:
    """Copy users with their passwords from one broker to another; only a super user is told those.

    aerobee admin copyUser -f 10.0.0.1:10911 -t 10.0.0.2:10911 -u shop,billing
    """

    async def work(admin: Admin) -> None:
        wanted = _parts(usernames)
        for user in await admin.users(source):
            name = user.username or ""
            if wanted and name not in wanted:
                continue
            if user.password == HIDDEN_PASSWORD:
                raise connect.Failed(f"{source} does not tell {name}'s password: {_WHO_IS_TOLD}")
            if await admin.user(target, name) is None:
                await admin.create_user(target, user)
            else:
                await admin.update_user(target, user)
            output.line(f"copy user of {name} from {source} to {target} success.")

    common.ask(namesrv, work)


# -- policies ----------------------------------------------------------------------------------------------------


def _put_acl(word: str) -> Callable[..., None]:
    """createAcl and updateAcl ask for the same thing by two codes."""

    def put(
        subject: Subject,
        resources: Resources,
        actions: Actions,
        decision: Decision,
        sources: Sources = "",
        broker: common.BrokerAddr = None,
        cluster: common.Cluster = None,
        namesrv: connect.Namesrv = None,
    ) -> None:
        acl = acl_of(subject.strip(), _parts(resources), _parts(actions), decision.strip(), _parts(sources))

        async def one(admin: Admin, address: str) -> None:
            await (admin.create_acl if word == "create" else admin.update_acl)(address, acl)

        common.at_each(namesrv, broker, cluster, f"{word} acl to", one)

    put.__doc__ = f"""Give a user rights; those on the same resource are replaced.

    aerobee admin {word}Acl -c DefaultCluster -s User:shop -r Topic:orders -a Pub -d Allow
    """
    return put


def delete_acl(
    subject: Subject,
    resource: Annotated[str, typer.Option("-r", "--resources", help="only this resource")] = "",
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Take all rights from a user, or those on one resource.

    aerobee admin deleteAcl -c DefaultCluster -s User:shop -r Topic:orders
    """

    async def one(admin: Admin, address: str) -> None:
        await admin.delete_acl(address, subject.strip(), resource.strip())

    common.at_each(namesrv, broker, cluster, "delete acl to", one)


def _print_acls(acls: list[AclInfo]) -> None:
    widths = (16, 10, 22, 20, 24, 10)
    titles = ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
    common.row(*zip(titles, widths, strict=True))
    for acl in acls:
        for policy in acl.policies:
            for each in policy.entries:
                cells = (
                    acl.subject, policy.policy_type, each.resource, common.java(each.actions),
                    common.java(each.source_ips), each.decision,
                )  # fmt: skip
                common.row(*zip(cells, widths, strict=True))


def get_acl(
    subject: Subject,
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Show a user's rights.

    aerobee admin getAcl -c DefaultCluster -s User:shop
    """

    async def work(admin: Admin) -> None:
        for address in await common.chosen(admin, broker, cluster):
            found = await admin.acl(address, subject.strip())
            if found is not None:
                _print_acls([found])

    common.ask(namesrv, work)


def list_acls(
    subject: Annotated[str, typer.Option("-s", "--subject", help="only subjects with this in them")] = "",
    resource: Annotated[str, typer.Option("-r", "--resource", help="only resources with this in them")] = "",
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """List the rights of all users.

    aerobee admin listAcl -c DefaultCluster -r Topic:orders
    """

    async def work(admin: Admin) -> None:
        for address in await common.chosen(admin, broker, cluster):
            found = await admin.acls(address, subject, resource)
            if found:
                _print_acls(found)

    common.ask(namesrv, work)


def copy_acls(
    source: FromBroker,
    target: ToBroker,
    subjects: Annotated[str, typer.Option("-s", "--subjects", help="only these")] = "",
    namesrv: connect.Namesrv = None,
) -> None:
    """Copy rights from one broker to another, where the users are already.

    aerobee admin copyAcl -f 10.0.0.1:10911 -t 10.0.0.2:10911 -s User:shop
    """

    async def work(admin: Admin) -> None:
        wanted = _parts(subjects)
        for acl in await admin.acls(source):
            if not wanted or acl.subject in wanted:
                await admin.update_acl(target, acl)
                output.line(f"copy acl of {acl.subject} from {source} to {target} success.")

    common.ask(namesrv, work)


COMMANDS: common.Command = {
    "createUser": create_user,
    "updateUser": update_user,
    "deleteUser": delete_user,
    "getUser": get_user,
    "listUser": list_users,
    "copyUser": copy_users,
    "createAcl": _put_acl("create"),
    "updateAcl": _put_acl("update"),
    "deleteAcl": delete_acl,
    "getAcl": get_acl,
    "listAcl": list_acls,
    "copyAcl": copy_acls,
}
