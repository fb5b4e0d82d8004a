# SPDX-License-Identifier: Apache-2.0
"""Heartbeat and NotifyClientTermination: clients about themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aerobee.broker.operations.renew import give_back_all
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import OK

if TYPE_CHECKING:
    from aerobee.broker.broker import Broker
    from aerobee.fronts.grpc.caller import Caller
    from aerobee.fronts.grpc.telemetry import Peer, Peers


def heartbeat(caller: Caller, request: Any, broker: Broker) -> Any:
    caller.peers.register(caller.peer)
    return pb.HeartbeatResponse(status=OK)


def goodbye(caller: Caller, request: Any, broker: Broker) -> Any:
    drop(caller.peer, caller.peers, broker)
    return pb.NotifyClientTerminationResponse(status=OK)


def drop(peer: Peer, peers: Peers, broker: Broker) -> None:
    give_back_all(peer.client_id, broker)
    peers.leave(peer)
