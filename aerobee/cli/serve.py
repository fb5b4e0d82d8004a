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

from aerobee.cli import logs
from aerobee.client.running import on_signals
from aerobee.errors import AerobeeError
from aerobee.memory import keep_freed
from aerobee.settings import BrokerConfig, NamesrvConfig, Settings, StoreConfig, load
from aerobee.settings.declare import Declared, fields
from aerobee.settings.sources import OF_A_BROKER, OF_A_NAME_SERVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.server import Server

OFF = -1
KEPT_BYTES = 64 * 1024 * 1024  # of dropped answers: a reader in bulk asks for megabytes at a time


def _flag(name: str, kind: type[Declared], field: str, *more: str) -> Any:
    """A flag is a setting that is given often; what it is stands with the setting."""
    about = fields(kind)[field]
    usual = f" [{about.text(about.default)}]" if about.default != "" else ""
    return typer.Option(name, *more, help=about.about.text + usual)


Host = Annotated[str | None, _flag("--host", BrokerConfig, "host")]
Advertise = Annotated[str | None, _flag("--advertise", BrokerConfig, "advertise")]
NamesrvPort = Annotated[int | None, _flag("--namesrv-port", NamesrvConfig, "port")]
BrokerPort = Annotated[int | None, _flag("--broker-port", BrokerConfig, "port")]
GrpcPort = Annotated[int | None, _flag("--grpc-port", BrokerConfig, "grpc_port")]
HttpPort = Annotated[int | None, _flag("--http-port", BrokerConfig, "http_port")]
Data = Annotated[Path | None, _flag("--data", StoreConfig, "data")]
Ephemeral = Annotated[bool, typer.Option("--ephemeral", help="a temporary data directory, removed at exit")]
Cluster = Annotated[str | None, _flag("--cluster", BrokerConfig, "cluster")]
Name = Annotated[str | None, _flag("--name", BrokerConfig, "name")]
Config = Annotated[
    Path | None, typer.Option("--config", help="settings file: TOML, or RocketMQ's broker.conf")
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", help="any setting of `aerobee settings`, as name=value; may be repeated"),
]
LogLevel = Annotated[
    str, typer.Option("--log-level", help="DEBUG, INFO, WARNING or ERROR; logs go to stderr")
]
Namesrv = Annotated[str | None, _flag("--namesrv", BrokerConfig, "namesrv", "-n")]


def serve(
    host: Host = None,
    advertise: Advertise = None,
    namesrv_port: NamesrvPort = None,
    broker_port: BrokerPort = None,
    grpc_port: GrpcPort = None,
    http_port: HttpPort = None,
    data: Data = None,
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
    logs.to_stderr(log_level)
    given = {
        "broker": _given(
            host=host,
            advertise=advertise,
            port=broker_port,
            grpc_port=grpc_port,
            http_port=http_port,
            cluster=cluster,
            name=name,
        ),
        "store": _given(data=data),
        "namesrv": _given(host=host, port=namesrv_port),
    }
    _run(_server(_load(config, given, set_), ephemeral))


def namesrv(
    host: Host = None,
    port: NamesrvPort = None,
    data: Data = None,
    config: Config = None,
    set_: Setting = None,
    log_level: LogLevel = "INFO",
) -> None:
    """The name server alone; brokers register with it.

    aerobee namesrv --host 0.0.0.0
    """
    logs.to_stderr(log_level)
    given = {
        "namesrv": _given(host=host, port=port),
        "store": _given(data=data),
        "broker": {**_given(host=host), "port": OFF},
    }
    _run(_server(_load(config, given, set_, OF_A_NAME_SERVER), False))


def broker(
    namesrv: Namesrv = None,
    host: Host = None,
    advertise: Advertise = None,
    broker_port: BrokerPort = None,
    grpc_port: GrpcPort = None,
    http_port: HttpPort = None,
    data: Data = None,
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
    logs.to_stderr(log_level)
    given = {
        "broker": _given(
            host=host,
            advertise=advertise,
            port=broker_port,
            grpc_port=grpc_port,
            http_port=http_port,
            cluster=cluster,
            name=name,
            namesrv=namesrv or os.environ.get("AEROBEE_NAMESRV"),
        ),
        "store": _given(data=data),
        "namesrv": {"port": OFF},
    }
    loaded = _load(config, given, set_)
    if not loaded.broker.namesrv:
        raise typer.BadParameter("name at least one name server: --namesrv 127.0.0.1:9876")
    _run(_server(loaded, ephemeral))


def _given(**flags: Any) -> dict[str, Any]:
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in flags.items()
        if value is not None
    }


def _load(
    config: Path | None,
    given: dict[str, dict[str, Any]],
    pairs: list[str] | None,
    tables: Sequence[str] = OF_A_BROKER,
) -> Settings:
    try:
        return load(config, os.environ, given, pairs or (), tables)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _server(loaded: Settings, ephemeral: bool) -> Server:
    try:
        logs.as_set(loaded.broker)
    except AerobeeError as error:
        print(f"aerobee: {error}", file=sys.stderr)  # noqa: T201 - the one line of a failed start
        raise typer.Exit(1) from None
    gc.disable()  # until it runs: a start makes much and drops little
    from aerobee.server import Server

    return Server(
        ephemeral=ephemeral,
        namesrv_port=loaded.namesrv.port,
        broker_port=loaded.broker.port,
        grpc_port=loaded.broker.grpc_port if loaded.broker.port != OFF else OFF,
        http_port=loaded.broker.http_port if loaded.broker.port != OFF else OFF,
        config=loaded.broker,
        store=loaded.store,
        namesrv=loaded.namesrv,
    )


def _run(server: Server) -> None:
    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_until_signal(server))
    except AerobeeError as error:
        print(f"aerobee: {error}", file=sys.stderr)  # noqa: T201 - the one line of a failed start
        raise typer.Exit(1) from None


async def _until_signal(server: Server) -> None:
    stopping = asyncio.Event()
    hang_up = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none
    on_signals({signal.SIGTERM, signal.SIGINT, hang_up}, stopping.set)
    async with server:
        print(_ready_line(server), flush=True)  # noqa: T201 - scripts wait for this line
        # What exists now stays for good; leaving it out keeps collections short while messages flow.
        gc.collect()
        gc.freeze()
        gc.enable()
        gc.set_threshold(20_000, 20, 50)
        keep_freed(KEPT_BYTES)
        await stopping.wait()
        logging.getLogger("aerobee.server").info("stopping")


def _ready_line(server: Server) -> str:
    addresses = {
        "namesrv": server.namesrv,
        "broker": server.broker_address,
        "grpc": server.grpc_address,
        "http": server.http_address,
    }
    shown = " ".join(f"{name}={address or 'off'}" for name, address in addresses.items())
    where = server.data or Path()
    return f"aerobee ready {shown} data={where if where.is_absolute() else f'./{where}'}"
