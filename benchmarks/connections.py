# SPDX-License-Identifier: Apache-2.0
"""Thousands of idle connections, each with a held pull, all fed by one send.

    python benchmarks/connections.py [--connections 5000]

Prints the broker's memory per connection and how long one send took to reach them all.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent))

from latency import pull_from, served

from aerobee.net.pool import Pool
from aerobee.protocol.command import request
from aerobee.protocol.headers.produce import SendMessageV2

DIALLED_AT_ONCE = 200


def raise_file_limit(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard > 0 else wanted, hard))


async def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=5000)
    count = parser.parse_args().connections
    raise_file_limit(count + 200)  # inherited by the server
    async with served() as (address, pid):
        sender = Pool()
        await (await sender.get(address)).call(request(SendMessageV2(topic="latency", queue_id=0), b"first"))
        memory = psutil.Process(pid).memory_info
        before = memory().rss
        pools = [Pool() for _ in range(count)]
        held = []
        began = time.perf_counter()
        for start in range(0, count, DIALLED_AT_ONCE):
            batch = await asyncio.gather(
                *(pool.get(address) for pool in pools[start : start + DIALLED_AT_ONCE])
            )
            held += [connection.start_call(request(pull_from(1, 600_000))) for connection in batch]
        await (await sender.get(address)).call(
            request(SendMessageV2(topic="other", queue_id=0), b"settle"), 60_000
        )
        dialled = time.perf_counter() - began
        idle = memory().rss
        began = time.perf_counter()
        await (await sender.get(address)).call(
            request(SendMessageV2(topic="latency", queue_id=0), b"all"), 60_000
        )
        answers = await asyncio.wait_for(asyncio.gather(*held), 120)
        took = time.perf_counter() - began
        served_all = sum(answer.code == 0 and b"all" in answer.body for answer in answers)
        print(
            f"connections={count} dialled_s={dialled:.1f} served={served_all} one_send_to_all_ms={took * 1000:.0f}"
        )
        each = (idle - before) / count / 1024
        print(
            f"rss before={before / 2**20:.1f} MiB held={idle / 2**20:.1f} MiB per_connection={each:.1f} KiB"
        )
        for pool in [*pools, sender]:
            await pool.close()
    return 0 if served_all == count else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
