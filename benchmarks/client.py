# SPDX-License-Identifier: Apache-2.0
"""How fast the client is, async and blocking, beside the official Java and Go clients on the same broker: sends and
consumed messages a second, and CPU time a message.

    python -m benchmarks.client [--namesrv HOST:PORT] [--count 200000] [--in-flight 64] [--size 128] [--seconds 6]
        [--peers java,go] [--cpp .interop/venv-cpp/bin/python] [--profile]

Without --namesrv a server is started in a process of its own (`aerobee serve`). A client's CPU time is measured by
itself, so the server beside it does not count: messages per CPU second are what one core of client can do. Peers whose
tools are not on the machine are left out, and said so; `--peers ''` leaves out all.
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
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from aerobee import blocking
from aerobee.client.admin import Admin
from aerobee.client.consume.push_consumer import PushConsumer
from aerobee.client.message import Message
from aerobee.client.options import Options
from aerobee.client.produce.producer import Producer
from benchmarks import client_peers
from benchmarks.client_peers import Figure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

HERE = Path(__file__).resolve().parent
LONE = 20_000  # sends that wait for each other


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measured(what: str, count: int, work: Callable[[], Awaitable[None]]) -> None:
    cpu, wall = cpu_seconds(), time.perf_counter()
    await work()
    print(Figure(what, count, time.perf_counter() - wall, cpu_seconds() - cpu).line(), flush=True)


async def send_many(namesrv: str, topic: str, count: int, in_flight: int, body: bytes) -> None:
    async with Producer(namesrv, group="bench") as producer:
        await producer.send(Message(topic, body))
        left = iter(range(count - 1))

        async def worker() -> None:
            for _ in left:
                await producer.send(Message(topic, body))

        async def work() -> None:
            await asyncio.gather(*(worker() for _ in range(in_flight)))

        how = "one at a time" if in_flight == 1 else f"{in_flight} in flight"
        await measured(f"async: send, {how}", count, work)


async def send_batches(namesrv: str, topic: str, count: int, body: bytes) -> None:
    async with Producer(namesrv, group="bench") as producer:
        left = iter(range(count // 64))

        async def worker() -> None:
            for _ in left:
                await producer.send_batch([Message(topic, body) for _ in range(64)])

        async def work() -> None:
            await asyncio.gather(*(worker() for _ in range(16)))

        await measured("async: send, batches of 64", count // 64 * 64, work)


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

    await measured(f"async: push, {kind}, batch {options.pull_batch}", count, work)
    await consumer.stop()


def send_blocking(namesrv: str, topic: str, count: int, threads: int, body: bytes) -> None:
    with blocking.Producer(namesrv, group="bench-blocking") as producer:
        producer.send(Message(topic, body))
        share = count // threads

        def work() -> None:
            for _ in range(share):
                producer.send(Message(topic, body))

        workers = [threading.Thread(target=work) for _ in range(threads)]
        cpu, wall = cpu_seconds(), time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        what = "blocking: send, " + ("one at a time" if threads == 1 else f"{threads} threads")
        took = (time.perf_counter() - wall, cpu_seconds() - cpu)
        print(Figure(what, share * threads, *took).line(), flush=True)


def consume_blocking(namesrv: str, topic: str, count: int) -> None:
    got, done = 0, threading.Event()

    def handle(message: object) -> None:
        nonlocal got
        got += 1  # a count lost to another thread only ends the run late
        if got >= count - 100:
            done.set()

    group = f"bench-{uuid.uuid4().hex[:8]}"
    cpu, wall = cpu_seconds(), time.perf_counter()
    with blocking.PushConsumer(namesrv, group=group, topics={topic: "*"}, handler=handle, start="first"):
        done.wait(120)
        took = (time.perf_counter() - wall, cpu_seconds() - cpu)
    print(Figure("blocking: push, plain function", got, *took).line(), flush=True)
    got, cpu, wall = 0, cpu_seconds(), time.perf_counter()
    with blocking.PullConsumer(
        namesrv, group=f"{group}-pull", topics={topic: "*"}, start="first"
    ) as consumer:
        while got < count and (messages := consumer.poll(max_messages=1_000, timeout_ms=5_000)):
            got += len(messages)
        took = (time.perf_counter() - wall, cpu_seconds() - cpu)
    print(Figure("blocking: poll of 1,000", got, *took).line(), flush=True)


def beside(namesrv: str, topic: str, arguments: argparse.Namespace) -> None:
    for name in filter(None, arguments.peers.split(",")):
        if not client_peers.available(name):
            print(f"{name}: left out, there is no {name} on this machine")
            continue
        with blocking.Admin(namesrv) as admin:
            admin.create_topic(f"{topic}-{name}", queues=8)
        sized = (arguments.in_flight, arguments.size, arguments.seconds)
        for figure in client_peers.measure(name, namesrv, topic, *sized):
            print(figure.line(), flush=True)


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


async def main(namesrv: str, topic: str, arguments: argparse.Namespace) -> None:
    body, count = b"x" * arguments.size, arguments.count
    async with Admin(namesrv) as admin:
        await admin.create_topic(f"{topic}-blocking", queues=8)
        await admin.create_topic(topic, queues=8)
        while not await admin.topic_exists(topic):  # noqa: ASYNC110 - another process says when
            await asyncio.sleep(0.05)
    await send_many(namesrv, topic, count, arguments.in_flight, body)
    await send_many(namesrv, f"{topic}-blocking", LONE, 1, body)
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
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=6, help="for each load of a peer")
    parser.add_argument("--peers", default="java,go", help="official clients to run beside")
    parser.add_argument("--cpp", metavar="PYTHON", help="a python with PyPI rocketmq 0.4.4, to run beside")
    parser.add_argument("--profile", action="store_true", help="print the functions that took the most time")
    given = parser.parse_args()
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with server(given.namesrv) as address:
        if given.profile:
            import cProfile
            import pstats

            profile = cProfile.Profile()
            profile.enable()
            uvloop.run(main(address, name, given))
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        else:
            uvloop.run(main(address, name, given))
        send_blocking(address, f"{name}-blocking", LONE, 1, b"x" * given.size)
        send_blocking(address, f"{name}-blocking", given.count // 4, 16, b"x" * given.size)
        consume_blocking(address, name, given.count)
        beside(address, name, given)
