# SPDX-License-Identifier: Apache-2.0
"""A table in memory and its file, which is replaced whole: topics, groups, offsets, modes, settings.

Theory of operation: a change is made in memory and noted with `changed`. Who promised to keep it awaits `saved`; all
others leave it to the job that calls `saved` now and then. The text is made on the loop, where the table cannot change
meanwhile, and written and synced in a thread. One write runs at a time and covers every change made before it began,
so any number of waiting requests cost one or two of them (group commit).

When the disk refuses, everybody who waits is told, and what they changed is taken back if the change came with an
`undo`: a refused request must not be in force. Changes without one stay, unsaved, and are tried again.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from aerobee.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from aerobee.store.metadata import JsonFile


class SavedTable:
    """`unsaved` has the names of what the file does not show yet, each with the number of its latest change."""

    def __init__(self, file: JsonFile | None, first: Callable[[], Awaitable[None]] | None = None) -> None:
        """Without a file it lives as long as the process. `first` is awaited before each write: the table says what
        was done with messages, and power loss must not leave the word without the deed."""
        self._file = file
        self._first = first
        self._changes = 0
        self._on_disk = 0  # how many of them the file has
        self._undo: list[tuple[int, Callable[[], None]]] = []  # of the changes it has not, oldest first
        self._writing: asyncio.Task[StoreError | None] | None = None
        self._one_at_a_time = threading.Lock()
        self.unsaved: dict[Hashable, int] = {}

    def text(self) -> bytes:
        """What the file is to hold."""
        raise NotImplementedError

    def changed(self, name: Hashable = None, undo: Callable[[], None] | None = None) -> None:
        self._changes += 1
        self.unsaved[name] = self._changes
        if undo is not None:
            self._undo.append((self._changes, undo))

    async def saved(self) -> None:
        """Until the file has every change made so far; StoreError when it cannot be written."""
        wanted = self._changes
        while self._on_disk < wanted and self._file is not None:
            if self._writing is None:
                self._writing = asyncio.get_running_loop().create_task(self._write())
            error = await asyncio.shield(self._writing)  # who leaves does not take the write from the others
            if error is not None:
                raise error

    def save(self) -> None:
        """The same in this thread, when nothing else runs: at start and at the end."""
        if self.unsaved and self._file is not None:
            self._put(self._changes, self.text())
            self._settle(self._changes)

    async def _write(self) -> StoreError | None:
        changes, text = self._changes, self.text()
        try:
            if self._first is not None:
                await self._first()
            await asyncio.to_thread(self._put, changes, text)
        except StoreError as error:
            self._take_back()
            return error
        finally:
            self._writing = None
        self._settle(changes)
        return None

    def _put(self, changes: int, text: bytes) -> None:
        with self._one_at_a_time:  # the last save, at the end, may meet a write still under way
            if changes > self._on_disk and self._file is not None:
                self._file.save(text)
                self._on_disk = changes

    def _settle(self, changes: int) -> None:
        self.unsaved = {name: number for name, number in self.unsaved.items() if number > changes}
        self._undo = [(number, undo) for number, undo in self._undo if number > changes]

    def _take_back(self) -> None:
        """Also what was changed during the write: it may rest on what is taken back."""
        undone, self._undo = self._undo, []
        for _, undo in reversed(undone):
            undo()


async def all_saved(*tables: SavedTable) -> None:
    """Until all are; a refusal is raised when the others have had their turn."""
    for result in await asyncio.gather(*(table.saved() for table in tables), return_exceptions=True):
        if result is not None:
            raise result
