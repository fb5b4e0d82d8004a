# SPDX-License-Identifier: Apache-2.0
"""What an adapter may need beside the request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aerobee.fronts.grpc.exchange import Exchange
    from aerobee.fronts.grpc.telemetry import Peer, Peers


class Caller(NamedTuple):
    peer: Peer
    peers: Peers  # itself among them
    port: int  # of this front, by which routes name it
    exchange: Exchange

    @property
    def remaining_ms(self) -> int | None:
        """Until the caller gives up, if it says."""
        return self.exchange.remaining_ms
