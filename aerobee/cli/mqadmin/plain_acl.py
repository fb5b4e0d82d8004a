# SPDX-License-Identifier: Apache-2.0
"""mqadmin's commands about the accounts of plain_acl.yml, as RocketMQ had them up to 5.3.2. A secret given as `-` is
asked for, or read from stdin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from aerobee.cli import connect, output
from aerobee.cli.mqadmin import common
from aerobee.cli.secrets import secret_given
from aerobee.protocol.bodies import DataVersion
from aerobee.protocol.headers.accounts import UpdateAclConfig

if TYPE_CHECKING:
    from aerobee.client.admin import Admin

AccessKey = Annotated[str, typer.Option("-a", "--accessKey", help="the account's name")]


def update_acl_config(
    access_key: AccessKey,
    secret_key: Annotated[str, typer.Option("-s", "--secretKey", help="its secret; - asks for it")],
    white: Annotated[str | None, typer.Option("-w", "--whiteRemoteAddress", help="let in unasked")] = None,
    default_topic: Annotated[
        str | None, typer.Option("-i", "--defaultTopicPerm", help="DENY, PUB, SUB or PUB|SUB")
    ] = None,
    default_group: Annotated[
        str | None, typer.Option("-u", "--defaultGroupPerm", help="DENY, PUB, SUB or PUB|SUB")
    ] = None,
    topics: Annotated[str | None, typer.Option("-t", "--topicPerms", help="topicA=DENY,topicD=SUB")] = None,
    groups: Annotated[str | None, typer.Option("-g", "--groupPerms", help="groupA=DENY,groupD=SUB")] = None,
    admin: Annotated[str | None, typer.Option("-m", "--admin", help="true or false")] = None,
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Make or change an account.

    aerobee admin updateAclConfig -c DefaultCluster -a shop-account -s - -t orders=PUB
    """
    account = UpdateAclConfig(
        access_key=access_key.strip(),
        secret_key=secret_given(secret_key),
        white_remote_address=white,
        admin=None if admin is None else common.truth(admin, "-m"),
        default_topic_perm=default_topic,
        default_group_perm=default_group,
        topic_perms=topics,
        group_perms=groups,
    )
    done = "create or update plain access config to"
    common.at_each(namesrv, broker, cluster, done, lambda it, at: it.put_plain_account(at, account))


def delete_acl_config(
    access_key: AccessKey,
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Delete an account.

    aerobee admin deleteAclConfig -c DefaultCluster -a shop-account

    aerobee admin deleteAccessConfig -c DefaultCluster -a shop-account
    """
    name = access_key.strip()
    done = "delete plain access config account from"
    common.at_each(namesrv, broker, cluster, done, lambda it, at: it.delete_plain_account(at, name))


def update_white_addresses(
    addresses: Annotated[str, typer.Option("-g", "--globalWhiteRemoteAddresses", help="10.0.0.*,::1")],
    file: Annotated[str, typer.Option("-p", "--aclFileFullPath", help="of this file")] = "",
    broker: common.BrokerAddr = None,
    cluster: common.Cluster = None,
    namesrv: connect.Namesrv = None,
) -> None:
    """Replace the addresses that are let in unasked.

    aerobee admin updateGlobalWhiteAddr -c DefaultCluster -g 10.0.0.1,10.0.0.2
    """

    async def one(admin: Admin, address: str) -> None:
        await admin.replace_white_addresses(address, addresses, file)

    common.at_each(namesrv, broker, cluster, "update global white remote addresses to", one)


def cluster_acl_version(
    broker: common.BrokerAddr = None, cluster: common.Cluster = None, namesrv: connect.Namesrv = None
) -> None:
    """How often each file with accounts was changed, and when last.

    aerobee admin clusterAclConfigVersion -c DefaultCluster
    """
    widths = (16, 22, 22, 20, 22, 22)

    async def work(admin: Admin) -> None:
        titles = ("#Cluster Name", "#Broker Name", "#Broker Addr", "#AclFilePath", "#AclConfigVersionNum")
        common.row(*zip((*titles, "#AclLastUpdateTime"), widths, strict=True))
        for address in await common.chosen(admin, broker, cluster):
            found = await admin.plain_acl_version(address)
            whose = (found.cluster_name, found.broker_name, found.broker_addr)
            files = msgspec.json.decode(found.all_acl_file_version or "{}", type=dict[str, DataVersion])
            for path, version in files.items():
                cells = (*whose, path, version.counter, common.seconds(version.timestamp))
                common.row(*zip(cells, widths, strict=True))

    common.ask(namesrv, work)


def get_acl_config(
    broker: common.BrokerAddr = None, cluster: common.Cluster = None, namesrv: connect.Namesrv = None
) -> None:
    """Show all accounts, with their secrets where the broker tells them.

    aerobee admin getAclConfig -b 127.0.0.1:10911

    aerobee admin getAccessConfigSubCommand -b 127.0.0.1:10911
    """

    async def work(admin: Admin) -> None:
        for address in await common.chosen(admin, broker, cluster):
            found = await admin.plain_acl(address)
            output.line(f"\nglobalWhiteRemoteAddresses: {common.java(found.global_white_addrs)}")
            output.line("\naccounts:")
            for account in found.plain_access_configs:
                for name, value in msgspec.to_builtins(account).items():
                    output.line(f"  {name:<18}: {'' if value is None else common.java(value)}")
                output.line("")

    common.ask(namesrv, work)


COMMANDS: common.Command = {
    "updateAclConfig": update_acl_config,
    "deleteAclConfig": delete_acl_config,
    "deleteAccessConfig": delete_acl_config,
    "clusterAclConfigVersion": cluster_acl_version,
    "updateGlobalWhiteAddr": update_white_addresses,
    "getAclConfig": get_acl_config,
    "getAccessConfigSubCommand": get_acl_config,
}
