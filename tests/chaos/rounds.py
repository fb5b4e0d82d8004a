# SPDX-License-Identifier: Apache-2.0
"""Rounds: load on a store, an end that nobody expects, a look at what is left; several on one store, then a new one."""

from __future__ import annotations

import asyncio
import random
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from aerobee.server import Server
from aerobee.settings import BrokerConfig, StoreConfig
from tests.chaos import load
from tests.chaos.disk import Disk
from tests.chaos.ledger import Ledger
from tests.chaos.link import Address, Link
from tests.chaos.load import Load, clock
from tests.chaos.process import Process
from tests.chaos.verify import AFTER_POWER_CUT_IN_SYNC_MODE, Verifier, after_power_cut_in_async_mode

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS_A_STORE = 8
LONGEST_SECONDS = 2.5
FEWEST_SYNCS, MOST_SYNCS = 5, 600

# Small files, so that they fill up; short intervals, so that what happens once in seconds happens in a round.
STORE = {
    "commit_log_segment_bytes": 1 << 19,
    "consume_queue_units": 400,
    "index_slots": 1_000,
    "index_entries": 4_000,
    "disk_clean_ratio": 0.99,
    "disk_full_ratio": 0.99,
}
BROKER = {"offset_flush_ms": 500, "pop_checkpoint_memory_ms": 500, "transaction_timeout_ms": 600_000}


@dataclass
class Summary:
    """Figures of all rounds so far."""

    rounds: int = 0
    stores: int = 0
    operations: int = 0
    messages: int = 0
    settings: int = 0
    unsynced: int = 0  # async power cuts: acknowledged, not yet synced, gone; the mode's bargain

    def add(self, ledger: Ledger) -> None:
        self.stores += 1
        self.operations += ledger.operations
        self.messages += len(ledger.messages)
        self.settings += len(ledger.settings.known())


