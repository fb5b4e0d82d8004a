# SPDX-License-Identifier: Apache-2.0
"""`run`: in which order clients begin and end."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from typing import Any

import pytest

from aerobee.client import running
from aerobee.client.produce.producer import Producer

ORDERS = list(itertools.permutations(["consumer", "other", "producer"]))


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_handlers_have_their_producer_from_the_first_to_the_last(order: tuple[str, ...]) -> None:
    story: list[str] = []
    handling = asyncio.Event()

    class Sends(Producer):
        def __init__(self) -> None:
            """Not the real one's."""

        async def start(self) -> None:
            story.append("producer starts")

        async def stop(self) -> None:
            story.append("producer stops")

    class Consumer:
        def __init__(self, name: str) -> None:
            self.name = name

        async def start(self) -> None:
            story.append(f"{self.name} starts")
            if len(story) == len(order):
                asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)

        async def stop(self) -> None:
            story.append(f"{self.name} ends")
            if len([each for each in story if each.endswith(" ends")]) == 2:
                handling.set()
            await handling.wait()  # in work until all have been told to begin no more
            story.append(f"{self.name} stops")

    clients: list[Any] = [Sends() if name == "producer" else Consumer(name) for name in order]
    running.run(*clients)
    assert story[0] == "producer starts"
    assert story[-1] == "producer stops"
    assert sorted(story[3:5]) == ["consumer ends", "other ends"], "told together: none begins more meanwhile"
    assert len(story) == 8


def test_one_that_fails_to_stop_keeps_no_other_from_it() -> None:
    story: list[str] = []
    failed = asyncio.Event()

    class Fails:
        async def start(self) -> None:
            """Nothing."""

        async def stop(self) -> None:
            failed.set()
            raise RuntimeError("cannot")

    class Slow:
        async def start(self) -> None:
            asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)

        async def stop(self) -> None:
            await failed.wait()
            for _ in range(20):
                await asyncio.sleep(0)
            story.append("slow stops")

    class Sends(Producer):
        def __init__(self) -> None:
            """Not the real one's."""

        async def start(self) -> None:
            """Nothing."""

        async def stop(self) -> None:
            story.append("producer stops")

    with pytest.raises(RuntimeError, match="cannot"):
        running.run(Fails(), Sends(), Slow())
    assert story == ["slow stops", "producer stops"]


def test_producers_end_in_the_opposite_order() -> None:
    story: list[str] = []

    class Sends(Producer):
        def __init__(self, name: str) -> None:
            self.name = name

        async def start(self) -> None:
            story.append(f"{self.name} starts")
            if len(story) == 2:
                asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)

        async def stop(self) -> None:
            story.append(f"{self.name} stops")

    running.run(Sends("first"), Sends("second"))
    assert story == ["first starts", "second starts", "second stops", "first stops"]
