# SPDX-License-Identifier: Apache-2.0
"""`aerobee access init`: a secured server to begin with, and the three lines its first client needs. `renew`: its
certificates anew, before they expire."""

from __future__ import annotations

import json
import os
import secrets
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from aerobee.cli import certificates, connect, output


def init(
    directory: Annotated[Path, typer.Argument(help="where certificates and settings go")] = Path(
        "aerobee-access"
    ),
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="names and addresses of the server [localhost, 127.0.0.1]"),
    ] = None,
    admin: Annotated[str, typer.Option("--admin", help="name of the first user")] = "admin",
) -> None:
    """A certificate authority for development, certificates for server and clients, a first super user.

    aerobee access init --host mq.example.com
    """
    now, hosts = connect.clock.wall(), host or ["localhost", "127.0.0.1"]
    # All of it before a directory is made: where cryptography is not installed nothing is left behind.
    ca = certificates.authority(now)
    pairs = {
        "ca": ca,
        "server": certificates.server_pair(ca, hosts, now),
        "client": certificates.client_pair(ca, admin, now),
    }
    directory.mkdir(mode=0o700, exist_ok=True)
    try:
        for name, pair in pairs.items():
            pair.save(directory, name)
    except FileExistsError as error:
        raise connect.Failed(f"{error.filename} is there already: nothing was changed") from None
    secret, here = secrets.token_urlsafe(24), directory.resolve()
    _write_private(here / "server.toml", _server_settings(here, admin, secret))
    _write_private(here / "profiles.toml", _profile(here, admin, secret, hosts[0]))
    output.line(f"aerobee serve --config {shlex.quote(str(here / 'server.toml'))}")
    output.line(f"export AEROBEE_PROFILES={shlex.quote(str(here / 'profiles.toml'))} AEROBEE_PROFILE=dev")
    output.line("aerobee topics list")


def renew(
    directory: Annotated[Path, typer.Argument(help="where `aerobee access init` put them")] = Path(
        "aerobee-access"
    ),
) -> None:
    """New certificates for the server and the clients of `access init`: same names, same keys, same authority. A server
    that runs takes its own within a second, without a restart.

    aerobee access renew /etc/aerobee/access
    """
    now, ca = connect.clock.wall(), _pair(directory, "ca")
    end = ca.certificate.not_valid_after_utc
    if end <= datetime.fromtimestamp(now / 1000, UTC):
        raise connect.Failed(
            f"the authority {directory / 'ca.pem'} has expired on {end:%Y-%m-%d}: `aerobee access init OTHER` makes "
            "another; give servers its server.pem and server.key, and servers and clients its ca.pem"
        )
    for name in ("server", "client"):
        pair, file = certificates.renewed(ca, _pair(directory, name), now), directory / f"{name}.pem"
        pair.replace_certificate(file)
        output.line(f"{file} is valid until {pair.certificate.not_valid_after_utc:%Y-%m-%d}")


def _pair(directory: Path, name: str) -> certificates.Pair:
    try:
        return certificates.read(directory, name)
    except (OSError, ValueError) as error:
        raise connect.Failed(
            f"no certificate authority and its certificates in {directory} ({error}): name the directory that "
            "`aerobee access init` made"
        ) from None


def _server_settings(here: Path, admin: str, secret: str) -> str:
    user = json.dumps({"username": admin, "password": secret})
    lines = {
        "tls_cert": here / "server.pem",
        "tls_key": here / "server.key",
        "tls_required": True,
        "tls_client_ca": here / "ca.pem",
        "tls_client_auth": "optional",
        "authentication": True,
        "authorization": True,
        "init_user": user,
    }
    return "[broker]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in lines.items())


def _profile(here: Path, admin: str, secret: str, host: str) -> str:
    lines = {
        "namesrv": f"{host}:9876",
        "access_key": admin,
        "secret_key": secret,
        "tls": "on",
        "tls_ca": here / "ca.pem",
        "tls_cert": here / "client.pem",
        "tls_key": here / "client.key",
    }
    return "[dev]\n" + "".join(f"{name} = {_toml(value)}\n" for name, value in lines.items())


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else json.dumps(str(value))


def _write_private(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
