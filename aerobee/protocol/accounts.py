# SPDX-License-Identifier: Apache-2.0
"""Accounts on the wire: the fields a signed request carries, and how its signature is made."""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.protocol.command import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"


class Account(Protocol):
    """Who asks, as any set of options has it; without an access key nothing is signed."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def security_token(self) -> str: ...


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
