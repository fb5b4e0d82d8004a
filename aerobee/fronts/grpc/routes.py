# SPDX-License-Identifier: Apache-2.0
"""The whole surface of the gRPC port but Telemetry, a stream both ways: each call by its request, and its adapter."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple

from aerobee.fronts.grpc import clients, offsets, produce, receive, route
from aerobee.fronts.grpc.generated import messaging_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable


class Answers(Enum):
    ONE = auto()  # the adapter returns it, or a coroutine of it
    STREAM = auto()  # the adapter yields them, or their bytes


class Route(NamedTuple):
    request: Any
    adapter: Callable[..., Any]  # of caller, request and broker
    answers: Answers = Answers.ONE

    @property
    def name(self) -> str:
        """Of the call, and with another ending that of its answer."""
        return str(self.request.DESCRIPTOR.name).removesuffix("Request")

    @property
    def answer(self) -> Any:
        return getattr(pb, f"{self.name}Response")


def table(*routes: Route) -> dict[str, Route]:
    found = {each.name: each for each in routes}
    if len(found) != len(routes):
        twice = sorted({each.name for each in routes if found[each.name] is not each})
        raise ValueError(f"{', '.join(twice)} has two routes: a call has one adapter")
    return found


ROUTES = table(
    Route(pb.QueryRouteRequest, route.query_route),
    Route(pb.QueryAssignmentRequest, route.query_assignment),
    Route(pb.HeartbeatRequest, clients.heartbeat),
    Route(pb.NotifyClientTerminationRequest, clients.goodbye),
    Route(pb.SendMessageRequest, produce.send_message),
    Route(pb.EndTransactionRequest, produce.end),
    Route(pb.RecallMessageRequest, produce.recall_message),
    Route(pb.ReceiveMessageRequest, receive.receive_message, Answers.STREAM),
    Route(pb.AckMessageRequest, receive.acknowledge),
    Route(pb.ChangeInvisibleDurationRequest, receive.change_duration),
    Route(pb.ForwardMessageToDeadLetterQueueRequest, receive.forward_to_dead_letters),
    Route(pb.PullMessageRequest, offsets.pull_message, Answers.STREAM),
    Route(pb.UpdateOffsetRequest, offsets.update),
    Route(pb.GetOffsetRequest, offsets.get),
    Route(pb.QueryOffsetRequest, offsets.query),
)
