# SPDX-License-Identifier: Apache-2.0
"""The gRPC port's TLS where no certificate is configured: with one made for this run.

Official clients that speak TLS by default trust any certificate, as RocketMQ's own servers are self-signed in their test
mode. So a broker without a configured certificate makes one for its own host.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aerobee.net.tls import ServerTls, server_tls

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.settings import BrokerConfig

log = logging.getLogger("aerobee.grpc")


def made_tls(config: BrokerConfig, folder: Path) -> ServerTls | None:
    """None when none can be made: then only plain clients are served.

    It lies in `folder`, which only this user may read, just until it is loaded.
    """
    made = _self_signed(config.advertise or config.host)
    if made is None:
        return None
    file = folder / "certificate.pem"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(made)
    try:
        return server_tls(str(file), "")
    finally:
        file.unlink()


def _self_signed(host: str) -> bytes | None:
    """Key and certificate, PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        log.warning("no TLS on the gRPC port: set tls_cert and tls_key, or `pip install cryptography`")
        return None
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
