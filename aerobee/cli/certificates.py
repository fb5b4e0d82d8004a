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
AUTHORITY_DAYS = 3650  # several times what it signs


class Pair(NamedTuple):
    certificate: Any
    key: Any

    def save(self, directory: Path, name: str) -> None:
        from cryptography.hazmat.primitives import serialization

        pem = serialization.Encoding.PEM
        private = self.key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        _write(directory / f"{name}.key", private, 0o600)
        _write(directory / f"{name}.pem", self.certificate.public_bytes(pem), 0o644)

    def replace_certificate(self, file: Path) -> None:
        """In one step: who reads it meanwhile has the old one or the new one."""
        from cryptography.hazmat.primitives import serialization

        fresh = file.with_name(f"{file.name}.new")
        fresh.unlink(missing_ok=True)
        _write(fresh, self.certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        fresh.replace(file)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Never over a file that is there: somebody may rely on it."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def read(directory: Path, name: str) -> Pair:
    """OSError, or ValueError, where there is none."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    certificate = x509.load_pem_x509_certificate((directory / f"{name}.pem").read_bytes())
    key = serialization.load_pem_private_key((directory / f"{name}.key").read_bytes(), None)
    return Pair(certificate, key)


def authority(now_ms: int) -> Pair:
    return _made(_named("Aerobee development CA"), None, (), now_ms)


def server_pair(ca: Pair, hosts: Sequence[str], now_ms: int) -> Pair:
    return _made(_named(hosts[0]), ca, [_host(each) for each in hosts], now_ms)


def client_pair(ca: Pair, name: str, now_ms: int) -> Pair:
    return _made(_named(name), ca, (), now_ms)


def renewed(ca: Pair, old: Pair, now_ms: int) -> Pair:
    """Of the same names and with the same key, so that only one file changes."""
    from cryptography import x509

    try:
        hosts = list(old.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        hosts = []
    return _made(old.certificate.subject, ca, hosts, now_ms, old.key)


def _made(subject: Any, ca: Pair | None, hosts: Sequence[Any], now_ms: int, key: Any = None) -> Pair:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = key or ec.generate_private_key(ec.SECP256R1())
    start = datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(days=1)  # clocks differ
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if ca is None else ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(_end(start, ca))
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=None), critical=True)
    )
    if hosts:
        built = built.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return Pair(built.sign(key if ca is None else ca.key, hashes.SHA256()), key)


def _end(start: datetime, ca: Pair | None) -> datetime:
    if ca is None:
        return start + timedelta(days=AUTHORITY_DAYS)
    authority_ends: datetime = ca.certificate.not_valid_after_utc
    return min(start + timedelta(days=DAYS), authority_ends)  # past that end nobody would take it


def _named(name: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(text: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
