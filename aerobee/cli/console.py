# SPDX-License-Identifier: Apache-2.0
"""`aerobee console`: the web console by itself, for any cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from aerobee.cli import connect, output, profiles

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
    connect.run(_serve(connect.address_of(namesrv), (host, port), _options(as_me), read_only, known_as or []))


def _options(as_me: bool) -> SessionOptions:
    """How to reach the cluster is the profile's; who asks is the browser's business, unless told."""
    from aerobee.client.options import SessionOptions

    account = profiles.account()
    return SessionOptions(**{name: text for name, text in account.items() if as_me or name not in ACCOUNT})  # type: ignore[arg-type]


async def _serve(
    namesrv: str, place: tuple[str, int], options: SessionOptions, read_only: bool, hosts: list[str]
) -> None:
    from aerobee.console.app import make_app
    from aerobee.console.serving import serving

    app = make_app(namesrv, options=options, read_only=read_only, hosts=hosts)
    async with serving(app, *place) as address:
        output.line(f"aerobee console ready {address} of the cluster at {namesrv}")
        await asyncio.Event().wait()
