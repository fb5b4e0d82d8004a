# SPDX-License-Identifier: Apache-2.0
"""The calls of `apache.rocketmq.v2.MessagingService`, from bytes to the adapter and back.

Business errors are gRPC OK with a status in the body, as clients expect; only Telemetry and calls this broker does not
serve use gRPC's own status codes.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc

from aerobee.broker.operations.renew import renew_due
from aerobee.errors import AccessDenied, AclDenied, AerobeeError, BrokerError
from aerobee.fronts.gates.call import Place, Port, pass_gates, stream_through_gates
from aerobee.fronts.gates.table import gates_at
from aerobee.fronts.grpc import limits, requests
from aerobee.fronts.grpc.call import GrpcCall
from aerobee.fronts.grpc.caller import Caller
from aerobee.fronts.grpc.clients import drop
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.routes import ROUTES, Answers
from aerobee.fronts.grpc.status import OK, Refused, status_of
from aerobee.fronts.grpc.telemetry import Peer, Peers, ending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aerobee.broker.broker import Broker
    from aerobee.fronts.gates.call import Gate
    from aerobee.fronts.grpc.routes import Route

log = logging.getLogger("aerobee.grpc")

NAME = "apache.rocketmq.v2.MessagingService"
_ENDLESS_S = 1e6  # how long grpc says is left when the caller named no deadline, and more
_read_command = requests.reader(pb.TelemetryCommand)
_NOT_SERVED = {"SyncLiteSubscription": limits.NO_LITE_TOPICS}


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """The table as grpc asks for it, and what serves the calls that are not in it."""

    def __init__(self, table: dict[str, Any], unserved: Callable[[str], Any]) -> None:
        self._table = table
        self._unserved = unserved

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method
        return self._table.get(path) or grpc.stream_stream_rpc_method_handler(self._unserved(path))


def _refusal(route: Route, error: Exception) -> Any:
    """The one place where an exception becomes a gRPC answer."""
    if not isinstance(error, (AerobeeError, Refused)):
        log.error("%s failed", route.name, exc_info=error)
    return route.answer(status=status_of(error))


class Service:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.peers = Peers(broker)
        self.port = 0  # known once the front listens
        self._listening = self._gates("Telemetry")

    # -- calls ---------------------------------------------------------------------------------------------

    def handlers(self) -> Any:
        methods = {name: self._handler(route) for name, route in ROUTES.items()}
        methods["Telemetry"] = grpc.stream_stream_rpc_method_handler(
            self._telemetry,
            response_serializer=pb.TelemetryCommand.SerializeToString,
        )
        return _Methods({f"/{NAME}/{name}": handler for name, handler in methods.items()}, self._unserved)

    def _unserved(self, path: str) -> Callable[[Any, Any], Any]:
        """It is told so by name, for newer clients have more calls; to whoever may know what is served."""
        why = _NOT_SERVED.get(path.rpartition("/")[2], "this broker does not serve this call")
        gates = self._gates("")

        async def call(_: Any, context: Any) -> None:
            asked = GrpcCall("", b"", context, self.peers.address(context), bytes)
            try:
                pass_gates(gates, asked, lambda: None)
            except BrokerError as error:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, error.remark)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{path}: {why}")

        return call

    def _handler(self, route: Route) -> Any:
        serialize = route.answer.SerializeToString
        if route.answers is Answers.STREAM:
            return grpc.unary_stream_rpc_method_handler(self._stream(route), response_serializer=serialize)
        return grpc.unary_unary_rpc_method_handler(self._unary(route), response_serializer=serialize)

    def _unary(self, route: Route) -> Callable[[bytes, Any], Any]:
        read, gates = requests.reader(route.request), self._gates(route.name)

        async def serve(data: bytes, context: Any) -> Any:
            call = GrpcCall(route.name, data, context, self.peers.address(context), read)
            try:
                answer = pass_gates(gates, call, lambda: self._work(route, call, context))
                return await answer if asyncio.iscoroutine(answer) else answer
            except Exception as error:
                return _refusal(route, error)

        return serve

    def _stream(self, route: Route) -> Callable[[bytes, Any], AsyncIterator[Any]]:
        read, gates = requests.reader(route.request), self._gates(route.name)

        async def serve(data: bytes, context: Any) -> AsyncIterator[Any]:
            call = GrpcCall(route.name, data, context, self.peers.address(context), read)
            try:
                work = stream_through_gates(gates, call, lambda: self._work(route, call, context))
                async with aclosing(work) as answers:
                    async for answer in answers:
                        yield answer
            except Exception as error:
                yield _refusal(route, error)

        return serve

    def _gates(self, name: str) -> tuple[Gate, ...]:
        return gates_at(Place(Port.GRPC, name, None, self.broker.clock, self.broker))

    def _work(self, route: Route, call: GrpcCall, context: Any) -> Any:
        request = call.asked
        return route.adapter(self._caller(call, context), request, self.broker)

    def _caller(self, call: GrpcCall, context: Any) -> Caller:
        remaining = context.time_remaining()
        left = None if remaining is None or remaining > _ENDLESS_S else int(remaining * 1000)
        return Caller(self.peers.of(context, call.user), self.peers, self.port, left)

    # -- telemetry -----------------------------------------------------------------------------------------

    async def _telemetry(self, commands: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        # The opening passes the gates as a command that says nothing: nobody is known before it is let in.
        opening = self._said(b"", context)
        try:
            peer = pass_gates(self._listening, opening, lambda: self.peers.of(context, opening.user))
        except (Refused, BrokerError) as error:
            yield pb.TelemetryCommand(status=status_of(error))
            return
        peer.stream_opened()
        listening = asyncio.ensure_future(self._listen(peer, commands, context))
        pending = asyncio.ensure_future(peer.next_command())
        try:
            while True:
                done, _ = await asyncio.wait({pending, listening}, return_when=asyncio.FIRST_COMPLETED)
                if pending in done:
                    yield pending.result()
                    pending = asyncio.ensure_future(peer.next_command())
                else:
                    break
            wrong = listening.exception()
            if isinstance(wrong, (AccessDenied, AclDenied)):
                yield pb.TelemetryCommand(status=status_of(wrong))
            elif wrong is not None:
                await context.abort(ending(wrong), str(wrong))
        finally:
            peer.stream_closed()
            listening.cancel()
            pending.cancel()

    async def _listen(self, peer: Peer, commands: AsyncIterator[bytes], context: Any) -> None:
        async for data in commands:
            call = self._said(data, context)
            pass_gates(self._listening, call, partial(self._heard, peer, call))

    def _said(self, data: bytes, context: Any) -> GrpcCall:
        return GrpcCall("Telemetry", data, context, self.peers.address(context), _read_command)

    def _heard(self, peer: Peer, call: GrpcCall) -> None:
        command = call.asked
        peer.last_seen = self.broker.clock.now()
        kind = command.WhichOneof("command")
        if kind == "settings":
            settings = self.peers.settle(peer, command.settings)
            peer.push(pb.TelemetryCommand(status=OK, settings=settings))
        elif kind is not None:
            log.debug("client=%s answered %s", peer.client_id, kind)

    # -- what happens without a call -------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Renew leases of living push clients, drop silent clients."""
        renew_due(now + self.broker.clock.ahead, self.peers.alive, self.broker)
        for peer in self.peers.expire(now):
            drop(peer, self.peers, self.broker)
