# SPDX-License-Identifier: Apache-2.0
"""A request of the API on its way through the gates: the same accounts, rights and audit as on the other ports.

What it asks for is a header of the remoting protocol, so that whoever may do something by mqadmin may do it here, and
nobody else. It brings its account by HTTP Basic: the access key, and the secret itself.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from aerobee.errors import (
    AccessDenied,
    AclDenied,
    AerobeeError,
    BrokerError,
    GroupNotFound,
    QueryNotFound,
    StoreError,
    TopicNotFound,
)
from aerobee.fronts.gates.call import Call, Place, Port, pass_gates
from aerobee.fronts.gates.table import gates_at
from aerobee.protocol import accounts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request

    from aerobee.broker.broker import Broker
    from aerobee.fronts.gates.call import Gate
    from aerobee.protocol.command import Header

_WHO = {"www-authenticate": 'Basic realm="aerobee", charset="UTF-8"'}


class HttpCall(Call):
    __slots__ = ("_fields", "_header")

    def __init__(self, request: Request, header: Header, body: bytes) -> None:
        peer = request.client
        remote = (peer.host, peer.port) if peer is not None else ("", 0)
        super().__init__(Port.HTTP, type(header).__name__, int(header.code), remote, body)
        self._header = header
        self._fields = credentials(request.headers.get("authorization", ""))

    @property
    def fields(self) -> Mapping[str, str]:
        return self._fields

    @property
    def asked(self) -> Header:
        return self._header


def credentials(written: str) -> dict[str, str]:
    """Access key and secret of an Authorization header; empty when it has none that can be read."""
    scheme, _, token = written.partition(" ")
    if scheme.lower() != "basic":
        return {}
    try:
        user, colon, secret = base64.b64decode(token, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return {}
    return {accounts.ACCESS_KEY: user, accounts.SECRET: secret} if colon else {}


class HttpPath:
    """`through` is the way of every request: gates are made once for each kind of header."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._gates: dict[type[Header], tuple[Gate, ...]] = {}

    async def through(self, call: HttpCall, work: Callable[[], Any]) -> Any:
        """What `work` answers, or the coroutine it is; raises what refused it."""
        kind = type(call.asked)
        gates = self._gates.get(kind)
        if gates is None:
            broker = self._broker
            place = Place(Port.HTTP, kind.__name__, int(kind.code), broker.clock, broker)
            gates = self._gates[kind] = gates_at(place)
        answer = pass_gates(gates, call, work)
        return await answer if hasattr(answer, "__await__") else answer


def refusal(error: AerobeeError | ValueError, call: HttpCall | None) -> JSONResponse:
    said: dict[str, Any] = {"error": str(getattr(error, "remark", None) or error)}
    if isinstance(error, BrokerError):
        said["code"] = int(error.code)
    if isinstance(error, (AccessDenied, AclDenied)):
        known = call is not None and bool(call.user)
        if not known:
            said["hint"] = "send an account by HTTP Basic: access key and secret"
        return JSONResponse(said, 403) if known else JSONResponse(said, 401, headers=_WHO)
    if isinstance(error, (TopicNotFound, GroupNotFound, QueryNotFound)):
        return JSONResponse(said, 404)
    return JSONResponse(said, 503 if isinstance(error, StoreError) else 400)
