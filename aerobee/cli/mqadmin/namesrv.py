# SPDX-License-Identifier: Apache-2.0
"""mqadmin's commands about name servers: settings, key-value table, write permission."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from aerobee.cli import connect, output
from aerobee.cli.mqadmin import common

if TYPE_CHECKING:
    from aerobee.client.admin import Admin

Namespace = Annotated[str, typer.Option("-s", "--namespace", help="such as ORDER_TOPIC_CONFIG")]
Key = Annotated[str, typer.Option("-k", "--key", help="key")]
BrokerName = Annotated[str, typer.Option("-b", "--brokerName", help="broker name")]


def _servers(admin: Admin) -> list[str]:
    return connect.servers_of(admin.session.namesrv)


def get_namesrv_config(namesrv: connect.Namesrv = None) -> None:
    """Settings of every name server.

    aerobee admin getNamesrvConfig
    """

    async def work(admin: Admin) -> None:
        from aerobee.client.admin.brokers import parse_lines
        from aerobee.protocol.headers.route import GetNamesrvConfig

        for server in _servers(admin):
            answer = await admin.session.call(server, GetNamesrvConfig())
            common.title(server)
            common.settings(parse_lines(answer.body.decode()))

    common.ask(namesrv, work)


def update_namesrv_config(
    key: Key,
    value: Annotated[str, typer.Option("-v", "--value", help="its new value")],
    namesrv: connect.Namesrv = None,
) -> None:
    """Change a setting of every name server.

    aerobee admin updateNamesrvConfig -k brokerExpiryMs -v 120000
    """

    async def work(admin: Admin) -> None:
        from aerobee.protocol.headers.route import UpdateNamesrvConfig

        servers = _servers(admin)
        for server in servers:
            await admin.session.call(server, UpdateNamesrvConfig(), f"{key}={value}\n".encode())
        output.line(f"update name server config success!{servers}")
        output.line(f"{key} : {value}")

    common.ask(namesrv, work)


async def known_broker(admin: Admin, name: str) -> None:
    """A wrong name would change nothing and say OK."""
    known = (await admin.cluster()).broker_addr_table
    if name not in known:
        raise connect.Failed(f"no broker {name!r}; there are {', '.join(sorted(known))}")


def wipe_write_perm(broker: BrokerName, namesrv: connect.Namesrv = None) -> None:
    """Take a broker out of producers' routes.

    aerobee admin wipeWritePerm -b broker-a
    """

    async def work(admin: Admin) -> None:
        from aerobee.protocol.headers.route import WipeWritePerm, WipeWritePermResult

        await known_broker(admin, broker)
        for server in _servers(admin):
            answer = await admin.session.call(server, WipeWritePerm(broker_name=broker))
            count = answer.fields(WipeWritePermResult).wipe_topic_count
            output.line(f"wipe write perm of broker[{broker}] in name server[{server}] OK, {count}")

    common.ask(namesrv, work)


def add_write_perm(broker: BrokerName, namesrv: connect.Namesrv = None) -> None:
    """Put a broker back into producers' routes.

    aerobee admin addWritePerm -b broker-a
    """

    async def work(admin: Admin) -> None:
        from aerobee.protocol.headers.route import AddWritePerm, AddWritePermResult

        await known_broker(admin, broker)
        for server in _servers(admin):
            answer = await admin.session.call(server, AddWritePerm(broker_name=broker))
            count = answer.fields(AddWritePermResult).add_topic_count
            output.line(f"add write perm of broker[{broker}] in name server[{server}] OK, {count}")

    common.ask(namesrv, work)


def update_kv_config(
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Option("-v", "--value", help="value")],
    namesrv: connect.Namesrv = None,
) -> None:
    """Set a value of the name servers' key-value table.

    aerobee admin updateKvConfig -s ORDER_TOPIC_CONFIG -k orders -v broker-a:8
    """

    async def work(admin: Admin) -> None:
        from aerobee.protocol.headers.route import PutKV

        for server in _servers(admin):
            await admin.session.call(server, PutKV(namespace=namespace, key=key, value=value))
        output.line("create or update kv config to namespace success.")

    common.ask(namesrv, work)


def delete_kv_config(namespace: Namespace, key: Key, namesrv: connect.Namesrv = None) -> None:
    """Remove a value of the name servers' key-value table.

    aerobee admin deleteKvConfig -s ORDER_TOPIC_CONFIG -k orders
    """

    async def work(admin: Admin) -> None:
        from aerobee.protocol.headers.route import DeleteKV

        for server in _servers(admin):
            await admin.session.call(server, DeleteKV(namespace=namespace, key=key))
        output.line("delete kv config from namespace success.")

    common.ask(namesrv, work)


COMMANDS: common.Command = {
    "getNamesrvConfig": get_namesrv_config,
    "updateNamesrvConfig": update_namesrv_config,
    "wipeWritePerm": wipe_write_perm,
    "addWritePerm": add_write_perm,
    "updateKvConfig": update_kv_config,
    "deleteKvConfig": delete_kv_config,
}
