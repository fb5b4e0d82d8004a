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

from aerobee.client.running import loop_factory, on_signals
from aerobee.errors import AerobeeError
from aerobee.memory import keep_freed
from aerobee.settings import BrokerConfig, NamesrvConfig, Settings, StoreConfig, load
from aerobee.settings.declare import Declared, fields
from aerobee.settings.sources import OF_A_BROKER, OF_A_NAME_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from aerobee.fleet.keeper import Keeper
    from aerobee.server import Server

OFF = -1
_OF_EVERY_BROKER = ("host", "advertise", "cluster")  # flags that several brokers share
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
Brokers = Annotated[
    int | None,
    typer.Option(
        "--brokers", help="broker processes under one name server, to use more cores; each has a folder"
    ),
]
Kept = Annotated[bool, typer.Option("--kept", hidden=True, help="stop when standard input ends")]
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
    set_: Setting = None,
    log_level: LogLevel = "INFO",
) -> None:
    """Name server, broker and fronts in one process, until Ctrl-C.

    aerobee serve

    aerobee serve --data /var/lib/aerobee --host 0.0.0.0 --advertise 10.0.0.5

    aerobee serve --ephemeral --namesrv-port 0 --broker-port 0 --grpc-port -1

    aerobee serve --config broker.conf --set autoCreateTopicEnable=false

    aerobee serve --brokers 4 --data /var/lib/aerobee
    """
    _logging(log_level)
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
    loaded = _load(config, given, set_)
    if brokers is None:
        _run(_server(loaded, ephemeral))
        return
    arguments = ["--log-level", log_level, "--http-port", str(OFF)]
    arguments += ["--config", str(config)] if config is not None else []
    pairs = [
        f"{setting}={value}" for setting, value in given["broker"].items() if setting in _OF_EVERY_BROKER
    ]
    arguments += [word for pair in (*pairs, *(set_ or ())) for word in ("--set", pair)]
    _run(_keeper(loaded, brokers, arguments, ephemeral))


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
    _logging(log_level)
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
    kept: Kept = False,
) -> None:
    """The broker alone; it registers with the name servers given.

    aerobee broker --namesrv 127.0.0.1:9876 --name broker-b --broker-port 10921 --data ./broker-b
    """
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
    _logging(log_level, f"{loaded.broker.name} " if kept else "")
    if not loaded.broker.namesrv:
        raise typer.BadParameter("name at least one name server: --namesrv 127.0.0.1:9876")
    _run(_server(loaded, ephemeral), _input_ended if kept else None)


def _keeper(loaded: Settings, brokers: int, arguments: list[str], ephemeral: bool) -> Keeper:
    from aerobee.fleet.keeper import Keeper

    try:
        return Keeper(loaded, brokers, arguments, ephemeral=ephemeral)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


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


def _logging(level: str, whose: str = "") -> None:
    form = f"%(asctime)s %(levelname)-7s {whose}%(name)s %(message)s"
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format=form)


async def _input_ended() -> None:
    """Nothing is ever said there: it ends with the process that holds its other end."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.read()


def _run(server: Server | Keeper, until: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_until_signal(server, until))
    except AerobeeError as error:
        print(f"aerobee: {error}", file=sys.stderr)  # noqa: T201 - the one line of a failed start
        raise typer.Exit(1) from None


async def _until_signal(
    server: Server | Keeper, until: Callable[[], Coroutine[Any, Any, None]] | None
) -> None:
    """Or until `until` returns, if it is given."""
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
        also = None if until is None else asyncio.ensure_future(until())
        if also is not None:
            also.add_done_callback(lambda _: stopping.set())
        await stopping.wait()
        logging.getLogger("aerobee.server").info("stopping")


def _ready_line(server: Server | Keeper) -> str:
    addresses = {name: _address(server, name) for name in ("namesrv", "broker", "grpc", "http")}
    shown = " ".join(f"{name}={address or 'off'}" for name, address in addresses.items())
    where = server.data or Path()
    return f"aerobee ready {shown} data={where if where.is_absolute() else f'./{where}'}"


def _address(server: Server | Keeper, front: str) -> str:
    """Of several brokers all, with commas."""
    if front == "namesrv":
        return server.namesrv
    from aerobee.server import Server

    return str(getattr(server, f"{front}_address")) if isinstance(server, Server) else server.addresses(front)
