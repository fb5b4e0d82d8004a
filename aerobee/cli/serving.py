# SPDX-License-Identifier: Apache-2.0
"""What `aerobee serve`, `namesrv` and `broker` do, once their flags are read: settings, then the server until it is told
to stop.

Nothing here needs the library that reads flags and prints help: a server that is spelled plainly starts without it
(`entry.py`), in less time and memory.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aerobee import __version__
from aerobee.cli import logs
from aerobee.client.running import loop_factory, on_signals
from aerobee.errors import AerobeeError
from aerobee.memory import keep_freed
from aerobee.settings import Settings, load
from aerobee.settings.sources import OF_A_BROKER, OF_A_NAME_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aerobee.fleet.keeper import Keeper
    from aerobee.server import Server

    # Runs until it is told to stop; the exit code.
    Start = Callable[[], int]
    Until = Callable[[], Coroutine[Any, Any, None]]

log = logging.getLogger("aerobee.server")

OFF = -1
_OF_EVERY_BROKER = ("host", "advertise", "cluster")  # flags that several brokers share
KEPT_BYTES = 64 * 1024 * 1024  # of dropped answers: a reader in bulk asks for megabytes at a time


def serve(
    *,
    host: str | None = None,
    advertise: str | None = None,
    namesrv_port: int | None = None,
    broker_port: int | None = None,
    grpc_port: int | None = None,
    http_port: int | None = None,
    data: Path | None = None,
    ephemeral: bool = False,
    cluster: str | None = None,
    name: str | None = None,
    brokers: int | None = None,
    config: Path | None = None,
    set: list[str] | None = None,
    log_level: str = "INFO",
) -> Start:
    """ValueError when a flag or a setting is wrong; so do the others."""
    logs.to_stderr(log_level)
    given = {
        "broker": _given(
            host=host, advertise=advertise, port=broker_port, grpc_port=grpc_port, http_port=http_port,
            cluster=cluster, name=name,
        ),
        "store": _given(data=data),
        "namesrv": _given(host=host, port=namesrv_port),
    }  # fmt: skip
    loaded = load(config, os.environ, given, set or (), OF_A_BROKER)
    if brokers is None:
        return lambda: _run(_server(loaded, ephemeral))
    arguments = ["--log-level", log_level]
    arguments += ["--config", str(config)] if config is not None else []
    pairs = [
        f"{setting}={value}" for setting, value in given["broker"].items() if setting in _OF_EVERY_BROKER
    ]
    arguments += [word for pair in (*pairs, *(set or ())) for word in ("--set", pair)]
    from aerobee.fleet.keeper import Keeper

    keeper = Keeper(loaded, brokers, arguments, ephemeral=ephemeral)
    logs.as_set(loaded.broker)  # its own lines, and the name server's; each broker has a file of its name
    return lambda: _run(keeper)


def namesrv(
    *,
    host: str | None = None,
    namesrv_port: int | None = None,
    data: Path | None = None,
    config: Path | None = None,
    set: list[str] | None = None,
    log_level: str = "INFO",
) -> Start:
    logs.to_stderr(log_level)
    given = {
        "namesrv": _given(host=host, port=namesrv_port),
        "store": _given(data=data),
        "broker": {**_given(host=host), "port": OFF},
    }
    loaded = load(config, os.environ, given, set or (), OF_A_NAME_SERVER)
    return lambda: _run(_server(loaded, False))


def broker(
    *,
    namesrv: str | None = None,
    host: str | None = None,
    advertise: str | None = None,
    broker_port: int | None = None,
    grpc_port: int | None = None,
    http_port: int | None = None,
    data: Path | None = None,
    ephemeral: bool = False,
    cluster: str | None = None,
    name: str | None = None,
    config: Path | None = None,
    set: list[str] | None = None,
    log_level: str = "INFO",
    kept: bool = False,
) -> Start:
    logs.to_stderr(log_level)
    given = {
        "broker": _given(
            host=host, advertise=advertise, port=broker_port, grpc_port=grpc_port, http_port=http_port,
            cluster=cluster, name=name, namesrv=namesrv or os.environ.get("AEROBEE_NAMESRV"),
        ),
        "store": _given(data=data),
        "namesrv": {"port": OFF},
    }  # fmt: skip
    loaded = load(config, os.environ, given, set or (), OF_A_BROKER)
    if not loaded.broker.namesrv:
        raise ValueError("name at least one name server: --namesrv 127.0.0.1:9876")
    if kept:
        return lambda: _run(_server(loaded, ephemeral, loaded.broker.name), _input_ended)
    return lambda: _run(_server(loaded, ephemeral))


COMMANDS: dict[str, Callable[..., Start]] = {"serve": serve, "namesrv": namesrv, "broker": broker}


def _given(**flags: Any) -> dict[str, Any]:
    """Flags by the settings they are; those that were left out are no settings."""
    return {
        name: str(value) if isinstance(value, Path) else value
        for name, value in flags.items()
        if value is not None
    }


def _server(loaded: Settings, ephemeral: bool, whose_logs: str = "") -> Server:
    logs.as_set(loaded.broker, whose_logs)
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


async def _input_ended() -> None:
    """Nothing is ever said there: it ends with the process that holds its other end."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.read()


def _run(server: Server | Keeper, until: Until | None = None) -> int:
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_until_signal(server, until))
    except AerobeeError as error:
        print(f"aerobee: {error}", file=sys.stderr)  # noqa: T201 - the one line of a failed start
        return 1
    return 0


async def _until_signal(server: Server | Keeper, until: Until | None) -> None:
    """Or until `until` returns, if it is given."""
    stopping = asyncio.Event()
    hang_up = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has none
    on_signals({signal.SIGTERM, signal.SIGINT, hang_up}, stopping.set)
    async with server:
        ready = _ready_line(server)
        print(ready, flush=True)  # noqa: T201 - scripts wait for this line
        log.info("version=%s %s", __version__, ready.removeprefix("aerobee "))
        # What exists now stays for good; leaving it out keeps collections short while messages flow. So does looking
        # often at what is rather new: the middle generation is kept to some ten thousand objects, a few ms.
        gc.collect()
        gc.freeze()
        gc.enable()
        gc.set_threshold(10_000, 3, 700)
        keep_freed(KEPT_BYTES)
        also = None if until is None else asyncio.ensure_future(until())
        if also is not None:
            also.add_done_callback(lambda _: stopping.set())
        await stopping.wait()
        log.info("stopping")
    log.info("stopped")


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
