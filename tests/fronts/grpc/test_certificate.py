# SPDX-License-Identifier: Apache-2.0
"""The certificate a broker makes itself where none is given, and the table of calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from aerobee.fronts.grpc import certificate
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.routes import Route, table


def test_it_is_valid_around_any_clock_and_names_its_host() -> None:
    made = certificate._self_signed("broker.local")
    assert made is not None
    read = x509.load_pem_x509_certificate(made)
    start = datetime(2020, 1, 1, tzinfo=UTC)
    assert (read.not_valid_before_utc, read.not_valid_after_utc) == (start, start + timedelta(days=18_250))
    (name,) = read.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == "broker.local"
    assert read.issuer == read.subject
    names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["localhost"]
    assert not names.critical
    key: Any = serialization.load_pem_private_key(made, None)
    assert key.public_key() == read.public_key()
    other = certificate._self_signed("broker.local")
    assert other is not None
    assert x509.load_pem_x509_certificate(other).serial_number != read.serial_number


def test_a_call_has_one_adapter() -> None:
    def adapter(*_: Any) -> None: ...

    once = [Route(pb.QueryRouteRequest, adapter), Route(pb.HeartbeatRequest, adapter)]
    assert list(table(*once)) == ["QueryRoute", "Heartbeat"]
    with pytest.raises(ValueError, match=r"^Heartbeat has two routes"):
        table(*once, Route(pb.HeartbeatRequest, adapter))
