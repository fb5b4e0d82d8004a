# SPDX-License-Identifier: Apache-2.0
"""When a table that was changed goes to its file: at once if the last save is a while ago, else soon.

A topic created by a send must be on disk when the send is answered, yet 10,000 topics created in a row must not
rewrite a growing file 10,000 times. So the first change saves at once and those of the next second together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.store.metadata import JsonFile

SAVE_INTERVAL_MS = 1_000


class SavedTable:
    def __init__(self, file: JsonFile, text: Callable[[], bytes]) -> None:
        self._file = file
        self._text = text
        self._saved_at = 0
        self._changed = False

    def changed(self, now: int) -> None:
        self._changed = True
        self.tick(now)

    def tick(self, now: int) -> None:
        """Save what a burst of changes left unsaved. A clock set back saves too, rather than never."""
        if self._changed and not 0 <= now - self._saved_at < SAVE_INTERVAL_MS:
            self.save(now)

    def save(self, now: int) -> None:
        self._file.save(self._text())
        self._saved_at = now
        self._changed = False
