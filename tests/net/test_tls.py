# SPDX-License-Identifier: Apache-2.0
"""Certificates: renewed on disk they are taken, of clients they are asked for and verified."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee.cli import certificates
from aerobee.clock import SystemClock
from aerobee.errors import NetworkError
from aerobee.net.connection import Reply
from aerobee.net.listener import Listener
from aerobee.net.pool import Pool
from aerobee.net.tls import ClientAuth, ServerTls, TlsFiles, TlsMode, client_tls, port_tls
from aerobee.protocol.command import Command
from aerobee.settings import BrokerConfig

if TYPE_CHECKING:
    import ssl

NOW = SystemClock().wall()


class Authority:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = certificates.authority(NOW)
        directory.mkdir(exist_ok=True)
        self.ca.save(directory, "ca")

    def write(self, name: str) -> tuple[str, str]:
        """A pair, over the one that is there; the certificate and its key."""
        files = str(self.directory / f"{name}.pem"), str(self.directory / f"{name}.key")
        for each in files:
            Path(each).unlink(missing_ok=True)
        certificates.server_pair(self.ca, ["127.0.0.1"], NOW).save(self.directory, name)
        return files

    @property
    def ca_file(self) -> str:
        return str(self.directory / "ca.pem")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "a")


async def serial_of(tls: ServerTls, client: ssl.SSLContext) -> int:
    """Of the certificate that a new connection is shown."""
    listener = Listener(lambda connection, command: Reply(), SystemClock(), tls=tls)
    await listener.start("127.0.0.1", 0)
    pool = Pool(tls=client)
    try:
        connection = await pool.get(listener.address)
        await connection.call(Command(1), 5_000)
        shown = connection._transport.get_extra_info("ssl_object").getpeercert()  # type: ignore[union-attr]
        return int(shown["serialNumber"], 16)
    finally:
        await pool.close()
        await listener.close()


async def test_a_renewed_certificate_is_shown_to_the_next_client(authority: Authority) -> None:
    tls = ServerTls(TlsFiles(*authority.write("server")))
    client = client_tls(authority.ca_file)
    first = await serial_of(tls, client)
    tls.look()
    assert await serial_of(tls, client) == first, "nothing changed"
    authority.write("server")
    tls.look()
    assert await serial_of(tls, client) != first


async def test_half_a_pair_leaves_the_old_one_in_force(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = authority.write("server")
    tls, client = ServerTls(TlsFiles(certificate, key)), client_tls(authority.ca_file)
    first = await serial_of(tls, client)
    newer, newer_key = authority.write("newer")
    os.replace(newer, certificate)
    tls.look()
    assert "the certificate in force stays" in caplog.text
    assert await serial_of(tls, client) == first
    os.replace(newer_key, key)
    tls.look()
    second = await serial_of(tls, client)
    assert second != first
    os.unlink(certificate)
    tls.look()
    assert await serial_of(tls, client) == second


@pytest.mark.parametrize(
    ("auth", "shows", "comes_in"),
    [
        (ClientAuth.NONE, "", True),
        (ClientAuth.OPTIONAL, "", True),
        (ClientAuth.OPTIONAL, "good", True),
        (ClientAuth.OPTIONAL, "strange", False),
        (ClientAuth.REQUIRED, "", False),
        (ClientAuth.REQUIRED, "good", True),
        (ClientAuth.REQUIRED, "strange", False),
    ],
)
async def test_certificates_of_clients(
    authority: Authority, tmp_path: Path, auth: ClientAuth, shows: str, comes_in: bool
) -> None:
    pairs = {
        "": ("", ""),
        "good": authority.write("client"),
        "strange": Authority(tmp_path / "b").write("client"),
    }
    tls = ServerTls(TlsFiles(*authority.write("server"), authority.ca_file, auth), TlsMode.REQUIRED)
    client = client_tls(authority.ca_file, *pairs[shows])
    if comes_in:
        await serial_of(tls, client)
        return
    with pytest.raises(NetworkError):
        await serial_of(tls, client)


def test_what_cannot_be_verified_is_refused_at_the_start(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.write("server")
    with pytest.raises(ValueError, match="'tls_client_auth' needs"):
        BrokerConfig(tls_cert=certificate, tls_key=key, tls_client_auth="required")
    config = BrokerConfig(
        tls_cert=certificate,
        tls_key=key,
        tls_client_auth="required",
        tls_client_ca=str(tmp_path / "nowhere.pem"),
    )
    with pytest.raises(ValueError, match=r"tls_client_ca .*nowhere.pem"):
        port_tls(config)
    with pytest.raises(ValueError, match=r"client certificate .*nowhere.pem"):
        client_tls("", str(tmp_path / "nowhere.pem"))
