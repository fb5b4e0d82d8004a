# SPDX-License-Identifier: Apache-2.0
"""The gRPC front beside the remoting front: sends, and receive + ack, a second and by broker CPU.

    python -m benchmarks.grpc [--messages 20000] [--outstanding 64] [--size 128]

Both fronts run in one `aerobee serve` process; the load comes from this one. CPU is the server's, read from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Run as a script, this folder comes first on the path, where this very file would pass for the grpc package.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import grpc.aio

from aerobee import Message, Producer, SimpleConsumer
from aerobee.client.admin import Admin
from aerobee.client.options import Options
from aerobee.fronts.grpc.generated import messaging_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PREFIX = "/apache.rocketmq.v2.MessagingService/"
METADATA = (("x-mq-client-id", "bench"), ("x-mq-language", "PYTHON"))


class Served:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="aerobee-bench-grpc-")
        command = [
            Path(sys.executable).parent / "aerobee",
            "serve",
            "--data",
            self._folder.name,
            "--log-level",
            "ERROR",
        ]
        ports = ["--namesrv-port", "0", "--broker-port", "0", "--grpc-port", "0", "--http-port", "-1"]
        self.process = subprocess.Popen([*command, *ports], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = dict(word.split("=", 1) for word in self.process.stdout.readline().split() if "=" in word)
        self.namesrv, self.grpc = ready["namesrv"], ready["grpc"]

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self._folder.cleanup()


async def pump(count: int, outstanding: int, one: Callable[[int], Awaitable[Any]]) -> None:
    """`count` calls, `outstanding` at a time."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await one(number)

    await asyncio.gather(*(worker() for _ in range(outstanding)))


async def measure(server: Served, name: str, count: int, work: Awaitable[Any]) -> None:
    cpu, start = server.cpu_seconds(), time.perf_counter()
    await work
    took, used = time.perf_counter() - start, server.cpu_seconds() - cpu
    print(
        f"{name:28} {count / took:10,.0f} /s   {used / count * 1e6:8.1f} us of broker CPU a message",
        flush=True,
    )


async def over_grpc(server: Served, count: int, outstanding: int, body: bytes) -> None:
    async with grpc.aio.insecure_channel(server.grpc) as channel:

        def unary(name: str) -> Any:
            return channel.unary_unary(
                PREFIX + name,
                request_serializer=getattr(pb, f"{name}Request").SerializeToString,
                response_deserializer=getattr(pb, f"{name}Response").FromString,
            )

        send, ack = unary("SendMessage"), unary("AckMessage")
        receive = channel.unary_stream(
            PREFIX + "ReceiveMessage",
            request_serializer=pb.ReceiveMessageRequest.SerializeToString,
            response_deserializer=pb.ReceiveMessageResponse.FromString,
        )
        async with Admin(server.namesrv) as admin:
            await admin.create_topic("grpc", queues=8)

        async def one(number: int) -> None:
            message = pb.Message(topic=pb.Resource(name="grpc"), body=body)
            message.system_properties.message_id = f"01{number:032X}"
            await send(pb.SendMessageRequest(messages=[message]), metadata=METADATA)

        await measure(server, "gRPC send", count, pump(count, outstanding, one))
        await measure(server, "gRPC receive + ack", count, drain(count, outstanding, receive, ack))


async def drain(count: int, outstanding: int, receive: Any, ack: Any) -> None:
    left = count

    async def worker() -> None:
        nonlocal left
        while left > 0:
            request = pb.ReceiveMessageRequest(batch_size=32, group=pb.Resource(name="g-grpc"))
            request.message_queue.topic.name = "grpc"
            request.message_queue.id = -1
            request.invisible_duration.seconds = 60
            request.long_polling_timeout.seconds = 5
            async for answer in receive(request, metadata=METADATA, timeout=10):
                if answer.WhichOneof("content") == "message":
                    system = answer.message.system_properties
                    entry = pb.AckMessageEntry(
                        message_id=system.message_id, receipt_handle=system.receipt_handle
                    )
                    done = pb.AckMessageRequest(entries=[entry])
                    done.group.name, done.topic.name = "g-grpc", "grpc"
                    await ack(done, metadata=METADATA)
                    left -= 1

    await asyncio.gather(*(worker() for _ in range(min(8, outstanding))))


async def over_remoting(server: Served, count: int, outstanding: int, body: bytes) -> None:
    options = Options(max_in_flight=outstanding)
    async with Producer(server.namesrv, group="bench", options=options) as producer:
        await producer.send(Message("remoting", body))
        work = pump(count, outstanding, lambda _: producer.send(Message("remoting", body)))
        await measure(server, "remoting send", count, work)
    async with SimpleConsumer(server.namesrv, group="g-remoting", topics={"remoting": "*"}) as consumer:

        async def take() -> None:
            left = count
            while left > 0:
                messages = await consumer.receive(max_messages=32, invisible_ms=60_000)
                await asyncio.gather(*(message.ack() for message in messages))
                left -= len(messages)

        await measure(server, "remoting pop + ack", count, take())


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--outstanding", type=int, default=64)
    parser.add_argument("--size", type=int, default=128)
    given = parser.parse_args()
    server = Served()
    try:
        for _ in range(2):  # the second round is warm
            await over_grpc(server, given.messages, given.outstanding, bytes(given.size))
            await over_remoting(server, given.messages, given.outstanding, bytes(given.size))
    finally:
        server.stop()


if __name__ == "__main__":
    asyncio.run(main())
