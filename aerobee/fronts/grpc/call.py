# SPDX-License-Identifier: Apache-2.0
"""A gRPC call as gates see it, and as its adapter is given it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.fronts.gates.call import Call, Port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class GrpcCall(Call):
    __slots__ = ("_context", "_read", "_request")

    def __init__(
        self, route: str, data: bytes, context: Any, remote: tuple[str, int], read: Callable[[bytes], Any]
    ) -> None:
        super().__init__(Port.GRPC, route, None, remote, data)
        self._context = context
        self._read = read
        self._request: Any = None

    @property
    def fields(self) -> Mapping[str, str]:
        return dict(self._context.invocation_metadata() or ())

    @property
    def asked(self) -> Any:
        if self._request is None:
            self._request = self._read(self.body)
        return self._request
