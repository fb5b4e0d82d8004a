# SPDX-License-Identifier: Apache-2.0
"""TLS on every port, told from plain frames by the first byte: 0x16 opens a TLS handshake, while a plain frame within
the size limit opens with 0x00. Certificates that are renewed on disk are taken without a restart."""

from __future__ import annotations

import logging
import os
import ssl
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aerobee.settings import BrokerConfig

log = logging.getLogger("aerobee.net")

FIRST_BYTE = b"\x16"
LOOK_MS = 1_000  # how often certificate files are looked at


class TlsMode(StrEnum):
    OFF = "off"  # plain only
    PERMISSIVE = "permissive"  # both
    REQUIRED = "required"  # plain connections are closed


class ClientAuth(StrEnum):
    """Whether clients show certificates; those shown are verified."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "required"


_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class TlsFiles(NamedTuple):
    """What a port's context is made of."""

    certificate: str
    key: str = ""
    client_ca: str = ""
    client_auth: ClientAuth = ClientAuth.NONE
    # What is spoken inside, for peers that ask: gRPC clients insist on h2, RocketMQ's others do not ask.
    speaks: str = "h2"

    def context(self) -> ssl.SSLContext:
        """ValueError when a file cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key or None)
        except (OSError, ssl.SSLError) as error:
            names = f"tls_cert {self.certificate!r}, tls_key {self.key!r}"
            raise ValueError(f"{names}: {error}; give PEM files") from None
        if self.client_auth is not ClientAuth.NONE:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise ValueError(f"tls_client_ca {self.client_ca!r}: {error}; give a PEM file") from None
            context.verify_mode = _VERIFY[self.client_auth]
        context.set_alpn_protocols([self.speaks])
        return context

    def state(self) -> list[tuple[int, int] | None]:
        return [_stamp(name) for name in (self.certificate, self.key, self.client_ca) if name]


def _stamp(name: str) -> tuple[int, int] | None:
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


class ServerTls:
    """`context` is the one for the next connection; those that are open keep theirs."""

    def __init__(self, files: TlsFiles, mode: TlsMode = TlsMode.PERMISSIVE) -> None:
        self.mode = mode
        self._files = files
        self._seen = files.state()
        self.context = files.context()

    def look(self) -> None:
        """Take what was renewed. A pair that does not fit, one file of two written so far, leaves the old in force: it
        is tried again when the other one comes."""
        state = self._files.state()
        if state == self._seen or None in state:  # deleted files are not news
            return
        self._seen = state
        try:
            self.context = self._files.context()
        except ValueError as error:
            log.warning("the certificate in force stays: %s", error)
        else:
            log.info("took the renewed certificate file=%s", self._files.certificate)


def server_tls(certificate: str, key: str, mode: TlsMode = TlsMode.PERMISSIVE) -> ServerTls | None:
    """What a listener needs, or None when TLS is off or no certificate is named."""
    if mode is TlsMode.OFF or not certificate:
        return None
    return ServerTls(TlsFiles(certificate, key), mode)


def port_tls(config: BrokerConfig, speaks: str = "h2") -> ServerTls | None:
    """What the settings say of a port; ValueError when a file cannot be read."""
    if not config.tls_cert:
        return None
    mode = TlsMode.REQUIRED if config.tls_required else TlsMode.PERMISSIVE
    auth = ClientAuth(config.tls_client_auth)
    return ServerTls(TlsFiles(config.tls_cert, config.tls_key, config.tls_client_ca, auth, speaks), mode)


def client_tls(ca_file: str = "", certificate: str = "", key: str = "") -> ssl.SSLContext:
    """For dialling; without `ca_file` the server is not verified, RocketMQ's own default. The certificate is shown to
    servers that ask for one."""
    try:
        context = (
            # a default one would load the system's authorities, 20 ms, to be asked nothing
            ssl.create_default_context(cafile=ca_file) if ca_file else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"certificate file {ca_file!r}: {error}; give a PEM file") from None
    context.check_hostname = False  # brokers are dialled by the addresses routes tell, mostly bare IPs
    if not ca_file:
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        try:
            context.load_cert_chain(certificate, key or None)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(
                f"client certificate {certificate!r}, key {key!r}: {error}; give PEM files"
            ) from None
    return context


def namesrv_tls(config: BrokerConfig) -> ssl.SSLContext | None:
    """How a broker dials name servers and other brokers; None is plain."""
    if not config.namesrv_tls:
        return None
    return client_tls(config.namesrv_tls_ca, config.namesrv_tls_cert, config.namesrv_tls_key)
