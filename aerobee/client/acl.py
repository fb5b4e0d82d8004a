# SPDX-License-Identifier: Apache-2.0
"""Signing requests for brokers that check accounts (wire sheet 8.1)."""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.client.options import Options
    from aerobee.protocol.command import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"


def signature(secret_key: str, fields: Mapping[str, str], body: bytes) -> str:
    """HMAC-SHA1 over the values of all fields, in order of their names, and the body."""
    content = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE).encode() + body
    return b64encode(hmac.digest(secret_key.encode(), content, "sha1")).decode()


def sign(command: Command, options: Options) -> Command:
    """Adds the account's fields to a request, in place; without an account nothing happens."""
    if options.access_key:
        fields = dict(command.ext_dict())
        fields[ACCESS_KEY] = options.access_key
        if options.security_token:
            fields[SECURITY_TOKEN] = options.security_token
        fields[SIGNATURE] = signature(options.secret_key, fields, command.body)
        command.ext = fields
    return command
