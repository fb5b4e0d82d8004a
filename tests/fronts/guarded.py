# SPDX-License-Identifier: Apache-2.0
"""A guard that says what it is told to, and calls for gates to be shown."""

from __future__ import annotations

import base64
import hashlib
import hmac
from types import SimpleNamespace
from typing import Any

from aerobee.errors import AccessDenied
from aerobee.fronts.gates.call import Call, Place, Port

NOW = 1_700_000_000_000


class Guard:
    """Users by name and secret; `trusted` needs none. Remembers what it was asked."""

    cluster, look_up, checks_rights = "c", None, True

    def __init__(self, **secrets: str) -> None:
        self._secrets = secrets
        self.asked: list[Any] = []
        self.audit: Any = None
        self.open: set[str] = set()
        self.passed: set[Any] = set()
        self.refused_logins = 0

    def needs_signature(self, request: str) -> bool:
        return request not in self.open

    needs_right = needs_signature

    def secret_of(self, user: str, source: str) -> str | None:
        self.asked.append((user, source))
        if source == "trusted":
            return None
        if user not in self._secrets:
            raise AccessDenied(f"no {user}")
        return self._secrets[user]

    def badly_signed(self, user: str) -> AccessDenied:
        return AccessDenied(f"bad signature of {user}")

    def may_everything(self, user: str) -> bool:
        self.asked.append(("everything", user))
        return user == "root"

    def check(self, user: str, needs: Any, source: str, code: int | None) -> None:
        self.asked.append(("check", user, needs, source, code))

    def unreadable(self, user: str) -> AccessDenied:
        return AccessDenied(f"unreadable from {user}")


class Asked(Call):
    def __init__(self, port: Port = Port.BROKER, fields: dict[str, str] | None = None, **more: Any) -> None:
        super().__init__(
            port,
            more.get("route", "SendMessageV2"),
            more.get("code", 310),
            (more.get("source", "10.0.0.1"), 1),
            more.get("body", b""),
        )
        self._fields, self._asked = fields or {}, more.get("asked")

    @property
    def fields(self) -> dict[str, str]:
        return self._fields

    @property
    def asked(self) -> Any:
        if isinstance(self._asked, Exception):
            raise self._asked
        return self._asked


def at(
    guard: Guard | None, port: Port = Port.BROKER, route: str = "SendMessageV2", code: int | None = 310
) -> Place:
    return Place(port, route, code, SimpleNamespace(wall=lambda: NOW), SimpleNamespace(guard=guard))  # type: ignore[arg-type]


def for_grpc(user: str, secret: str, date: str = "20260101T000000Z") -> dict[str, str]:
    signature = hmac.new(secret.encode(), date.encode(), hashlib.sha1).hexdigest().upper()
    written = f"MQv2-HMAC-SHA1 Credential={user}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": written, "x-mq-date-time": date}


def for_remoting(user: str, secret: str, body: bytes) -> dict[str, str]:
    content = user.encode() + body  # the values by the names of their fields, and the body
    signature = base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()
    return {"AccessKey": user, "Signature": signature}


def for_http(user: str, secret: str) -> dict[str, str]:
    return {"AccessKey": user, "SecretKey": secret}
