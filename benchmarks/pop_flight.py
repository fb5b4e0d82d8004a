# SPDX-License-Identifier: Apache-2.0
"""Millions in flight on a real broker: what each weighs, and whether a pop costs more the more there are.

    python benchmarks/pop_flight.py [--messages 1000000] [--batch 1] [--outstanding 64]

A broker in a process of its own is filled over the wire, then everything is popped with a long invisible time and
nothing is acked. Memory is the broker's anonymous memory, so that mapped files, which are the system's cache, do not
count; it is read before the first pop and after the last lease is in the revive log. CPU is the broker's, in tenths.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

sys.path.insert(0, str(Path(__file__).parent))

from latency import served
from wire_load import Load, cpu_seconds

from aerobee.net.pool import Pool
from aerobee.protocol import batch
from aerobee.protocol.batch import BatchItem
from aerobee.protocol.codes import RequestCode
from aerobee.protocol.command import Command, encode, request
from aerobee.protocol.headers.consume import PopMessage
from aerobee.protocol.headers.produce import SendBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

TOPIC, GROUP, QUEUES, FILL = "flight", "flight-group", 8, 200
INVISIBLE_MS = 3_600_000
STEPS = 10


class Endless(Load):
    """As many requests as told, out of any iterable."""

    def __init__(self, frames: Iterable[bytes], count: int, outstanding: int) -> None:
        super().__init__([], outstanding)
        self._frames, self._left = iter(frames), count


async def run(address: str, frames: Iterable[bytes], count: int, outstanding: int) -> None:
    host, _, port = address.rpartition(":")
    transport, load = await asyncio.get_running_loop().create_connection(
        lambda: Endless(frames, count, outstanding), host, int(port)
    )
    await load.done
    transport.close()


def fill_frames(messages: int) -> Iterable[bytes]:
    for number in range(0, messages, FILL):
        items = [BatchItem(0, b"x" * 16, "")] * min(FILL, messages - number)
        place = {"topic": TOPIC, "queue_id": number // FILL % QUEUES, "default_topic_queue_nums": QUEUES}
        header = SendBatch(producer_group="flight", batch=True, born_timestamp=1_700_000_000_000, **place)
        yield encode(request(header, batch.encode(items)))


def pop_frames(count: int, batch_size: int) -> Iterable[bytes]:
    for number in range(count):
        if number % 1_000 == 0:  # a request older than its poll time is not served
            header = PopMessage(
                consumer_group=GROUP, topic=TOPIC, max_msg_nums=batch_size, invisible_time=INVISIBLE_MS,
                born_time=time.time_ns() // 1_000_000, poll_time=30_000, exp="*",
            )  # fmt: skip
            frame = encode(request(header))
        yield frame


def anonymous_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


async def in_flight(pool: Pool, address: str) -> tuple[int, int]:
    """Messages in flight, and those no pop has taken: a pop of many may return fewer than it asked for."""
    connection = await pool.get(address)
    answer = await connection.call(Command(RequestCode.AEROBEE_GROUP_FIGURES, ext={"group": GROUP}), 60_000)
    assert answer.code == 0, answer
    figures = msgspec.json.decode(answer.body)
    return int(figures["inFlight"]), int(figures["ready"])


async def settled(pid: int) -> None:
    """The last leases go to the revive log 3 s after their pop: wait until the broker does no more work."""
    while True:
        before = cpu_seconds(pid)
        await asyncio.sleep(4)
        if cpu_seconds(pid) - before < 0.2:
            return


async def measure(address: str, pid: int, options: argparse.Namespace) -> None:
    await run(address, fill_frames(options.messages), -(-options.messages // FILL), options.outstanding)
    await settled(pid)
    before, costs, rates = anonymous_bytes(pid), [], []
    pops = -(-options.messages // options.batch)
    for step in range(STEPS):
        count = pops * (step + 1) // STEPS - pops * step // STEPS
        began, cpu = time.perf_counter(), cpu_seconds(pid)
        await run(address, pop_frames(count, options.batch), count, options.outstanding)
        rates.append(count / (time.perf_counter() - began))
        costs.append((cpu_seconds(pid) - cpu) / count * 1e6)
    await settled(pid)
    used = anonymous_bytes(pid) - before
    pool = Pool()
    found, ready = await in_flight(pool, address)
    await pool.close()
    assert found + ready == options.messages, (found, ready)
    print(
        f"in flight {found:,} of {options.messages:,}, {options.batch} a pop: "
        f"{used / found:.1f} bytes of broker memory a message "
        f"({before >> 20} MiB before, {(before + used) >> 20} MiB after)"
    )
    print("broker CPU us a pop, by tenths: " + " ".join(f"{cost:.0f}" for cost in costs))
    print("pops a second, by tenths: " + " ".join(f"{rate:.0f}" for rate in rates))


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--outstanding", type=int, default=64)
    options = parser.parse_args()
    gc.disable()  # nothing here makes cycles
    async with served() as (address, pid):
        await measure(address, pid, options)


if __name__ == "__main__":
    asyncio.run(main())
