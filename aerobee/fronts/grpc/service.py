# SPDX-License-Identifier: Apache-2.0
"""The calls of `apache.rocketmq.v2.MessagingService`: one table, each entry a translation and no decision.

Business errors are gRPC OK with a status in the body, as clients expect; only Telemetry and calls this broker does not
serve use gRPC's own status codes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import grpc

from aerobee.broker.operations.renew import give_back_all, renew_due
from aerobee.errors import AerobeeError
from aerobee.fronts.grpc import limits, offsets, produce, receive, requests, route
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.status import OK, Refused, status_of
from aerobee.fronts.grpc.telemetry import Peer, Peers, ending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from aerobee.broker.broker import Broker

log = logging.getLogger("aerobee.grpc")

NAME = "apache.rocketmq.v2.MessagingService"
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


class Service:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.peers = Peers(broker)
        self.port = 0  # known once the front listens

    # -- the table -----------------------------------------------------------------------------------------

    def handlers(self) -> Any:
        unary: dict[str, Callable[[Any, Peer], Any]] = {
            "QueryRoute": lambda request, _: route.query_route(request, self.broker, self.port),
            "QueryAssignment": lambda request, _: route.query_assignment(request, self.broker, self.port),
            "Heartbeat": self._heartbeat,
            "SendMessage": lambda request, peer: produce.send_message(request, self.broker, peer),
            "EndTransaction": lambda request, _: produce.end(request, self.broker),
            "RecallMessage": lambda request, peer: produce.recall_message(request, self.broker, peer),
            "AckMessage": lambda request, _: receive.acknowledge(request, self.broker),
            "ChangeInvisibleDuration": lambda request, _: receive.change_duration(request, self.broker),
            "ForwardMessageToDeadLetterQueue": (
                lambda request, _: receive.forward_to_dead_letters(request, self.broker)
            ),
            "NotifyClientTermination": self._goodbye,
            "UpdateOffset": lambda request, _: offsets.update(request, self.broker),
            "GetOffset": lambda request, _: offsets.get(request, self.broker),
            "QueryOffset": lambda request, _: offsets.query(request, self.broker),
        }
        table = {name: self._unary(name, work) for name, work in unary.items()}
        table["ReceiveMessage"] = self._stream("ReceiveMessage", self._receive)
        table["PullMessage"] = self._stream("PullMessage", self._pull)
        table["Telemetry"] = grpc.stream_stream_rpc_method_handler(
            self._telemetry,
            response_serializer=pb.TelemetryCommand.SerializeToString,
        )
        return _Methods({f"/{NAME}/{name}": handler for name, handler in table.items()})

    def _unary(self, name: str, work: Callable[[Any, Peer], Any]) -> Any:
        answer_type = getattr(pb, f"{name}Response")
        read = requests.reader(getattr(pb, f"{name}Request"))

        async def call(data: bytes, context: Any) -> Any:
            try:
                answer = work(read(data), self.peers.of(context))
                return await answer if asyncio.iscoroutine(answer) else answer
            except (AerobeeError, Refused) as error:
                return answer_type(status=status_of(error))
            except Exception as error:
                log.exception("%s failed", name)
                return answer_type(status=status_of(error))

        return grpc.unary_unary_rpc_method_handler(call, response_serializer=answer_type.SerializeToString)

    def _stream(self, name: str, work: Callable[[Any, Any], AsyncIterator[Any]]) -> Any:
        answer_type = getattr(pb, f"{name}Response")
        read = requests.reader(getattr(pb, f"{name}Request"))

        async def call(data: bytes, context: Any) -> AsyncIterator[Any]:
            try:
                async for answer in work(read(data), context):
                    yield answer
            except (AerobeeError, Refused) as error:
                yield answer_type(status=status_of(error))
            except Exception as error:
                log.exception("%s failed", name)
                yield answer_type(status=status_of(error))

        return grpc.unary_stream_rpc_method_handler(call, response_serializer=answer_type.SerializeToString)

    # -- calls that know the peer --------------------------------------------------------------------------

    def _heartbeat(self, request: Any, peer: Peer) -> Any:
        self.peers.register(peer)
        return pb.HeartbeatResponse(status=OK)

    def _goodbye(self, request: Any, peer: Peer) -> Any:
        self.drop(peer)
        return pb.NotifyClientTerminationResponse(status=OK)

    def drop(self, peer: Peer) -> None:
        give_back_all(peer.client_id, self.broker)
        self.peers.leave(peer)

    def _receive(self, request: Any, context: Any) -> AsyncIterator[Any]:
        remaining = context.time_remaining()
        left = None if remaining is None or remaining > 1e6 else int(remaining * 1000)
        return receive.receive_message(request, self.broker, self.peers.of(context), left)

    def _pull(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.peers.of(context)
        return offsets.pull_message(request, self.broker)

    # -- telemetry -----------------------------------------------------------------------------------------

    async def _telemetry(self, commands: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        try:
            peer = self.peers.of(context)
        except Refused as error:
            yield pb.TelemetryCommand(status=status_of(error))
            return
        peer.stream_opened()
        listening = asyncio.ensure_future(self._listen(peer, commands))
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

    async def _listen(self, peer: Peer, commands: AsyncIterator[bytes]) -> None:
        read = requests.reader(pb.TelemetryCommand)
        async for data in commands:
            command = read(data)
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
            self.drop(peer)
