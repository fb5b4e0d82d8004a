# SPDX-License-Identifier: Apache-2.0
"""`aerobee console`: the web console by itself, for any cluster."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Annotated

import typer

from aerobee.cli import connect, output, profiles
from aerobee.protocol.addresses import format_address

if TYPE_CHECKING:
    from aerobee.client.options import SessionOptions

ACCOUNT = ("access_key", "secret_key", "security_token")


def console(
    namesrv: connect.Namesrv = None,
    port: Annotated[int, typer.Option("--port", help="0 = any free one", min=0, max=65_535)] = 8088,
    host: Annotated[str, typer.Option("--host", help="address to listen on")] = "127.0.0.1",
    read_only: Annotated[bool, typer.Option("--read-only", help="look, and change nothing")] = False,
    as_me: Annotated[
        bool,
        typer.Option("--as-me", help="whoever reaches the port acts as your account, without a login"),
    ] = False,
    known_as: Annotated[
        list[str] | None,
        typer.Option("--known-as", help="a host name that browsers may call it by; repeatable"),
    ] = None,
) -> None:
    """The web console for any cluster, Apache's too. Where the cluster wants accounts, it asks for one.

    aerobee console

    aerobee console -n mq1:9876 --port 9000 --read-only
    """
    import uvicorn  # noqa: F401 - without the extra, before anything is said

    connect.run(_serve(connect.address_of(namesrv), (host, port), _options(as_me), read_only, known_as or []))


def _options(as_me: bool) -> SessionOptions:
    """How to reach the cluster is the profile's; who asks is the browser's business, unless told."""
    from aerobee.client.options import SessionOptions

    account = profiles.account()
    return SessionOptions(**{name: text for name, text in account.items() if as_me or name not in ACCOUNT})  # type: ignore[arg-type]


async def _serve(
    namesrv: str, place: tuple[str, int], options: SessionOptions, read_only: bool, hosts: list[str]
) -> None:
    import uvicorn

    from aerobee.console.app import make_app

    app = make_app(namesrv, options=options, read_only=read_only, hosts=hosts)
    listening = _listening(*place)
    config = uvicorn.Config(app, log_level="error", server_header=False, lifespan="on")
    at = format_address(*listening.getsockname()[:2])
    output.line(f"aerobee console ready http://{at} of the cluster at {namesrv}")
    await uvicorn.Server(config).serve(sockets=[listening])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        raise connect.Failed(
            f"cannot listen on {host} port {port} ({error}): see --host and --port"
        ) from None
