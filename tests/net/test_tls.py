# SPDX-License-Identifier: Apache-2.0
"""Certificates: renewed on disk they are taken, of clients they are asked for and verified."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from aerobee.cli import certificates
from aerobee.clock import SystemClock
from aerobee.errors import NetworkError
from aerobee.net.connection import Reply
from aerobee.net.listener import Listener
from aerobee.net.pool import Pool
from aerobee.net.tls import ClientAuth, ServerTls, TlsFiles, TlsMode, client_tls, namesrv_tls, port_tls
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


def lengthen(file: str) -> None:
    Path(file).write_text(Path(file).read_text() + "\n" * 100)


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
    tls.look()
    assert caplog.text.count("the certificate in force stays") == 1, "once, not every second"
    assert await serial_of(tls, client) == first
    os.replace(newer_key, key)
    tls.look()
    second = await serial_of(tls, client)
    assert second != first
    caplog.clear()
    os.unlink(certificate)
    tls.look()
    assert await serial_of(tls, client) == second
    assert caplog.text == "", "a file that is gone is no news: another one is about to come"


async def test_a_certificate_of_another_size_is_a_new_one_whatever_its_time(authority: Authority) -> None:
    pair = authority.write("server")
    for file in pair:
        os.utime(file, ns=(1, 1))
    tls, client = ServerTls(TlsFiles(*pair)), client_tls(authority.ca_file)
    first = await serial_of(tls, client)
    authority.write("server")
    lengthen(pair[0])
    for file in pair:
        os.utime(file, ns=(1, 1))
    tls.look()
    assert await serial_of(tls, client) != first


async def test_a_server_is_known_by_its_authority_whatever_its_name(
    authority: Authority, tmp_path: Path
) -> None:
    """Brokers are dialled by the addresses that routes tell."""
    certificates.server_pair(authority.ca, ["elsewhere.example"], NOW).save(tmp_path, "server")
    tls = ServerTls(TlsFiles(str(tmp_path / "server.pem"), str(tmp_path / "server.key")))
    assert await serial_of(tls, client_tls(authority.ca_file))
    with pytest.raises(NetworkError):
        await serial_of(tls, client_tls(Authority(tmp_path / "b").ca_file))


async def test_a_port_speaks_tls_as_the_settings_say(authority: Authority) -> None:
    certificate, key = authority.write("server")
    assert port_tls(BrokerConfig()) is None
    told = BrokerConfig(tls_cert=certificate, tls_key=key)
    may = port_tls(told)
    must = port_tls(msgspec.structs.replace(told, tls_required=True), "http/1.1")
    assert may is not None
    assert must is not None
    assert (may.mode, must.mode) == (TlsMode.PERMISSIVE, TlsMode.REQUIRED)
    for tls, speaks in ((may, "h2"), (must, "http/1.1")):
        client = client_tls(authority.ca_file)
        client.set_alpn_protocols(["spdy/1", "http/1.1", "h2"])
        listener = Listener(lambda connection, command: Reply(), SystemClock(), tls=tls)
        await listener.start("127.0.0.1", 0)
        pool = Pool(tls=client)
        connection = await pool.get(listener.address)
        assert connection._transport.get_extra_info("ssl_object").selected_alpn_protocol() == speaks  # type: ignore[union-attr]
        await pool.close()
        await listener.close()


async def test_a_broker_dials_name_servers_as_the_settings_say(authority: Authority, tmp_path: Path) -> None:
    """Whom it trusts, and what it shows of itself."""
    certificate, key = authority.write("broker")
    strict = TlsFiles(*authority.write("server"), authority.ca_file, ClientAuth.REQUIRED)
    server = ServerTls(strict, TlsMode.REQUIRED)
    assert namesrv_tls(BrokerConfig()) is None
    told = BrokerConfig(
        namesrv_tls=True,
        namesrv_tls_ca=authority.ca_file,
        namesrv_tls_cert=certificate,
        namesrv_tls_key=key,
    )
    good = namesrv_tls(told)
    assert good is not None
    assert await serial_of(server, good)
    for other in (
        {"namesrv_tls_ca": Authority(tmp_path / "b").ca_file},
        {"namesrv_tls_cert": "", "namesrv_tls_key": ""},
    ):
        bad = namesrv_tls(msgspec.structs.replace(told, **other))
        assert bad is not None
        with pytest.raises(NetworkError):
            await serial_of(server, bad)


async def test_a_renewed_authority_lets_its_own_clients_in(authority: Authority, tmp_path: Path) -> None:
    other, ca = Authority(tmp_path / "b"), tmp_path / "clients.pem"
    shutil.copy(authority.ca_file, ca)
    tls = ServerTls(TlsFiles(*authority.write("server"), str(ca), ClientAuth.REQUIRED), TlsMode.REQUIRED)
    client = client_tls(authority.ca_file, *other.write("client"))
    with pytest.raises(NetworkError):
        await serial_of(tls, client)
    shutil.copy(other.ca_file, ca)
    os.utime(ca, ns=(1, 1))  # another time, whatever the clock of the file system is
    tls.look()
    await serial_of(tls, client)


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
