# SPDX-License-Identifier: Apache-2.0
"""Accounts on the wire: the fields a signed request carries, how its signature is made, and how it is checked."""

from __future__ import annotations

import hmac
from binascii import b2a_base64, unhexlify
from functools import lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

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
_MOST_FIELDS = 64  # of requests that there are; half of it would do
_BLOCK = 64  # of SHA-1
_SIGNATURE_SIZE = 28  # of twenty bytes, as text
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


@lru_cache(maxsize=1024)
def _keyed(secret_key: str) -> tuple[Any, Any]:
    """HMAC's two hashes with the key in them: making them costs as much as a short request."""
    key = secret_key.encode()
    block = (sha1(key).digest() if len(key) > _BLOCK else key).ljust(_BLOCK, b"\0")
    return sha1(bytes(byte ^ 0x36 for byte in block)), sha1(bytes(byte ^ 0x5C for byte in block))


def _mac(secret_key: str, content: bytes, body: bytes = b"") -> bytes:
    """HMAC-SHA1."""
    kept_inner, kept_outer = _keyed(secret_key)
    inner, outer = kept_inner.copy(), kept_outer.copy()
    inner.update(content)
    inner.update(body)
    outer.update(inner.digest())
    return outer.digest()  # type: ignore[no-any-return]


def signature(secret_key: str, fields: Mapping[str, str], body: bytes) -> str:
    """HMAC-SHA1 over the values of all fields, in order of their names, and the body."""
    return _signature(secret_key, fields, body).decode()


def _signature(secret_key: str, fields: Mapping[str, str], body: bytes) -> bytes:
    order = _order if len(fields) <= _MOST_FIELDS else _order.__wrapped__  # strangers' many are not kept
    in_order = "".join([fields[name] for name in order(tuple(fields))])
    return b2a_base64(_mac(secret_key, in_order.encode(), body), newline=False)


@lru_cache(maxsize=256)
def _order(names: tuple[str, ...]) -> list[str]:
    """A client writes the fields of a request always alike: they are sorted once."""
    return [name for name in sorted(names) if name != SIGNATURE]


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
    if len(given) != _SIGNATURE_SIZE or not secret_key:
        return False  # whatever it is, it costs no more
    if hmac.compare_digest(given, _signature(secret_key, fields, body)):
        return True
    return any(
        hmac.compare_digest(given, _signature(secret_key, signed, body))
        for signed in _fewer_fields(fields, version)
    )


def is_signed_whole(secret_key: str, content: bytes, given: bytes) -> bool:
    """The same for somebody who has the signed values, and the body after them, in one piece."""
    if len(given) != _SIGNATURE_SIZE or not secret_key:
        return False
    return hmac.compare_digest(given, b2a_base64(_mac(secret_key, content), newline=False))


def _fewer_fields(fields: Mapping[str, str], version: int) -> Iterator[Mapping[str, str]]:
    """Without those that this client or that leaves out, where they are there."""
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
    return _mac(secret_key, date_time.encode())


def is_signed_for_grpc(secret_key: str, date_time: str, signed: bytes) -> bool:
    return bool(secret_key) and hmac.compare_digest(signed, grpc_signature(secret_key, date_time))
