# SPDX-License-Identifier: Apache-2.0
"""The gRPC front's certificate: the configured one, else one made for this run.

Official clients that speak TLS by default trust any certificate, as RocketMQ's own servers are self-signed in their test
mode. So a broker without a configured certificate makes one, in memory, for its own host.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from aerobee.settings import BrokerConfig

log = logging.getLogger("aerobee.grpc")


def credentials(config: BrokerConfig) -> grpc.ServerCredentials | None:
    """None when there is no certificate and none can be made: then only plain clients are served."""
    if config.tls_cert and config.tls_key:
        pair = (Path(config.tls_key).read_bytes(), Path(config.tls_cert).read_bytes())
    else:
        made = _self_signed(config.advertise or config.host)
        if made is None:
            return None
        pair = made
    return grpc.ssl_server_credentials([pair])


def _self_signed(host: str) -> tuple[bytes, bytes] | None:
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
    return private, certificate.public_bytes(pem)
