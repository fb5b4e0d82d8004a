# SPDX-License-Identifier: Apache-2.0
"""TLS on the remoting port, told from plain frames by the first byte: 0x16 opens a TLS handshake, while a
plain frame within the size limit opens with 0x00."""

from __future__ import annotations

import ssl
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aerobee.settings import BrokerConfig

FIRST_BYTE = b"\x16"


class TlsMode(StrEnum):
    OFF = "off"  # plain only
    PERMISSIVE = "permissive"  # both
    REQUIRED = "required"  # plain connections are closed


class ServerTls(NamedTuple):
    context: ssl.SSLContext
    mode: TlsMode = TlsMode.PERMISSIVE


def server_tls(certificate: str, key: str, mode: TlsMode = TlsMode.PERMISSIVE) -> ServerTls | None:
    """What a listener needs, or None when TLS is off or no certificate is named."""
    if mode is TlsMode.OFF or not certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"tls_cert {certificate!r}, tls_key {key!r}: {error}; give PEM files") from None
    return ServerTls(context, mode)


def port_tls(config: BrokerConfig) -> ServerTls | None:
    """What the settings say of a port; ValueError when a file cannot be read."""
    mode = TlsMode.REQUIRED if config.tls_required else TlsMode.PERMISSIVE
    return server_tls(config.tls_cert, config.tls_key, mode)


def client_tls(ca_file: str = "") -> ssl.SSLContext:
    """For dialling; without `ca_file` the server is not verified, RocketMQ's own default."""
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"certificate file {ca_file!r}: {error}; give a PEM file") from None
    context.check_hostname = False  # brokers are dialled by the addresses routes tell, mostly bare IPs
    if not ca_file:
        context.verify_mode = ssl.CERT_NONE
    return context


def namesrv_tls(config: BrokerConfig) -> ssl.SSLContext | None:
    """How a broker dials its name servers; None is plain."""
    return client_tls(config.namesrv_tls_ca) if config.namesrv_tls else None
