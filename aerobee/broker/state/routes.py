# SPDX-License-Identifier: Apache-2.0
"""The brokers of a topic, and what this one knows of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

GRPC_SCHEME = "grpc://"


class Host(msgspec.Struct, frozen=True):
    """A broker that has a topic, as it registered."""

    broker_name: str
    perm: int
    read_queues: int
    write_queues: int
    address: str = ""  # of its remoting front
    grpc_address: str = ""  # empty: it does not speak gRPC, or it is this broker


class Routes(Protocol):
    """The hosts of topics besides this broker."""

    def known(self, topic: str) -> Sequence[Host] | None:
        """None when it has to be looked up first."""

    async def look_up(self, topic: str) -> None:
        """After this it is known, unless no name server answers."""

    async def stop(self) -> None: ...
