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
from aerobee.errors import AerobeeError
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
_NOT_SERVED = {"SyncLiteSubscription": limits.NO_LITE_TOPICS}


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """The table as grpc asks for it; a call that is not in it is told so by name, newer clients have more calls."""

    def __init__(self, table: dict[str, Any]) -> None:
        self._table = table

    def service(self, handler_call_details: Any) -> Any:
        path = handler_call_details.method
        return self._table.get(path) or grpc.stream_stream_rpc_method_handler(_unimplemented(path))


def _unimplemented(path: str) -> Callable[[Any, Any], Any]:
    why = _NOT_SERVED.get(path.rpartition("/")[2], "this broker does not serve this call")

    async def call(_: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{path}: {why}")

    return call


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

    # -- calls ---------------------------------------------------------------------------------------------

    def handlers(self) -> Any:
        methods = {name: self._handler(route) for name, route in ROUTES.items()}
        methods["Telemetry"] = grpc.stream_stream_rpc_method_handler(
            self._telemetry,
            response_serializer=pb.TelemetryCommand.SerializeToString,
        )
        return _Methods({f"/{NAME}/{name}": handler for name, handler in methods.items()})

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
        return route.adapter(self._caller(context), request, self.broker)

    def _caller(self, context: Any) -> Caller:
        remaining = context.time_remaining()
        left = None if remaining is None or remaining > _ENDLESS_S else int(remaining * 1000)
        return Caller(self.peers.of(context), self.peers, self.port, left)

    # -- telemetry -----------------------------------------------------------------------------------------

    async def _telemetry(self, commands: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        try:
            peer = self.peers.of(context)
        except Refused as error:
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
            await self._ended(listening, context)
        finally:
            peer.stream_closed()
            listening.cancel()
            pending.cancel()

    async def _ended(self, listening: asyncio.Future[None], context: Any) -> None:
        error = listening.exception()
        if error is None:
            return
        await context.abort(ending(error), str(error))

    async def _listen(self, peer: Peer, commands: AsyncIterator[bytes], context: Any) -> None:
        read, gates = requests.reader(pb.TelemetryCommand), self._gates("Telemetry")
        async for data in commands:
            call = GrpcCall("Telemetry", data, context, peer.address, read)
            pass_gates(gates, call, partial(self._heard, peer, call))

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
