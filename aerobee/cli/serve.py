# SPDX-License-Identifier: Apache-2.0
"""The flags of `aerobee serve`, `namesrv` and `broker`: a server in the foreground until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aerobee.cli import serving
from aerobee.settings import BrokerConfig, NamesrvConfig, StoreConfig
from aerobee.settings.declare import Declared, fields

if TYPE_CHECKING:
    from collections.abc import Callable


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
Brokers = Annotated[
    int | None,
    typer.Option(
        "--brokers", help="broker processes under one name server, to use more cores; each has a folder"
    ),
]
Kept = Annotated[bool, typer.Option("--kept", help="stop when standard input ends; log lines carry the name")]
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
    brokers: Brokers = None,
    config: Config = None,
    set: Setting = None,
    log_level: LogLevel = "INFO",
) -> None:
    """Name server, broker and fronts in one process, until Ctrl-C.

    aerobee serve

    aerobee serve --data /var/lib/aerobee --host 0.0.0.0 --advertise 10.0.0.5

    aerobee serve --ephemeral --namesrv-port 0 --broker-port 0 --grpc-port -1

    aerobee serve --config broker.conf --set autoCreateTopicEnable=false

    aerobee serve --brokers 4 --data /var/lib/aerobee
    """
    _started(serving.serve, locals())


def namesrv(
    host: Host = None,
    namesrv_port: NamesrvPort = None,
    data: Data = None,
    config: Config = None,
    set: Setting = None,
    log_level: LogLevel = "INFO",
) -> None:
    """The name server alone; brokers register with it.

    aerobee namesrv --host 0.0.0.0
    """
    _started(serving.namesrv, locals())


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
    set: Setting = None,
    log_level: LogLevel = "INFO",
    kept: Kept = False,
) -> None:
    """The broker alone; it registers with the name servers given.

    aerobee broker --namesrv 127.0.0.1:9876 --name broker-b --broker-port 10921 --data ./broker-b
    """
    _started(serving.broker, locals())


def _started(command: Callable[..., serving.Start], flags: dict[str, Any]) -> None:
    try:
        start = command(**flags)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if code := start():
        raise typer.Exit(code)
