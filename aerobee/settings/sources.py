# SPDX-License-Identifier: Apache-2.0
"""Settings for a start: defaults, then a file, then the environment, then flags; the later wins.

A TOML file has tables [broker], [store] and [namesrv]; keys may also stand outside a table. Any other file is read
as RocketMQ's broker.conf or namesrv.conf: `name=value` lines. Names are ours or RocketMQ's everywhere; in the
environment they are AEROBEE_BROKER__PORT=10911. Each value remembers where it came from.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from aerobee.settings.broker import BrokerConfig
from aerobee.settings.names import TABLES, find, warn_of_ignored
from aerobee.settings.namesrv import NamesrvConfig
from aerobee.settings.store import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

DEFAULT = "default"
ENVIRONMENT_PREFIX = "aerobee_"
# Where a name without a table is looked for: `listenPort` of a broker.conf is the broker's.
OF_A_BROKER = ("broker", "store", "namesrv")
OF_A_NAME_SERVER = ("namesrv", "broker", "store")


class Given(NamedTuple):
    name: str
    value: Any
    source: str
    tables: Sequence[str]


class Settings(msgspec.Struct, frozen=True):
    """All settings of a process. `sources` names where a value came from, by table and field; others are defaults."""

    broker: BrokerConfig = BrokerConfig()
    store: StoreConfig = StoreConfig()
    namesrv: NamesrvConfig = NamesrvConfig()
    sources: dict[tuple[str, str], str] = {}

    def source(self, table: str, name: str) -> str:
        return self.sources.get((table, name), DEFAULT)


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, Mapping[str, Any]] | None = None,
    pairs: Iterable[str] = (),
    tables: Sequence[str] = OF_A_BROKER,
) -> Settings:
    """`flags` are by table and field, `pairs` are name=value as of `--set`. Raises ValueError with one readable line
    for a name or value that is wrong."""
    given = [
        *(_of_file(file, tables) if file is not None else ()),
        *_of_environment(environment or {}),
        *_of_flags(flags or {}),
        *_of_pairs(pairs, tables),
    ]
    return _settings(given)


def _settings(given: Iterable[Given]) -> Settings:
    values: dict[str, dict[str, Any]] = {table: {} for table in TABLES}
    sources: dict[tuple[str, str], str] = {}
    ignored = []
    for each in given:
        try:
            field = find(each.name, each.value, each.tables)
            if field is None:
                ignored.append(each.name)
                continue
            values[field.table][field.name] = field.read(each.value, each.name)
        except ValueError as error:
            raise ValueError(f"{error} [{each.source}]") from None
        sources[field.table, field.name] = each.source
    warn_of_ignored(ignored)
    return Settings(
        BrokerConfig(**values["broker"]),
        StoreConfig(**values["store"]),
        NamesrvConfig(**values["namesrv"]),
        sources,
    )


def _of_file(file: Path, tables: Sequence[str]) -> Iterator[Given]:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"settings file {file}: {getattr(error, 'strerror', None) or error}") from None
    source = f"file {file}"
    if file.suffix != ".toml":
        yield from (Given(name, value, source, tables) for name, value in parse_properties(text))
        return
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"settings file {file}: {error}") from None
    for key, value in document.items():
        if key in TABLES and isinstance(value, dict):
            yield from (Given(name, inner, source, (key,)) for name, inner in value.items())
        else:
            yield Given(key, value, source, tables)


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    """The `name=value` lines of a property file or a request. ValueError for a line that is none."""
    for line in map(str.strip, text.splitlines()):
        if not line or line[0] in "#!":
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise ValueError(f"{line!r}: write name=value")
        yield name, value


def _of_environment(environment: Mapping[str, str]) -> Iterator[Given]:
    for variable, value in environment.items():
        prefix, _, name = variable.lower().partition("__")
        table = prefix.removeprefix(ENVIRONMENT_PREFIX)
        if prefix.startswith(ENVIRONMENT_PREFIX) and table in TABLES and name:
            yield Given(name, value, f"environment {variable}", (table,))


def _of_flags(flags: Mapping[str, Mapping[str, Any]]) -> Iterator[Given]:
    for table, values in flags.items():
        yield from (Given(name, value, "flag", (table,)) for name, value in values.items())


def _of_pairs(pairs: Iterable[str], tables: Sequence[str]) -> Iterator[Given]:
    for pair in pairs:
        for name, value in parse_properties(pair):
            yield Given(name, value, "flag --set", tables)
