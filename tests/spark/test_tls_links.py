# SPDX-License-Identifier: Apache-2.0
"""Links by TLS, as the options have them: verified where an authority is named, as clients do. No Spark is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aerobee import BrokerConfig
from aerobee.cli import certificates
from aerobee.clock import SystemClock
from aerobee.errors import NetworkError
from aerobee.protocol.headers.route import GetClusterInfo
from aerobee.spark.blocking_connection import connection_to
from aerobee.spark.options import for_batch
from aerobee.testing import TestServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server(certificate: tuple[Path, Path]) -> Iterator[TestServer]:
    """It takes TLS only, and clients that show a certificate."""
    cert, key = map(str, certificate)
    asks = {"tls_client_auth": "required", "tls_client_ca": cert}
    with TestServer(config=BrokerConfig(tls_cert=cert, tls_key=key, tls_required=True, **asks)) as running:  # type: ignore[arg-type]
        yield running


def asked(server: TestServer, **options: str) -> bytes:
    link = connection_to(
        server.namesrv, for_batch({"namesrv": server.namesrv, "subscribe": "t", "tls": "on", **options})
    )
    try:
        return link.call(GetClusterInfo()).body
    finally:
        link.close()


def test_a_link_verifies_by_its_authority_and_shows_its_certificate(
    server: TestServer, certificate: tuple[Path, Path]
) -> None:
    cert, key = map(str, certificate)
    assert b"broker-a" in asked(server, tlsCa=cert, tlsCert=cert, tlsKey=key)
    assert b"broker-a" in asked(server, tlsCert=cert, tlsKey=key)


def test_a_server_of_another_authority_is_not_spoken_to(
    server: TestServer, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    cert, key = map(str, certificate)
    certificates.authority(SystemClock().wall()).save(tmp_path, "other")
    with pytest.raises(NetworkError, match=r"by TLS: .*CERTIFICATE_VERIFY_FAILED"):
        asked(server, tlsCa=str(tmp_path / "other.pem"), tlsCert=cert, tlsKey=key)


def test_who_shows_no_certificate_is_not_answered(server: TestServer) -> None:
    with pytest.raises(NetworkError):
        asked(server)
