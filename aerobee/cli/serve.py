# SPDX-License-Identifier: Apache-2.0
"""`aerobee serve`, `aerobee namesrv`, `aerobee broker`: the server in the foreground until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import settings
from aerobee.errors import AerobeeError
from aerobee.memory import keep_freed

if TYPE_CHECKING:
    from aerobee.server import Server

OFF = -1
KEPT_BYTES = 64 * 1024 * 1024  # of dropped answers: a reader in bulk asks for megabytes at a time

Host = Annotated[str | None, typer.Option("--host", help="address to listen on [127.0.0.1]")]
Advertise = Annotated[
    str | None, typer.Option("--advertise", help="address that routes tell clients [the host]")
]
NamesrvPort = Annotated[
    int | None, typer.Option("--namesrv-port", help="name server port, 0 = any, -1 = off [9876]")
]
BrokerPort = Annotated[
    int | None, typer.Option("--broker-port", help="remoting port, 0 = any, -1 = off [10911]")
]
GrpcPort = Annotated[int | None, typer.Option("--grpc-port", help="gRPC port, 0 = any, -1 = off [8081]")]
HttpPort = Annotated[int, typer.Option("--http-port", help="console and metrics port, 0 = any, -1 = off")]
Data = Annotated[Path, typer.Option("--data", help="data directory")]
Ephemeral = Annotated[bool, typer.Option("--ephemeral", help="a temporary data directory, removed at exit")]
Cluster = Annotated[str | None, typer.Option("--cluster", help="cluster name [DefaultCluster]")]
Name = Annotated[str | None, typer.Option("--name", help="broker name [broker-a]")]
Config = Annotated[
    Path | None, typer.Option("--config", help="settings file: TOML, or RocketMQ's broker.conf")
]
Setting = Annotated[
    list[str] | None, typer.Option("--set", help="any setting, as name=value; may be repeated")
]
LogLevel = Annotated[
    str, typer.Option("--log-level", help="DEBUG, INFO, WARNING or ERROR; logs go to stderr")
]
Namesrv = Annotated[
    str | None, typer.Option("--namesrv", "-n", help="name servers to register with, ';' between them")
]

DEFAULT_DATA = Path("./aerobee-data")


def serve(
    host: Host = None,
    advertise: Advertise = None,
    namesrv_port: NamesrvPort = None,
    broker_port: BrokerPort = None,
    grpc_port: GrpcPort = None,
    http_port: HttpPort = 8088,
    data: Data = DEFAULT_DATA,
    ephemeral: Ephemeral = False,
    cluster: Cluster = None,
    name: Name = None,
    config: Config = None,
    set_: Setting = None,
    log_level: LogLevel = "INFO",
) -> None:
    """Name server, broker and fronts in one process, until Ctrl-C.

    aerobee serve

    aerobee serve --data /var/lib/aerobee --host 0.0.0.0 --advertise 10.0.0.5

    aerobee serve --ephemeral --namesrv-port 0 --broker-port 0 --grpc-port -1

    aerobee serve --config broker.conf --set autoCreateTopicEnable=false
    """
    _logging(log_level)
    given = {
        "broker": _given(
            host=host, advertise=advertise, port=broker_port, grpc_port=grpc_port, cluster=cluster, name=name
        ),
        "namesrv": _given(host=host, port=namesrv_port),
    }
    loaded = _load(config, given, set_)
    _run(_server(loaded, data, ephemeral), data if not ephemeral else None)


def namesrv(
    host: Host = None,
    port: NamesrvPort = None,
    data: Data = DEFAULT_DATA,
    config: Config = None,
    log_level: LogLevel = "INFO",
) -> None:
    """The name server alone; brokers register with it.

    aerobee namesrv --host 0.0.0.0
    """
    _logging(log_level)
    loaded = _load(
        config, {"namesrv": _given(host=host, port=port), "broker": {**_given(host=host), "port": OFF}}, None
    )
    _run(_server(loaded, data, False), data)


def broker(
    namesrv: Namesrv = None,
    host: Host = None,
    advertise: Advertise = None,
    broker_port: BrokerPort = None,
    grpc_port: GrpcPort = None,
    http_port: HttpPort = OFF,
    data: Data = DEFAULT_DATA,
    ephemeral: Ephemeral = False,
    cluster: Cluster = None,
    name: Name = None,
    config: Config = None,
    set_: Setting = None,
    log_level: LogLevel = "INFO",
) -> None:
    """The broker alone; it registers with the name servers given.

    aerobee broker --namesrv 127.0.0.1:9876 --name broker-b --broker-port 10921 --data ./broker-b
    """
    _logging(log_level)
    given = {
        "broker": _given(
            host=host,
            advertise=advertise,
            port=broker_port,
            grpc_port=grpc_port,
            cluster=cluster,
            name=name,
            namesrv=namesrv or os.environ.get("AEROBEE_NAMESRV"),
        ),
        "namesrv": {"port": OFF},
    }
    loaded = _load(config, given, set_)
    if not loaded.broker.namesrv:
        raise typer.BadParameter("name at least one name server: --namesrv 127.0.0.1:9876")
    _run(_server(loaded, data, ephemeral), data if not ephemeral else None)


def _given(**flags: Any) -> dict[str, Any]:
    return {name: value for name, value in flags.items() if value is not None}


def _load(
    config: Path | None, given: dict[str, dict[str, Any]], pairs: list[str] | None
) -> settings.Settings:
    given = {"broker": {}, "store": {}, "namesrv": {}, **given}
    try:
        for pair in pairs or ():
            name, _, value = pair.partition("=")
            table, field = settings.find_setting(name.strip())
            given[table][field] = value.strip()
        return settings.load(config, os.environ, given)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _server(loaded: settings.Settings, data: Path, ephemeral: bool) -> Server:
    gc.disable()  # until it runs: a start makes much and drops little
    from aerobee.server import Server

    return Server(
        None if ephemeral else data,
        ephemeral=ephemeral,
        host=loaded.broker.host,
        namesrv_port=loaded.namesrv.port,
        broker_port=loaded.broker.port,
        grpc_port=loaded.broker.grpc_port if loaded.broker.port != OFF else OFF,
        config=loaded.broker,
        store=loaded.store,
        namesrv=loaded.namesrv,
    )


def _logging(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(name)s %(message)s"
    )


def _run(server: Server, data: Path | None) -> None:
    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_until_signal(server, data))
    except AerobeeError as error:
        print(f"aerobee: {error}", file=sys.stderr)  # noqa: T201 - the one line of a failed start
        raise typer.Exit(1) from None


async def _until_signal(server: Server, data: Path | None) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with server:
        print(_ready_line(server, data), flush=True)  # noqa: T201 - the contract of design.md section 2
        # What exists now stays for good; leaving it out keeps collections short while messages flow.
        gc.collect()
        gc.freeze()
        gc.enable()
        gc.set_threshold(20_000, 20, 50)
        keep_freed(KEPT_BYTES)
        await stopping.wait()
        logging.getLogger("aerobee.server").info("stopping")


def _ready_line(server: Server, data: Path | None) -> str:
    addresses = {
        "namesrv": server.namesrv,
        "broker": server.broker_address,
        "grpc": server.grpc_address,
        "http": server.http_address,
    }
    shown = " ".join(f"{name}={address or 'off'}" for name, address in addresses.items())
    where = data or server.data or Path()
    return f"aerobee ready {shown} data={where if where.is_absolute() else f'./{where}'}"
