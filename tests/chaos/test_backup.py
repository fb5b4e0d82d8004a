# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/reliability.md on a server under load: the copy has all that was answered before."""

from __future__ import annotations

import asyncio
import copy
import os
import random
import re
from contextlib import suppress
from pathlib import Path

import pytest

from aerobee.store.check import StoreCheck
from tests.chaos import load
from tests.chaos.ledger import Ledger
from tests.chaos.link import Address, Link
from tests.chaos.rounds import Rounds
from tests.chaos.verify import Verifier

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
SECONDS = 1.0


def commands() -> str:
    (block,) = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(block)


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["async", "sync"])
async def test_a_copy_of_a_live_store_has_all_that_was_answered(tmp_path: Path, flush: str) -> None:
    ledger, rounds = Ledger(), Rounds(tmp_path / "unused", flush, seed=1)
    async with rounds.server(tmp_path / "data") as server:
        link = Link(Address(server.namesrv, server.broker_address))
        await load.prepare(link)
        work = load.Load(link, ledger, random.Random(flush), "1")
        running = asyncio.get_running_loop().create_task(work.run())
        await asyncio.sleep(SECONDS)
        await cancelled(running)
        answered = copy.deepcopy(ledger)
        answered.stops.append(load.clock.now())  # to the copy the server ends here
        running = asyncio.get_running_loop().create_task(work.run(*load.MESSAGES))
        shell = await asyncio.create_subprocess_shell(
            commands(),
            env={**os.environ, "DATA": str(tmp_path / "data"), "BACKUP": str(tmp_path / "backup")},
        )
        assert await shell.wait() == 0
        await cancelled(running)
        await link.close()
    assert StoreCheck(tmp_path / "backup" / "store", rounds.store_config).run().is_sound, "before any start"
    async with rounds.server(tmp_path / "backup") as server:
        link = Link(Address(server.namesrv, server.broker_address))
        verifier = Verifier(link, answered)
        await verifier.run()
        await verifier.wait_for_the_rest()
        await link.close()
