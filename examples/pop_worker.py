# SPDX-License-Identifier: Apache-2.0
"""POP workers: more workers than queues, one of them dies with its work, and nothing is lost.

With pull consumption a queue belongs to one consumer: a hung one stops its queues. With POP the broker hands each
message to whoever asks, hides it for a while, and hands it out again when no ack came.

    python examples/pop_worker.py
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aerobee import Admin, Message, Producer, Server, SimpleConsumer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

TOPIC, GROUP, JOBS, QUEUES = "pop-jobs", "pop-workers", 60, 2
INVISIBLE_MS = 2_000


@asynccontextmanager
async def name_server() -> AsyncGenerator[str]:
    """The one named by AEROBEE_NAMESRV, or a server inside this process."""
    if given := os.environ.get("AEROBEE_NAMESRV"):
        yield given
        return
    async with Server(ephemeral=True) as server:
        print(f"embedded server: name server at {server.namesrv}")
        yield server.namesrv


class Board:
    """Who finished what."""

    def __init__(self) -> None:
        self.finished: dict[bytes, str] = {}
        self.second_tries = 0
        self.all_done = asyncio.Event()

    def finish(self, worker: str, job: bytes, attempt: int) -> None:
        self.finished[job] = worker
        self.second_tries += attempt > 1
        if len(self.finished) == JOBS:
            self.all_done.set()


async def dying_worker(namesrv: str) -> None:
    """Takes ten jobs and dies before it finishes one."""
    async with SimpleConsumer(namesrv, group=GROUP, topics={TOPIC: "*"}) as consumer:
        taken = await consumer.receive(max_messages=10, invisible_ms=INVISIBLE_MS)
        print(f"worker-0 took {len(taken)} jobs and died with them")


async def worker(namesrv: str, name: str, board: Board) -> None:
    async with SimpleConsumer(namesrv, group=GROUP, topics={TOPIC: "*"}) as consumer:
        while not board.all_done.is_set():
            for message in await consumer.receive(max_messages=4, invisible_ms=INVISIBLE_MS, wait_ms=500):
                await asyncio.sleep(0.01)  # the work
                if message.body.endswith(b"3") and message.attempt == 1:
                    await message.nack(delay_ms=500)  # "not now": somebody gets it again in half a second
                    continue
                await message.ack()
                board.finish(name, message.body, message.attempt)


async def main() -> None:
    board = Board()
    async with name_server() as namesrv, Admin(namesrv) as admin:
        if not await admin.topic_exists(TOPIC):
            await admin.create_topic(TOPIC, queues=QUEUES)
        async with Producer(namesrv, group="pop-shop") as producer:
            await asyncio.gather(
                *(producer.send(Message(TOPIC, f"job-{number}".encode())) for number in range(JOBS))
            )
        await dying_worker(namesrv)
        lag = await admin.lag(GROUP)
        print(f"{GROUP}: ready {lag.ready}, in flight {lag.in_flight}")
        async with asyncio.timeout(60), asyncio.TaskGroup() as workers:
            for number in range(1, 6):
                workers.create_task(worker(namesrv, f"worker-{number}", board))
        shares = ", ".join(
            f"{name} {count}" for name, count in sorted(Counter(board.finished.values()).items())
        )
        print(f"5 workers on {QUEUES} queues finished all {len(board.finished)} jobs: {shares}")
        print(
            f"{board.second_tries} jobs needed a second try: those nacked, and those that died with worker-0"
        )
        lag = await admin.lag(GROUP)
        print(
            f"{GROUP}: ready {lag.ready}, in flight {lag.in_flight}, retrying {lag.retrying}, dead {lag.dead}"
        )


if __name__ == "__main__":
    asyncio.run(main())
