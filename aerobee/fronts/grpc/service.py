# SPDX-License-Identifier: Apache-2.0
"""The calls of `apache.rocketmq.v2.MessagingService`, from bytes to the adapter and back.

Business errors are gRPC OK with a status in the body, as clients expect; only Telemetry and calls this broker does not
serve use gRPC's own status codes.
"""

from __future__ import annotations

import logging
from contextlib import aclosing
from functools import partial
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any

from aerobee import native
from aerobee.broker.operations.renew import renew_due
from aerobee.errors import AccessDenied, AclDenied, AerobeeError, BrokerError
from aerobee.fronts.gates import limits as bounds
from aerobee.fronts.gates.call import Place, Port, pass_gates, stream_through_gates
from aerobee.fronts.gates.table import gates_at
from aerobee.fronts.grpc import limits, requests
from aerobee.fronts.grpc.call import GrpcCall
from aerobee.fronts.grpc.caller import Caller
from aerobee.fronts.grpc.clients import drop
from aerobee.fronts.grpc.codes import Code
from aerobee.fronts.grpc.exchange import Exchange, Method
from aerobee.fronts.grpc.generated import messaging_pb2 as pb
from aerobee.fronts.grpc.routes import ROUTES, Answers
from aerobee.fronts.grpc.status import OK, Refused, status_of
from aerobee.fronts.grpc.telemetry import Peer, Peers, ending

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aerobee.broker.broker import Broker
    from aerobee.fronts.gates.call import Gate
    from aerobee.fronts.grpc.routes import Route

    _Plain = Callable[[bytes, Callable[[], Peer], Broker], bytes | None]

log = logging.getLogger("aerobee.grpc")

