# SPDX-License-Identifier: Apache-2.0
"""A certificate authority for development, and the certificates it signs: PEM files, keys for their owner alone."""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DAYS = 825  # what clients take from a certificate at most


class Pair(NamedTuple):
    certificate: Any
    key: Any

    def save(self, directory: Path, name: str) -> None:
        from cryptography.hazmat.primitives import serialization

        pem = serialization.Encoding.PEM
        private = self.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        _write(directory / f"{name}.key", private, 0o600)
        _write(directory / f"{name}.pem", self.certificate.public_bytes(pem), 0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Never over a file that is there: somebody may rely on it."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
        out.write(data)


def authority(now_ms: int) -> Pair:
    return _made("Aerobee development CA", None, (), now_ms)


def server_pair(ca: Pair, hosts: Sequence[str], now_ms: int) -> Pair:
    return _made(hosts[0], ca, hosts, now_ms)


def client_pair(ca: Pair, name: str, now_ms: int) -> Pair:
    return _made(name, ca, (), now_ms)


def _made(name: str, ca: Pair | None, hosts: Sequence[str], now_ms: int) -> Pair:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    start = datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(days=1)  # clocks differ
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if ca is None else ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=None), critical=True)
    )
    if hosts:
        built = built.add_extension(
            x509.SubjectAlternativeName([_host(each, x509) for each in hosts]), critical=False
        )
    return Pair(built.sign(key if ca is None else ca.key, hashes.SHA256()), key)


def _host(text: str, x509: Any) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
