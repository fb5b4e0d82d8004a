# SPDX-License-Identifier: Apache-2.0
"""What an adapter may need beside the request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from aerobee.fronts.grpc.telemetry import Peer, Peers


class Caller(NamedTuple):
    peer: Peer
    peers: Peers  # itself among them
    port: int  # of this front, by which routes name it
    remaining_ms: int | None  # until the caller gives up, if it says
