# SPDX-License-Identifier: Apache-2.0
"""A gRPC call as gates see it, and as its adapter is given it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.fronts.gates.call import Call, Port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aerobee.fronts.grpc.exchange import Exchange


class GrpcCall(Call):
    __slots__ = ("_read", "_request", "fields")

    def __init__(self, route: str, data: bytes, exchange: Exchange, read: Callable[[bytes], Any]) -> None:
        super().__init__(Port.GRPC, route, None, exchange.connection.remote, data)
        self.fields: Mapping[str, str] = exchange.fields
        self._read = read
        self._request: Any = None

    @property
    def asked(self) -> Any:
        if self._request is None:
            self._request = self._read(self.body)
        return self._request
