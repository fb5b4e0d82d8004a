# SPDX-License-Identifier: Apache-2.0
"""Which files a message goes through: a warm send, pull, pop and ack, both sides, on an embedded server.

    python tools/files_on_the_way.py            how many files each takes, and which

`tests/docs/test_journey.py` holds the list against docs/journey-of-a-message.md.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

os.environ["AEROBEE_NATIVE"] = "0"  # the walk of the reference; the compiled lane is a short cut

from aerobee import Message, Producer, PullConsumer, ReceivedMessage, Server, SimpleConsumer

PACKAGE = Path(sys.modules["aerobee"].__file__ or "").parent
# Asked all the time by everything: the clock is no step of a journey, nor is what only holds values.
NO_STEPS = frozenset({"clock.py", "errors.py", "__init__.py"})

WARM = 16  # times of each step before it is watched: every queue of the topic has had its first message

Step = Callable[[], Awaitable[object]]


async def files_of(step: Step) -> set[str]:
    """The files of the package in which a function began while the step ran."""
    found: set[str] = set()

    def look(frame: object, event: str, _: object) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename)  # type: ignore[attr-defined]

    sys.setprofile(look)
    try:
        await step()
    finally:
        sys.setprofile(None)
    inside = {Path(name) for name in found if Path(name).is_relative_to(PACKAGE)}
    return {str(path.relative_to(PACKAGE)) for path in inside if path.name not in NO_STEPS}


async def journeys() -> dict[str, set[str]]:
    """Each step once to warm it up, then once watched."""
    found: dict[str, set[str]] = {}
    async with Server(ephemeral=True) as server, Producer(server.namesrv, group="p") as producer:
        for _ in range(WARM):
            await producer.send(Message("t", b"first"))
        found["send"] = await files_of(lambda: producer.send(Message("t", b"x")))
        async with PullConsumer(
            server.namesrv, group="pulling", topics={"t": "*"}, start="first"
        ) as consumer:
            await _until_polled(consumer, WARM + 1)
            found["pull"] = await files_of(lambda: _sent_and_polled(producer, consumer))
            found["pull"] -= found["send"] - await files_of(lambda: _polled(consumer))
        async with SimpleConsumer(
            server.namesrv, group="popping", topics={"t": "*"}, start="first"
        ) as consumer:
            for _ in range(WARM):
                warm: list[ReceivedMessage] = []
                await _received(consumer, warm)
                await warm[0].ack()
            popped: list[ReceivedMessage] = []
            found["pop"] = await files_of(lambda: _received(consumer, popped))
            found["ack"] = await files_of(popped[0].ack)
    return found


async def on_the_way(times: int = 3) -> dict[str, set[str]]:
    """What was found every time: what runs beside a journey, such as a timer's tick, is no part of it."""
    found = [await journeys() for _ in range(times)]
    return {step: set.intersection(*(one[step] for one in found)) for step in found[0]}


async def _until_polled(consumer: PullConsumer, count: int) -> None:
    while count > 0:
        count -= len(await consumer.poll(max_messages=count, timeout_ms=5_000))


async def _polled(consumer: PullConsumer) -> None:
    await consumer.poll(max_messages=1, timeout_ms=50)


async def _sent_and_polled(producer: Producer, consumer: PullConsumer) -> None:
    await producer.send(Message("t", b"y"))
    await _until_polled(consumer, 1)


async def _received(consumer: SimpleConsumer, into: list[ReceivedMessage]) -> None:
    while not into:
        into += await consumer.receive(max_messages=1, invisible_ms=30_000)


def main() -> None:
    for step, files in asyncio.run(on_the_way()).items():
        print(f"{step}: {len(files)}")
        for name in sorted(files):
            print(f"    {name}")


if __name__ == "__main__":
    main()