NAME = "apache.rocketmq.v2.MessagingService"
_read_command = requests.reader(pb.TelemetryCommand)
_NOT_SERVED = {"SyncLiteSubscription": limits.NO_LITE_TOPICS}


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
        self._strangers = self._gates("")
        self._methods = {f"/{NAME}/{name}": self._served(route) for name, route in ROUTES.items()}
        self._methods[f"/{NAME}/Telemetry"] = Method(_not_let_in, self._telemetry)
        if native.is_on:
            self._serve_plain_calls()

    def method(self, path: str) -> Method:
        """What serves the calls of a path."""
        return self._methods.get(path) or Method(_not_let_in, self._unserved)

    def _gates(self, name: str) -> tuple[Gate, ...]:
        return gates_at(self._place(name))

    def _place(self, name: str) -> Place:
        return Place(Port.GRPC, name, None, self.broker.clock, self.broker)

    def _serve_plain_calls(self) -> None:
        """By the compiled lane, where no gate wants to see them."""
        from aerobee.fronts.grpc import plain_calls

        plain: dict[str, _Plain] = {
            "SendMessage": plain_calls.send_plain,
            "AckMessage": plain_calls.acknowledge_plain,
        }
        for name, serve in plain.items():
            if all(gate is bounds.gate(self._place(name)) for gate in self._gates(name)):
                path = f"/{NAME}/{name}"
                self._methods[path] = Method(
                    partial(self._plain, ROUTES[name], serve, self._methods[path].heard)
                )

    # -- calls ---------------------------------------------------------------------------------------------

    def _unserved(self, exchange: Exchange) -> None:
        """It is told so by name, for newer clients have more calls; to whoever may know what is served."""
        path = exchange.fields.get(":path", "")
        why = _NOT_SERVED.get(path.rpartition("/")[2], "this broker does not serve this call")
        try:
            pass_gates(self._strangers, GrpcCall("", b"", exchange, bytes), lambda: None)
        except BrokerError as error:
            exchange.fail(Code.PERMISSION_DENIED, error.remark)
        else:
            exchange.fail(Code.UNIMPLEMENTED, f"{path}: {why}")

    def _served(self, route: Route) -> Method:
        read, gates = requests.reader(route.request), self._gates(route.name)
        return Method(
            partial(self._stream if route.answers is Answers.STREAM else self._unary, route, read, gates)
        )

    def _unary(
        self, route: Route, read: requests.Reader, gates: tuple[Gate, ...], exchange: Exchange, data: bytes
    ) -> None:
        call = GrpcCall(route.name, data, exchange, read)
        try:
            answer = pass_gates(gates, call, lambda: self._work(route, call, exchange))
        except Exception as error:
            answer = _refusal(route, error)
        if iscoroutine(answer):
            exchange.hold(self._later(route, exchange, answer))
        else:
            exchange.answer(answer.SerializeToString())

    def _plain(
        self,
        route: Route,
        serve: _Plain,
        usual: Callable[[Exchange, bytes], None],
        exchange: Exchange,
        data: bytes,
    ) -> None:
        try:
            answer = serve(data, partial(self._peer, route, exchange), self.broker)
        except Exception as error:
            answer = _refusal(route, error).SerializeToString()
        if answer is None:
            usual(exchange, data)
        else:
            exchange.answer(answer)

    def _peer(self, route: Route, exchange: Exchange) -> Peer:
        return self.peers.of(GrpcCall(route.name, b"", exchange, bytes))

    async def _later(self, route: Route, exchange: Exchange, work: Coroutine[Any, Any, Any]) -> None:
        try:
            answer = await work
        except Exception as error:
            answer = _refusal(route, error)
        exchange.answer(answer.SerializeToString())

    def _stream(
        self, route: Route, read: requests.Reader, gates: tuple[Gate, ...], exchange: Exchange, data: bytes
    ) -> None:
        exchange.hold(self._answers(route, gates, exchange, GrpcCall(route.name, data, exchange, read)))

    async def _answers(
        self, route: Route, gates: tuple[Gate, ...], exchange: Exchange, call: GrpcCall
    ) -> None:
        try:
            work = stream_through_gates(gates, call, lambda: self._work(route, call, exchange))
            async with aclosing(work) as answers:
                async for answer in answers:
                    exchange.write(answer if type(answer) is bytes else answer.SerializeToString())
                    if not exchange.has_room:
                        await exchange.room()
        except Exception as error:
            exchange.write(_refusal(route, error).SerializeToString())
        exchange.finish()

    def _work(self, route: Route, call: GrpcCall, exchange: Exchange) -> Any:
        request = call.asked
        caller = Caller(self.peers.of(call), self.peers, self.port, exchange)
        return route.adapter(caller, request, self.broker)

    # -- telemetry -----------------------------------------------------------------------------------------

    def _telemetry(self, exchange: Exchange) -> None:
        """The opening passes the gates as a command that says nothing: nobody is known before it is let in."""
        opening = self._said(b"", exchange)
        try:
            peer: Peer = pass_gates(self._listening, opening, lambda: self.peers.of(opening))
        except (Refused, BrokerError) as error:
            exchange.answer(_told(error))
            return
        except Exception as error:
            exchange.fail(ending(error), str(error))
            return
        peer.stream_opened()
        exchange.on_stop = peer.stream_closed
        exchange.hears(partial(self._listen, peer), partial(_farewell, peer))
        exchange.hold(self._speak(peer, exchange))

    async def _speak(self, peer: Peer, exchange: Exchange) -> None:
        while True:
            command = await peer.next_command()
            exchange.write(command.SerializeToString())
            await exchange.room()

    def _listen(self, peer: Peer, exchange: Exchange, data: bytes) -> None:
        call = self._said(data, exchange)
        try:
            pass_gates(self._listening, call, partial(self._heard, peer, call))
        except (AccessDenied, AclDenied) as error:
            exchange.answer(_told(error))
        except Exception as error:
            exchange.fail(ending(error), str(error))

    def _said(self, data: bytes, exchange: Exchange) -> GrpcCall:
        return GrpcCall("Telemetry", data, exchange, _read_command)

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


def _not_let_in(exchange: Exchange, data: bytes) -> None:
    """What a caller says after it was refused."""


def _farewell(peer: Peer, exchange: Exchange) -> None:
    """The client has said all: so do we, with what waits for it."""
    for command in peer.waiting():
        exchange.write(command.SerializeToString())
    exchange.finish()


def _told(error: Exception) -> bytes:
    told: bytes = pb.TelemetryCommand(status=status_of(error)).SerializeToString()
    return told
