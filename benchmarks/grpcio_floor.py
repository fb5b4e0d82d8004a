# SPDX-License-Identifier: Apache-2.0
"""grpcio's own server with nothing behind it: what a Python server on the usual library reaches at best.

`python -m benchmarks.grpcio_floor DATA MESSAGES SIZE` prints the ready line of `aerobee serve`, runs until it is ended.

`grpc.aio` answers sends, receives and acks with the constants of `grpc_floor.py`, as bytes: nothing is parsed but the
topic of a receive. What a client asks for besides (routes, assignments, heartbeats, settings) is passed on to an Aerobee
in the same process, which takes no part in what is measured.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from aerobee.fronts.grpc.service import NAME
from benchmarks.grpc_floor import ACKED, SENT, ReadyMade, broker_behind, ready_until_ended

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_CONSTANTS = {"SendMessage": SENT, "AckMessage": ACKED}


class Floor(grpc.GenericRpcHandler):
    def __init__(self, behind: grpc.aio.Channel, ready: ReadyMade) -> None:
        self._behind = behind
        self._ready = ready

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        path = handler_call_details.method
        name = path.rpartition("/")[2]
        if name in _CONSTANTS:
            return grpc.unary_unary_rpc_method_handler(self._constant(_CONSTANTS[name]))
        if name == "ReceiveMessage":
            return grpc.unary_stream_rpc_method_handler(self._receive)
        if name == "Telemetry":
            return grpc.stream_stream_rpc_method_handler(self._telemetry)
        return grpc.unary_unary_rpc_method_handler(self._passed_on(path))

    def _constant(self, answer: bytes) -> Any:
        async def call(request: bytes, context: Any) -> bytes:
            return answer

        return call

    def _passed_on(self, path: str) -> Any:
        ask = self._behind.unary_unary(path)

        async def call(request: bytes, context: Any) -> bytes:
            answer: bytes = await ask(request, metadata=_said(context))
            return answer

        return call

    async def _receive(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        answers = self._ready.answers_to(request)
        for answer in answers:
            yield answer
        if not answers:  # the broker knows of no message, and lets it wait
            async for answer in self._behind.unary_stream(f"/{NAME}/ReceiveMessage")(
                request, metadata=_said(context)
            ):
                yield answer

    async def _telemetry(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for answer in self._behind.stream_stream(f"/{NAME}/Telemetry")(
            requests, metadata=_said(context)
        ):
            yield answer


def _said(context: Any) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in context.invocation_metadata() if pair[0].startswith("x-mq-"))


async def main(data: str, messages: int, size: int) -> None:
    async with broker_behind(data) as server, grpc.aio.insecure_channel(server.grpc_address) as behind:
        front = grpc.aio.server()
        front.add_generic_rpc_handlers([Floor(behind, ReadyMade(messages, size))])
        port = front.add_insecure_port("127.0.0.1:0")
        server._grpc.service.port = port  # type: ignore[union-attr]  # routes lead here
        await front.start()
        await ready_until_ended(server, f"127.0.0.1:{port}")
        await front.stop(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
