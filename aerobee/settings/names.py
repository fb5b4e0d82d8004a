# SPDX-License-Identifier: Apache-2.0
"""Which setting a name means: one table for files, environment, flags and requests."""

from __future__ import annotations

import difflib
import logging
from typing import TYPE_CHECKING, Any

from aerobee.settings.broker import BrokerConfig
from aerobee.settings.declare import Declared, Field, fields
from aerobee.settings.namesrv import NamesrvConfig
from aerobee.settings.official import OFFICIAL, REFUSED, refusal
from aerobee.settings.store import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

log = logging.getLogger("aerobee.settings")

TABLES: dict[str, type[Declared]] = {"broker": BrokerConfig, "store": StoreConfig, "namesrv": NamesrvConfig}


def all_fields() -> Iterator[Field]:
    for kind in TABLES.values():
        yield from fields(kind).values()


_BY_NAME = {
    table: {name: each for each in fields(kind).values() for name in each.names}
    for table, kind in TABLES.items()
}


def find(name: str, value: Any, tables: Sequence[str]) -> Field | None:
    """The setting of that name, looked for in the tables in turn; None for one of RocketMQ's that has no effect here.
    ValueError for a name that nobody knows, and for what RocketMQ would do and this server does not."""
    for table in tables:
        found = _BY_NAME[table].get(name)
        if found is not None:
            return found
    why = refusal(name, _text(value))
    if why:
        raise ValueError(f"setting '{name}' may not be {_text(value)!r}: {why}")
    if name in OFFICIAL:
        return None
    known = [*(each for table in tables for each in _BY_NAME[table]), *OFFICIAL]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean '{near[0]}'?" if near else "`aerobee settings` lists them"
    raise ValueError(f"there is no setting '{name}'; {hint}")


def _text(value: Any) -> str:
    """A TOML file has true where a property file has the word."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def warn_of_ignored(names: Iterable[str]) -> None:
    """One line about them all. Names that could have been refused say what is so anyway."""
    ignored = [name for name in dict.fromkeys(names) if name not in REFUSED]
    if ignored:
        log.warning("settings of RocketMQ's that have no effect here: %s", ", ".join(ignored))
