# SPDX-License-Identifier: Apache-2.0
"""How fast the client is: a producer with many sends in flight, a push consumer, POP; CPU time a message.

    python benchmarks/client.py [--namesrv HOST:PORT] [--count 200000] [--in-flight 256] [--size 128]
        [--cpp .interop/venv-cpp/bin/python] [--profile]

Without --namesrv a server is started in a process of its own (`aerobee serve`). The client's CPU time is measured
by itself, so the server beside it does not count: messages per CPU second are what one core of client can do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from aerobee.client.admin import Admin
from aerobee.client.consume.push_consumer import PushConsumer
from aerobee.client.message import Message
from aerobee.client.options import Options
from aerobee.client.produce.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

HERE = Path(__file__).resolve().parent


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measured(what: str, count: int, work: Callable[[], Awaitable[None]]) -> None:
    cpu, wall = cpu_seconds(), time.perf_counter()
    await work()
    cpu, wall = cpu_seconds() - cpu, time.perf_counter() - wall
    print(
        f"{what:<28} {count:>8} messages  {count / wall:>9.0f}/s  {cpu / count * 1e6:>6.1f} us CPU a message"
        f"  {count / cpu:>9.0f}/s a core",
        flush=True,
    )


async def send_many(namesrv: str, topic: str, count: int, in_flight: int, body: bytes) -> None:
    async with Producer(namesrv, group="bench") as producer:
        await producer.send(Message(topic, body))
        left = iter(range(count - 1))

        async def worker() -> None:
            for _ in left:
                await producer.send(Message(topic, body))

        async def work() -> None:
            await asyncio.gather(*(worker() for _ in range(in_flight)))

        await measured(f"send, {in_flight} in flight", count, work)


async def send_batches(namesrv: str, topic: str, count: int, body: bytes) -> None:
    async with Producer(namesrv, group="bench") as producer:
        left = iter(range(count // 64))

        async def worker() -> None:
            for _ in left:
                await producer.send_batch([Message(topic, body) for _ in range(64)])

        async def work() -> None:
            await asyncio.gather(*(worker() for _ in range(16)))

        await measured("send, batches of 64", count // 64 * 64, work)


async def consume(namesrv: str, topic: str, count: int, kind: str, options: Options) -> None:
    group, got, done = f"bench-{uuid.uuid4().hex[:8]}", 0, asyncio.Event()
    loop = asyncio.get_running_loop()
    if kind == "pop":
        async with Admin(namesrv) as admin:
            await admin.create_group(group)
            await admin.set_consume_mode(topic, group, "POP")

    async def handle(message: object) -> None:
        nonlocal got
        got += 1
        if got == count:
            done.set()

    def plain(message: object) -> None:
        nonlocal got
        got += 1  # one thread at a time holds the interpreter; a lost count only ends the run late
        if got >= count - 100:
            loop.call_soon_threadsafe(done.set)

    handler = plain if kind == "plain function" else handle
    consumer = PushConsumer(
        namesrv, group=group, topics={topic: "*"}, handler=handler, start="first", options=options
    )

    async def work() -> None:
        await consumer.start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), 120)

    await measured(f"push, {kind}, batch {options.pull_batch}", count, work)
    await consumer.stop()


@contextlib.contextmanager
def server(namesrv: str | None) -> Iterator[str]:
    if namesrv:
        yield namesrv
        return
    with tempfile.TemporaryDirectory() as data:
        flags = [
            "--namesrv-port",
            "0",
            "--broker-port",
            "0",
            "--grpc-port",
            "-1",
            "--http-port",
            "-1",
            "--data",
            data,
        ]
        program = os.path.join(os.path.dirname(sys.executable), "aerobee")
        child = subprocess.Popen(
            [program, "serve", *flags], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            assert child.stdout is not None
            ready = child.stdout.readline().decode()
            yield dict(part.split("=", 1) for part in ready.split() if "=" in part)["namesrv"]
        finally:
            child.terminate()
            child.wait(20)


async def main(namesrv: str, arguments: argparse.Namespace) -> None:
    topic, body, count = f"bench-{uuid.uuid4().hex[:8]}", b"x" * arguments.size, arguments.count
    async with Admin(namesrv) as admin:
        await admin.create_topic(topic, queues=8)
        while not await admin.topic_exists(topic):  # noqa: ASYNC110 - another process says when
            await asyncio.sleep(0.05)
    await send_many(namesrv, topic, count, arguments.in_flight, body)
    await consume(namesrv, topic, count, "async", Options())
    await consume(
        namesrv,
        topic,
        count,
        "async",
        Options(pull_batch=1024, pull_batch_bytes=1 << 20, queue_messages=8000, span=20_000),
    )
    await consume(namesrv, topic, count, "plain function", Options())
    await consume(namesrv, topic, count, "pop", Options(pop_unacked=1000))
    await send_batches(namesrv, topic, count, body)
    if arguments.cpp:
        script = str(HERE / "client_cpp.py")
        other = f"{topic}-cpp"
        async with Admin(namesrv) as admin:
            await admin.create_topic(other, queues=8)
        child = await asyncio.create_subprocess_exec(
            arguments.cpp, script, namesrv, other, str(min(count, 50_000))
        )
        await child.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv")
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--cpp", metavar="PYTHON", help="a python with PyPI rocketmq 0.4.4, to run beside")
    parser.add_argument("--profile", action="store_true", help="print the functions that took the most time")
    given = parser.parse_args()
    with server(given.namesrv) as address:
        if given.profile:
            import cProfile
            import pstats

            profile = cProfile.Profile()
            profile.enable()
            uvloop.run(main(address, given))
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        else:
            uvloop.run(main(address, given))
