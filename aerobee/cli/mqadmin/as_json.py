# SPDX-License-Identifier: Apache-2.0
"""What an mqadmin command prints, kept as values and written as JSON at its end.

A row whose first cell begins with # is a table's head, the rows after it are its rows; settings are names with values;
everything else is a line. One table alone is a list of objects, settings alone are one object.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Record:
    def __init__(self) -> None:
        self._tables: list[list[Any]] = []
        self._heads: list[str] = []
        self._settings: dict[str, Any] = {}
        self._lines: list[str] = []

    def row(self, cells: Sequence[Any]) -> None:
        if isinstance(cells[0], str) and cells[0].startswith("#"):
            self._heads = [str(cell).lstrip("#").strip() for cell in cells]
            self._tables.append([])
            return
        if not self._tables:
            self._tables.append([])
        named = len(self._heads) >= len(cells)
        self._tables[-1].append(dict(zip(self._heads, cells, strict=False)) if named else list(cells))

    def settings(self, values: Mapping[str, Any]) -> None:
        self._settings.update(values)

    def line(self, text: str) -> None:
        """Blank lines and rules are for eyes."""
        self._lines += [each for each in text.splitlines() if each.strip(" -=")]

    def value(self) -> Any:
        parts = {"tables": self._tables, "settings": self._settings, "lines": self._lines}
        given = {name: part for name, part in parts.items() if part}
        if list(given) == ["tables"] and len(self._tables) == 1:
            return self._tables[0]
        if len(given) == 1 and "tables" not in given:
            return next(iter(given.values()))
        return given


_record: ContextVar[Record | None] = ContextVar("mqadmin_record", default=None)


def begin() -> Record:
    record = Record()
    _record.set(record)
    return record


def end() -> None:
    _record.set(None)


def current() -> Record | None:
    return _record.get()
