# SPDX-License-Identifier: Apache-2.0
"""What producers with default time-outs feel of a broker that goes away and comes back.

python -m benchmarks.outage [--messages 20000] [--away 2] [--rounds 3]

`aerobee serve`, just after a burst of messages, gets 20 sends a second, half of them with sharding keys. In one round
it is killed (SIGKILL) and started so many seconds later, in the next it is told to stop (SIGTERM) and started again
at once. Printed: sends that failed, the longest a send took, how long the new process took from its start to its ready
line, and whether each key's messages are complete and in their order.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from aerobee import Admin, Message, Producer, ProducerOptions, PullConsumer
from aerobee.errors import AerobeeError

TOPIC = "outage"
KEYS = 4
A_SECOND = 20
BEFORE_S, AFTER_S = 1.0, 2.0
AEROBEE = str(Path(sys.executable).with_name("aerobee"))


class Server:
    """`aerobee serve` on ports of its own, which it has again after a restart."""

    def __init__(self, data: str) -> None:
        self._data = data
        self._ports = ["0", "0"]
        self.namesrv = ""

    async def start(self) -> float:
        """Seconds from the start of the process to its ready line."""
        namesrv, broker = self._ports
        began = time.perf_counter()
        self.process = await asyncio.create_subprocess_exec(
            AEROBEE,
            *("serve", "--data", self._data, "--namesrv-port", namesrv, "--broker-port", broker),
            *("--grpc-port", "-1", "--http-port", "-1"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        ready = (await self.process.stdout.readline()).decode()
        took = time.perf_counter() - began
        said = dict(part.split("=", 1) for part in ready.split() if "=" in part)
        self.namesrv = said["namesrv"]
        self._ports = [said[each].rpartition(":")[2] for each in ("namesrv", "broker")]
        return took

    async def end(self, by: signal.Signals) -> None:
        if self.process.returncode is None:
            self.process.send_signal(by)
        await self.process.wait()


@dataclass
class Outcome:
    sent: dict[str, int] = field(default_factory=dict)  # by key; "" is without one
    failed: list[str] = field(default_factory=list)
    longest_s: float = 0.0
    ready_s: float = 0.0  # how long the new process took to be ready
    wrong: list[str] = field(default_factory=list)  # keys whose messages are not all there, or not in order

    def line(self) -> str:
        order = f"wrong: {', '.join(self.wrong)}" if self.wrong else "order of each key kept"
        return (
            f"{sum(self.sent.values())} sends, {len(self.failed)} failed, longest {self.longest_s:.2f} s, "
            f"ready in {self.ready_s:.2f} s, {order}"
        )


async def send_one(producer: Producer, key: str, number: int, seen: Outcome) -> None:
    began = time.perf_counter()
    message = Message(TOPIC, f"{key}:{number}".encode(), sharding_key=key or None)
    try:
        await producer.send(message)
    except AerobeeError as error:
        seen.failed.append(f"{key}:{number}: {error}")
    seen.longest_s = max(seen.longest_s, time.perf_counter() - began)


async def send_until(producer: Producer, stop: asyncio.Event, seen: Outcome) -> None:
    """At their pace, whether those before have returned or not."""
    async with asyncio.TaskGroup() as group:
        number = 0
        while not stop.is_set():
            key = f"k{number % KEYS}" if number % 2 else ""
            count = seen.sent[key] = seen.sent.get(key, 0) + 1
            group.create_task(send_one(producer, key, count - 1, seen))
            number += 1
            await asyncio.sleep(1 / A_SECOND)


async def stored(namesrv: str) -> list[bytes]:
    found: list[bytes] = []
    async with PullConsumer(namesrv, group="reader", topics={TOPIC: "*"}, start="first") as consumer:
        while part := await consumer.poll(max_messages=1000, timeout_ms=1_000):
            found += [message.body for message in part]
    return found


def out_of_order(found: list[bytes], sent: dict[str, int]) -> list[str]:
    """Keys whose messages are not all there, or not in their order once those that came twice are taken out."""
    wrong = []
    for key, count in sent.items():
        seen = list(dict.fromkeys(body for body in found if body.startswith(f"{key}:".encode())))
        wanted = [f"{key}:{number}".encode() for number in range(count)]
        if (seen if key else sorted(seen)) != (wanted if key else sorted(wanted)):
            wrong.append(key or "those without a key")
    return wrong


async def fill(namesrv: str, messages: int) -> None:
    async with Admin(namesrv) as admin:
        await admin.create_topic(TOPIC, queues=8)
        await admin.create_topic("ballast", queues=8)
    async with Producer(namesrv, group="ballast") as producer:
        for _ in range(messages // 500):
            await asyncio.gather(*(producer.send(Message("ballast", bytes(1024))) for _ in range(500)))


async def outage(
    data: str,
    by: signal.Signals,
    away_s: float,
    messages: int,
    options: ProducerOptions,
) -> Outcome:
    server, seen, stop = Server(data), Outcome(), asyncio.Event()
    await server.start()
    try:
        await fill(server.namesrv, messages)
        async with Producer(server.namesrv, group="outage", options=options) as producer:
            sending = asyncio.create_task(send_until(producer, stop, seen))
            await asyncio.sleep(BEFORE_S)
            await server.end(by)
            await asyncio.sleep(away_s)
            seen.ready_s = await server.start()
            await asyncio.sleep(AFTER_S)
            stop.set()
            await sending
        seen.wrong = out_of_order(await stored(server.namesrv), seen.sent)
    finally:
        await server.end(signal.SIGKILL)
    return seen


async def main(arguments: argparse.Namespace) -> None:
    for _ in range(arguments.rounds):
        for by, away_s in ((signal.SIGKILL, arguments.away), (signal.SIGTERM, 0.0)):
            with tempfile.TemporaryDirectory() as data:
                seen = await outage(data, by, away_s, arguments.messages, ProducerOptions())
            print(f"{by.name}, back after {away_s:g} s: {seen.line()}", flush=True)
            for line in seen.failed[:3]:
                print(f"  {line}")
    print(f"load average {' '.join(f'{each:.1f}' for each in os.getloadavg())}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000, help="of 1 KiB, just written")
    parser.add_argument("--away", type=float, default=2.0, help="seconds between the kill and the next start")
    parser.add_argument("--rounds", type=int, default=3)
    uvloop.run(main(parser.parse_args()))