class Rounds:
    """`directory` is emptied from store to store, and left as it is when a check fails."""

    def __init__(self, directory: Path, flush: str, seed: int) -> None:
        self.directory, self.flush, self.seed = directory, flush, seed
        self.summary = Summary()

    def _new_store(self) -> Path:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        return self.directory / "disk" / "data"

    def _dice(self, number: int) -> random.Random:
        return random.Random(f"{self.seed} {self.flush} {number}")

    # -- kill -9 -------------------------------------------------------------------------------------------

    async def kill_rounds(self, rounds: int, first: int = 0) -> None:
        ledger, data = Ledger(), self._new_store()
        for number in range(first, first + rounds):
            await self._kill_round(number, data, ledger)
            self.summary.rounds += 1
            last = number + 1 == first + rounds
            if last or (number + 1 - first) % ROUNDS_A_STORE == 0:
                await self._last_look(data, ledger)
                self.summary.add(ledger)
                ledger, data = Ledger(), self._new_store() if not last else data

    def _process(self, data: Path) -> Process:
        settings = {**STORE, **BROKER, "flush": self.flush}
        return Process(data, self.directory / "server.log", settings)

    async def _kill_round(self, number: int, data: Path, ledger: Ledger) -> None:
        dice = self._dice(number)
        process = self._process(data)
        try:
            if dice.random() < 0.1:  # while it starts
                await asyncio.sleep(dice.uniform(0, 1))
                return
            link = Link(await asyncio.to_thread(process.address))
            await Verifier(link, ledger).run()
            await load.prepare(link)
            await self._under_load(Load(link, ledger, dice, str(number)), dice.uniform(0, LONGEST_SECONDS))
        finally:
            process.kill()
            ledger.stops.append(clock.now())

    async def _under_load(self, work: Load, seconds: float) -> None:
        running = asyncio.get_running_loop().create_task(work.run())
        done, _ = await asyncio.wait([running], timeout=seconds)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await work.link.close()
        assert not done, "the broker ended by itself"

    async def _last_look(self, data: Path, ledger: Ledger) -> None:
        process = self._process(data)
        try:
            link = Link(await asyncio.to_thread(process.address))
            verifier = Verifier(link, ledger)
            await verifier.run()
            await verifier.wait_for_the_rest()
            await link.close()
        finally:
            process.stop()

    # -- power cuts ----------------------------------------------------------------------------------------

    async def power_rounds(self, rounds: int, first: int = 0) -> None:
        ledger, data = Ledger(), self._new_store()
        for number in range(first, first + rounds):
            data = await self._power_round(number, data, ledger)
            self.summary.rounds += 1
            last = number + 1 == first + rounds
            if last or (number + 1 - first) % ROUNDS_A_STORE == 0:
                async with self.server(data) as server:
                    link = Link(Address(server.namesrv, server.broker_address))
                    await Verifier(link, ledger, AFTER_POWER_CUT_IN_SYNC_MODE).wait_for_the_rest()
                    await link.close()
                self.summary.add(ledger)
                ledger, data = Ledger(), self._new_store() if not last else data

    @property
    def store_config(self) -> StoreConfig:
        return msgspec.structs.replace(StoreConfig(), flush=self.flush, **STORE)

    def server(self, data: Path) -> Server:
        config = msgspec.structs.replace(BrokerConfig(), **BROKER)
        return Server(data, namesrv_port=0, broker_port=0, config=config, store=self.store_config)

    async def _power_round(self, number: int, data: Path, ledger: Ledger) -> Path:
        """Load until the power goes; what is left of it is looked at, and is the store of the next round."""
        root, image = data.parent, self.directory / f"image-{number}"
        root.mkdir(parents=True, exist_ok=True)
        disk = Disk(root)
        synced = await self._until_the_cut(number, data, ledger, disk, image)
        promise = (
            AFTER_POWER_CUT_IN_SYNC_MODE if self.flush == "sync" else after_power_cut_in_async_mode(synced)
        )
        disk.close()
        shutil.rmtree(root)
        data = image / data.name
        async with self.server(data) as server:
            link = Link(Address(server.namesrv, server.broker_address))
            owed = set(ledger.messages)
            await Verifier(link, ledger, promise).run()
            self.summary.unsynced += len(owed - ledger.messages.keys())
            _forget_unsynced(ledger, promise.log_end)
            await link.close()
        ledger.closed = False
        return data

    async def _until_the_cut(self, number: int, data: Path, ledger: Ledger, disk: Disk, image: Path) -> int:
        """The end of the log that was on disk when the power went."""
        dice = self._dice(number)
        at = dice.randrange(FEWEST_SYNCS, MOST_SYNCS)
        lucky = dice if dice.random() < 0.5 else None
        server, synced = self.server(data), 0
        cut = asyncio.Event()
        loop = asyncio.get_running_loop()

        def before_sync(count: int) -> None:
            nonlocal synced
            if count == at:
                ledger.closed = True
                synced = server.broker.store._flush.synced if server._broker is not None else 0
                ledger.stops.append(clock.now())
                disk.image(image, lucky)
                loop.call_soon_threadsafe(cut.set)

        disk.before_sync = before_sync
        with disk.installed():
            async with server:
                link = Link(Address(server.namesrv, server.broker_address))
                running = loop.create_task(self._prepared(Load(link, ledger, dice, str(number))))
                waiting = loop.create_task(cut.wait())
                await asyncio.wait([running, waiting], timeout=60, return_when=asyncio.FIRST_COMPLETED)
                for task in (running, waiting):
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
                await link.close()
        assert ledger.closed, f"only {disk.syncs} syncs in a minute, {at} wanted"
        return synced

    async def _prepared(self, work: Load) -> None:
        await load.prepare(work.link)
        await work.run()


def _forget_unsynced(ledger: Ledger, synced: float) -> None:
    """The power took what the mode does not promise; the rest is owed as before."""
    if synced == float("inf"):
        return
    there = {kept.name for kept in ledger.messages.values()}
    ledger.committed &= there
    ledger.timed = {name: timed for name, timed in ledger.timed.items() if timed.physical < synced}
    ledger.acked = {name: at for name, at in ledger.acked.items() if name in there}
    ledger.commits.clear()
