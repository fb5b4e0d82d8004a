# SPDX-License-Identifier: Apache-2.0
"""The gRPC port's TLS where no certificate is configured: with one made for this run.

Official clients that speak TLS by default trust any certificate, as RocketMQ's own servers are self-signed in their test
mode. So a broker without a configured certificate makes one for its own host.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from aerobee.net.tls import TlsFiles, TlsMode

if TYPE_CHECKING:
    import ssl

    from aerobee.net.door import PortTls
    from aerobee.settings import BrokerConfig

log = logging.getLogger("aerobee.grpc")


def made_tls(config: BrokerConfig) -> PortTls | None:
    """None when none can be made: then only plain clients are served."""
    if find_spec("cryptography") is None:
        log.info(
            "gRPC clients are served without TLS: set tls_cert and tls_key, or `pip install 'aerobee[grpc]'`"
        )
        return None
    return _MadeTls(config.advertise or config.host)


class _MadeTls:
    """`ServerTls` with a certificate that is made for the first client who asks for one: that takes what a broker with
    plain clients does without, a library of several megabytes."""

    mode = TlsMode.PERMISSIVE

    def __init__(self, host: str) -> None:
        self._host = host

    @cached_property
    def context(self) -> ssl.SSLContext:
        # In a folder that only this user may read, just until it is loaded.
        with TemporaryDirectory(prefix="aerobee-grpc-") as folder:
            file = Path(folder) / "certificate.pem"
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                out.write(_self_signed(self._host))
            return TlsFiles(str(file)).context()


def _self_signed(host: str) -> bytes:
    """Key and certificate, PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    # Valid around any clock a peer may have, the broker's own included.
    start = datetime(2020, 1, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=365 * 50))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private + certificate.public_bytes(pem)
