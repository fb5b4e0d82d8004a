# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
import ipaddress
import logging
import os
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Examples take as long as the machine lets them: how long is no property of the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


_statvfs = os.statvfs


def _statvfs_with_room(path: Any) -> os.statvfs_result:
    """How full this machine's disk is decides no test: a store cleans up and then refuses sends on a full one."""
    told = list(_statvfs(path))
    blocks, free, available = 2, 3, 4
    told[free] = max(told[free], told[blocks] // 2)
    told[available] = max(told[available], told[blocks] // 2)
    return os.statvfs_result(told)


os.statvfs = _statvfs_with_room
# ... and none of those with servers of their own.
os.environ |= {"AEROBEE_STORE__DISK_CLEAN_RATIO": "1", "AEROBEE_STORE__DISK_FULL_RATIO": "1"}


# Longer than the 300 s of the others: a JVM starts, and peers are fetched and built.
_LIMITS_S = {"spark": 900, "interop": 1200}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None:
            kinds = [kind for kind in _LIMITS_S if item.get_closest_marker(kind) or kind in item.path.parts]
            for kind in kinds[:1]:
                item.add_marker(pytest.mark.timeout(_LIMITS_S[kind]))


@pytest.fixture(autouse=True)
def log_levels_end_with_the_test() -> Iterator[None]:
    """Commands run in this process turn the log down for their user; the next test must hear it again."""
    ours, everyone = logging.getLogger("aerobee"), logging.getLogger()
    before = ours.level, everyone.level, list(everyone.handlers)
    yield
    ours.setLevel(before[0])
    everyone.setLevel(before[1])
    for handler in [h for h in everyone.handlers if h not in before[2]]:
        everyone.removeHandler(handler)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key, as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "aerobee test")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return cert_file, key_file
