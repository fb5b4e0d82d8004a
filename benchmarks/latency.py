# SPDX-License-Identifier: Apache-2.0
"""How soon a held pull answers after the send that feeds it, light load. Goal: p99 below 20 ms.

    python benchmarks/latency.py [--rounds 2000] [--rate 200] [--broker HOST:PORT]

Without --broker it starts `aerobee serve --ephemeral` in a process of its own. One connection sends, another holds a
pull on the same queue; the clock runs from just before the send is written to the pull's answer being read.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aerobee.net.pool import Pool
from aerobee.protocol.command import request
from aerobee.protocol.headers.consume import PullMessage
from aerobee.protocol.headers.produce import SendMessageV2, SendResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee.net.connection import Connection


@asynccontextmanager
async def served(*flags: str) -> AsyncIterator[tuple[str, int]]:
    """A server in a process of its own: its broker's address and its process id."""
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "aerobee.cli.main", "serve", "--ephemeral", "--namesrv-port", "0", "--broker-port", "0",
        "--grpc-port", "-1", "--http-port", "-1", "--log-level", "ERROR", *flags,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert server.stdout is not None
    line = (await server.stdout.readline()).decode()
    try:
        yield re.findall(r"broker=(\S+)", line)[0], server.pid
    finally:
        server.terminate()
        await server.wait()


def pull_from(offset: int, hold_ms: int = 30_000) -> PullMessage:
    return PullMessage(
        consumer_group="latency",
        topic="latency",
        queue_id=0,
        queue_offset=offset,
        sys_flag=6,
        subscription="*",
        suspend_timeout_millis=hold_ms,
    )


async def measure(sender: Connection, reader: Connection, rounds: int, rate: int) -> list[float]:
    first = await sender.call(request(SendMessageV2(topic="latency", queue_id=0), b"x" * 128))
    offset = first.fields(SendResult).queue_offset + 1
    took: list[float] = []
    for _ in range(rounds):
        held = reader.start_call(request(pull_from(offset)))
        await asyncio.sleep(1 / rate)
        began = time.perf_counter()
        sent = sender.start_call(request(SendMessageV2(topic="latency", queue_id=0), b"x" * 128))
        answer = await held
        took.append((time.perf_counter() - began) * 1000)
        await sent
        assert answer.code == 0, answer.remark
        offset += 1
    return took


async def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--broker", default="")
    options = parser.parse_args()
    if options.broker:
        return await report(options.broker, options.rounds, options.rate)
    async with served() as (address, _):
        return await report(address, options.rounds, options.rate)


async def report(address: str, rounds: int, rate: int) -> int:
    senders, readers = Pool(), Pool()
    took = sorted(await measure(await senders.get(address), await readers.get(address), rounds, rate))
    p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
    print(f"held pull after send: rounds={rounds} p50={p50:.2f} ms p99={p99:.2f} ms max={took[-1]:.2f} ms")
    await senders.close()
    await readers.close()
    return 0 if p99 < 20 else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
