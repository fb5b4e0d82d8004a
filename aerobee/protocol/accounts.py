# SPDX-License-Identifier: Apache-2.0
"""Accounts on the wire: the fields a signed request carries, how its signature is made, and how it is checked."""

from __future__ import annotations

import hmac
from base64 import b64encode
from binascii import unhexlify
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aerobee.protocol.command import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
SECRET = "SecretKey"  # on no wire of RocketMQ's: HTTP's Basic brings it

# Java clients add the zone after they have signed.
_ZONE = frozenset({"__ZONE_NAME", "__ZONE_MODE"})
_UNIQUE_KEY = "_UNIQUE_KEY_QUERY"
_LAST_WITHOUT_UNIQUE_KEY = 399  # ordinal of 4.9.3: clients up to it do not sign that field


class Account(Protocol):
    """Who asks, as any set of options has it; without an access key nothing is signed."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def security_token(self) -> str: ...


class Credentials(NamedTuple):
    """An account that keeps its secret to itself when it is printed."""

    access_key: str = ""
    secret_key: str = ""
    security_token: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r})"


def signature(secret_key: str, fields: Mapping[str, str], body: bytes) -> str:
    """HMAC-SHA1 over the values of all fields, in order of their names, and the body."""
    content = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE).encode() + body
    return b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()


def sign(command: Command, account: Account) -> Command:
    """Adds the account's fields to a request, in place."""
    if account.access_key:
        fields = dict(command.ext_dict())
        fields[ACCESS_KEY] = account.access_key
        if account.security_token:
            fields[SECURITY_TOKEN] = account.security_token
        fields[SIGNATURE] = signature(account.secret_key, fields, command.body)
        command.ext = fields
    return command


def is_signed(secret_key: str, fields: Mapping[str, str], body: bytes, version: int) -> bool:
    """Whether the request carries the signature of whoever has the secret. `version` is the client's."""
    given = fields.get(SIGNATURE, "").encode()
    if not given or not secret_key:
        return False
    return any(
        hmac.compare_digest(given, signature(secret_key, signed, body).encode())
        for signed in _signed_fields(fields, version)
    )


def _signed_fields(fields: Mapping[str, str], version: int) -> Iterator[Mapping[str, str]]:
    """All of them; then without those that this client or that leaves out, where they are there."""
    yield fields
    without = _ZONE | {_UNIQUE_KEY} if version <= _LAST_WITHOUT_UNIQUE_KEY else _ZONE
    for left_out in (without, without | {SECURITY_TOKEN}):  # the Go client sends its token unsigned
        kept = {name: value for name, value in fields.items() if name not in left_out}
        if len(kept) != len(fields):
            fields = kept
            yield kept


# -- gRPC ----------------------------------------------------------------------------------------------------

AUTHORIZATION = "authorization"
DATE_TIME = "x-mq-date-time"


class GrpcSignature(NamedTuple):
    access_key: str
    signature: bytes


def parse_authorization(text: str) -> GrpcSignature:
    """`MQv2-HMAC-SHA1 Credential=ak/region/service, SignedHeaders=x-mq-date-time, Signature=hex`; only the credential's
    first part and the signature count. ValueError in RocketMQ's words."""
    _, blank, rest = text.partition(" ")
    if not blank:
        raise ValueError("authentication header is incorrect.")
    access_key, signed = "", b""
    for part in rest.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise ValueError("authentication keyValues length is incorrect, actual length=1.")
        if name == "Credential":
            access_key = value.partition("/")[0]
        elif name == SIGNATURE:
            signed = _from_hex(value)
    return GrpcSignature(access_key, signed)


def _from_hex(text: str) -> bytes:
    try:
        return unhexlify(text)
    except ValueError:
        raise ValueError("create authentication context error.") from None


def grpc_signature(secret_key: str, date_time: str) -> bytes:
    return hmac.digest(secret_key.encode(), date_time.encode(), "sha1")


def is_signed_for_grpc(secret_key: str, date_time: str, signed: bytes) -> bool:
    return bool(secret_key) and hmac.compare_digest(signed, grpc_signature(secret_key, date_time))
